"""Strategy "Auto": the tuning record, the machine profile, and the cost model."""

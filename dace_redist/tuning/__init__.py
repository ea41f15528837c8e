"""Strategy "Auto": the tuning record."""

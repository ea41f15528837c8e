"""Which strategy "Auto" stands for: problem keys, the record of measurements, the selection."""

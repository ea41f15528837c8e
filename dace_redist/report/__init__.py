"""A schedule as text, JSON and figure; the memory of the strategies."""

"""A schedule as text, JSON and figure."""

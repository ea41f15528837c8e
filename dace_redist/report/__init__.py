"""A schedule as text, JSON and figure; run lengths; memory."""

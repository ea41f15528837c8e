"""Runs distributed programs."""

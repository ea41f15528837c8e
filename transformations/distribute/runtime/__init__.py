"""Execution of distributed programs."""

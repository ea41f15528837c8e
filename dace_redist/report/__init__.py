"""Schedules as text, JSON, figures, and traces for simulators; traces of runs."""

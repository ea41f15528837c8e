"""Measures strategies and options, and records the fastest."""

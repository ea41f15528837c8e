"""Distributed arrays in files."""

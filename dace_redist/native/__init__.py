"""Builds, finds and loads native code."""

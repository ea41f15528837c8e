"""Comparisons of ``benchmarks/compare.py``; each function prepares one after another."""

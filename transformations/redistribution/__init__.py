"""Transformations of redistributions in an SDFG."""

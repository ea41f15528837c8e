"""Redistribution of NumPy arrays: arguments, plans and their cache, node-shared arrays."""

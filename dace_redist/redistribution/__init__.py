"""Redistribution of NumPy arrays: requests, plans and their cache, node-shared arrays."""

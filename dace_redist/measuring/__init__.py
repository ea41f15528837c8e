"""Measures strategies, options and machines: the data of strategy "Auto"."""

"""Measures strategies and options: the data of strategy "Auto"."""

"""Measurement of strategies: how fast each is, and which one is the fastest."""

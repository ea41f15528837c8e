"""Reads an SDFG as statements over whole tensors."""

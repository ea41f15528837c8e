"""Translation of an SDFG to statements over whole tensors."""

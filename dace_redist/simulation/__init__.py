"""Predicts redistributions and programs of einsums on machines that are described, not at hand."""

"""Programs of einsums: reading them, and the SDFG that each rank runs."""

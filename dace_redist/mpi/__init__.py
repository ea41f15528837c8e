"""Parts that depend on MPI alone: launching, agreement of ranks, topology and core binding."""

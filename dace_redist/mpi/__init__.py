"""What depends on MPI alone: launching, errors on all ranks, topology, core binding."""

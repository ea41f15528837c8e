"""One expansion per strategy; importing this registers them all."""

from dace_redist.library_nodes.expansions import datatype, hierarchical, mpi, pack, pipelined, rma, shared, threaded

__all__ = ["datatype", "hierarchical", "mpi", "pack", "pipelined", "rma", "shared", "threaded"]

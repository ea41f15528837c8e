"""One expansion per strategy, and those of other nodes; importing this registers them all."""

from dace_redist.library_nodes.expansions import (
    blas,
    datatype,
    hierarchical,
    lapack,
    mpi,
    pack,
    pipelined,
    rma,
    shared,
    sum_replicas_mpi,
    threaded,
)

__all__ = [
    "blas",
    "datatype",
    "hierarchical",
    "lapack",
    "mpi",
    "pack",
    "pipelined",
    "rma",
    "shared",
    "sum_replicas_mpi",
    "threaded",
]

"""Replicas and sums by ``Hierarchical`` and by MPI's collectives; ``cluster.py`` runs it between nodes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

import dace_redist
from comparisons.comparison import Comparison, UnsuitableError, agreeing
from dace_redist import Distribution


def by_mpi(comm: MPI.Intracomm, shape: tuple[int, ...]) -> Iterator[Comparison]:
    """Prepare matrices of doubles in rows, and replicated."""
    if len(shape) != 2 or shape[0] % comm.size:
        raise UnsuitableError(f"needs rows that are a multiple of {comm.size}, got {shape}")
    rows, everywhere = (Distribution(shape, (comm.size,), dims=dims) for dims in ([0, None], [None, None]))
    calls: dict[str, tuple[Distribution, Distribution, str | None, Callable[[Any, Any], None]]] = {
        "rows to replicated": (rows, everywhere, None, comm.Allgatherv),
        "sum to rows": (everywhere, rows, "sum", comm.Reduce_scatter),  # whose default is MPI.SUM
        "sum to replicated": (everywhere, everywhere, "sum", comm.Allreduce),
    }
    for what, (source, target, op, call) in calls.items():
        A = np.full(source.local_shape(comm.rank), float(comm.rank))
        B = np.zeros(target.local_shape(comm.rank))
        with dace_redist.plan(source, target, float, op=op, strategy="Hierarchical", comm=comm) as plan:
            methods = {"dace-redist": functools.partial(plan, A, out=B), "MPI": functools.partial(call, A, B)}
            yield Comparison(what, agreeing(comm, methods, B))

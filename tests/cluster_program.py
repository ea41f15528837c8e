"""
Program of ``test_cluster.py`` on emulated nodes: ``cluster_program.py WHAT [ARGUMENTS]``.

Each rank prints a line, ``rank R: `` and JSON, for each report.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import dace_redist
from dace_redist.mpi.launch import check_launcher
from dace_redist.mpi.topology import pinned_to_core

NBYTES = 8 << 20
comm = MPI.COMM_WORLD


def say(what: object) -> None:
    sys.stdout.write(f"rank {comm.rank}: {json.dumps(what)}\n")  # at once: the launcher mixes pieces of lines
    sys.stdout.flush()


def nodes_seen() -> None:
    """Report the node of this rank, its other ranks, and the files and processes visible to this rank."""
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    mine = Path(f"/dev/shm/test-of-rank-{comm.rank}")
    mine.touch()
    window = MPI.Win.Allocate_shared(8, 8, comm=node)
    np.frombuffer(window.Shared_query(node.rank)[0], dtype=np.int64)[0] = comm.rank
    comm.Barrier()
    say(
        {
            "host": platform.node(),
            "processor": MPI.Get_processor_name(),
            "group": node.allgather(comm.rank),
            "files": sorted(int(path.name.rpartition("-")[2]) for path in Path("/dev/shm").glob("test-of-rank-*")),
            "window": [int(np.frombuffer(window.Shared_query(r)[0], dtype=np.int64)[0]) for r in range(node.size)],
            "process": os.readlink("/proc/self/ns/pid"),
        }
    )
    comm.Barrier()
    window.Free()
    mine.unlink()


def send(distance: str) -> None:
    """Exchange NBYTES in pairs of ranks at this distance."""
    partner = comm.rank ^ int(distance)
    out, back = np.full(NBYTES, comm.rank, np.uint8), np.empty(NBYTES, np.uint8)
    comm.Sendrecv(out, partner, recvbuf=back, source=partner)
    say(bool((back == partner).all()))


def how_of(strategy: str) -> dict[str, Any]:
    """Return the arguments of a strategy; ``"joined"``: Hierarchical, which joins all short messages between nodes."""
    return {"strategy": "Hierarchical", "join_bytes": 4096} if strategy == "joined" else {"strategy": strategy}


def redistribute(*strategies: str) -> None:
    """Check results of strategies, twice each: within nodes, between nodes, tiny tensors and some megabytes."""
    for strategy in strategies:
        for shape in ((7, 5), (300, 1100)):
            check(strategy, shape)


def check(strategy: str, shape: tuple[int, int]) -> None:
    size = comm.size
    whole = np.arange(np.prod(shape)).reshape(shape)
    rows = dace_redist.Distribution(shape, (size, 1))
    others = {
        "to columns": dace_redist.Distribution(shape, (1, size)),
        "to the other node": dace_redist.Distribution(shape, (size, 1), ranks=np.roll(range(size), size // 2)),
        "to a neighbour": dace_redist.Distribution(shape, (size, 1), ranks=[r ^ 1 for r in range(size)]),
    }
    for name, target in others.items():
        for source, end in ((rows, target), (target, rows)) * 2:
            got = dace_redist.redistribute(source.local(whole, comm.rank), source, end, **how_of(strategy))
            say([strategy, shape, name, bool(np.array_equal(got, end.local(whole, comm.rank)))])


def replicate(strategy: str) -> None:
    """Replicate rows, add partial results to rows, and to replicas; report if that is right, and its bytes."""
    shape = (1024, 1024)
    rows, everywhere = (dace_redist.Distribution(shape, (comm.size,), dims=dims) for dims in ([0, None], [None, None]))
    whole = np.arange(np.prod(shape), dtype=float).reshape(shape)
    nodes = comm.allgather(platform.node())
    for source, target, op in ((rows, everywhere, None), (everywhere, rows, "sum"), (everywhere, everywhere, "sum")):
        here = np.ascontiguousarray(source.local(whole, comm.rank))
        got = dace_redist.redistribute(here, source, target, op=op, **how_of(strategy))
        expected = target.local(whole, comm.rank) * (comm.size if op else 1)
        nbytes = dace_redist.schedule(source, target, float, op=op).bytes_between_nodes(nodes)
        say([bool(np.array_equal(got, expected)), nbytes])


def cores() -> None:
    """Report the node, the cores that the launcher assigned to this rank, and its core during measurements."""
    mine = sorted(os.sched_getaffinity(0))
    with pinned_to_core(comm) as core:
        say({"node": platform.node(), "cores": mine, "put on": core})


if __name__ == "__main__":
    check_launcher(comm)
    globals()[sys.argv[1]](*sys.argv[2:])

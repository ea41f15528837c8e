"""
Replicas and sums between emulated nodes: bytes at the links to the least possible, times to MPI and another checkout.

``replicas.py --nodes 2 --ranks 8 [--mib 1 16 64] [--before CHECKOUT]`` starts jobs of this file: some for each case,
which count bytes, and ``--rounds`` for times, of this checkout and the other in turns. Methods alternate in a job.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve()
CASES = ("rows to replicated", "rows to 2 replicas", "grid to replicated along 0", "sum to rows", "sum to replicated")
REPEATS = 5


def distributions(case: str, size: int, mib: int) -> tuple[Any, Any, str | None]:
    """Return source, target and op of a case whose whole tensor of doubles has so many MiB."""
    from dace_redist import Distribution

    shape = (size * 16, (mib << 20) // 8 // (size * 16))
    rows, everywhere = (Distribution(shape, (size,), dims=dims) for dims in ([0, None], [None, None]))
    grid = Distribution(shape, (2, size // 2))
    return {
        "rows to replicated": (rows, everywhere, None),
        "rows to 2 replicas": (rows, Distribution(shape, (2, size // 2), dims=[1, None]), None),
        "grid to replicated along 0": (grid, Distribution(shape, (2, size // 2), dims=[None, 1]), None),
        "sum to rows": (everywhere, rows, "sum"),
        "sum to replicated": (everywhere, everywhere, "sum"),
    }[case]


def mpi_call(case: str, comm: Any, here: Any, out: Any) -> Callable[[], None] | None:
    """Return the collective of MPI that does the same; None if there is none."""
    from mpi4py import MPI

    calls = {
        "rows to replicated": lambda: comm.Allgatherv(here, out),
        "sum to rows": lambda: comm.Reduce_scatter(here, out, op=MPI.SUM),
        "sum to replicated": lambda: comm.Allreduce(here, out, op=MPI.SUM),
    }
    return calls.get(case)


def job(cases: list[str], sizes: list[int], repeats: int) -> None:
    """Time cases, each method once per repetition; rank 0 prints a line of JSON for each."""
    from mpi4py import MPI

    import dace_redist

    comm = MPI.COMM_WORLD
    for case in cases:
        for mib in sizes:
            source, target, op = distributions(case, comm.size, mib)
            here = np.full(source.local_shape(comm.rank), float(comm.rank if op else 1))
            out = np.zeros(target.local_shape(comm.rank))
            with dace_redist.plan(source, target, float, op=op, strategy="Hierarchical", comm=comm) as made:
                methods = {"dace-redist": lambda made=made, here=here, out=out: made(here, out=out)}
                mpi = mpi_call(case, comm, here, out)
                if mpi and repeats > 1:
                    methods["MPI"] = mpi
                seconds: dict[str, list[float]] = defaultdict(list)
                for _ in range(repeats):
                    for name, call in methods.items():
                        comm.Barrier()
                        start = MPI.Wtime()
                        call()
                        seconds[name].append(comm.allreduce(MPI.Wtime() - start, MPI.MAX))
            right = sum(range(comm.size)) if op else 1
            if not comm.allreduce(bool((out == right).all()), MPI.LAND):
                raise SystemExit(f"{case}: wrong result")
            if comm.rank == 0:
                medians = {name: statistics.median(some[1:] or some) for name, some in seconds.items()}
                sys.stdout.write(json.dumps([case, mib, medians]) + "\n")
                sys.stdout.flush()


def run_job(args: argparse.Namespace, checkout: Path, cases: list[str], sizes: list[int], repeats: int) -> Any:
    import cluster

    argv = [sys.executable, "-m", "mpi4py", str(HERE), "--job", *cases, "--mib", *map(str, sizes)]
    argv += ["--repeats", str(repeats)]
    path = os.pathsep.join(filter(None, [str(checkout), os.environ.get("PYTHONPATH")]))
    done = cluster.run(
        args.nodes, args.ranks, argv, rate=args.rate, timeout=args.timeout, environment={"PYTHONPATH": path}
    )
    if done.returncode != 0:
        raise SystemExit(f"{cases} in {checkout} returned {done.returncode}\n{done.output[-4000:]}")
    return done


def main() -> None:
    """Print the bytes and times of all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rate", default="500mbit", help="of the links")
    parser.add_argument("--mib", type=int, nargs="+", default=[1, 16, 64], help="sizes of the tensor")
    parser.add_argument("--rounds", type=int, default=3, help="jobs of each checkout")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="of each method in a job")
    parser.add_argument("--before", type=Path, help="another checkout, with its extension module built")
    parser.add_argument("--timeout", type=float, default=600, help="of a job, in seconds")
    parser.add_argument("--job", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        job(args.job, args.mib, args.repeats)
        return
    from dace_redist import schedule

    here, nodes = HERE.parents[2], np.arange(args.ranks) * args.nodes // args.ranks
    for case in CASES:  # the difference of two jobs: without what their start and end take
        few, many = (
            sum(link.sent for link in run_job(args, here, [case] * count, [args.mib[-1]], 1).links) for count in (1, 3)
        )
        source, target, op = distributions(case, args.ranks, args.mib[-1])
        least = schedule(source, target, float, op=op).bytes_between_nodes(nodes)
        print(f"{case:28} {args.mib[-1]:3} MiB: {(many - few) / 2 / max(least, 1):.3f} of {least:,} bytes", flush=True)
    found: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(args.rounds):
        for label, checkout in [("", here), *([(" before", args.before)] if args.before else [])]:
            for line in run_job(args, checkout, list(CASES), args.mib, args.repeats).output.splitlines():
                if line.startswith('["'):  # not a line of mpiexec's
                    case, mib, medians = json.loads(line)
                    for name, seconds in medians.items():
                        found[case, mib][name + label].append(seconds)
    for (case, mib), methods in found.items():
        own = statistics.median(methods["dace-redist"])
        ratios = [f"{name} {statistics.median(some) / own:.2f}" for name, some in methods.items() if own]
        print(f"{case:28} {mib:3} MiB: {own * 1e3:8.2f} ms; times of {', '.join(ratios)}", flush=True)


if __name__ == "__main__":
    main()

"""
Predictions of ``simulate`` against emulated nodes: five redistributions and three programs of einsums.

``python benchmarks/cluster/simulated.py [--jobs 2x4 4x4 4x12] [--rate 1] [--repeats 7] [--programs]``

The description of the machine is independent of the compared times: measured operations and memory bandwidth of a core
and latency between two nodes, and the rate limit of the links, less 3 % for headers and acknowledgements. Copy costs
are those of the profile that ships with the package, or of ``--profile FILE``. The emulated
nodes share the cores of this machine.
"""

import argparse
import functools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dace_redist.distribution import Distribution
from dace_redist.schedule import Schedule, schedule
from dace_redist.simulation import simulate

STRATEGIES = ("Datatype", "Pack", "Pipelined", "Hierarchical")
#: Share of a link's rate that is left for messages.
PAYLOAD = 0.97
#: Strategies that differ by less count as equally fast.
NOTABLE = 1.1


def redistributions(ranks: int) -> dict[str, tuple[Distribution, Distribution]]:
    """Return the five redistributions, 16 MiB each, by name."""
    shape, cube = (2048, 1024), (64, 128, 256)
    rows = Distribution(shape, (ranks,))
    half = ranks // 2
    return {
        "rows to columns": (rows, Distribution(shape, (1, ranks))),
        "rows to cyclic rows": (rows, Distribution(shape, (ranks,), block=(16, None))),
        "columns to grid": (Distribution(shape, (1, ranks)), Distribution(shape, (2, half))),
        "to the other half": (rows, Distribution(shape, (ranks,), ranks=np.roll(range(ranks), half).tolist())),
        "first axis to last": (Distribution(cube, (ranks,)), Distribution(cube, (1, 1, ranks))),
    }


def programs() -> dict[str, tuple[Any, dict[str, int]]]:
    """Return the three programs of einsums with their sizes, by name."""
    import dace

    I, J, K, N, R = (dace.symbol(name, dace.int64) for name in "IJKNR")  # noqa: E741

    @dace.program
    def product(A: dace.float64[N, N], B: dace.float64[N, N]):
        return A @ B

    @dace.program
    def products(A: dace.float64[N, N], B: dace.float64[N, N], C: dace.float64[N, N]):
        return (A @ B) @ C

    @dace.program
    def mttkrp(X: dace.float64[I, J, K], B: dace.float64[J, R], C: dace.float64[K, R]):
        return np.einsum("ijk,ja,ka->ia", X, B, C)

    square = {"N": 1536}
    cube = {"I": 384, "J": 384, "K": 384, "R": 24}
    return {"product": (product, square), "products": (products, square), "mttkrp": (mttkrp, cube)}


# What a rank measures


def timed(comm: Any, run: Callable[[], Any], repeats: int) -> float:
    """Return the median of the slowest rank's times. Collective."""
    from mpi4py import MPI

    times = []
    for _ in range(repeats + 2):
        comm.Barrier()
        start = time.perf_counter()
        run()
        times.append(comm.allreduce(time.perf_counter() - start, MPI.MAX))
    return statistics.median(times[2:])


def measure(repeats: int, with_programs: bool) -> dict[str, Any]:
    """Return all times, and the latency between the first and the last rank. Collective."""
    from mpi4py import MPI

    import dace_redist

    comm = MPI.COMM_WORLD
    found: dict[str, Any] = {"latency": latency(comm), "redistributions": {}, "programs": {}}
    for name, (source, target) in redistributions(comm.size).items():
        array = np.ones(source.local_shape(comm.rank))
        out = np.empty(target.local_shape(comm.rank))
        times: dict[str, list[float]] = {strategy: [] for strategy in STRATEGIES}
        plans = {s: dace_redist.plan(source, target, "float64", comm=comm, strategy=s) for s in STRATEGIES}
        for _ in range(3):  # by turns, for the machine is slow for seconds at a time
            for strategy, plan in plans.items():
                times[strategy].append(timed(comm, functools.partial(plan, array, out=out), repeats))
        for plan in plans.values():
            plan.free()
        found["redistributions"][name] = {strategy: min(values) for strategy, values in times.items()}
    for name, (function, sizes) in programs().items() if with_programs else ():
        program = dace_redist.distribute(function, comm.size, sizes)
        parts = {n: np.ones(t.distribution.local_shape(comm.rank)) for n, t in program.inputs.items()}
        program.compile()
        found["programs"][name] = min(timed(comm, lambda: program.run(**parts), repeats) for _ in range(3))  # noqa: B023
    return found


def latency(comm: Any) -> float:
    """Return half of the minimum round-trip time of 8 bytes. Collective."""
    one, times = np.zeros(8, np.uint8), []
    for _ in range(200):
        start = time.perf_counter()
        if comm.rank == 0:
            comm.Send(one, comm.size - 1)
            comm.Recv(one, comm.size - 1)
        elif comm.rank == comm.size - 1:
            comm.Recv(one, 0)
            comm.Send(one, 0)
        times.append(time.perf_counter() - start)
    return float(comm.bcast(statistics.median(times))) / 2


# What is predicted


def facts() -> dict[str, float]:
    """Return operations per second, and bytes read and written per second, of one core."""
    a = np.random.default_rng(0).random((512, 512))
    big, other = np.ones(1 << 23), np.ones(1 << 23)

    def least(run: Callable[[], Any]) -> float:
        times = []
        for _ in range(7):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        return min(times)

    return {
        "flops": 2 * 512**3 / least(lambda: a @ a),
        "memory": 3 * big.nbytes / least(lambda: np.add(big, big, out=other)),
    }


def machine_file(folder: Path, nodes: int, rate: float, known: dict[str, float], profile: str | None) -> Path:
    """Write the machine file of the emulated nodes."""
    cores = (os.cpu_count() or 1) / nodes
    lines = [
        "name: emulated nodes",
        f"nodes: {nodes}",
        f"cores: {cores}  # they share those of one machine",
        f"flops: {known['flops']:.3e} FLOP/s",
        f"memory: {cores * known['memory']:.3e} B/s",
        *([f"profile: {Path(profile).resolve()}"] if profile else []),
        f"network: {{kind: switch, ports: {nodes}, link: {PAYLOAD * rate / 8:.4e} B/s, "
        f"latency: {known['latency']:.3e} s}}",
    ]
    path = folder / "machine.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


def moved(name: str, ranks: int) -> Schedule:
    return schedule(*redistributions(ranks)[name], dtype="float64")


def compare(machine: Path, ranks: int, each: int, seen: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Print each case: predicted over measured times, and for strategies the prediction over that of a faster one."""
    ratios, orders = [], []
    for name, times in seen["redistributions"].items():
        found = simulate(moved(name, ranks), machine, ranks_per_node=each, strategies=STRATEGIES)
        said = {one.strategy: one.seconds for one in found.estimates}
        ratios += [said[strategy] / times[strategy] for strategy in STRATEGIES]
        pairs = [(a, b) for a in STRATEGIES for b in STRATEGIES if times[a] * NOTABLE < times[b]]
        orders += [said[b] / said[a] for a, b in pairs]
        cells = (f"{strategy} {1e3 * said[strategy]:.1f}/{1e3 * times[strategy]:.1f}" for strategy in STRATEGIES)
        print(f"  {name:<20} {', '.join(cells)} ms", flush=True)
    from dace_redist import distribute

    for name, seconds in seen["programs"].items():
        function, sizes = programs()[name]
        simulated = distribute(function, ranks, sizes).simulate(machine, ranks_per_node=each)
        ratios.append(simulated.seconds / seconds)
        kinds = ", ".join(f"{kind} {1e3 * s:.1f}" for kind, s in simulated.by_kind.items())
        print(f"  {name:<20} {1e3 * simulated.seconds:.1f}/{1e3 * seconds:.1f} ms ({kinds})", flush=True)
    return ratios, orders


def main() -> None:
    """Measure on emulated nodes, predict, and compare."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--jobs", nargs="*", default=["2x4", "4x4", "4x12"], help="nodes x ranks")
    parser.add_argument("--rate", type=float, default=1.0, help="of the links, in Gbit/s")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--programs", action="store_true", help="programs of einsums, too: these are compiled")
    parser.add_argument("--profile", help="machine profile with the copies of this machine")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        from mpi4py import MPI

        found = measure(given.repeats, given.programs)
        if MPI.COMM_WORLD.rank == 0:
            print("found " + json.dumps(found), flush=True)
        return
    import cluster

    if cluster.why_not() is not None:
        sys.exit(f"nodes cannot be emulated here: {cluster.why_not()}")
    own = facts()
    print(f"a core: {own['flops'] / 1e9:.1f} GFLOP/s, {own['memory'] / 1e9:.1f} GB/s")
    ratios, orders = [], []
    for job in given.jobs:
        nodes, ranks = map(int, job.split("x"))
        words = [sys.executable, "-m", "mpi4py", __file__, "--rank", "--repeats", str(given.repeats)]
        words += ["--programs"] * given.programs
        done = cluster.run_counted(nodes, ranks, words, rate=f"{1000 * given.rate:.0f}mbit", timeout=600)
        lines = [line for line in done.output.splitlines() if line.startswith("found ")]
        if not lines:
            sys.exit(done.output)
        seen = json.loads(lines[0].removeprefix("found "))
        print(f"{nodes} nodes, {ranks} ranks, latency {1e6 * seen['latency']:.0f} us: predicted/measured")
        with tempfile.TemporaryDirectory() as folder:
            known = own | {"latency": seen["latency"]}
            machine = machine_file(Path(folder), nodes, 1e9 * given.rate, known, given.profile)
            more, right = compare(machine, ranks, -(-ranks // nodes), seen)
        ratios += more
        orders += right
    within = sum(0.75 <= ratio <= 1.25 for ratio in ratios)
    print(f"within 25 %: {within} of {len(ratios)}, median {statistics.median(ratios):.2f}")
    order = f"{sum(ratio >= 1 for ratio in orders)} of {len(orders)}"
    wrong = sum(ratio * NOTABLE < 1 for ratio in orders)
    print(
        f"strategies that differ by more than {NOTABLE:g}: in the right order {order}, clearly in the wrong one {wrong}"
    )


if __name__ == "__main__":
    main()

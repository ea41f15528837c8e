"""
Programs of the manual's gallery on ranks, against the same functions by NumPy in one process with a thread per core.

    mpiexec -n 2 python benchmarks/einsum/gallery_speedups.py --json benchmarks/results/gallery.jsonl

The small kernels of the tests are measured by name, all of them by `kernels`. On one rank NumPy has one core.
"""

import dataclasses
import os
import re
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[2] / folder) for folder in ("tests", "benchmarks")]

import click
import numpy as np
from programs import PROGRAMS, tagged
from programs.program import Program
from records import append, environment, json_option

from dace_redist import distribute
from dace_redist.mpi.launch import outside_environment
from dace_redist.mpi.topology import pinned_to_core, topology_of
from dace_redist.timing.measure import Repetitions

ROOT = Path(__file__).resolve().parents[2]
KERNELS = tagged("kernel")
#: Shorter programs run several times in a row: the first run after a pause takes longer.
BATCH_SECONDS = 0.02
#: Names and sizes of the programs in the manual.
SHOWN = dict(re.findall(r"<!-- generated: gallery (\w+) \d+ (.*) -->", (ROOT / "docs" / "gallery.md").read_text()))


def positive_definite(sizes: dict[str, int], rng: np.random.Generator) -> dict[str, Any]:
    """Return arguments with which conjugate gradients converge in some 20 steps."""
    A = rng.uniform(-1, 1, (sizes["N"], sizes["N"]))
    return {"A": A + A.T + 3 * np.sqrt(sizes["N"]) * np.eye(sizes["N"]), "tolerance": 1e-10}


#: Arguments that take less time to make than those of the tests.
GIVEN = {
    "conjugate_gradients": positive_definite,
    "subspace_iteration": lambda sizes, rng: {"Q": np.eye(sizes["N"], sizes["K"])},
}


def shown(name: str) -> Program:
    """Return a program with the sizes of the manual, or a kernel."""
    if name in KERNELS:
        return KERNELS[name]
    sizes = {symbol: int(size) for symbol, size in re.findall(r"(\w+)=(\d+)", SHOWN[name])}
    return dataclasses.replace(PROGRAMS[name], sizes=sizes, given=GIVEN.get(name, PROGRAMS[name].given))


@contextmanager
def one_process(name: str, ranks: int):
    """Yield what runs a program so many times in a process that calls :func:`serve`, with a BLAS thread per core."""
    bound = os.sched_getaffinity(0)
    cores = range(os.cpu_count()) if ranks > 1 else [min(bound)]
    os.sched_setaffinity(0, cores)  # mpiexec may have bound this rank to one core; Popen inherits these
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(len(os.sched_getaffinity(0))))
    command = [sys.executable, __file__, "--serve", name]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=outside_environment() | threads, **pipes) as process:
        os.sched_setaffinity(0, bound)
        assert process.stdout.readline() == "ready\n"

        def run(times: int) -> None:
            process.stdin.write(f"{times}\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"

        yield run
        process.stdin.close()


def serve(name: str) -> None:
    """Run a program by NumPy, opt_einsum in the place of `np.einsum`, as often as each line of standard input says."""
    import opt_einsum

    np.einsum = opt_einsum.contract
    example = shown(name)
    function, arguments = example.program.f, example.arguments()
    function.__globals__.update(example.sizes)  # symbols that it uses by name
    print("ready", flush=True)
    for times in sys.stdin:
        for _ in range(int(times)):
            function(**arguments)
        print("done", flush=True)


def measured(name: str, repetitions: int) -> dict[str, Any]:
    """Return the median seconds of the ranks, each with its parts of the arguments, and of NumPy. Collective."""
    from einsum_peers import SPINNING_SECONDS, WORLD, on_rank_0

    example, repeat, where = shown(name), Repetitions(WORLD).repeat, environment(WORLD.size, topology_of(WORLD).node_of)
    program, arguments = distribute(example.program, WORLD.size, example.sizes), example.arguments()
    parts = program.scatter(**{name: arguments[name] for name in program.inputs})
    seconds: dict[str, list[float]] = {"ranks": [], "numpy": []}

    def of_ranks(times: int) -> None:
        for _ in range(times):
            program.run(**parts)

    with one_process(name, WORLD.size) if WORLD.rank == 0 else nullcontext() as peer, pinned_to_core(WORLD):

        def one_round(times: int) -> None:
            in_numpy = peer and partial(peer, times)
            seconds["ranks"].append(repeat("ranks", partial(of_ranks, times)) / times)
            seconds["numpy"].append(repeat("numpy", partial(on_rank_0, in_numpy)) / times)
            time.sleep(SPINNING_SECONDS)

        one_round(1)
        one_round(1)
        times = max(1, round(BATCH_SECONDS / min(values[-1] for values in seconds.values())))
        for _ in range(repetitions):
            one_round(times)
    medians = {who: statistics.median(values[2:]) for who, values in seconds.items()}
    return {"program": name, "sizes": example.sizes, "ranks": WORLD.size, "seconds": medians, "environment": where}


@click.command(help=__doc__)
@click.argument("names", nargs=-1, type=click.Choice(["kernels", *SHOWN, *KERNELS]))
@click.option("--repetitions", default=11, show_default=True, type=click.IntRange(1), help="timed rounds")
@click.option("--serve", "served", type=click.Choice([*SHOWN, *KERNELS]), hidden=True)
@json_option()
def main(names: tuple[str, ...], repetitions: int, served: str | None, path: Path | None) -> None:
    if served:
        serve(served)
        return
    from mpi4py import MPI

    chosen = [one for name in names or SHOWN for one in (KERNELS if name == "kernels" else [name])]
    for record in (measured(name, repetitions) for name in chosen):
        if MPI.COMM_WORLD.rank == 0:
            ours, numpy = record["seconds"].values()
            click.echo(f"{record['program']:20} {ours * 1e3:9.1f} ms, NumPy {numpy * 1e3:9.1f} ms: {numpy / ours:.2f}")
            append(path, record)


if __name__ == "__main__":
    main()

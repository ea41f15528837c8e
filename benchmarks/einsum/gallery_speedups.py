"""
Programs of the manual's gallery on ranks, against the same functions by NumPy in one process with a thread per core.

    mpiexec -n 2 python benchmarks/einsum/gallery_speedups.py --json benchmarks/results/gallery.jsonl
"""

import contextlib
import dataclasses
import re
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
sys.path.append(str(Path(__file__).resolve().parents[1]))

import click
import numpy as np
from gallery import GALLERY
from gallery.example import Example
from one_process import serve, started
from records import append, json_option
from redistribution.run import environment

from dace_redist import distribute
from dace_redist.measuring.measure import Repetitions
from dace_redist.mpi.topology import pinned_to_core, topology_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gallery.md"
#: Names and sizes of the programs in the manual.
SHOWN = dict(re.findall(r"<!-- generated: gallery (\w+) \d+ (.*) -->", PAGE.read_text()))


def positive_definite(sizes: dict[str, int], rng: np.random.Generator) -> dict[str, Any]:
    """Return arguments with which conjugate gradients converge in some 20 steps."""
    A = rng.uniform(-1, 1, (sizes["N"], sizes["N"]))
    return {"A": A + A.T + 3 * np.sqrt(sizes["N"]) * np.eye(sizes["N"]), "tolerance": 1e-10}


#: Arguments that take less time to make than those of the tests.
GIVEN = {
    "conjugate_gradients": positive_definite,
    "subspace_iteration": lambda sizes, rng: {"Q": np.eye(sizes["N"], sizes["K"])},
}


def shown(name: str) -> Example:
    """Return a program with the sizes of the manual."""
    sizes = {symbol: int(size) for symbol, size in re.findall(r"(\w+)=(\d+)", SHOWN[name])}
    return dataclasses.replace(GALLERY[name], sizes=sizes, given=GIVEN.get(name, GALLERY[name].given))


def measured(name: str, repetitions: int) -> dict[str, Any]:
    """Return the median seconds of the ranks, each with its parts of the arguments, and of NumPy. Collective."""
    from einsum_peers import WORLD, on_rank_0

    example, repeat, where = shown(name), Repetitions(WORLD).repeat, environment(WORLD.size, topology_of(WORLD).node_of)
    program, arguments = distribute(example.program, WORLD.size, example.sizes), example.arguments()
    parts = program.scatter(**{name: arguments[name] for name in program.inputs})
    seconds: dict[str, list[float]] = {"ranks": [], "numpy": []}
    with started(__file__, "--serve", name) if WORLD.rank == 0 else contextlib.nullcontext() as peer:
        with pinned_to_core(WORLD):
            for _ in range(repetitions + 1):
                seconds["ranks"].append(repeat("ranks", lambda: program.run(**parts)))
                seconds["numpy"].append(repeat("numpy", partial(on_rank_0, peer and peer.run)))
                time.sleep(0.1)  # BLAS threads go on looking for work for some 30 ms
    medians = {who: statistics.median(values[1:]) for who, values in seconds.items()}  # the first round warms up
    return {"program": name, "sizes": example.sizes, "ranks": WORLD.size, "seconds": medians, "environment": where}


@click.command(help=__doc__)
@click.argument("names", nargs=-1, type=click.Choice(list(SHOWN)))
@click.option("--repetitions", default=11, show_default=True, type=click.IntRange(1), help="timed rounds")
@click.option("--serve", "served", type=click.Choice(list(SHOWN)), hidden=True)
@json_option()
def main(names: tuple[str, ...], repetitions: int, served: str | None, path: Path | None) -> None:
    if served:
        example = shown(served)
        function, arguments = example.program.f, example.arguments()
        function.__globals__.update(example.sizes)  # symbols that it uses by name
        serve(lambda: function(**arguments))
        return
    from mpi4py import MPI

    for record in (measured(name, repetitions) for name in names or SHOWN):
        if MPI.COMM_WORLD.rank == 0:
            ours, numpy = record["seconds"].values()
            click.echo(f"{record['program']:20} {ours * 1e3:9.1f} ms, NumPy {numpy * 1e3:9.1f} ms: {numpy / ours:.2f}")
            append(path, record)


if __name__ == "__main__":
    main()

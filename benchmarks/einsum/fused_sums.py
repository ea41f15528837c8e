"""
Distributed matrix products with partial sums fused into the following redistributions, against separate sums.

On 4 ranks the plans of 2MM and 3MM have no such sums; TTMc (order 5) has none on 8 either.

    mpiexec -n 8 python benchmarks/einsum/fused_sums.py [--size 1024] [--limit 10] [mm2] [mm3]
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import click
import einsum_kernels
import numpy as np
from mpi4py import MPI

from dace_redist import distribute
from dace_redist.mpi.topology import pinned_to_core
from dace_redist.tuning.measure import measure

FUSING = "dace_redist.transformations.distribute.emit.fuse_sums"


def programs(name: str, comm: MPI.Intracomm, size: int) -> list[Any]:
    """Return the fused program and the unfused one, compiled; rank 0 plans."""
    made = None
    if comm.rank == 0:
        given = (getattr(einsum_kernels, name), comm.size, dict.fromkeys("IJKLM"[: int(name[-1]) + 2], size))
        with mock.patch(FUSING, lambda *_: 0):
            apart = distribute(*given)
        made = [distribute(*given), apart]
    both: list[Any] = comm.bcast(made)
    for program in both:
        program.compile(comm)
    return both


@click.command(help=__doc__)
@click.argument("names", nargs=-1, type=click.Choice(["mm2", "mm3"]))
@click.option("--size", default=1024, show_default=True, help="rows and columns of the matrices")
@click.option("--limit", default=10.0, show_default=True, help="seconds for each comparison")
def main(names: tuple[str, ...], size: int, limit: float) -> None:
    comm = MPI.COMM_WORLD
    with pinned_to_core(comm):
        for name in names or ("mm2", "mm3"):
            compare(name, comm, size, limit)


def compare(name: str, comm: MPI.Intracomm, size: int, limit: float) -> None:
    both = programs(name, comm, size)
    tensors = {key: np.ones(tensor.shape) for key, tensor in both[0].inputs.items()} if comm.rank == 0 else {}
    parts = [program.scatter(**{key: tensors.get(key) for key in program.inputs}) for program in both]
    results = [program.gather(program.run(**local)) for program, local in zip(both, parts, strict=True)]
    assert comm.rank != 0 or np.allclose(*results), "the two do not agree"
    sides = {
        kind: (lambda program=program, local=local: program.run(**local))
        for kind, program, local in zip(("fused", "unfused"), both, parts, strict=True)
    }
    figures = measure(sides, comm, limit_seconds=limit)
    if comm.rank == 0:
        fused, unfused = (figures[kind].median for kind in sides)
        print(f"{name}, {comm.size} ranks: fused {1e3 * fused:.2f} ms, unfused {1e3 * unfused:.2f} ms, ", end="")
        print(f"{unfused / fused:.2f} times as long", flush=True)


if __name__ == "__main__":
    main()

"""
2MM, MTTKRP of order 3 and TTMc of order 5, distributed over ranks that share a GPU, against CuPy on one of them.

    mpiexec -n 4 python benchmarks/gpu/einsums.py              # also -n 1 and -n 2
    mpiexec -n 2 python benchmarks/gpu/einsums.py ttmc --preset small

The kernels are those of `benchmarks/einsum/einsum_kernels.py`, distributed with `device="gpu"` and `arguments="gpu"`:
operands and results lie on the GPU, so copies from and to main memory are not timed. Measured alternately, medians: the
distributed program, and `cupy.einsum` of the whole operands on rank 0, with `optimize=True`, and in the order that
NumPy finds for the same program. Exit code 1 if a result is wrong.
"""

from __future__ import annotations

import functools
import sys
import unittest.mock
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import cupy
import numpy as np
from mpi4py import MPI

from dace_redist import DistributedProgram, distribute
from dace_redist.cli import run_command
from dace_redist.measuring.measure import measure
from dace_redist.mpi.collective import sleeping_barrier, together

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "einsum"))
from einsum_cases import CASES, SYMBOLS, EinsumCase, elements, everything  # noqa: E402
from run_einsum import from_rank_0  # noqa: E402

COMM = MPI.COMM_WORLD
TOLERANCE = 1e-10  # largest relative error of a right result
SLAB = 1 << 24  # elements of an operand made at once
#: By preset and kernel, the lengths of tensor modes and of factor ranks. Large: some tens of milliseconds on an H200,
#: of whose memory whole operands, parts and intermediates together take about 100 GB.
PRESETS = {
    "tiny": {"mm2": (64,), "mttkrp3_0": (12, 6), "ttmc": (6, 4)},
    "small": {"mm2": (1024,), "mttkrp3_0": (192, 24), "ttmc": (24, 12)},
    "large": {"mm2": (10240,), "mttkrp3_0": (1600, 320), "ttmc": (64, 64)},
}
KERNELS = tuple(PRESETS["large"])


def sizes_of(case: EinsumCase, preset: str) -> dict[str, int]:
    """Return the values of a kernel's symbols."""
    lengths = PRESETS[preset][case.name]
    return {name: lengths[at] for name in case.symbols for group, at in SYMBOLS.items() if name in group}


def distributed(case: EinsumCase, ranks: int, sizes: dict[str, int]) -> DistributedProgram:
    """Return a kernel for ranks that compute on a GPU, where its operands and its result lie."""
    return distribute(case.program, ranks, sizes, device="gpu", arguments="gpu")


def operand(name: str, indices: Sequence[Any], shape: Sequence[int]) -> Any:
    """Return a part of an operand, see ``elements``, made in slabs to save memory."""
    made = cupy.empty([len(along) for along in indices])
    rows = max(1, SLAB // max(1, made.size // max(1, len(made))))
    for first in range(0, len(made), rows):
        made[first : first + rows] = elements(name, [indices[0][first : first + rows], *indices[1:]], shape, cupy)
    return made


def numpys_order(expression: str, *operands: Any) -> list[Any]:
    """Return NumPy's contraction order for operands of any library."""
    shapes = [np.broadcast_to(np.float64(0), array.shape) for array in operands]
    return np.einsum_path(expression, *shapes, optimize="greedy")[0]


ORDERS: dict[str, Callable[..., Any]] = {
    "CuPy, optimize=True": lambda *_: True,
    "CuPy, in NumPy's order": numpys_order,
}


def alone(case: EinsumCase, operands: dict[str, Any], order: Callable[..., Any]) -> Any:
    """Run a kernel as its user wrote it on whole operands of rank 0 by CuPy; other ranks sleep. Collective."""
    contract, result = cupy.einsum, None

    def einsum(expression: str, *arrays: Any) -> Any:
        return contract(expression, *arrays, optimize=order(expression, *arrays))

    if COMM.rank == 0:
        with unittest.mock.patch.object(np, "einsum", einsum):
            result = case.program.f(**operands)
        cupy.cuda.get_current_stream().synchronize()
    sleeping_barrier(COMM, 0.0005)
    return result


def relative_error(whole: np.ndarray, expected: Any) -> float:
    """Return the maximum error relative to the largest element; compared slab by slab."""
    pairs = zip(whole, expected, strict=True)
    found = [(float(abs(cupy.asarray(got) - right).max()), float(abs(right).max())) for got, right in pairs]
    difference, largest = np.max(found, axis=0)
    return float(difference / largest)


def compare(case: EinsumCase, sizes: dict[str, int], repetitions: int) -> bool:
    """Compare one kernel: print plan and times; return True if its result is right. Collective."""
    program = from_rank_0(lambda: distributed(case, COMM.size, sizes))
    if COMM.rank == 0:
        click.echo(program)
    program.compile()
    tensors = program.inputs
    with together(COMM):
        local = {n: operand(n, t.distribution.global_index(COMM.rank), t.shape) for n, t in tensors.items()}
        wholes = {n: operand(n, everything(t.shape), t.shape) for n, t in tensors.items() if COMM.rank == 0}
    local["__return"] = program.run(**local)

    def ours() -> None:
        program.run(**local)
        cupy.cuda.get_current_stream().synchronize()

    methods = {f"distributed over {COMM.size}": ours}
    methods |= {name: functools.partial(alone, case, wholes, order) for name, order in ORDERS.items()}
    figures = measure(methods, COMM, warmup=1, least=repetitions, most=repetitions)
    whole = program.gather(local["__return"])
    expected = alone(case, wholes, numpys_order)
    error = from_rank_0(lambda: relative_error(whole, expected))
    if COMM.rank == 0:
        for name, figure in figures.items():
            click.echo(f"{case.name:12} {name:24} {1e3 * figure.median:10.3f} ms")
        click.echo(f"{case.name:12} {'right' if error <= TOLERANCE else 'WRONG'}: relative error {error:.1e}")
    return error <= TOLERANCE


@click.command(help=__doc__.partition("\n\n")[0])
@click.argument("kernels", nargs=-1, type=click.Choice(KERNELS))
@click.option("--preset", type=click.Choice(tuple(PRESETS)), default="large", show_default=True, help="sizes")
@click.option("--repetitions", type=click.IntRange(1), default=10, show_default=True, help="timed rounds")
def main(kernels: tuple[str, ...], preset: str, repetitions: int) -> None:
    wrong = []
    for name in kernels or KERNELS:
        wrong += [] if compare(CASES[name], sizes_of(CASES[name], preset), repetitions) else [name]
        cupy.get_default_memory_pool().free_all_blocks()
    if wrong:
        raise click.exceptions.Exit(1)


if __name__ == "__main__":
    run_command(main, "einsums.py")

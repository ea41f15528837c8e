"""Products of square matrices by ``einsum``, by one rank's BLAS, by COSMA and by ScaLAPACK's ``pdgemm``."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from mpi4py import MPI
from records import append, json_option
from redistribution import scalapack

from comparisons.comparison import Comparison, UnsuitableError
from dace_redist import DistributedArray, Distribution, einsum
from dace_redist.einsum import Statement, plan_einsums
from dace_redist.einsum.expression import Einsum
from dace_redist.native.contraction import LocalContraction

#: Environment variable: ``cosma.cpp`` compiled with COSMA, see benchmarks/README.md.
COSMA_VARIABLE = "DACE_REDIST_COSMA_LIBRARY"
PRODUCT = "ij,jk->ik"
#: Numbers of ranks whose bytes are compared.
RANKS = (8, 16, 17, 61, 64, 127, 512, 1024)


def cosma() -> Any:
    """Return the library that :data:`COSMA_VARIABLE` names; None for none."""
    if COSMA_VARIABLE not in os.environ:
        return None
    library = ctypes.CDLL(os.environ[COSMA_VARIABLE])
    library.cosma_product.restype = ctypes.c_void_p
    library.cosma_multiply.argtypes, library.cosma_multiply.restype = [ctypes.c_void_p], ctypes.c_double
    library.cosma_bytes.restype = ctypes.c_double
    return library


def _layouts(n: int, comm: MPI.Intracomm) -> dict[str, Distribution]:
    rows, columns = (Distribution.split((n, n), axis, comm.size) for axis in (0, 1))
    grid = MPI.Compute_dims(comm.size, 2)
    return {"rows": rows, "columns": columns, "block-cyclic": Distribution.block_cyclic((n, n), tuple(grid), block=64)}


def _pdgemm(grids: scalapack.Grids, matrix: DistributedArray) -> Callable[[], None]:
    """Return the product of a block-cyclic matrix with itself; of local arrays in C order it is the transposed one."""
    library, n, one = scalapack.library(), matrix.distribution.shape[0], ctypes.c_int(1)
    target = np.empty_like(matrix.local)
    described = grids.descriptor(matrix.distribution)
    factors = ctypes.c_double(1), ctypes.c_double(0)

    def sides(array: Any) -> tuple[Any, ...]:
        return ctypes.c_void_p(array.ctypes.data), ctypes.byref(one), ctypes.byref(one), described

    whole = 3 * (ctypes.byref(ctypes.c_int(n)),)
    alpha, beta = map(ctypes.byref, factors)
    given = sides(matrix.local)

    def run() -> None:
        library.pdgemm_(b"N", b"N", *whole, alpha, *given, *given, beta, *sides(target))

    run()
    expected = einsum(PRODUCT, matrix, matrix, target=matrix.distribution)
    np.testing.assert_allclose(target, expected.local, rtol=1e-10)
    return run


def by_layout(comm: MPI.Intracomm, shape: tuple[int, ...]) -> Iterator[Comparison]:
    """Prepare products of matrices in three distributions; ``dgemm`` is that of a rank's share, whose blocks it has."""
    if len(shape) != 1:
        raise UnsuitableError(f"expected the length of square matrices, such as 2048, got {'x'.join(map(str, shape))}")
    (n,), library = shape, cosma()
    share = -(-n // comm.size)
    left, right, made = np.ones((share, n)), np.ones((n, n)), np.empty((share, n))
    contraction, one = LocalContraction(PRODUCT, made.dtype, ()), np.ones(1)
    grids = None if scalapack.library_missing() else scalapack.Grids(comm)
    for name, layout in _layouts(n, comm).items():
        values = np.random.default_rng(1).random((n, n))
        A, B = (DistributedArray(np.ascontiguousarray(layout.local(values, comm.rank)), layout, comm) for _ in "AB")
        out = DistributedArray(np.empty_like(A.local), layout, comm)
        methods: dict[str, Callable[[], Any]] = {
            "einsum": partial(einsum, PRODUCT, A, B, out=out),
            "dgemm of a rank's share": partial(contraction, [left, right], made, one),
        }
        if library is not None:
            product = library.cosma_product(n, comm.py2f())
            assert library.cosma_multiply(product) in (n, 0.0), "COSMA's product of ones is wrong"
            methods["COSMA, own distributions"] = partial(library.cosma_multiply, product)
        if grids is not None and name == "block-cyclic":
            methods["pdgemm"] = _pdgemm(grids, A)
        yield Comparison(name, methods)
    if grids is not None:
        grids.free()


def bytes_of(ranks: int, n: int = 8192) -> dict[str, float]:
    """Return the bytes of the busiest rank in our plan, the least possible, and the mean of a rank in COSMA."""
    statement, library = Statement(Einsum.parse(PRODUCT), ("A", "B"), "C"), cosma()
    plan = plan_einsums([statement], {"A": (n, n), "B": (n, n)}, ranks)
    found = {"einsum": float(plan.bytes_per_rank), "least": plan.bound}
    return found if library is None else found | {"COSMA": library.cosma_bytes(n, ranks)}


@click.command(help="Print the bytes of a rank for a product of 8192 x 8192 matrices.")
@json_option()
def main(path: Path | None) -> None:
    for ranks in RANKS:
        found = bytes_of(ranks)
        click.echo(f"{ranks} ranks: " + ", ".join(f"{who} {count / 2**20:.1f} MiB" for who, count in found.items()))
        append(path, {"comparison": "bytes", "ranks": ranks, "bytes": found})


if __name__ == "__main__":
    main()

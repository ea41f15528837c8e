"""
ScaLAPACK's Cholesky solver on a matrix distributed by rows: in place, and with redistributions to and from the grid and
block size of the solver (Cao et al., Redistribution in PaRSEC, section 8.7.1).

ScaLAPACK uses the BLAS of the machine; Debian's reference BLAS is slow, libopenblas0-serial is not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI
from redistribution import scalapack

import dace_redist
from comparisons.comparison import Comparison, UnsuitableError
from dace_redist import Distribution
from dace_redist.mpi.collective import together

BLOCK = 64
SIDES = 16  # right-hand sides

Array = npt.NDArray[Any]


def solve(grids: scalapack.Grids, distributions: Sequence[Distribution], arrays: Sequence[Array]) -> None:
    """Overwrite a matrix and right-hand sides by factor and solution. Collective."""
    info, one = ctypes.c_int(), ctypes.byref(ctypes.c_int(1))
    matrix, right = (
        (ctypes.c_void_p(array.ctypes.data), one, one, grids.descriptor(distribution, order="F"))
        for distribution, array in zip(distributions, arrays, strict=True)
    )
    n, sides = (ctypes.byref(ctypes.c_int(extent)) for extent in distributions[1].shape)
    grids.routine("pdpotrf_")(b"L", n, *matrix, ctypes.byref(info))
    assert info.value == 0, f"the matrix is not positive definite: pdpotrf returns {info.value}"
    grids.routine("pdpotrs_")(b"L", n, sides, *matrix, *right, ctypes.byref(info))


def _system(row: Array, n: int) -> list[Array]:
    """Return rows of a symmetric, positive definite matrix and of right-hand sides, in column-major order."""
    return [np.asfortranarray(np.exp(-abs(row - np.arange(n)) / 8)), np.asfortranarray(np.sin(row + np.arange(SIDES)))]


def solved(comm: MPI.Intracomm, shape: tuple[int, ...]) -> Iterator[Comparison]:
    if reason := scalapack.library_missing():
        raise UnsuitableError(reason)
    (n,), each = shape, -(-shape[0] // comm.size)  # blocks must be square; columns are not split
    rows = [Distribution((n, m), (comm.size, 1), block=(each, columns)) for m, columns in ((n, each), (SIDES, SIDES))]
    blocks = [Distribution((n, m), MPI.Compute_dims(comm.size, 2), block=(BLOCK, BLOCK)) for m in (n, SIDES)]
    given = _system(rows[0].global_index(comm.rank)[0][:, None], n)
    in_blocks = [dace_redist.shared_empty(side.local_shape(comm.rank)[::-1]).T for side in blocks]
    in_place, solution = [array.copy("F") for array in given], np.empty_like(given[1])
    with ExitStack() as stack:
        plans = ((rows[0], blocks[0]), (rows[1], blocks[1]), (blocks[1], rows[1]))
        to_blocks, sides_to_blocks, to_rows = (
            stack.enter_context(dace_redist.plan(*sides, "f8", comm=comm)) for sides in plans
        )
        grids, gemr2d = scalapack.Grids(comm), scalapack.Gemr2d(comm, "f8", rows[0], blocks[0], order="F")
        stack.callback(grids.free)
        stack.callback(gemr2d.free)

        def redistribute(then_solve: bool) -> None:
            to_blocks(given[0], out=in_blocks[0])
            sides_to_blocks(given[1], out=in_blocks[1])
            if then_solve:
                solve(grids, blocks, in_blocks)
            to_rows(in_blocks[1], out=solution)

        def solve_in_rows() -> None:
            for array, original in zip(in_place, given, strict=True):
                array[...] = original  # the factor takes the place of the matrix; both ways keep what is given
            solve(grids, rows, in_place)

        redistribute(then_solve=True)
        solve_in_rows()
        with together(comm):
            assert np.allclose(solution, in_place[1]), "the solutions in rows and in blocks do not agree"
        methods = {
            "redistributed and solved": lambda: redistribute(then_solve=True),
            "solved in rows": solve_in_rows,
            "to blocks and back": lambda: redistribute(then_solve=False),
            "p?gemr2d to blocks": lambda: gemr2d.run(given[0], in_blocks[0]),
        }
        yield Comparison(f"{SIDES} right-hand sides", methods)

"""
DaCe programs that know nothing of dace-redist, on 4 ranks, with the hook: run by test_hook.py.

Each compares its result with the whole array's part. The arguments select how programs are compiled, each in a folder
of its own.
"""

import os
import sys
from pathlib import Path

import dace
import numpy as np
from dace.sdfg.utils import distributed_compile
from mpi4py import MPI

COMM = MPI.COMM_WORLD
WHOLE = np.arange(64.0).reshape(8, 8)
P = dace.symbol("P")


@dace.program(distributed_compilation=True)
def there_and_on(A: dace.float64[4, 4]):
    square, rows, columns = dace.comm.Cart_create([2, 2]), dace.comm.Cart_create([4, 1]), dace.comm.Cart_create([1, 4])
    B = np.empty_like(A, shape=(2, 8))
    C = np.empty_like(A, shape=(8, 2))
    in_square = dace.comm.Subarray((8, 8), A, process_grid=square)
    in_rows = dace.comm.Subarray((8, 8), B, process_grid=rows)
    in_columns = dace.comm.Subarray((8, 8), C, process_grid=columns)
    first = dace.comm.Redistribute(A, in_square, B, in_rows)  # noqa: F841 (names the descriptor)
    second = dace.comm.Redistribute(B, in_rows, C, in_columns)  # noqa: F841
    return C


@dace.program(distributed_compilation=True)
def with_symbols(A: dace.float64[4, 8 // P * 2]):
    square, columns = dace.comm.Cart_create([2, P // 2]), dace.comm.Cart_create([1, P])
    C = np.empty_like(A, shape=(8, 8 // P))
    in_square = dace.comm.Subarray((8, 8), A, process_grid=square)
    in_columns = dace.comm.Subarray((8, 8), C, process_grid=columns)
    move = dace.comm.Redistribute(A, in_square, C, in_columns)  # noqa: F841
    return C


@dace.program(distributed_compilation=True)
def without_redistribution(A: dace.float64[4, 4]):
    return A + 1


#: How a program is compiled.
HOW = {
    "called": lambda program: program,
    "rank 0": lambda program: distributed_compile(program.to_sdfg() if COMM.rank == 0 else None, COMM),
    "all": lambda program: distributed_compile(program.to_sdfg(), COMM),
    "alone": lambda program: program.to_sdfg().compile(),  # by each rank in its own folder: no hook is called
}


def main(how: str) -> None:
    os.makedirs(how, exist_ok=True)
    COMM.Barrier()
    os.chdir(how)
    i, j = divmod(COMM.rank, 2)
    A = WHOLE[4 * i : 4 * i + 4, 4 * j : 4 * j + 4].copy()
    expected = WHOLE[:, 2 * COMM.rank : 2 * COMM.rank + 2]
    for program, symbols in ((there_and_on, {}), (with_symbols, {"P": 4})):
        made = HOW[how](program)
        for _ in range(2):
            assert np.array_equal(made(A=A, **symbols), expected), program.name
    if how != "alone":
        assert np.array_equal(HOW[how](without_redistribution)(A=A), A + 1)
    COMM.Barrier()
    code = "".join(path.read_text() for path in Path().rglob("src/cpu/*.cpp"))
    if COMM.rank == 0:
        plans = code.count("new dace_redist::program::Plan")
        print("redistributions by MPI:", code.count("MPI_Isend"), "plans:", plans)


def fail_for(name: str) -> None:
    """Have a step of ``optimize`` raise an error for the program of that name."""
    from dace_redist.transformations import optimization

    place = optimization.place_in_shared_memory

    def fails(sdfg: dace.SDFG) -> None:
        if sdfg.name == name:
            raise RuntimeError("as told")
        place(sdfg)

    optimization.place_in_shared_memory = fails


if __name__ == "__main__":
    if "FAILS" in os.environ:
        fail_for(os.environ["FAILS"])
    for how in sys.argv[1:]:
        main(how)
        os.chdir("..")

"""Random SDFGs compute the same after random transformations as on simulated ranks before them; see there."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from seeds import seed, some

from dace_redist.mpi.collective import sleeping_barrier

BATCH = 30  # SDFGs of one program


@pytest.mark.compile
@pytest.mark.dace
@pytest.mark.fuzz
@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[3], full=[2], timeout=3600)
def test_results_are_unchanged(comm):
    from dace.codegen.compiler import load_precompiled_sdfg

    first, count = seed(), some(12)
    for start in range(first, first + count, BATCH):
        with tempfile.TemporaryDirectory() as name:
            made = built(comm, range(start, min(start + BATCH, first + count)), name) if comm.rank == 0 else None
            sleeping_barrier(comm)
            folder, symbols, expected = comm.bcast(made)
            program = load_precompiled_sdfg(folder)
            for _ in range(2):
                arrays = {key: one.given.copy() for key, one in expected[comm.rank].items()}
                program(**arrays, **symbols, r=comm.rank + 1)
                for key, one in expected[comm.rank].items():
                    one.check(arrays[key])
            sleeping_barrier(comm)


def built(comm: Any, numbers: range, folder: str) -> tuple[str, dict[str, int], list[dict[str, Any]]]:
    """Compile one program of many SDFGs; return its folder, its symbols, and what each rank should get."""
    import dace
    from mpi4py import MPI
    from transformed_sdfgs import SYMBOLS, Draw, one_program

    draws = [Draw.of(number, comm.size, MPI.COMM_SELF, for_one_program=True) for number in numbers]
    program = one_program(draws)
    program.build_folder = folder
    with dace.config.set_temporary("compiler", "cpu", "args", value="-fPIC -O0 -w"):
        program.compile(return_program_handle=False)
    expected: list[dict[str, Any]] = [{} for _ in range(comm.size)]
    for draw in draws:
        for arrays, those in zip(expected, draw.expected(draw.writer.arguments()), strict=True):
            both = [
                (f"{when}_{draw.number}_{name}", one) for when in ("before", "after") for name, one in those.items()
            ]
            arrays.update({key: one for key, one in both if key in program.arrays})
    return folder, SYMBOLS, expected

"""Random SDFGs compute by every strategy what simulated ranks compute, before and after random transformations."""

from __future__ import annotations

import itertools
import tempfile
from typing import Any

import pytest
from seeds import seed, some

from dace_redist.mpi.collective import sleeping_barrier

BATCH = 30  # SDFGs of one program
pytestmark = [pytest.mark.compile, pytest.mark.dace, pytest.mark.fuzz]


@pytest.mark.mpi(ranks=[3], full=[2], timeout=3600)
def test_results_are_unchanged(comm):
    check(comm, some(24), BATCH)


@pytest.mark.mpi(ranks=[2], full=[3], timeout=3600)
def test_results_are_unchanged_by_auto_optimize(comm):
    """DaCe's own optimisation, which takes long, before and after the transformations."""
    check(comm, some(12), BATCH // 3, auto=True)


def check(comm: Any, count: int, batch: int, auto: bool = False) -> None:
    from dace.codegen.compiler import load_precompiled_sdfg

    for start in range(first := seed(), first + count, batch):
        with tempfile.TemporaryDirectory() as name:
            numbers = range(start, min(start + batch, first + count))
            made = built(comm, numbers, name, auto) if comm.rank == 0 else None
            sleeping_barrier(comm)
            folder, symbols, expected = comm.bcast(made)
            program = load_precompiled_sdfg(folder)
            for _ in range(2):
                arrays = {key: one.given.copy() for key, one in expected[comm.rank].items()}
                program(**arrays, **symbols, r=comm.rank + 1)
                for key, one in expected[comm.rank].items():
                    one.check(arrays[key], key)
            sleeping_barrier(comm)


def built(comm: Any, numbers: range, folder: str, auto: bool) -> tuple[str, dict[str, int], list[dict[str, Any]]]:
    """
    Compile one program of many SDFGs, with the strategies in turn.

    :return: Its folder, its symbols, and what each rank should get.
    """
    import dace
    from dace.transformation.auto.auto_optimize import auto_optimize
    from mpi4py import MPI
    from transformed_sdfgs import SYMBOLS, Draw, clears_arrays, has_views_of_views, one_program

    from dace_redist.library_nodes import JointRedistribute, Redistribute
    from dace_redist.strategies import STRATEGIES

    draws = [Draw.of(number, comm.size, MPI.COMM_SELF, for_one_program=True) for number in numbers]
    if auto:
        draws = [draw for draw in draws if not has_views_of_views(draw.before) and not clears_arrays(draw.before)]
    program = one_program(draws)
    moves = [node for node, _ in program.all_nodes_recursive() if isinstance(node, Redistribute | JointRedistribute)]
    for node, strategy in zip(moves, itertools.cycle(STRATEGIES), strict=False):
        node.set_strategy(strategy)
    if auto:
        auto_optimize(program, dace.DeviceType.CPU, find_fast_library_fn=lambda _: ["pure"])
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

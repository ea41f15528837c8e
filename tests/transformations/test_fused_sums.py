"""Distributed programs whose sums of partial results go to where they are used in one step."""

from __future__ import annotations

import pytest
from deinsum_kernels import mm2, mm3, ttmc
from distributed_simulation import SimulatedRanks
from programs.program import arguments, sizes_of
from results import by_numpy, check

from dace_redist import distribute
from dace_redist.library_nodes import Redistribute

LARGE, SMALL = dict.fromkeys("IJKLM", 1024), dict.fromkeys("IJKLM", 18)
LARGE_5, SMALL_5 = (dict.fromkeys("IJKLM", n) | dict.fromkeys("PQRT", r) for n, r in ((24, 12), (5, 3)))


@pytest.mark.parametrize(
    ("program", "sizes", "small", "ranks", "sums"),
    [
        (mm2, LARGE, SMALL, 4, 0),
        (mm2, LARGE, SMALL, 8, 2),
        (mm3, LARGE, SMALL, 4, 0),
        (mm3, LARGE, SMALL, 8, 3),
        (ttmc, LARGE_5, SMALL_5, 8, 0),
    ],
)
def test_sums_are_not_moved_again(program, sizes, small, ranks, sums):
    sizes, small = sizes_of(program, sizes), sizes_of(program, small)
    made = distribute(program, ranks, sizes)
    moves = [node for node, _ in made.sdfg.all_nodes_recursive() if isinstance(node, Redistribute)]
    summed = {node.label.removeprefix("sum_") for node in moves if node.op == "sum"}
    assert len(summed) == sums
    assert not [node for node in moves if node.label.removeprefix("redistribute_") in summed]
    given = arguments(program, small)
    check(SimulatedRanks(made.with_sizes(**small)).run(**given), by_numpy(program.f, given, small), given)

"""Distributed programs with sums fused into the following redistributions, and without."""

from __future__ import annotations

import pytest
from distributed_simulation import SimulatedRanks
from einsum_kernels import mm2, mm3, ttmc
from results import by_numpy, check
from simulated_programs import arguments, sizes_of

from dace_redist import distribute
from dace_redist.library_nodes import Redistribute


def counts(program) -> tuple[int, int]:
    """Return the numbers of separate and of fused sums."""
    found = [node for node, _ in program.sdfg.all_nodes_recursive()]
    moves = [node for node in found if isinstance(node, Redistribute)]
    separate = [node.label.startswith("sum_") for node in moves if node.op == "sum"]
    return separate.count(True), separate.count(False)


LARGE, SMALL = dict.fromkeys("IJKLM", 1024), dict.fromkeys("IJKLM", 18)
LARGE_5, SMALL_5 = (dict.fromkeys("IJKLM", n) | dict.fromkeys("PQRT", r) for n, r in ((24, 12), (5, 3)))


@pytest.mark.parametrize(
    ("program", "sizes", "small", "ranks", "before", "after"),
    [
        (mm2, LARGE, SMALL, 4, (0, 0), (0, 0)),
        (mm2, LARGE, SMALL, 8, (2, 0), (1, 1)),
        (mm3, LARGE, SMALL, 4, (0, 0), (0, 0)),
        (mm3, LARGE, SMALL, 8, (3, 0), (1, 2)),
        (ttmc, LARGE_5, SMALL_5, 4, (0, 0), (0, 0)),
        (ttmc, LARGE_5, SMALL_5, 8, (0, 0), (0, 0)),
    ],
)
def test_fused_and_unfused_programs_give_equal_results(monkeypatch, program, sizes, small, ranks, before, after):
    sizes, small = sizes_of(program, sizes), sizes_of(program, small)
    fused = distribute(program, ranks, sizes)
    with monkeypatch.context() as patch:
        patch.setattr("dace_redist.transformations.distribute.emit.fuse_sums", lambda *_: 0)
        apart = distribute(program, ranks, sizes)
        small_apart = apart.with_sizes(**small)
    assert (counts(apart), counts(fused)) == (before, after)
    given = arguments(program, small)
    wanted = by_numpy(program.f, given, small)
    for made in (small_apart, fused.with_sizes(**small)):
        check(SimulatedRanks(made).run(**given), wanted, given)

"""Distributed programs with sums fused into the following redistributions, and without."""

from __future__ import annotations

import dace
import numpy as np
import pytest
from distributed_simulation import SimulatedRanks

from dace_redist import distribute
from dace_redist.library_nodes import Redistribute, SumReplicas

N, R = dace.symbol("N"), dace.symbol("R")


@dace.program
def mm2(A: dace.float64[N, N], B: dace.float64[N, N], C: dace.float64[N, N]):
    return A @ B @ C


@dace.program
def mm3(A: dace.float64[N, N], B: dace.float64[N, N], C: dace.float64[N, N], D: dace.float64[N, N]):
    return (A @ B) @ (C @ D)


@dace.program
def ttmc(
    X: dace.float64[N, N, N, N, N],
    J: dace.float64[N, R],
    K: dace.float64[N, R],
    L: dace.float64[N, R],
    M: dace.float64[N, R],
):
    return np.einsum("ijklm,jb,kc,ld,me->ibcde", X, J, K, L, M)


def counts(program) -> tuple[int, int]:
    """Return the numbers of separate and of fused sums."""
    found = [node for node, _ in program.sdfg.all_nodes_recursive()]
    moves = [node for node in found if isinstance(node, Redistribute)]
    return sum(isinstance(node, SumReplicas) for node in found), sum(node.op == "sum" for node in moves)


@pytest.mark.parametrize(
    ("program", "sizes", "small", "ranks", "before", "after"),
    [
        (mm2, {"N": 1024}, {"N": 18}, 4, (0, 0), (0, 0)),
        (mm2, {"N": 1024}, {"N": 18}, 8, (2, 0), (1, 1)),
        (mm3, {"N": 1024}, {"N": 18}, 4, (0, 0), (0, 0)),
        (mm3, {"N": 1024}, {"N": 18}, 8, (3, 0), (1, 2)),
        (ttmc, {"N": 24, "R": 12}, {"N": 5, "R": 3}, 4, (0, 0), (0, 0)),
        (ttmc, {"N": 24, "R": 12}, {"N": 5, "R": 3}, 8, (0, 0), (0, 0)),
    ],
)
def test_fused_and_unfused_programs_give_equal_results(monkeypatch, program, sizes, small, ranks, before, after):
    fused = distribute(program, ranks, sizes)
    with monkeypatch.context() as patch:
        patch.setattr("dace_redist.transformations.distribute.emit.fuse_sums", lambda *_: 0)
        apart = distribute(program, ranks, sizes)
        small_apart = apart.with_sizes(**small)
    assert (counts(apart), counts(fused)) == (before, after)
    generator = np.random.default_rng(3)
    given = {name: generator.random(tensor.shape) for name, tensor in small_apart.inputs.items()}
    (first,), (second,) = (
        SimulatedRanks(made).run(**given).values() for made in (small_apart, fused.with_sizes(**small))
    )
    np.testing.assert_allclose(first, second, rtol=1e-12)
    assert np.isfinite(first).all()

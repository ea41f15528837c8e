"""``dace_redist.redistribute`` inside a ``@dace.program``: what its options become."""

from __future__ import annotations

import dace
import numpy as np
import pytest

import dace_redist
from dace_redist import Distribution
from dace_redist.library_nodes import Redistribute

N = dace.symbol("N")
ROWS, COLUMNS = Distribution((8, 6), (2, 1)), Distribution((6, 8), (1, 2))
SYMBOLIC, CYCLIC = Distribution((N, 6), (2, 1)), Distribution((6, N), (2, 2), block=(None, 3))
PARTIAL, TILES = (
    Distribution((8, 6), (2,), dims=(None, None)),
    dace_redist.TiledDistribution((8, 6), (4, 6), [[0], [1]]),
)


def node_of(sdfg: dace.SDFG) -> tuple[Redistribute, dace.SDFG]:
    ((node, state),) = [(n, s) for n, s in sdfg.all_nodes_recursive() if isinstance(n, Redistribute)]
    return node, state


@dace.program
def transposed(A: dace.float64[4, 6]):
    return dace_redist.redistribute(A, ROWS, COLUMNS, axes=(1, 0), target_dtype=np.float32, alpha=2)


@dace.program
def part(A: dace.float64[4, 6], B: dace.float64[6, 4]):
    dace_redist.redistribute(A, ROWS, COLUMNS, out=B, region=((0, 0), (1, 2), (5, 6)), beta=1)


@dace.program
def symbolic(A: dace.float64[N, 6]):
    return dace_redist.redistribute(A, SYMBOLIC, CYCLIC, axes=(1, 0))


@dace.program
def reduced(A: dace.float64[8, 6]):
    return dace_redist.redistribute(A, PARTIAL, TILES, op="sum", strategy="Pack")


@dace.program
def forgotten(A: dace.float64[4, 6]):
    return dace_redist.redistribute(A, ROWS, COLUMNS, region=((0, 0), (1, 2), (5, 6)))


def test_axes_and_types():
    sdfg = transposed.to_sdfg()
    node, state = node_of(sdfg)
    assert (node.index_map.axes, node.alpha) == ((1, 0), 2)
    (_, _), (out, _) = node.arrays(state.sdfg, state)
    assert (tuple(out.shape), out.dtype) == ((6, 4), dace.float32)
    sdfg.validate()


def test_region_and_update():
    sdfg = part.to_sdfg()
    node, _ = node_of(sdfg)
    assert (node.index_map.region, node.beta) == (((0, 0), (1, 2), (5, 6)), 1)
    sdfg.expand_library_nodes()
    (tasklet,) = [
        n for n, _ in sdfg.all_nodes_recursive() if isinstance(n, dace.nodes.Tasklet) and "redist" in n.code.as_string
    ]
    assert "{{0, 1, 0, 0, 1, 2, 5, 6}}, {11, 11, {double(1), 0}, {double(1), 0}, 0, 0}" in tasklet.code.as_string


def test_the_result_of_symbolic_distributions_holds_the_largest_part():
    sdfg = symbolic.to_sdfg()
    node, state = node_of(sdfg)
    (_, _), (out, _) = node.arrays(state.sdfg, state)
    assert [int(dace.symbolic.evaluate(extent, {N: 10})) for extent in out.shape] == [3, 6]


def test_reductions():
    node, state = node_of(reduced.to_sdfg())
    assert (node.op, node.strategy) == ("sum", "Pack")
    (_, _), (out, _) = node.arrays(state.sdfg, state)
    assert tuple(out.shape) == (24,)


def test_a_region_needs_its_target():
    with pytest.raises(Exception, match="region leaves a part of the target as it is: pass its array as out"):
        forgotten.to_sdfg()


def test_factors_are_real():
    with pytest.raises(TypeError, match='Redistribute "wrong": alpha must be real in a DaCe program, got 1j'):
        Redistribute("wrong", ROWS, ROWS, alpha=1j)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"axes": (1, 0)}, "with axes"),
        ({"op": "mean"}, "op must be one of sum"),
        ({"region": ((0, 0), (0, 0), (9, 1))}, "region: 9 indices from 0 on are not inside dimension 0"),
    ],
)
def test_what_does_not_fit_is_said(how, message):
    sdfg = dace.SDFG("wrong_call")
    sdfg.add_array("A", (4, 6), dace.float64)
    sdfg.add_array("B", (4, 6), dace.float64)
    state = sdfg.add_state()
    from sdfgs import add_move

    node = add_move(state, Redistribute("wrong", ROWS, ROWS, **how), "A", "B")
    with pytest.raises(ValueError, match=f'Redistribute "wrong": .*{message}'):
        node.validate(sdfg, state)


@dace.program
def built_inside(A: dace.float64[N, 6]):
    rows = Distribution((2 * N, 6), (2, 1))
    columns = dace_redist.Distribution((2 * N, 6), (1, 2), block=[None, "balanced"])
    B = dace_redist.redistribute(A, rows, columns)
    return dace_redist.redistribute(B, columns, rows)


@dace.program
def tiles_built_inside(A: dace.float64[4, 6]):
    tiles = dace_redist.TiledDistribution((8, 6), (4, 6), [[1], [0]])
    return dace_redist.redistribute(A, ROWS, tiles)


@pytest.mark.parametrize("simplify", [False, True])
def test_distributions_built_in_a_program(simplify):
    sdfg = built_inside.to_sdfg(simplify=simplify)
    rows, columns = Distribution((2 * N, 6), (2, 1)), Distribution((2 * N, 6), (1, 2), block=(None, "balanced"))
    found = [n.distributions() for n, _ in sdfg.all_nodes_recursive() if isinstance(n, Redistribute)]
    assert found == [(rows, columns), (columns, rows)]
    assert not [name for name in sdfg.arrays if "distribution" in name]
    node, _ = node_of(tiles_built_inside.to_sdfg(simplify=simplify))
    assert node.distributions()[1] == dace_redist.TiledDistribution((8, 6), (4, 6), [[1], [0]])

"""``dace_redist.redistribute`` in a ``@dace.program``: shapes and distributions; ``test_node.py`` runs such calls."""

from __future__ import annotations

import dace
import pytest
from sdfgs import redistributions, reread

import dace_redist
from dace_redist import Distribution
from dace_redist.library_nodes import JointRedistribute, Redistribute

N = dace.symbol("N")
ROWS, COLUMNS = Distribution((8, 6), (2, 1)), Distribution((6, 8), (1, 2))
FOLDED = Distribution((12, 4), (2, 1))


def node_of(sdfg: dace.SDFG) -> tuple[Redistribute, dace.SDFG]:
    ((node, state),) = [(n, s) for n, s in sdfg.all_nodes_recursive() if isinstance(n, Redistribute)]
    return node, state


@dace.program
def forgotten(A: dace.float64[4, 6]):
    return dace_redist.redistribute(A, ROWS, COLUMNS, region=((0, 0), (1, 2), (5, 6)))


@dace.program
def folded(A: dace.float64[4, 6]):
    return dace_redist.redistribute(A, ROWS, FOLDED, axes=(1, 0), reshape=(-1, 4))


def test_reshape():
    sdfg = folded.to_sdfg()
    node, _ = node_of(sdfg)
    assert (node.reshape, node.index_map.encoded) == ((12, 4), (-1, 1, 0))
    sdfg = reread(sdfg)
    assert node_of(sdfg)[0].reshape == (12, 4)
    sdfg.validate()


def test_a_joint_node_reshapes():
    node = Redistribute("fold", ROWS, FOLDED, axes=(1, 0), reshape=(12, 4))
    (tensor,) = JointRedistribute("joint", [node]).tensors
    assert tensor.index_map == node.index_map


def test_a_reshape_must_fit():
    with pytest.raises(ValueError, match=r'"fold": reshape must be the shape of the target, \(12, 4\), got \(4, 12\)'):
        Redistribute("fold", ROWS, FOLDED, reshape=(4, 12))
    node = Redistribute("fold", Distribution((N, 6), (2,)), Distribution((6 * N + 1,), (2,)), reshape=(-1,))
    with pytest.raises(ValueError, match=r'"fold": a tensor of shape \(N, 6\) cannot be reshaped to \(6\*N \+ 1,\)'):
        node._validate_shapes(*node.distributions())


def test_a_region_needs_its_target():
    with pytest.raises(Exception, match="region leaves a part of the target as it is: pass its array as out"):
        forgotten.to_sdfg()


@dace.program
def built_inside(A: dace.float64[N, 6]):
    rows = Distribution((2 * N, 6), (2, 1))
    columns = dace_redist.Distribution((2 * N, 6), (1, 2), block=[None, "balanced"])
    B = dace_redist.redistribute(A, rows, columns)
    return dace_redist.redistribute(B, columns, rows)


@dace.program
def split_inside(A: dace.float64[4, 6]):
    return dace_redist.redistribute(A, Distribution((8, 6), (2, 1)), Distribution.split((8, 6), 1, 2))


def test_distributions_of_numbers_built_in_a_program():
    (node,) = redistributions(split_inside.to_sdfg())
    assert node.distributions() == (ROWS, Distribution.split((8, 6), 1, 2))


class Targets:
    target = ROWS


@dace.program
def of_an_attribute(A: dace.float64[4, 6]):
    return dace_redist.redistribute(A, ROWS, Targets.target)


def test_a_changed_distribution_is_another_program(monkeypatch):
    for target in (ROWS, ROWS, Distribution((8, 6), (1, 2)), ROWS):  # in DaCe's cache from the second call on
        monkeypatch.setattr(Targets, "target", target)
        (node,) = redistributions(of_an_attribute.to_sdfg(use_cache=True))
        assert node.distributions()[1] == target


@dace.program
def tiles_built_inside(A: dace.float64[4, 6]):
    tiles = dace_redist.TiledDistribution((8, 6), (4, 6), [[1], [0]])
    return dace_redist.redistribute(A, ROWS, tiles)


@dace.program
def boxes_built_inside(A: dace.float64[4, 6]):
    boxes = dace_redist.BoxDistribution((8, 6), [((0, 0), (8, 2)), ((0, 2), (8, 4))], [1, 0])
    return dace_redist.redistribute(A, ROWS, boxes)


@pytest.mark.parametrize("simplify", [False, True])
def test_distributions_built_in_a_program(simplify):
    sdfg = built_inside.to_sdfg(simplify=simplify)
    rows, columns = Distribution((2 * N, 6), (2, 1)), Distribution((2 * N, 6), (1, 2), block=(None, "balanced"))
    assert [node.distributions() for node in redistributions(sdfg)] == [(rows, columns), (columns, rows)]
    assert not [name for name in sdfg.arrays if "distribution" in name]
    node, _ = node_of(tiles_built_inside.to_sdfg(simplify=simplify))
    assert node.distributions()[1] == dace_redist.TiledDistribution((8, 6), (4, 6), [[1], [0]])
    node, state = node_of(boxes_built_inside.to_sdfg(simplify=simplify))
    assert node.distributions()[1] == dace_redist.BoxDistribution((8, 6), [((0, 0), (8, 2)), ((0, 2), (8, 4))], [1, 0])
    (_, _), (out, _) = node.arrays(state.sdfg, state)
    assert tuple(out.shape) == (8, 4)

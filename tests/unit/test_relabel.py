"""Renumbered targets: the same parts on other ranks, and no numbering is better; bytes between nodes."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from distributions import CALM, FEW, distributions, shapes, with_margins
from hypothesis import given
from hypothesis import strategies as st

from dace_redist.distribution import BoxDistribution, Distribution, TiledDistribution
from dace_redist.relabelling import cost_of, node_weights, relabel
from dace_redist.schedule import schedule


def few(distribution):
    return distribution.ranks_needed <= 5


pairs = shapes.flatmap(lambda shape: st.tuples(distributions(shape).filter(few), distributions(shape).filter(few)))


def unreplicated(pair):
    def is_unreplicated(side):
        if isinstance(side, BoxDistribution):
            return side.boxes[:, 1].prod(axis=1).sum() == math.prod(side.shape)
        return side.core.replicas == 1

    return all(map(is_unreplicated, pair))


@pytest.mark.slow
@CALM
@given(pairs.filter(unreplicated), st.sampled_from([None, "nodes", "any"]), st.integers(0, 99))
def test_no_numbering_costs_less(pair, kind, seed):
    source, target = pair
    ranks, rng, weights = max(source.ranks_needed, target.ranks_needed), np.random.default_rng(seed), None
    if kind is not None:
        weights = node_weights(rng.integers(0, 2, ranks)) if kind == "nodes" else rng.integers(0, 9, (ranks, ranks))

    def cost(found):
        return cost_of(schedule(source, found), weights)

    best = min(cost(target.on_ranks(labels)) for labels in itertools.permutations(range(ranks)))
    assert cost(relabel(source, target, weights=weights)) == pytest.approx(best)
    if kind is None:  # the largest overlaps first keep at least half of what can stay
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dace_redist.relabelling.MAX_MATCHED_RANKS", 0)
            assert cost(relabel(source, target)) <= (math.prod(source.shape) + best) / 2


@pytest.mark.slow
@CALM
@given(pairs.flatmap(lambda pair: st.tuples(st.just(pair[0]), with_margins(st.just(pair[1])))), st.integers(0, 99))
def test_numberings_change_only_for_less_and_the_parts_stay(pair, seed):
    source, target = pair
    ranks = max(side.ranks_needed for side in pair)
    for weights in (None, np.random.default_rng(seed).integers(0, 3, (ranks, ranks)).astype(float)):
        found = relabel(source, target, weights=weights)
        before, after = (cost_of(schedule(source, side), weights) for side in (target, found))
        assert found.is_equivalent_to(target) or after < before
        assert (found.halo, found.periodic) == (target.halo, target.periodic)
        shapes_of = [sorted(side.local_shape(rank) for rank in range(ranks)) for side in (found, target)]
        assert shapes_of[0] == shapes_of[1]


def test_what_is_there_already_stays():
    source = Distribution((8, 8), (4, 1))
    turned = Distribution((8, 8), (4, 1), ranks=(3, 0, 1, 2))
    assert relabel(source, turned).ranks == (0, 1, 2, 3)
    tiles = TiledDistribution((8, 8), (2, 8), [[1], [2], [3], [0]])
    assert relabel(source, tiles).owner_of_tile.ravel().tolist() == [0, 1, 2, 3]
    transposed = Distribution((8, 8), (1, 4), ranks=(2, 3, 0, 1))
    assert relabel(source, transposed, axes=(1, 0)).ranks == (0, 1, 2, 3)


def test_several_tensors_are_renumbered_alike():
    A, B = Distribution((8,), (2,), ranks=(1, 0)), Distribution((100,), (2,), ranks=(0, 1))
    plain = Distribution((8,), (2,)), Distribution((100,), (2,), ranks=(1, 0))
    found = relabel([A, B], plain)
    assert [side.ranks for side in found] == [(1, 0), (0, 1)]
    first = relabel([A, Distribution((100,), (2,))], [plain[0], Distribution((100,), (2,))], nbytes=[1000, 1])
    assert first[0].ranks == (1, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], []), "equally long lists, at least one entry"),
        (([Distribution((4,), (2,))] * 2, [Distribution((4,), (2,))]), "equally long lists"),
        ((Distribution((4,), (2,)), Distribution((5,), (2,))), "one global shape"),
    ],
)
def test_what_does_not_fit_is_said(arguments, message):
    with pytest.raises(ValueError, match=message):
        relabel(*arguments)


def test_wrong_weights():
    pair = Distribution((4,), (2,)), Distribution((4,), (2,), ranks=(1, 0))
    for weights in ([1, 2], [[1, 2, 3]] * 3, [[0, -1], [1, 0]], [[0, np.nan], [1, 0]]):
        with pytest.raises(ValueError, match="weights must be finite numbers"):
            relabel(*pair, weights=weights)
    for nbytes in (8, [8, 8], [-8], [np.nan], ["many"], [None], [10**400]):
        with pytest.raises(ValueError, match=r"nbytes must be finite numbers of at least 0, of shape \(1,\), got"):
            relabel(*pair, nbytes=nbytes)
    with pytest.raises(ValueError, match="node_of must be a list of the node of each rank, got 3"):
        node_weights(3)


@FEW
@given(pairs, st.data())
def test_bytes_between_nodes_are_those_of_the_volume_matrix(pair, data):
    found = schedule(*pair, dtype="float32")
    nodes = [data.draw(st.integers(0, 2)) for _ in range(found.ranks)]
    nbytes, of_ranks = found.bytes_between_nodes(nodes), found.volume_matrix()[np.not_equal.outer(nodes, nodes)].sum()
    if max(side.core.replicas for side in pair) == 1:
        assert nbytes == of_ranks
    elif not isinstance(pair[0], BoxDistribution):  # an element of boxes that overlap may come from another node
        assert nbytes <= of_ranks  # it enters a node once
    assert found.bytes_between_nodes(range(found.ranks)) == found.bytes_moved()
    with pytest.raises(ValueError, match=f"node of each of {found.ranks} ranks"):
        found.bytes_between_nodes(nodes[:-1])


def test_whole_nodes_are_swapped(run):
    source, target = Distribution((8, 8), (4, 1)), Distribution((8, 8), (2, 2), ranks=(2, 3, 0, 1))
    better = relabel(source, target, weights=node_weights([0, 0, 1, 1]))
    assert schedule(source, target).bytes_between_nodes([0, 0, 1, 1]) == 512
    assert schedule(source, better).bytes_between_nodes([0, 0, 1, 1]) == 0
    words = ("explain", "--shape", "8,8", "--from", "4", "--to", "2,2")
    on_nodes = (*words, "--to-ranks", "2,3,0,1", "--ranks-per-node", 2)
    lines = run(*on_nodes)[1].splitlines()
    assert "nodes     2: 512 B (100.0 %) moved between them, 0 B (0.0 %) between ranks of a node" in lines
    assert any("node_weights" in line and "512 B (100.0 %)" in line for line in lines)
    found = json.loads(run(*on_nodes, "--json")[1])
    assert found["node_of_rank"] == [0, 0, 1, 1]
    assert (found["bytes_between_nodes"], found["bytes_within_nodes"]) == (512, 0)
    assert found["bytes_between_nodes_saved_by_relabelling"] == 512
    assert "bytes_between_nodes" not in json.loads(run(*words, "--json")[1]) and "nodes  " not in run(*words)[1]

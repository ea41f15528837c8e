"""Replicas and sums move once into each node that wants them: plans of all ranks, against brute force."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from dace_redist import Distribution, schedule

SHAPES = [(96, 70), (9, 7), (64, 96, 8), (300,)]


def drawn(rng: random.Random, shape: tuple[int, ...], ranks: int, cyclic: bool) -> Distribution:
    """Return blocks on some ranks, in any order, often with replicas."""
    grid = rng.choice([(ranks,), (ranks // 2, 2), (2, ranks // 2), (1,), (ranks - 1,)])
    dims = rng.sample([*range(len(grid)), *[None] * len(shape)], len(shape))
    block = [rng.choice(["balanced", "balanced", 3 if cyclic else "ceil"]) for _ in shape]
    return Distribution(shape, grid, dims=dims, block=block, ranks=rng.sample(range(ranks), math.prod(grid)))


def held_on_nodes(distribution: Distribution, nodes: list[int]) -> np.ndarray:
    """Return which elements each node holds, (nodes, *shape)."""
    held = np.zeros((max(nodes) + 1, *distribution.shape), bool)
    for rank, node in enumerate(nodes):
        if math.prod(distribution.local_shape(rank)):
            held[node][np.ix_(*distribution.global_index(rank))] = True
    return held


def least_elements(source: Distribution, target: Distribution, nodes: list[int], sums: bool) -> int:
    """Return the fewest elements that can cross between nodes."""
    has, wants = held_on_nodes(source, nodes), held_on_nodes(target, nodes)
    if not sums:
        return int((wants & ~has).sum())
    added = has.sum(0) - (has & wants).any(0)  # the sum is made on a node that wants it, and has a part if there is one
    return int((np.maximum(added, 0) + wants.sum(0) - 1)[wants.any(0)].sum())


@pytest.mark.parametrize("seed", range(60))
def test_each_element_enters_a_node_once(seed):
    rng = random.Random(seed)
    ranks, shape, sums = rng.choice([4, 6, 8, 12]), rng.choice(SHAPES), rng.random() < 0.5
    source, target = (drawn(rng, shape, ranks, cyclic=rng.random() < 0.3) for _ in range(2))
    nodes = [rng.randrange(3) for _ in range(ranks)] if rng.random() < 0.5 else [rank // 3 for rank in range(ranks)]
    nodes = np.unique(nodes, return_inverse=True)[1].tolist()
    moved = schedule(source, target, np.int16, op="max" if sums else None)
    assert moved.bytes_between_nodes(nodes) == 2 * least_elements(source, target, nodes, sums)


@pytest.mark.parametrize("pieces", [(8, 4), (12, 3), (32, 8)])
def test_ranks_of_a_node_share_what_enters_it(pieces):
    """No rank sends or receives more than its share between nodes, whatever is replicated."""
    ranks, per_node = pieces
    shape, nodes = (192, 256), np.arange(ranks) // per_node
    copies, grid = [None, None], (2, ranks // 2)
    rows, everywhere = Distribution(shape, (ranks,), dims=[0, None]), Distribution(shape, (ranks,), dims=copies)
    for source, target, op in [
        (rows, everywhere, None),
        (Distribution(shape, (ranks,), dims=[None, 0]), everywhere, None),
        (Distribution(shape, grid), everywhere, None),
        (everywhere, rows, "sum"),
        (everywhere, everywhere, "sum"),
    ]:
        found = schedule(source, target, np.int8, op=op)
        entering = found.bytes_between_nodes(nodes)
        for rank_side in (0, 1):
            of_rank = np.zeros(ranks)
            for *sides, nbytes in found._node_messages(nodes):
                away = nodes[sides[0]] != nodes[sides[1]]
                np.add.at(of_rank, sides[rank_side][away], nbytes[away])
            assert of_rank.max() <= 1.34 * entering / ranks
    link = schedule(Distribution(shape, (1,), dims=copies), everywhere).bound(1, node_of=nodes)
    assert link <= 2 * math.prod(shape) * 8  # the owner's link carries the tensor once, in shares, and some rounding


def test_pieces_of_block_cyclic_parts_are_equal():
    """The last of several blocks is shorter: it is not a piece of its own."""
    nodes = np.arange(8) // 4
    halves = Distribution((192, 256), (2, 4), dims=(0, None), block=(7, None))
    entering = np.zeros(8)
    for senders, receivers, nbytes in schedule(
        halves, Distribution((192, 256), (8,), dims=(None, None))
    )._node_messages(nodes):
        np.add.at(entering, receivers, nbytes * (nodes[senders] != nodes[receivers]))
    entering = entering[entering > 0]
    assert len(entering) == 4 and entering.min() > 0.75 * entering.max()


def test_bytes_are_those_of_the_types_on_the_way():
    """Replicas move in the smaller type, sums of a node in that of the target."""
    rows, everywhere = (Distribution((8, 4), (4,), dims=dims) for dims in ([0, None], [None, None]))
    nodes = [0, 0, 1, 1]
    assert schedule(rows, everywhere, "f4", target_dtype="f8").bytes_between_nodes(nodes) == 32 * 4
    assert schedule(everywhere, rows, "f4", target_dtype="f8", op="sum").bytes_between_nodes(nodes) == 32 * 8

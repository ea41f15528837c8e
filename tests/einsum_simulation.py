"""Simulation of a plan of einsums with NumPy, rank by rank and without MPI: the oracle of the planner's tests."""

from __future__ import annotations

import math

import numpy as np
import opt_einsum
from results import solved

from dace_redist.einsum.placement import same_place


class Simulation:
    """
    All ranks of a plan. A rank reads only elements that it owns under its placements.

    :param plan: The plan.
    :param inputs: Whole tensors by name.
    """

    def __init__(self, plan, inputs):
        self.plan = plan
        self.at = {name: [] for name in plan.sizes}  # (placement, blocks by grid position) of each tensor
        for name in plan.inputs:
            self.at[name] = [(plan.homes[name], cut(plan.homes[name], inputs[name]))]

    def run(self, rounds=1):
        """Run all groups, several times as the body of a loop; a loop starts with every tensor at home only."""
        for _ in range(rounds):
            for number in range(len(self.plan.groups)):
                self._moves(number, feeding=True)
                self._group(self.plan.groups[number])
                self._moves(number + 1, feeding=False)
            for name, places in self.at.items():
                self.at[name] = [p for p in places if same_place(p[0], self.plan.homes[name], self.plan.sizes[name])]
        return {name: self.whole(name) for name in self.plan.outputs}

    def whole(self, name):
        """Return a tensor, assembled from its home."""
        return joined(*self._held(name, self.plan.homes[name]), self.plan.sizes[name])

    def _held(self, name, placement):
        for place, blocks in self.at[name]:
            if same_place(place, placement, self.plan.sizes[name]):
                return placement, _in_order(place, blocks, placement, self.plan.sizes[name])
        raise AssertionError(f"{name} is not at {placement}")

    def _moves(self, number, feeding):
        for move in self.plan.moves:
            if move.before_group == number and (move.group == number) == feeding:
                whole = joined(*self._held(move.tensor, move.source), self.plan.sizes[move.tensor])
                self.at[move.tensor].append((move.target, cut(move.target, whole)))

    def _group(self, group):
        sizes = self.plan.sizes
        operands = []
        for number, name in enumerate(group.operands):
            wanted = group.operand_placements[number]
            placement, blocks = self._held(name, wanted)
            operands.append(dict(zip(placement.ranks, blocks, strict=True)))
        if group.equal:
            operands = [_diagonal(group, operands[0], sizes[group.operands[0]])]
        partial = {rank: _local(group, [blocks[rank] for blocks in operands]) for rank in group.ranks}
        positions = np.ndindex(*group.grid, group.replicas)
        places = {rank: position[:-1] for rank, position in zip(group.ranks, positions, strict=True)}
        extents = {i: n for names, name in _terms(group) for i, n in zip(names, sizes[name], strict=True)}
        starts = {rank: _box(group, places[rank], extents) for rank in group.ranks}
        result = group.result_placement
        low, high = result.bounds(sizes[group.result])
        blocks = []
        for position, rank in enumerate(result.ranks):
            same = [other for other in group.ranks if starts[other] == starts[rank]]
            own = tuple(slice(a, b) for a, b in zip(low[:, position], high[:, position], strict=True))
            inside = tuple(slice(o.start - lo, o.stop - lo) for o, (lo, hi) in zip(own, starts[rank], strict=True))
            if all(o.stop > o.start for o in own):  # what a rank keeps of the sum it has a part of
                assert all(lo <= o.start and o.stop <= hi for o, (lo, hi) in zip(own, starts[rank], strict=True))
                assert len(same) == (group.reduction.ranks if group.reduction else group.replicas)
            blocks.append(
                sum(partial[other][inside] for other in (same if group.reduction else [rank]))
                if all(o.stop > o.start for o in own)
                else np.zeros([max(o.stop - o.start, 0) for o in own])
            )
        self.at[group.result] = [(result, blocks)]


def cut(placement, whole):
    """Return the block of each grid position."""
    low, high = placement.bounds(whole.shape)
    return [whole[tuple(slice(a, b) for a, b in zip(low[:, p], high[:, p], strict=True))] for p in range(low.shape[1])]


def joined(placement, blocks, shape):
    """Return the whole tensor; every element must be present."""
    whole = np.full(shape, np.nan)
    low, high = placement.bounds(shape)
    for position, block in enumerate(blocks):
        whole[tuple(slice(a, b) for a, b in zip(low[:, position], high[:, position], strict=True))] = block
    assert not np.isnan(whole).any()
    return whole


def _in_order(place, blocks, wanted, shape):
    """Return the blocks in another order of the ranks; ranks outside hold nothing."""
    by_rank = dict(zip(place.ranks, blocks, strict=True))
    low, high = wanted.bounds(shape)
    return [by_rank.get(rank, np.zeros((high - low)[:, position])) for position, rank in enumerate(wanted.ranks)]


def _terms(group):
    return zip((*group.einsum.operands, group.einsum.result), (*group.operands, group.result), strict=True)


def _box(group, coordinates, extents):
    box = []
    for index in group.einsum.result:
        at = group.einsum.indices.index(index)
        block = group.multiples[at] * math.ceil(extents[index] / (group.grid[at] * group.multiples[at]))
        low = min(coordinates[at] * block, extents[index])
        box.append((low, min(low + block, extents[index])))
    return tuple(box)


def _local(group, blocks):
    if group.elementwise:
        letters = group.einsum.result
        return sum(
            2.0 * np.einsum(f"{o}->{o}", b)[_broadcast(o, letters)]
            for o, b in zip(group.einsum.operands, blocks, strict=True)
        )
    if group.solves and 0 not in blocks[-1].shape:
        return solved(str(group.einsum), *blocks)
    if any(0 in block.shape for block in blocks):  # a ragged end: nothing to add
        return np.einsum(str(group.einsum), *blocks)
    return opt_einsum.contract(str(group.einsum), *blocks, optimize=[tuple(step) for step in group.path])


def _diagonal(group, blocks, shape):
    """Return the blocks with zeros off the diagonal."""
    (placement,), (term,) = group.operand_placements, group.einsum.operands
    low, high = placement.bounds(shape)
    kept = {}
    for position, rank in enumerate(placement.ranks):
        along = np.meshgrid(*map(np.arange, low[:, position], high[:, position]), indexing="ij")
        masks = [along[term.index(place)] == along[term.index(index)] for place, index in group.equal]
        kept[rank] = np.where(np.logical_and.reduce(masks), blocks[rank], 0)
    return kept


def _broadcast(operand, letters):
    assert "".join(i for i in letters if i in operand) == operand
    return tuple(slice(None) if index in operand else None for index in letters)

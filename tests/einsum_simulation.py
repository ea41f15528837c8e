"""Simulation of a plan of einsums with NumPy, rank by rank and without MPI: the oracle of the planner's tests."""

from __future__ import annotations

import itertools

import numpy as np
import opt_einsum
from results import solved


class Simulation:
    """
    All ranks of a plan. A rank reads only elements that it owns under its placements.

    :param plan: The plan.
    :param inputs: Whole tensors by name.
    """

    def __init__(self, plan, inputs):
        self.plan = plan
        self.at = {name: [] for name in plan.sizes}  # (placement, blocks by rank) of each tensor
        for name in plan.inputs:
            self._put(name, plan.homes[name], inputs[name])

    def run(self):
        """Run all groups, and all iterations of loops; of branches each one."""
        self._run(range(len(self.plan.groups)), 0)
        return {name: self._whole(name, self.plan.homes[name]) for name in self.plan.outputs}

    def _run(self, numbers, depth):
        for loop, inside in itertools.groupby(numbers, lambda number: (*self._loops(number)[depth:], None)[0]):
            inside = list(inside)
            if loop is None:
                for number in inside:
                    self._moves(lambda move, now=number: move.before_group == now <= move.group, depth)
                    self._group(self.plan.groups[number])
                    self._moves(lambda move, now=number: move.before_group > now == move.group, depth)
                continue
            first = inside[0]
            self._moves(lambda move, now=first: move.before_group == now <= move.group, depth, not loop.is_branch)
            written = {self.plan.groups[number].result for number in inside}
            before = {(name, place) for name in self.at.keys() - written for place, _ in self.at[name]}
            for _ in range(int(loop.iterations)):
                self._forget(before)
                self._run(inside, depth + 1)
            self._forget(before)

    def _loops(self, number):
        return self.plan.statements[self.plan.groups[number].statement].loops

    def _forget(self, kept):
        """Forget copies but some: an iteration starts with what is written in the loop at home only."""
        for name, places in self.at.items():
            homes, shape = self.plan.homes, self.plan.sizes[name]  # a tensor that is not used has no home
            held = [place for place in places if (name, place[0]) in kept]
            held += [place for place in places if place not in held and place[0].is_equivalent_to(homes[name], shape)]
            self.at[name] = held

    def _put(self, name, placement, whole):
        parts = owned(placement, whole.shape)
        self.at[name].append((placement, {rank: whole[part] for rank, part in parts.items()}))

    def _whole(self, name, placement):
        """Return a tensor, assembled from a placement; every element must be present."""
        whole = np.full(self.plan.sizes[name], np.nan)
        blocks = self._held(name, placement)
        for rank, part in owned(placement, whole.shape).items():
            whole[part] = blocks[rank]
        assert not np.isnan(whole).any()
        return whole

    def _held(self, name, wanted):
        """Return the block of each rank of a placement; a rank outside holds nothing."""
        sizes = self.plan.sizes[name]
        for place, blocks in self.at[name]:
            if place.is_equivalent_to(wanted, sizes):
                nothing = np.zeros(sizes)
                return {rank: blocks.get(rank, nothing[part]) for rank, part in owned(wanted, sizes).items()}
        raise AssertionError(f"{name} is not at {wanted}")

    def _moves(self, now, depth, allowed=True):
        for move in self.plan.moves:
            if len(move.loops) == depth and now(move):
                assert allowed, f"{move} runs between branches"
                self._put(move.tensor, move.target, self._whole(move.tensor, move.source))

    def _group(self, group):
        sizes = self.plan.sizes
        operands, ranges = [], {rank: {} for rank in group.ranks}
        terms = zip(group.einsum.operands, group.operands, group.operand_placements, strict=True)
        for term, name, placement in terms:
            operands.append(self._held(name, placement))
            for rank, part in owned(placement, sizes[name]).items():
                ranges[rank].update(zip(term, part, strict=True))
        if group.equal:
            operands = [_diagonal(group, operands[0], sizes[group.operands[0]])]
        partial = {rank: _local(group, [blocks[rank] for blocks in operands]) for rank in group.ranks}
        boxes = {rank: [ranges[rank][index] for index in group.einsum.result] for rank in group.ranks}
        blocks = {}
        for rank, own in owned(group.least_placement, sizes[group.result]).items():
            if all(part.start < part.stop for part in own):  # what a rank keeps of the sum it has a part of
                both = list(zip(own, boxes[rank], strict=True))
                assert all(box.start <= part.start and part.stop <= box.stop for part, box in both)
                same = [other for other in group.ranks if boxes[other] == boxes[rank]]
                assert len(same) == (group.reduction.ranks if group.reduction else group.replicas)
                inside = tuple(slice(part.start - box.start, part.stop - box.start) for part, box in both)
                blocks[rank] = sum(partial[other][inside] for other in (same if group.reduction else [rank]))
        self.at[group.result] = [(group.least_placement, blocks)]
        if group.sums_at is not None:
            whole = self._whole(group.result, group.least_placement)
            self.at[group.result] = []
            self._put(group.result, group.sums_at, whole)


def owned(placement, shape):
    """Return the part of a tensor that each rank owns, as slices."""
    low, high = placement.bounds(shape)
    return {rank: tuple(map(slice, low[:, p], high[:, p])) for p, rank in enumerate(placement.ranks)}


def _local(group, blocks):
    if group.elementwise:
        letters = group.einsum.result
        both = zip(group.einsum.operands, blocks, strict=True)
        return sum(2.0 * np.einsum(f"{o}->{o}", b)[_broadcast(o, letters)] for o, b in both)
    if group.solves and 0 not in blocks[-1].shape:
        return solved(str(group.einsum), *blocks)
    if any(0 in block.shape for block in blocks):  # a ragged end: nothing to add
        return np.einsum(str(group.einsum), *blocks)
    return opt_einsum.contract(str(group.einsum), *blocks, optimize=[tuple(step) for step in group.path])


def _diagonal(group, blocks, shape):
    """Return the blocks with zeros off the diagonal."""
    (placement,), (term,) = group.operand_placements, group.einsum.operands
    kept = {}
    for rank, part in owned(placement, shape).items():
        along = np.meshgrid(*(np.arange(axis.start, axis.stop) for axis in part), indexing="ij")
        masks = [along[term.index(place)] == along[term.index(index)] for place, index in group.equal]
        kept[rank] = np.where(np.logical_and.reduce(masks), blocks[rank], 0)
    return kept


def _broadcast(operand, letters):
    assert "".join(i for i in letters if i in operand) == operand
    return tuple(slice(None) if index in operand else None for index in letters)

"""Costs of a program as a sum over groups and pairs of groups. Start reading at: Model."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from dace_redist.einsum.bounds import move_bounds, paired_bounds
from dace_redist.einsum.grids import Candidates, Floats, Layouts
from dace_redist.einsum.placement import Array, Placement
from dace_redist.einsum.plan import BYTES_PER_SECOND, FLOPS_PER_SECOND, Group, Reduction
from dace_redist.einsum.program import Program, Step
from dace_redist.einsum.relabel import Overlap, best_ranks
from dace_redist.einsum.search import Pair
from dace_redist.einsum.traffic import traffic

#: What a byte of memory counts against one that is moved. It breaks ties: far below one byte in all.
TIE_BREAK = 1e-13
#: How many bytes are moved in the time of one operation.
BYTES_PER_FLOP = BYTES_PER_SECOND / FLOPS_PER_SECOND


@dataclasses.dataclass(frozen=True)
class Edge:
    """
    A tensor that may have to be moved between two groups.

    :param tensor: Its name.
    :param source: Group and operand (None: the result) that say where it is; group None: the user says it.
    :param target: Group and operand that say where it is wanted; group None: the user says it.
    :param weight: How often it moves.
    """

    tensor: str
    source: tuple[int | None, int | None]
    target: tuple[int | None, int | None]
    weight: int


def edges_of(program: Program) -> list[Edge]:
    """Every read of a tensor by a group that does not say where it is, and every write of one that lies elsewhere."""
    edges = []
    for number, step in enumerate(program.steps):
        ends = [(name, (number, operand), True) for operand, name in enumerate(step.operands)]
        for name, here, reads in [*ends, (step.result, (number, None), False)]:
            home = program.owner(name) or (None, None)
            if home != here:
                source, target = (home, here) if reads else (here, home)
                edges.append(Edge(name, source, target, program.repeats(number)))
    return edges


def make_group(step: Step, candidates: Candidates, row: int, elementwise: bool) -> Group:
    """A candidate as a group on ranks 0, 1, 2, ..."""
    grid, scatter = tuple(candidates.parts[row].tolist()), int(candidates.scatter[row])
    einsum, partial = step.part.einsum, int(candidates.partial[row])
    over = "".join(i for i in einsum.summed if grid[einsum.indices.index(i)] > 1)
    reduction = Reduction(over, partial, scatter if scatter >= 0 else None) if partial > 1 else None
    multiples, ranks = tuple(candidates.multiples[row].tolist()), tuple(range(int(np.prod(grid))))
    path = step.part.path
    return Group(
        einsum, step.operands, step.result, step.statement, grid, ranks, multiples, path, reduction, elementwise
    )


class Model:
    """
    Bytes through the busiest rank for every choice of one candidate per group; work beyond the least counts as the
    bytes that could be moved in its time.

    ``thrift`` says what a byte of memory counts. What two groups move between them is bounded from below
    (:meth:`pair_bounds`) or computed with the ranks relabelled as well as can be (:meth:`exact`).
    """

    def __init__(self, program: Program, candidates: Sequence[Candidates], thrift: float = TIE_BREAK) -> None:
        self.program, self.candidates, self.thrift = program, list(candidates), thrift
        self.edges = edges_of(program)
        self._exact: dict[tuple[int, int, int, int], float] = {}

    def keep(self, variable: int, which: Array) -> None:
        """Drop all candidates of a group but these."""
        self.candidates[variable] = self.candidates[variable].chosen(which)
        self.__dict__.pop("unary", None)
        self._exact.clear()

    @cached_property
    def unary(self) -> list[Floats]:
        """Costs of each group's candidates by themselves: fetches, reductions, excess work, the user's moves."""
        costs = []
        for number, found in enumerate(self.candidates):
            elements = self.program.repeats(number) * found.reduced
            for operand, name in enumerate(self.program.steps[number].operands):
                if self.program.owner(name) == (number, operand):
                    elements = elements + found.fetched(operand)
            for edge in self.edges:
                if {edge.source[0], edge.target[0]} <= {number, None}:
                    elements = elements + self._alone(edge)
            work = self.program.repeats(number) * BYTES_PER_FLOP * found.excess_load
            costs.append((elements + self.thrift * found.footprint) * self.program.itemsize + work)
        return costs

    def _alone(self, edge: Edge) -> Floats:
        """Elements of an edge that concerns one group only."""
        source, target = self._layouts(*edge.source, edge.tensor), self._layouts(*edge.target, edge.tensor)
        shape = self.program.sizes[edge.tensor]
        if edge.source[0] == edge.target[0]:
            return edge.weight * paired_bounds(source, target, shape)
        return edge.weight * move_bounds(source, target, shape).ravel()

    def _layouts(self, group: int | None, operand: int | None, tensor: str) -> Layouts:
        if group is None:
            return _layout_of(self.program.placements[tensor], self.program.sizes[tensor])
        return self.candidates[group].result if operand is None else self.candidates[group].operand(operand)

    def between(self, i: int, j: int) -> list[Edge]:
        """The edges between two groups."""
        return [edge for edge in self.edges if {edge.source[0], edge.target[0]} == {i, j}]

    @cached_property
    def linked(self) -> list[Pair]:
        """Pairs (i, j), i < j, of groups between which a tensor may move."""
        ends = {(e.source[0], e.target[0]) for e in self.edges if None not in (e.source[0], e.target[0])}
        return sorted({(min(a, b), max(a, b)) for a, b in ends if a is not None and b is not None and a != b})

    def pair_bounds(self, i: int, j: int) -> Floats:
        """Least cost of what moves between two groups, for all pairs of their candidates: (K_i, K_j)."""
        return self._bounds(i, j, {})

    def _bounds(self, i: int, j: int, rows: dict[int, int]) -> Floats:
        """The bounds for one candidate of some groups and all of the others."""
        total: Floats = np.zeros((1, 1))
        for edge in self.between(i, j):
            source, target = (
                _row(self._layouts(*end, edge.tensor), rows.get(end[0] or 0)) for end in (edge.source, edge.target)
            )
            bounds = move_bounds(source, target, self.program.sizes[edge.tensor])
            total = total + edge.weight * self.program.itemsize * (bounds if edge.source[0] == i else bounds.T)
        return total

    def given(self, variable: int, choice: Sequence[int | None]) -> Floats:
        """See :class:`search.RowCosts`."""
        costs: Floats = self.unary[variable].copy()
        for i, j in self.linked:
            other = j if i == variable else i
            row = choice[other]
            if variable in (i, j) and row is not None:
                costs += self._bounds(i, j, {other: row}).ravel()
        return costs

    def bound(self, choice: Sequence[int]) -> float:
        """See :class:`search.RowCosts`."""
        own = sum(float(costs[row]) for costs, row in zip(self.unary, choice, strict=True))
        return own + sum(float(self._bounds(i, j, {i: choice[i], j: choice[j]})[0, 0]) for i, j in self.linked)

    def total(self, choice: Sequence[int]) -> float:
        """The cost of a choice with the ranks of each pair of groups relabelled as well as can be."""
        own = sum(float(costs[row]) for costs, row in zip(self.unary, choice, strict=True))
        return own + sum(self.exact(i, choice[i], j, choice[j]) for i, j in self.linked)

    def result_cost(self, number: int, choice: Sequence[int]) -> float:
        """What reducing and moving a group's result costs in a solution."""
        moved = [
            self.exact(i, choice[i], j, choice[j])
            for i, j in self.linked
            if any(edge.source == (number, None) for edge in self.between(i, j))
        ]
        return float(self.candidates[number].reduced[choice[number]]) + sum(moved)

    def exact(self, i: int, row_i: int, j: int, row_j: int) -> float:
        """What moves between two groups, with the ranks of the second relabelled to suit the first."""
        key = (i, row_i, j, row_j)
        if key not in self._exact:
            bound = float(self._bounds(i, j, {i: row_i, j: row_j})[0, 0])
            self._exact[key] = self._moved(i, self.group(i, row_i), j, self.group(j, row_j), bound)
        return self._exact[key]

    def _moved(self, i: int, first: Group, j: int, second: Group, bound: float) -> float:
        plain = self._moved_between({i: first, j: second}, i, j)
        if plain <= bound * (1 + 1e-12):
            return plain
        overlaps = [self.overlap(edge, j, second, {i: first}) for edge in self.between(i, j)]
        second = second.with_ranks(best_ranks(overlaps, len(second.ranks), self.program.ranks))
        return min(plain, self._moved_between({i: first, j: second}, i, j))

    def _moved_between(self, groups: dict[int, Group], i: int, j: int) -> float:
        """Bytes through the busiest rank for what moves between two groups on the ranks they have."""
        cost = 0.0
        for edge in self.between(i, j):
            found = traffic(
                self.placement(edge.source, edge.tensor, groups),
                self.placement(edge.target, edge.tensor, groups),
                self.program.sizes[edge.tensor],
            )
            cost += edge.weight * found.busiest * self.program.itemsize
        return cost

    def group(self, number: int, row: int) -> Group:
        """A candidate as a group on ranks 0, 1, 2, ..."""
        step = self.program.steps[number]
        return make_group(step, self.candidates[number], row, self.program.statements[step.statement].elementwise)

    def placement(self, end: tuple[int | None, int | None], tensor: str, groups: dict[int, Group]) -> Placement:
        """Where one end of an edge has or wants the tensor."""
        number, operand = end
        if number is None:
            return self.program.placements[tensor]
        return groups[number].result_placement() if operand is None else groups[number].operand_placement(operand)

    def overlap(self, edge: Edge, number: int, group: Group, known: dict[int, Group]) -> Overlap:
        """What an edge says about the ranks of a group whose ranks are still 0, 1, 2, ..."""
        ends = (edge.source, edge.target) if edge.source[0] == number else (edge.target, edge.source)
        own = self.placement(ends[0], edge.tensor, {number: group})
        other = self.placement(ends[1], edge.tensor, known)
        return Overlap(own, other, self.program.sizes[edge.tensor], edge.weight)


def _row(layouts: Layouts, row: int | None) -> Layouts:
    if row is None:
        return layouts
    one = slice(row, row + 1)
    return Layouts(layouts.parts[one], layouts.blocks[one], layouts.replicas[one])


def _layout_of(placement: Placement, shape: tuple[int, ...]) -> Layouts:
    blocks = [min(placement.block(axis, extent), extent) for axis, extent in enumerate(shape)]
    one = (1, len(shape))
    return Layouts(
        np.array(placement.parts, np.int64).reshape(one),
        np.array(blocks, np.int64).reshape(one),
        np.array([placement.replicas], np.int64),
    )

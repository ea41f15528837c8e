"""Costs of a program as a sum over groups and pairs of groups. Start reading at: Model."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from dace_redist.einsum.bounds import MoveBounds, move_bounds
from dace_redist.einsum.grids import Candidates, Floats, Layouts
from dace_redist.einsum.nodes import internode_elements
from dace_redist.einsum.placement import Array, Placement
from dace_redist.einsum.plan import Group, Reduction
from dace_redist.einsum.program import EinsumProgram
from dace_redist.einsum.rates import BYTES_PER_SECOND, FLOPS_PER_SECOND, INTERNODE_BYTES_PER_SECOND
from dace_redist.einsum.relabel import Overlap, least_moved
from dace_redist.einsum.search import Pair

#: Cost of a byte of memory relative to a byte moved: breaks ties, far below one byte in total.
TIE_BREAK = 1e-13
#: Bytes moved in the time of one operation.
BYTES_PER_FLOP = BYTES_PER_SECOND / FLOPS_PER_SECOND


@dataclasses.dataclass(frozen=True)
class Edge:
    """
    A tensor that may have to be moved between two groups.

    :param tensor: Its name.
    :param source: Group and operand (None: the result) whose placement it has before; group None: the user's.
    :param target: Group and operand whose placement it has afterwards; group None: the user's.
    :param weight: Number of times it moves.
    """

    tensor: str
    source: tuple[int | None, int | None]
    target: tuple[int | None, int | None]
    weight: int


def edges_of(program: EinsumProgram) -> list[Edge]:
    """Return an edge for every read or write of a tensor by a group other than at the tensor's home."""
    edges = []
    for number, step in enumerate(program.steps):
        ends = [(name, (number, operand), True) for operand, name in enumerate(step.operands)]
        for name, here, reads in [*ends, (step.result, (number, None), False)]:
            home = program.owner(name) or (None, None)
            if home != here:
                source, target = (home, here) if reads else (here, home)
                edges.append(Edge(name, source, target, program.repeats(number)))
    return edges


class Model:
    """
    Bytes through the busiest rank for every choice of one candidate per group. Excess work counts as the bytes that
    could be moved in its time.

    ``thrift`` is the cost of a byte of memory relative to a byte moved. With ``node_size`` ranks per node, traffic of
    operands and partial results between nodes, divided by the number of ranks, counts in addition. Traffic between two
    groups is bounded from below (:meth:`pair_bounds`), or computed with the ranks of one group renumbered for the
    least traffic (:meth:`exact`).
    """

    def __init__(
        self,
        program: EinsumProgram,
        candidates: Sequence[Candidates],
        thrift: float = TIE_BREAK,
        node_size: int | None = None,
    ) -> None:
        self.program, self.candidates, self.thrift, self.node_size = program, list(candidates), thrift, node_size
        self.edges = edges_of(program)
        self._exact: dict[tuple[int, int, int, int], float] = {}
        self._least_moved = functools.cache(functools.partial(least_moved, ranks=program.ranks))

    def keep(self, variable: int, which: Array) -> None:
        """Drop all candidates of a group but these."""
        self.unary[variable] = self.unary[variable][which]
        self.candidates[variable] = self.candidates[variable].chosen(which)
        self.__dict__.pop("_move_bounds", None)
        self._exact.clear()

    @cached_property
    def unary(self) -> list[Floats]:
        """Costs of each group's candidates by themselves: fetches, reductions, excess work, the user's moves."""
        costs = []
        for number, found in enumerate(self.candidates):
            repeats, names = self.program.repeats(number), self.program.steps[number].operands
            fetched = [n for n, name in enumerate(names) if self.program.owner(name) == (number, n)]
            elements = sum(map(found.fetched, fetched), repeats * found.reduced)
            if self.node_size is not None:
                across = internode_elements(found, self.node_size, repeats, fetched) / self.program.ranks
                elements = elements + BYTES_PER_SECOND / INTERNODE_BYTES_PER_SECOND * across
            for edge in self.edges:
                if {edge.source[0], edge.target[0]} <= {number, None}:
                    elements = elements + self._alone(edge)
            work = repeats * BYTES_PER_FLOP * found.excess_load
            costs.append((elements + self.thrift * found.footprint) * self.program.itemsize + work)
        return costs

    def _alone(self, edge: Edge) -> Floats:
        """Elements of an edge that concerns one group only."""
        one_group = edge.source[0] == edge.target[0]
        return edge.weight * move_bounds(*self._ends(edge), paired=one_group).ravel()

    def _layouts(self, group: int | None, operand: int | None, tensor: str) -> Layouts:
        if group is None:
            placement, shape = self.program.placements[tensor], self.program.sizes[tensor]
            parts, blocks = np.array([placement.parts], np.int64), np.array([placement.largest_block(shape)], np.int64)
            return Layouts(parts, blocks, np.array([placement.replicas], np.int64))
        return self.candidates[group].result if operand is None else self.candidates[group].operands[operand]

    @cached_property
    def linked(self) -> dict[Pair, list[Edge]]:
        """Edges by pair (i, j), i < j, of groups between which a tensor may move."""
        found: dict[Pair, list[Edge]] = {}
        for edge in self.edges:
            a, b = edge.source[0], edge.target[0]
            if a is not None and b is not None and a != b:
                found.setdefault((min(a, b), max(a, b)), []).append(edge)
        return dict(sorted(found.items()))

    @cached_property
    def neighbours(self) -> list[list[int]]:
        """For each group, the groups on whose candidates its costs depend."""
        pairs = [*self.linked, *((j, i) for i, j in self.linked)]
        return [sorted(j for i, j in pairs if i == group) for group in range(len(self.candidates))]

    @cached_property
    def _move_bounds(self) -> dict[Pair, list[tuple[Edge, MoveBounds]]]:
        return {pair: [(edge, MoveBounds(*self._ends(edge))) for edge in edges] for pair, edges in self.linked.items()}

    def _ends(self, edge: Edge) -> tuple[Layouts, Layouts, tuple[int, ...]]:
        source, target = (self._layouts(*end, edge.tensor) for end in (edge.source, edge.target))
        return source, target, self.program.sizes[edge.tensor]

    def pair_bounds(self, i: int, j: int, rows: dict[int, int] | None = None) -> Floats:
        """
        Return a lower bound on the cost of moves between two groups, for all pairs of their candidates: (K_i, K_j).

        :param i: A group.
        :param j: A later one.
        :param rows: Number of the only candidate to consider, by group.
        """
        total: Floats = np.zeros((1, 1))
        some = {group: slice(row, row + 1) for group, row in (rows or {}).items()}
        for edge, bounds in self._move_bounds[i, j]:
            source, target = (some.get(group or 0, slice(None)) for group in (edge.source[0], edge.target[0]))
            found = bounds.of(source, target)
            total = total + edge.weight * self.program.itemsize * (found if edge.source[0] == i else found.T)
        return total

    def given(self, variable: int, choice: Sequence[int | None]) -> Floats:
        """Return bounds on the cost of every candidate of a group, given the choices of other groups made so far."""
        costs: Floats = self.unary[variable].copy()
        for other in self.neighbours[variable]:
            row = choice[other]
            if row is not None:
                costs += self.pair_bounds(min(variable, other), max(variable, other), {other: row}).ravel()
        return costs

    def bound(self, choice: Sequence[int]) -> float:
        """Return a lower bound on the cost of a choice of one candidate per group."""
        own = sum(float(costs[row]) for costs, row in zip(self.unary, choice, strict=True))
        return own + sum(float(self.pair_bounds(i, j, {i: choice[i], j: choice[j]})[0, 0]) for i, j in self.linked)

    def total(self, choice: Sequence[int]) -> float:
        """Return the cost of a choice, with ranks renumbered for the least traffic between each two groups."""
        own = sum(float(costs[row]) for costs, row in zip(self.unary, choice, strict=True))
        return own + sum(self.exact(i, choice[i], j, choice[j]) for i, j in self.linked)

    def result_cost(self, number: int, choice: Sequence[int]) -> float:
        """Return the cost of reducing and moving a group's result in a solution."""
        moved = [
            self.exact(i, choice[i], j, choice[j])
            for i, j in self.linked
            if any(edge.source == (number, None) for edge in self.linked[i, j])
        ]
        return float(self.candidates[number].reduced[choice[number]]) + sum(moved)

    def exact(self, i: int, row_i: int, j: int, row_j: int) -> float:
        """Return the traffic between two groups, with the ranks of the second renumbered to suit the first."""
        key = (i, row_i, j, row_j)
        if key not in self._exact:
            first, second = self.group(i, row_i), self.group(j, row_j)
            overlaps = tuple(self.overlap(edge, j, second, {i: first}) for edge in self.linked[i, j])
            bound = float(self.pair_bounds(i, j, {i: row_i, j: row_j})[0, 0]) / self.program.itemsize
            self._exact[key] = self._least_moved(overlaps, len(second.ranks), bound) * self.program.itemsize
        return self._exact[key]

    def group(self, number: int, row: int) -> Group:
        """Return a candidate as a group on ranks 0, 1, 2, ..."""
        step, found = self.program.steps[number], self.candidates[number]
        einsum, statement = step.part.einsum, self.program.statements[step.statement]
        grid, partial, scatter = tuple(found.parts[row].tolist()), int(found.partial[row]), int(found.scatter[row])
        over = "".join(index for index in einsum.summed if grid[einsum.indices.index(index)] > 1)
        return Group(
            einsum,
            step.operands,
            step.result,
            step.statement,
            grid,
            tuple(range(math.prod(grid) * found.replicas)),
            tuple(found.multiples[row].tolist()),
            step.part.path,
            Reduction(over, partial, scatter if scatter >= 0 else None) if partial > 1 else None,
            statement.elementwise,
            statement.solves,
            found.replicas,
            step.part.equal,
        )

    def placement(self, end: tuple[int | None, int | None], tensor: str, groups: dict[int, Group]) -> Placement:
        """Return the placement of the tensor at one end of an edge."""
        number, operand = end
        if number is None:
            return self.program.placements[tensor]
        return groups[number].result_placement if operand is None else groups[number].operand_placements[operand]

    def overlap(self, edge: Edge, number: int, group: Group, known: dict[int, Group]) -> Overlap:
        """Return the overlap of an edge for a group whose ranks are not assigned yet (0, 1, 2, ...)."""
        ends = (edge.source, edge.target) if edge.source[0] == number else (edge.target, edge.source)
        own = self.placement(ends[0], edge.tensor, {number: group})
        other = self.placement(ends[1], edge.tensor, known)
        return Overlap(own, other, self.program.sizes[edge.tensor], edge.weight, edge.source[0] == number)

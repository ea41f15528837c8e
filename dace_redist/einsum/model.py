"""Costs of a program as a sum over groups and pairs of groups. Start reading at: Model."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from dace_redist.einsum.dataflow import EinsumProgram, End, operands_read
from dace_redist.einsum.grids import Candidates, Layouts
from dace_redist.einsum.nodes import internode_elements
from dace_redist.einsum.placement import Array, Floats, Given, Overlap, Placement, ceil_division, overlap_matrix
from dace_redist.einsum.program import Group
from dace_redist.einsum.rates import BYTES_PER_SECOND, FLOPS_PER_SECOND, INTERNODE_BYTES_PER_SECOND
from dace_redist.relabelling import MAX_MATCHED_RANKS, assign

Pair = tuple[int, int]

#: Cost of a byte of memory relative to a byte moved: breaks ties, far below one byte in total.
TIE_BREAK = 1e-13
#: Bytes moved in the time of one operation.
BYTES_PER_FLOP = BYTES_PER_SECOND / FLOPS_PER_SECOND
#: Maximum entries of a table of bounds that is kept.
MAX_TABLE = 250_000


@dataclasses.dataclass(frozen=True)
class Edge:
    """A tensor that may have to be moved, ``weight`` times."""

    tensor: str
    source: End
    target: End
    weight: int

    @property
    def groups(self) -> set[int | None]:
        """Both groups."""
        return {self.source[0], self.target[0]}


class Model:
    """
    Bytes through the busiest rank for every choice of one candidate per group. Excess work counts as the bytes that
    could be moved in its time.

    Traffic between two groups is bounded from below (:meth:`pair_bounds`), or computed with the ranks of one group
    renumbered for the least traffic (:meth:`exact`).

    :param memory_weight: Cost of a byte of memory relative to a byte moved.
    :param node_size: Ranks per node: traffic of operands and partial results between nodes, divided by the number of
        ranks, then counts in addition.
    """

    def __init__(
        self,
        program: EinsumProgram,
        candidates: Sequence[Candidates],
        memory_weight: float = TIE_BREAK,
        node_size: int | None = None,
    ) -> None:
        self.program, self.candidates = program, list(candidates)
        self.ranks, self._itemsize = program.problem.ranks, program.problem.itemsize
        edges = [edge for number in range(len(program.steps)) for edge in self._edges(number)]
        homes = program.problem.homes
        self.edges = [edge for edge in edges if not isinstance(homes.get(edge.tensor), Given)]
        self._arriving = {edge.target: edge.weight for edge in edges if edge not in self.edges}
        #: Costs of each group's candidates by themselves: fetches, reductions, excess work, the user's moves.
        self.unary = [self._own_costs(n, memory_weight, node_size) for n in range(len(candidates))]
        #: Edges by pair (i, j), i < j, of groups between which a tensor may move.
        self.linked: dict[Pair, list[Edge]] = {}
        for edge in self.edges:
            pair = sorted(group for group in edge.groups if group is not None)
            if len(pair) == 2:
                self.linked.setdefault((pair[0], pair[1]), []).append(edge)
        self.linked = dict(sorted(self.linked.items()))
        self._tables: dict[Pair, Floats] = {}
        self._exact: dict[tuple[int, int, int, int], float] = {}
        self._least_moved = functools.cache(functools.partial(_least_moved, ranks=self.ranks))

    def _edges(self, number: int) -> Iterator[Edge]:
        """Yield an edge for every tensor that a group reads or writes elsewhere than at the tensor's home."""
        step, statement = self.program.steps[number], self.program.statement(number)
        for operand, name in enumerate(operands_read(statement, step)):
            if (home := self.program.owner(name)) != (number, operand):
                yield Edge(name, home, (number, operand), self.program.repeats_of_move(number, name))
        if (home := self.program.owner(step.result)) != (number, None) and not statement.at_home:
            yield Edge(step.result, (number, None), home, statement.repeats)

    def keep(self, variable: int, which: Array) -> None:
        """Drop all candidates of a group but these."""
        self.unary[variable] = self.unary[variable][which]
        self.candidates[variable] = self.candidates[variable].chosen(which)
        self._tables.clear()
        self._exact.clear()

    def _own_costs(self, number: int, memory_weight: float, node_size: int | None) -> Floats:
        found, repeats, names = (
            self.candidates[number],
            self.program.statement(number).repeats,
            self.program.steps[number].operands,
        )
        fetched = [n for n, name in enumerate(names) if self.program.owner(name) == (number, n)]
        elements = sum(map(found.fetched, fetched), repeats * found.reduced)
        for operand, layouts in enumerate(found.operands):  # from any distribution a rank receives its part, at most
            elements = elements + self._arriving.get((number, operand), 0) * layouts.elements
        if node_size is not None:
            moved = [self.program.repeats_of_move(number, name) for name in names]
            counts = [1 if n in fetched else often for n, often in enumerate(moved)]
            across = internode_elements(found, node_size, [*counts, repeats]) / self.ranks
            elements = elements + BYTES_PER_SECOND / INTERNODE_BYTES_PER_SECOND * across
        for edge in self.edges:
            if edge.groups <= {number, None}:
                one_group = edge.source[0] == edge.target[0]
                elements = elements + edge.weight * move_bounds(*self._ends(edge), paired=one_group).ravel()
        work = repeats * BYTES_PER_FLOP * found.excess_work
        return np.asarray((elements + memory_weight * found.footprint) * self._itemsize + work)

    def _ends(self, edge: Edge) -> tuple[Layouts, Layouts, tuple[int, ...]]:
        source, target = (self._layouts(*end, edge.tensor) for end in (edge.source, edge.target))
        return source, target, self.program.sizes[edge.tensor]

    def _layouts(self, group: int | None, operand: int | None, tensor: str) -> Layouts:
        if group is None:
            placement, shape = self.program.problem.homes[tensor], self.program.sizes[tensor]
            assert isinstance(placement, Placement)
            parts, blocks = np.array([placement.parts], np.int64), np.array([placement.largest_block(shape)], np.int64)
            return Layouts(parts, blocks, np.array([placement.replicas], np.int64))
        return self.candidates[group].result if operand is None else self.candidates[group].operands[operand]

    @cached_property
    def neighbours(self) -> list[list[int]]:
        """For each group, the groups on whose candidates its costs depend."""
        pairs = [*self.linked, *((j, i) for i, j in self.linked)]
        return [sorted(j for i, j in pairs if i == group) for group in range(len(self.candidates))]

    def pair_bounds(self, i: int, j: int) -> Floats:
        """Return a lower bound on the cost of moves between groups i < j, for all their candidates: (K_i, K_j)."""
        if (i, j) not in self._tables:
            self._tables[i, j] = self._bounds(i, j, slice(None), slice(None))
            self._tables[j, i] = self._tables[i, j].T
        return self._tables[i, j]

    def _bounds(self, i: int, j: int, rows: slice, columns: slice) -> Floats:
        total: Floats = np.zeros((1, 1))
        for edge in self.linked[i, j]:
            source, target, shape = self._ends(edge)
            forward = edge.source[0] == i
            first, second = (rows, columns) if forward else (columns, rows)
            found = move_bounds(source.chosen(first), target.chosen(second), shape)
            total = total + edge.weight * self._itemsize * (found if forward else found.T)
        return total

    def _moved(self, variable: int, other: int, row: int) -> Floats:
        """Return bounds on the moves between a group's candidates and one of another group."""
        if (other, variable) not in self._tables:
            first, second = sorted((variable, other))
            if len(self.candidates[first]) * len(self.candidates[second]) > MAX_TABLE:
                some = slice(row, row + 1)
                rows, columns = (slice(None), some) if variable == first else (some, slice(None))
                return self._bounds(first, second, rows, columns).ravel()
            self.pair_bounds(first, second)
        moved: Floats = self._tables[other, variable][row]
        return moved

    def given(self, variable: int, choice: Sequence[int | None]) -> Floats:
        """Return bounds on the cost of every candidate of a group, given the choices of other groups made so far."""
        costs: Floats = self.unary[variable].copy()
        for other in self.neighbours[variable]:
            row = choice[other]
            if row is not None:
                costs += self._moved(variable, other, row)
        return costs

    def bound(self, choice: Sequence[int]) -> float:
        """Return a lower bound on the cost of a choice of one candidate per group."""
        return self._own(choice) + sum(float(self._moved(i, j, choice[j])[choice[i]]) for i, j in self.linked)

    def total(self, choice: Sequence[int]) -> float:
        """Return the cost of a choice, with ranks renumbered for the least traffic between each two groups."""
        return self._own(choice) + sum(self.exact(i, choice[i], j, choice[j]) for i, j in self.linked)

    def _own(self, choice: Sequence[int]) -> float:
        return sum(float(costs[row]) for costs, row in zip(self.unary, choice, strict=True))

    def moves_result(self, number: int, choice: Sequence[int]) -> bool:
        """Check if a group's result is reduced or moved in a solution."""
        pairs = [pair for pair, edges in self.linked.items() if any(edge.source == (number, None) for edge in edges)]
        moved = any(self.exact(i, choice[i], j, choice[j]) for i, j in pairs)
        return moved or bool(self.candidates[number].reduced[choice[number]])

    def exact(self, i: int, row_i: int, j: int, row_j: int) -> float:
        """Return the traffic between two groups, with the ranks of the second renumbered to suit the first."""
        key = (i, row_i, j, row_j)
        if key not in self._exact:
            first, second = self.candidates[i].group(row_i), self.candidates[j].group(row_j)
            overlaps = tuple(self.overlap(edge, j, second, {i: first}) for edge in self.linked[i, j])
            bound = float(self._moved(i, j, row_j)[row_i]) / self._itemsize
            self._exact[key] = self._least_moved(overlaps, len(second.ranks), bound) * self._itemsize
        return self._exact[key]

    def overlap(self, edge: Edge, number: int, group: Group, known: Mapping[int, Group]) -> Overlap:
        """Return the overlap of an edge for a group whose ranks are not assigned yet (0, 1, 2, ...)."""
        ends = (edge.source, edge.target) if edge.source[0] == number else (edge.target, edge.source)
        groups = {**known, number: group}
        own, other = (self.program.placement(end, edge.tensor, groups) for end in ends)
        assert isinstance(own, Placement) and isinstance(other, Placement)
        return Overlap(own, other, self.program.sizes[edge.tensor], edge.weight, edge.source[0] == number)


def _least_moved(overlaps: Sequence[Overlap], positions: int, bound: float, ranks: int) -> float:
    """
    Return the elements through the busiest rank for moves between two groups, relabelling one if that is better.

    :param positions: Number of grid positions of the group with unassigned ranks.
    :param bound: Lower bound over all assignments of ranks.
    """
    plain = sum(overlap.moved(range(positions)) for overlap in overlaps)
    if plain <= bound * (1 + 1e-12) or ranks > MAX_MATCHED_RANKS:
        return plain
    labels = assign(overlap_matrix(overlaps, positions, ranks)).tolist()
    return min(plain, sum(overlap.moved(labels) for overlap in overlaps))


def move_bounds(source: Layouts, target: Layouts, shape: Sequence[int], paired: bool = False) -> Floats:
    """
    Return a lower bound on the elements through the busiest rank, whatever the numbering of the target's ranks.

    Two bounds hold, and the larger one is returned. The rank with the worst full block of the target receives the
    elements of it that the best block of the source lacks. All received elements are sent by the ranks of the source.

    :param source: The tensor's blocks on K grids.
    :param target: Its blocks on L grids.
    :param paired: Both are on the same K grids; only the bounds of pairs of equal number are computed.
    :return: Array of shape (K, L), or (K,) if paired.
    """
    rows = slice(None) if paired else (slice(None), None)
    worst, best = np.ones(()), np.ones(())
    for axis, extent in enumerate(shape):
        (before, at_source), (after, at_target) = source.distinct[axis], target.distinct[axis]
        table = np.array([[worst_overlap(extent, int(b), int(a)) for a in after] for b in before], np.float64)
        worst = worst * table[at_source[rows], at_target]
        best = best * np.minimum(source.blocks[:, axis][rows], target.blocks[:, axis])
    received = target.elements - worst
    whole = math.prod(map(float, shape)) * target.replicas
    kept = np.minimum(source.ranks[rows], target.ranks) * best
    return np.asarray(np.maximum(received, (whole - kept) / source.ranks[rows]).clip(min=0))


@functools.lru_cache(maxsize=1 << 16)
def worst_overlap(extent: int, before: int, after: int) -> int:
    """Return the minimum over target blocks of the maximum over source blocks of their overlap, along one axis."""
    if extent == 0 or before % after == 0 or after % before == 0 or before >= extent:
        return min(before, after)
    low = np.arange(max(extent // after, 1), dtype=np.int64) * after
    high = np.minimum(low + after, extent)
    if after > before:
        first = np.minimum(ceil_division(low, before) * before, high)
        inside = np.where(first + before <= high, before, 0)
        ends = np.maximum(np.minimum(first, high) - low, high - np.maximum(high // before * before, low))
        return int(np.maximum(inside, ends).min())
    cut = np.minimum(ceil_division(low, before) * before, high)
    return int(np.maximum(cut - low, high - cut).min())

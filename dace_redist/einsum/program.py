"""Result of the planner: groups, their grids, and the redistributions between them. Start: PlannedProgram."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import cached_property
from string import ascii_letters
from typing import Any

import numpy as np

from dace_redist import _core
from dace_redist.einsum.bounds import least_elements
from dace_redist.einsum.groupings import EinsumStep
from dace_redist.einsum.placement import Home, Placement, block_length
from dace_redist.einsum.rates import BYTES_PER_SECOND, FLOPS_PER_SECOND, INTERNODE_BYTES_PER_SECOND
from dace_redist.einsum.statement import Loop, Statement, repeats_in

#: Share of a bound that may come from rounding.
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class Reduction:
    """
    Reduction of the partial results of a group.

    :param over: Summed indices that are split among ranks.
    :param ranks: Number of ranks that hold partial sums of one element: the product of the parts of ``over``.
    :param axis: Result axis along which the sum is scattered over these ranks, in row-major order of their
        coordinates; None: the first of them gets the whole sum.
    """

    over: str
    ranks: int
    axis: int | None

    @property
    def sent_share(self) -> float:
        """Part of its partial results that a rank sends."""
        return 1.0 if self.axis is None else (self.ranks - 1) / self.ranks


@dataclasses.dataclass(frozen=True, kw_only=True)
class Group(EinsumStep):
    """
    A step on its grid.

    :param grid: Number of parts of each index of ``einsum.indices``.
    :param ranks: Communicator rank of each grid position, row-major; the replicas of a position are adjacent.
    :param multiples: Number of equal pieces of a block along each index of ``einsum.indices``, or ``BALANCED``.
    :param reduction: Reduction of partial results; None if each rank has the whole sum.
    :param replicas: Number of ranks that compute the block of one grid position redundantly.
    :param sums_at: Placement to which partial results are reduced in one step; None: :attr:`least_placement`.
    """

    grid: tuple[int, ...]
    ranks: tuple[int, ...]
    multiples: tuple[int, ...]
    reduction: Reduction | None
    replicas: int = 1
    sums_at: Home | None = None

    @cached_property
    def parts(self) -> dict[str, int]:
        """Number of parts by index."""
        return dict(zip(self.einsum.indices, self.grid, strict=True))

    @cached_property
    def blocks(self) -> dict[str, int]:
        """Elements of the largest block along each index."""
        lengths = map(block_length, self.sizes, self.grid, [multiple or 1 for multiple in self.multiples])
        return dict(zip(self.einsum.indices, map(min, lengths, self.sizes), strict=True))

    @property
    def flops(self) -> int:
        """Operations of the busiest rank; of a diagonal those of its elements, half of a symmetric product."""
        blocks = self.blocks | {place: 1 for place, _ in self.equal}
        load = sum(s.flops_per_point * math.prod(blocks[index] for index in s.indices) for s in self.steps)
        mirrored = self.mirrored
        return load // 2 if mirrored and all(self.parts[index] == 1 for index in mirrored) else load

    def with_ranks(self, ranks: Sequence[int]) -> Group:
        """Return the group on other ranks."""
        return dataclasses.replace(self, ranks=tuple(ranks))

    @cached_property
    def local_einsum(self) -> tuple[str, tuple[tuple[int, ...], ...]]:
        """Expression of the local evaluation, in which equal indices are one, and its path; empty: all in one step."""
        expression = str(self.einsum).translate(str.maketrans(dict[str, Any](self.equal)))
        if not expression.isascii():  # the library takes letters
            used = (index for index in dict.fromkeys(expression) if index not in ",->")
            expression = expression.translate(str.maketrans(dict[str, Any](zip(used, ascii_letters, strict=False))))
        return expression, () if _core.is_khatri_rao_product(expression) else self.path

    @cached_property
    def operand_placements(self) -> tuple[Placement, ...]:
        """Placement that each operand must have: blocks of its indices, with replicas over the other indices."""
        return tuple(map(self._in_blocks, self.einsum.operands))

    @cached_property
    def partial_placement(self) -> Placement:
        """Placement of the partial results, which count as replicas of the result."""
        return self._in_blocks(self.einsum.result)

    def _in_blocks(self, operand: str) -> Placement:
        return self._placement(operand, [self.multiples[self.einsum.indices.index(index)] for index in operand])

    @cached_property
    def result_placement(self) -> Home:
        """Placement of the result after the reduction."""
        return self.least_placement if self.sums_at is None else self.sums_at

    @cached_property
    def least_placement(self) -> Placement:
        """Placement of a result that is reduced on ranks of the group: one per element and replica of the group."""
        partial = self.partial_placement
        if self.reduction is None:
            return partial
        if self.reduction.axis is None:
            ranks = partial.ranks[:: self.reduction.ranks]
            return dataclasses.replace(partial, grid=partial.grid[:-1] or (1,), ranks=ranks)
        axes = list(self.einsum.result)
        axes[self.reduction.axis] += self.einsum.summed
        return self._placement(axes, [min(multiple, 1) for multiple in partial.multiples])

    def _placement(self, axes: Sequence[str], multiples: Sequence[int]) -> Placement:
        """
        Return a placement with replicas over the indices that no axis of the tensor has.

        :param axes: Indices over whose parts each axis of the tensor is split, in row-major order.
        """
        parts = [math.prod(self.parts[index] for index in axis) for axis in axes]
        split = [number for number, count in enumerate(parts) if count > 1]
        others = [index for index in self.einsum.indices if index not in "".join(axes)]
        replicas = self.replicas * math.prod(self.parts[index] for index in others)
        grid = [parts[number] for number in split] + [replicas] * (replicas > 1 or not split)
        dims = tuple(split.index(number) if number in split else None for number in range(len(axes)))
        order = [self.einsum.indices.index(index) for index in ("".join(axes) + "".join(others))]
        ranks = np.array(self.ranks).reshape(*self.grid, self.replicas).transpose(*order, len(order))
        return Placement(tuple(grid), dims, tuple(multiples), tuple(ranks.ravel().tolist()))


@dataclasses.dataclass(frozen=True)
class Move:
    """
    A redistribution of a tensor.

    :param before_group: Number of the group that it precedes; the number of groups if it follows the last one.
    :param group: Number of the group for which it runs: the next reader of the tensor, or the writer if the tensor is
        moved to its home.
    :param loops: Loops in which it runs: those around the group, or the outer ones of them.
    :param bytes_sent_max: Maximum over ranks of the bytes sent.
    :param bytes_received_max: Maximum over ranks of the bytes received.
    :param bytes_total: Bytes sent between ranks; self copies do not count.
    """

    before_group: int
    group: int
    tensor: str
    source: Home
    target: Home
    loops: tuple[Loop, ...]
    bytes_sent_max: int
    bytes_received_max: int
    bytes_total: int

    @property
    def repeats(self) -> int:
        """Number of runs."""
        return repeats_in(self.loops)

    @property
    def bytes_per_rank(self) -> int:
        """Bytes that pass through the busiest rank, sending or receiving."""
        return max(self.bytes_sent_max, self.bytes_received_max)


@dataclasses.dataclass(frozen=True)
class GroupCost:
    """
    Cost of one run of a group on the busiest rank.

    :param fetched: Bytes received of operands that their replicas share evenly before.
    :param reduced: Bytes of partial results.
    :param memory_bytes: Bytes of all tensors on a rank while the group runs, without workspace of the local evaluation.
    """

    fetched: float
    reduced: float
    memory_bytes: int


@dataclasses.dataclass(frozen=True)
class PlannedProgram:
    """
    Plan of a program of einsums on several ranks, in numbers.

    :param sizes: Shape of every tensor by name, including intermediates.
    :param homes: Placement by tensor: of an input at the start, of any other tensor after it was written.
    :param inputs: Names of the tensors that are read before they are written.
    :param outputs: Names of the tensors needed at the end.
    :param node_size: Ranks per node; None if nodes are not considered.
    :param internode_bytes: Total bytes between nodes: of this plan, and of the plan that ignores nodes; None without
        ``node_size``.
    :param intranode_bytes: Total bytes between ranks of one node; None without ``node_size``.
    :param remark: Which part of the program each rank computes as a whole, and why; empty for none.
    :param given: Names of the tensors whose homes the user gave.
    """

    statements: tuple[Statement, ...]
    sizes: dict[str, tuple[int, ...]]
    itemsize: int
    ranks: int
    groups: tuple[Group, ...]
    moves: tuple[Move, ...]
    homes: dict[str, Home]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    costs: tuple[GroupCost, ...]
    node_size: int | None = None
    internode_bytes: tuple[float, float] | None = None
    intranode_bytes: float | None = None
    remark: str = ""
    given: frozenset[str] = frozenset()

    def repeats(self, group: int) -> int:
        """Return the number of runs of a group."""
        return self.statements[self.groups[group].statement].repeats

    @property
    def bytes_per_rank(self) -> float:
        """Bytes through the busiest rank of every step, summed over operands, partial results and moves."""
        steps = sum(cost.fetched + self.repeats(g) * cost.reduced for g, cost in enumerate(self.costs))
        return steps + sum(move.repeats * move.bytes_per_rank for move in self.moves)

    @cached_property
    def bound(self) -> float:
        """
        Least :attr:`bytes_per_rank` of any algorithm whose ranks begin and end with equal parts of each tensor, on the
        ranks that its group uses, or with its given distribution; of several groups, the sum of their bounds. Diagonals
        and solvers count as 0. See :func:`dace_redist.einsum.bounds.least_elements`.
        """
        return self.itemsize * sum(map(self._least_received, self.groups))

    def _least_received(self, group: Group) -> float:
        if group.equal or group.solves or not all(group.sizes):
            return 0.0
        terms = dict(zip((group.result, *group.operands), (group.einsum.result, *group.einsum.operands), strict=True))
        orders = math.prod(math.factorial(group.operands.count(name)) for name in terms)  # may have equal products
        used = least_elements(list(terms.values()), group.extents, self.ranks * orders)
        owned = 0.0
        for name in terms:
            shape, is_given = self.sizes[name], name in self.given
            owned += self.homes[name].block_bytes(shape, 1) if is_given else math.prod(shape) / len(group.ranks)
        return used - owned if used - owned > _ROUNDING * used else 0.0

    @property
    def flops(self) -> int:
        """Operations of the busiest rank."""
        return sum(self.repeats(number) * group.flops for number, group in enumerate(self.groups))

    @property
    def memory_bytes(self) -> int:
        """Peak memory of a rank, without workspace of the local evaluation."""
        return max((cost.memory_bytes for cost in self.costs), default=0)

    @property
    def seconds(self) -> float:
        """Predicted time at the assumed rates; the objective of the planner."""
        return self._communication_seconds + self.flops / FLOPS_PER_SECOND

    @property
    def _communication_seconds(self) -> float:
        across = self.internode_bytes[0] / self.ranks if self.internode_bytes is not None else 0.0
        return self.bytes_per_rank / BYTES_PER_SECOND + across / INTERNODE_BYTES_PER_SECOND

    @property
    def communication_share(self) -> float:
        """Predicted share of communication in the time."""
        return self._communication_seconds / self.seconds if self.seconds else 0.0

    @property
    def unused_ranks(self) -> tuple[int, ...]:
        """Ranks that no group uses."""
        used = set().union(*(group.ranks for group in self.groups))
        return tuple(rank for rank in range(self.ranks) if rank not in used)

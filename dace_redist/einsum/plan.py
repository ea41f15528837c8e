"""What the planner decides: groups, their grids, and what is moved between them. Start reading at: EinsumPlan."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dace_redist.einsum.expression import Einsum
from dace_redist.einsum.placement import Placement, block_length
from dace_redist.einsum.rates import BYTES_PER_SECOND, FLOPS_PER_SECOND, INTERNODE_BYTES_PER_SECOND
from dace_redist.einsum.statement import Statement


@dataclasses.dataclass(frozen=True)
class Reduction:
    """
    How the partial results of a group are put together.

    :param over: Indices summed over whose parts lie on several ranks.
    :param ranks: How many ranks hold partial sums of one element: the product of these parts.
    :param axis: Result axis along which the sum is scattered over these ranks, in row-major order of their
        coordinates; None: it is wanted on the first of them only.
    """

    over: str
    ranks: int
    axis: int | None


@dataclasses.dataclass(frozen=True)
class Group:
    """
    Contractions that are computed together on one grid, or another statement.

    :param einsum: Indices of the operands and of the result.
    :param operands: Names of their tensors.
    :param result: Name of the tensor written.
    :param statement: Number of the statement it comes from.
    :param grid: Parts of each index of ``einsum.indices``.
    :param ranks: Communicator rank of each grid position, row-major; of each of its replicas, if there are any.
    :param multiples: Per index of ``einsum.indices`` the number of pieces of which its blocks hold a multiple.
    :param path: Order of pairwise contractions on each rank, as opt_einsum writes it.
    :param reduction: How partial results are put together; None if each rank has the whole sum.
    :param elementwise: See :class:`Statement`.
    :param solves: See :class:`Statement`.
    :param replicas: How many ranks do the same for each position of the grid, and have the same result.
    :param equal: Pairs of indices of the only operand: only elements where they are equal count, those of a diagonal.
        A rank finds those of its own block.
    """

    einsum: Einsum
    operands: tuple[str, ...]
    result: str
    statement: int
    grid: tuple[int, ...]
    ranks: tuple[int, ...]
    multiples: tuple[int, ...]
    path: tuple[tuple[int, ...], ...]
    reduction: Reduction | None
    elementwise: bool = False
    solves: bool = False
    replicas: int = 1
    equal: tuple[tuple[str, str], ...] = ()

    @property
    def parts(self) -> dict[str, int]:
        """Parts of each index."""
        return dict(zip(self.einsum.indices, self.grid, strict=True))

    def block(self, index: str, extent: int) -> int:
        """Elements of the largest block along an index of this size."""
        at = self.einsum.indices.index(index)
        return int(min(block_length(extent, self.grid[at], self.multiples[at]), extent))

    def with_ranks(self, ranks: Sequence[int]) -> Group:
        """The same group on other ranks."""
        return dataclasses.replace(self, ranks=tuple(ranks))

    @cached_property
    def operand_placements(self) -> tuple[Placement, ...]:
        """How each operand is wanted: in blocks of its indices, with replicas over the others."""
        return tuple(self._placement(operand) for operand in self.einsum.operands)

    @cached_property
    def partial_placement(self) -> Placement:
        """How the partial results lie on the ranks, as if they were replicas of the result."""
        return self._placement(self.einsum.result)

    def _placement(self, operand: str) -> Placement:
        split = [index for index in dict.fromkeys(operand) if self.parts[index] > 1]
        others = [index for index in self.einsum.indices if index not in split]
        replicas = self.replicas * math.prod(self.parts[index] for index in others)
        ranks = self._positions(split + others)
        grid = [self.parts[index] for index in split] + [replicas] * (replicas > 1 or not split)
        dims = tuple(split.index(index) if index in split else None for index in operand)
        multiples = tuple(self.multiples[self.einsum.indices.index(index)] for index in operand)
        return Placement(tuple(grid), dims, multiples, ranks)

    @cached_property
    def result_placement(self) -> Placement:
        """Where the result is after the reduction: each element on one rank, or on each of its replicas."""
        summed, result = self.einsum.summed, self.einsum.result
        over = list(summed) if self.reduction else []
        axis = self.reduction.axis if self.reduction else None
        parts = [self.parts[index] for index in result]
        if axis is not None:
            parts[axis] *= math.prod(self.parts[index] for index in summed)
            order = [*result[: axis + 1], *over, *result[axis + 1 :]]
            ranks = self._positions(order)
        else:
            each = math.prod(self.parts[index] for index in summed)
            ranks = self._positions([*result, *summed])[::each]
        parts.append(self.replicas)  # along no axis of the tensor
        split = [number for number, count in enumerate(parts) if count > 1]
        grid = tuple(parts[number] for number in split) or (1,)
        dims = tuple(split.index(number) if number in split else None for number in range(len(result)))
        return Placement(grid, dims, (1,) * len(result), ranks)

    def _positions(self, order: Sequence[str]) -> tuple[int, ...]:
        """The ranks in row-major order of the indices in the given order; indices left out have one part."""
        missing = [index for index in self.einsum.indices if index not in order]
        axes = [self.einsum.indices.index(index) for index in [*order, *missing]]
        ranks = np.array(self.ranks).reshape(*self.grid, self.replicas)
        return tuple(ranks.transpose(*axes, len(axes)).ravel().tolist())


@dataclasses.dataclass(frozen=True)
class Move:
    """
    A redistribution of a tensor.

    :param before_group: Number of the group before which it happens; the number of groups: after the last.
    :param group: Number of the group it belongs to, and in whose loops it happens: the one that reads the tensor next,
        or the one that wrote it elsewhere than at its home.
    :param tensor: Name of the tensor.
    :param source: Where it is.
    :param target: Where it is wanted.
    :param bytes_sent_max: Bytes that the rank with most to send sends.
    :param bytes_received_max: Bytes that the rank with most to receive receives.
    :param bytes_total: Bytes that go from one rank to another.
    """

    before_group: int
    group: int
    tensor: str
    source: Placement
    target: Placement
    bytes_sent_max: int
    bytes_received_max: int
    bytes_total: int

    @property
    def bytes_per_rank(self) -> int:
        """Bytes that pass through the busiest rank, sending or receiving."""
        return max(self.bytes_sent_max, self.bytes_received_max)


@dataclasses.dataclass(frozen=True)
class GroupCost:
    """
    What one run of a group costs the busiest rank.

    :param fetched: Bytes of operands that are spread evenly over their replicas before.
    :param reduced: Bytes of partial results.
    :param flops: Operations.
    :param memory_bytes: Everything a rank holds while it runs, but for the workspace of the local evaluation.
    """

    fetched: float
    reduced: float
    flops: float
    memory_bytes: int


@dataclasses.dataclass(frozen=True)
class EinsumPlan:
    """
    How a program of einsums runs on several ranks; made by :func:`plan_einsums`.

    :param statements: The program.
    :param sizes: Shape of every tensor by name, intermediates among them.
    :param itemsize: Bytes of an element.
    :param ranks: Ranks planned for.
    :param groups: What is computed, in this order.
    :param moves: What is moved, in this order.
    :param homes: By name, where each input is wanted at the start and where each other tensor is after it was written.
    :param inputs: Names of the tensors that are read before they are written.
    :param outputs: Names of the tensors wanted at the end.
    :param costs: Per group.
    :param node_size: Ranks per node, if they share nodes.
    :param internode_bytes: Bytes between nodes of all ranks together, and as they were with the plan made without
        knowledge of nodes; None if there are no nodes.
    :param intranode_bytes: Bytes between ranks of a node.
    """

    statements: tuple[Statement, ...]
    sizes: dict[str, tuple[int, ...]]
    itemsize: int
    ranks: int
    groups: tuple[Group, ...]
    moves: tuple[Move, ...]
    homes: dict[str, Placement]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    costs: tuple[GroupCost, ...]
    node_size: int | None = None
    internode_bytes: tuple[float, float] | None = None
    intranode_bytes: float | None = None

    def repeats(self, group: int) -> int:
        """How often a group runs."""
        return self.statements[self.groups[group].statement].repeats

    @property
    def bytes_per_rank(self) -> float:
        """Bytes that pass through the busiest rank of every step, added up: operands, partial results, moves."""
        steps = sum(cost.fetched + self.repeats(g) * cost.reduced for g, cost in enumerate(self.costs))
        return steps + sum(self.repeats(move.group) * move.bytes_per_rank for move in self.moves)

    @property
    def flops(self) -> float:
        """Operations of the busiest rank."""
        return sum(self.repeats(g) * cost.flops for g, cost in enumerate(self.costs))

    @property
    def memory_bytes(self) -> int:
        """High-water mark of a rank's memory, but for the workspace of the local evaluation."""
        return max((cost.memory_bytes for cost in self.costs), default=0)

    @property
    def seconds(self) -> float:
        """Predicted time at the rates of ``rates.py``: what the planner makes small."""
        return self._communication_seconds + self.flops / FLOPS_PER_SECOND

    @property
    def _communication_seconds(self) -> float:
        across = self.internode_bytes[0] / self.ranks if self.internode_bytes is not None else 0.0
        return self.bytes_per_rank / BYTES_PER_SECOND + across / INTERNODE_BYTES_PER_SECOND

    @property
    def communication_share(self) -> float:
        """Predicted share of the time that goes into communication."""
        return self._communication_seconds / self.seconds if self.seconds else 0.0

    @property
    def unused_ranks(self) -> tuple[int, ...]:
        """Ranks that no group uses."""
        used = set().union(*(group.ranks for group in self.groups))
        return tuple(rank for rank in range(self.ranks) if rank not in used)

    def __str__(self) -> str:
        from dace_redist.einsum import report

        return report.text(self)

    def to_json(self) -> dict[str, Any]:
        """What ``str`` prints, and the ranks of each group and move, as dictionaries, lists and numbers."""
        from dace_redist.einsum import report

        return report.to_json(self)

    def plot(self, path: str | Path) -> None:
        """
        Draw tensors, groups with their grids, and redistributions with their volume.

        :param path: File to write; its ending says the format: .png, .svg or .pdf.
        :raises ValueError: If the format is unknown.
        :raises FileNotFoundError: If the folder does not exist.
        :raises ImportError: If Matplotlib is not installed.
        """
        from dace_redist.einsum import plot

        plot.plot_plan(self, path)

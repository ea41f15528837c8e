"""Which rank should be which in a target distribution, so that least is moved. Start reading at: relabel."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist import _core
from dace_redist.assignment import assign
from dace_redist.distribution import AnyDistribution, TiledDistribution
from dace_redist.schedule import Schedule, schedule

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: Up to so many ranks the assignment is optimal, or nearly so (:func:`dace_redist.assignment.assign`); of more, the
#: largest overlaps of a position and a rank are taken first.
MAX_MATCHED_RANKS = 4096


def relabel(
    source: AnyDistribution | Sequence[AnyDistribution],
    target: AnyDistribution | Sequence[AnyDistribution],
    *,
    weights: npt.ArrayLike | None = None,
    axes: Sequence[int] | None = None,
    region: Sequence[Sequence[int]] | None = None,
    nbytes: Sequence[float] | None = None,
) -> Any:
    """
    The target with its ranks renumbered so that least is moved.

    The parts of the tensor stay as they are; which rank holds which of them changes. The renumbering is optimal up to
    2,048 ranks, by an assignment of positions to ranks (D. F. Crouse, doi 10.1109/TAES.2016.140952, as in SciPy) of
    the bytes that a rank holds already; with more ranks it is the best that is found by a matching or, above
    ``MAX_MATCHED_RANKS``, by taking the largest overlaps first. Never worse than the numbering given.

    :param source: Distribution now; of several tensors, a list.
    :param target: Distribution wanted; of several tensors, a list: all are renumbered alike.
    :param weights: What a byte from rank i to rank j costs, shape (ranks, ranks), such as :func:`node_weights`; ranks
        are all that the distributions name. Default: 1 between ranks, 0 on a rank.
    :param axes: The source axis that each target axis comes from, see :func:`dace_redist.schedule`; of one tensor.
    :param region: The sub-tensor that moves, see :func:`dace_redist.schedule`; of one tensor.
    :param nbytes: Of several tensors: bytes of an element, or how much an element of each counts. Default: 1 each.
    :return: The target, with other ``ranks``, or with other owners of its tiles; a list where a list was given.
    :raises ValueError: If the shapes, lists or weights do not fit each other.
    :raises TypeError: If something is no distribution.
    """
    several = isinstance(source, Sequence) or isinstance(target, Sequence)
    sources, targets = (list(side) if isinstance(side, Sequence) else [side] for side in (source, target))
    factors = [1.0] * len(sources) if nbytes is None else [float(factor) for factor in nbytes]
    if not len(sources) == len(targets) == len(factors) or not sources:
        raise ValueError(
            f"relabel: source, target and nbytes need equally long lists, at least one entry, got {len(sources)}, "
            f"{len(targets)} and {len(factors)}"
        )
    if several and (axes is not None or region is not None):
        raise ValueError("relabel: axes and region are for one tensor, not for lists")
    moves = [schedule(*pair, axes=axes, region=region) for pair in zip(sources, targets, strict=True)]
    ranks = max(move.ranks for move in moves)
    labels = _best_labels(moves, factors, ranks, _checked_weights(weights, ranks))
    renumbered = [with_labels(side, labels) for side in targets]
    return renumbered if several else renumbered[0]


#: Up to so many ranks the report says what renumbering would save.
MAX_REPORTED_RANKS = 1024


def saved_by_relabelling(move: Schedule) -> int | None:
    """Bytes that :func:`relabel` would save; None if there are more ranks than ``MAX_REPORTED_RANKS``."""
    if move.ranks > MAX_REPORTED_RANKS:
        return None
    return move.bytes_moved() - _renumbered(move, None).bytes_moved()


def saved_between_nodes(move: Schedule, node_of: Sequence[int]) -> int | None:
    """
    Bytes between nodes that :func:`relabel` would save with :func:`node_weights`; None if there are too many ranks.

    :param node_of: Number of the node of each rank.
    """
    if move.ranks > MAX_REPORTED_RANKS:
        return None
    renumbered = _renumbered(move, node_weights(node_of))
    return move.bytes_between_nodes(node_of) - renumbered.bytes_between_nodes(node_of)


def _renumbered(move: Schedule, weights: Floats | None) -> Schedule:
    labels = _best_labels([move], [1.0], move.ranks, weights)
    return dataclasses.replace(move, target=with_labels(move.target, labels))


def node_weights(node_of: Sequence[int], off_node: float = 10.0, on_node: float = 1.0) -> Floats:
    """
    Weights for :func:`relabel`: what a byte costs between ranks of one node, and between nodes.

    :param node_of: Node of each rank, any numbers.
    :param off_node: Cost of a byte between nodes.
    :param on_node: Cost of a byte between two ranks of a node.
    :return: Array of shape (ranks, ranks) with zeros on the diagonal.
    """
    nodes = np.asarray(node_of)
    costs = np.where(nodes[:, None] == nodes, float(on_node), float(off_node))
    np.fill_diagonal(costs, 0.0)
    return costs


def with_labels(distribution: AnyDistribution, labels: Sequence[int]) -> AnyDistribution:
    """
    A distribution in which another rank has what each rank had.

    :param distribution: All its sizes numbers.
    :param labels: The new rank of each rank, all different.
    """
    if isinstance(distribution, TiledDistribution):
        owners = np.asarray(labels, np.int64)[distribution.owner_of_tile]
        return TiledDistribution(distribution.shape, distribution.tile, owners)
    ranks = distribution.ranks if distribution.ranks is not None else range(int(np.prod(distribution.grid)))
    return dataclasses.replace(distribution, ranks=tuple(int(labels[rank]) for rank in ranks))


def cost_of(move: Schedule, weights: Floats | None = None) -> float:
    """
    Elements that a redistribution moves between ranks, each counted with its weight.

    :param weights: As in :func:`relabel`.
    """
    if weights is None:
        return float(move.totals.sent.sum())
    total = 0.0
    for rank in range(move.ranks):
        targets, nbytes = move.sent_to(rank)
        total += float(weights[rank, targets] @ nbytes) / move.itemsize
    return total


def _checked_weights(weights: npt.ArrayLike | None, ranks: int) -> Floats | None:
    if weights is None:
        return None
    costs = np.asarray(weights, np.float64)
    if costs.shape != (ranks, ranks) or not np.isfinite(costs).all() or (costs < 0).any():
        raise ValueError(
            f"relabel: weights must be finite numbers of at least 0, of shape {(ranks, ranks)}, one row per sender, "
            f"got shape {costs.shape}"
        )
    return costs


def _best_labels(moves: Sequence[Schedule], factors: Sequence[float], ranks: int, weights: Floats | None) -> list[int]:
    """The new rank of each rank of the targets."""
    rows, columns, counts = _held(moves, factors, ranks)
    same = list(range(ranks))
    if ranks > MAX_MATCHED_RANKS:
        labels = _largest_first(rows, columns, counts, ranks)
    else:
        held = np.zeros((ranks, ranks))  # [rank of the target, rank of the source]
        np.add.at(held, (rows, columns), counts)
        gain = held if weights is None else _gain(held, weights)
        labels = assign(gain).tolist()
        if all(side.core.replicas == 1 for move in moves for side in (move.source, move.target)):
            return labels if gain[same, labels].sum() > gain[same, same].sum() else same
    # with replicas, what a rank holds does not say all
    renumbered = [dataclasses.replace(move, target=with_labels(move.target, labels)) for move in moves]
    costs = [
        sum(factor * cost_of(move, weights) for factor, move in zip(factors, some, strict=True))
        for some in (moves, renumbered)
    ]
    return same if costs[0] <= costs[1] else labels


def _held(moves: Sequence[Schedule], factors: Sequence[float], ranks: int) -> tuple[Integers, Integers, Floats]:
    """Rank of the target, rank of the source, and how much of what the one gets the other has."""
    rows, columns, counts = [], [], []
    for move, factor in zip(moves, factors, strict=True):
        for rank in range(ranks):
            found = _core.held_elements(move.source.core, move.target.core, rank, move.index_map.encoded)
            rows.append(np.full(len(found), rank, np.int64))
            columns.append(found[:, 0])
            counts.append(factor * found[:, 1])
    return np.concatenate(rows), np.concatenate(columns), np.concatenate(counts)


def _gain(held: Floats, weights: Floats) -> Floats:
    """How much less it costs, up to a constant, if a rank takes what another one gets: (given rank, new rank)."""
    costs = held @ weights
    return np.asarray(costs.max() - costs, np.float64)


def _largest_first(rows: Integers, columns: Integers, counts: Floats, ranks: int) -> list[int]:
    labels, taken = [-1] * ranks, [False] * ranks
    for at in np.argsort(-counts, kind="stable").tolist():
        row, column = int(rows[at]), int(columns[at])
        if labels[row] < 0 and not taken[column]:
            labels[row], taken[column] = column, True
    free = iter([rank for rank in range(ranks) if not taken[rank]])
    return [label if label >= 0 else next(free) for label in labels]

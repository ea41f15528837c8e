"""Rank remapping of target distributions, so that least is moved. Start reading at: relabel."""

from __future__ import annotations

import dataclasses
import math
import reprlib
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist import _core
from dace_redist.distribution import AnyDistribution, BoxDistribution
from dace_redist.integers import AnyInts
from dace_redist.schedule import Schedule, schedule

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: Up to so many ranks the assignment is optimal, or nearly so (:func:`assign`); with more, the largest overlaps of a
#: position and a rank are taken first.
MAX_MATCHED_RANKS = 4096
#: Up to so many rows the assignment is optimal: the method of Crouse, doi 10.1109/TAES.2016.140952, in SciPy.
MAX_EXACT_ROWS = 2048
#: So many assignments are all tried: SciPy takes a third of a second to load, which is longer.
MAX_TRIED_ASSIGNMENTS = math.factorial(7)
#: Up to so many ranks the report says what renumbering would save.
MAX_REPORTED_RANKS = 1024


def relabel(
    source: AnyDistribution | Sequence[AnyDistribution],
    target: AnyDistribution | Sequence[AnyDistribution],
    *,
    weights: npt.ArrayLike | None = None,
    axes: AnyInts | None = None,
    region: Sequence[AnyInts] | None = None,
    nbytes: Sequence[float] | None = None,
) -> Any:
    """
    Return the target with its ranks renumbered so that the fewest bytes move. Local.

    The parts of the tensor stay as they are; their owners change. The renumbering is optimal up to 2,048 ranks, by an
    assignment of positions to ranks (D. F. Crouse, doi 10.1109/TAES.2016.140952, as in SciPy) that keeps most bytes on
    their rank; with more ranks it comes from a matching or, above ``MAX_MATCHED_RANKS``, from taking the largest
    overlaps first. Never worse than the numbering given.

    :param source: Source distribution; for several tensors a list.
    :param target: Target distribution, or a list: all are renumbered alike.
    :param weights: Cost of a byte from rank i to rank j, shape (ranks, ranks). Default: 1 between ranks, 0 on a rank.
    :param axes, region: See :func:`dace_redist.plan`.
    :param nbytes: Bytes of an element of each of several tensors. Default: 1 each.
    :return: The target with other ranks; a list where a list was given.
    :raises ValueError: If an argument is invalid.
    :raises TypeError: If something is no distribution.
    """
    several = isinstance(source, Sequence) or isinstance(target, Sequence)
    sources, targets = (list(side) if isinstance(side, Sequence) else [side] for side in (source, target))
    if len(sources) != len(targets) or not sources:
        raise ValueError(
            f"relabel: source and target need equally long lists, at least one entry, got {len(sources)} and "
            f"{len(targets)}"
        )
    factors = _checked_costs("nbytes", np.ones(len(sources)) if nbytes is None else nbytes, (len(sources),)).tolist()
    if several and (axes is not None or region is not None):
        raise ValueError("relabel: axes and region are for one tensor, not for lists")
    moves = [schedule(*pair, axes=axes, region=region) for pair in zip(sources, targets, strict=True)]
    ranks = max(move.ranks for move in moves)
    costs = None if weights is None else _checked_costs("weights", weights, (ranks, ranks))
    labels = _best_labels(moves, factors, ranks, costs)
    renumbered = [side.on_ranks(labels) for side in targets]
    return renumbered if several else renumbered[0]


def saved_by_relabelling(move: Schedule, node_of: Sequence[int] | None = None) -> int | None:
    """
    Return the bytes that :func:`relabel` would save; None above ``MAX_REPORTED_RANKS`` ranks.

    :param node_of: Node of each rank: then the bytes are those between nodes, with :func:`node_weights`.
    """
    if move.ranks > MAX_REPORTED_RANKS:
        return None
    labels = _best_labels([move], [1.0], move.ranks, None if node_of is None else node_weights(node_of))
    renumbered = dataclasses.replace(move, target=move.target.on_ranks(labels))
    if node_of is None:
        return move.bytes_moved() - renumbered.bytes_moved()
    return move.bytes_between_nodes(node_of) - renumbered.bytes_between_nodes(node_of)


def node_weights(node_of: npt.ArrayLike, off_node: float = 10.0, on_node: float = 1.0) -> Floats:
    """
    Return weights for :func:`relabel`.

    :param node_of: Node of each rank, any numbers.
    :param off_node: Cost of a byte between nodes.
    :param on_node: Cost of a byte between two ranks of a node.
    :return: Costs of a byte, shape (ranks, ranks), with zeros on the diagonal.
    :raises ValueError: If ``node_of`` is not a list.
    """
    nodes = np.asarray(node_of)
    if nodes.ndim != 1:
        raise ValueError(f"node_weights: node_of must be a list of the node of each rank, got {node_of!r}")
    costs = np.where(nodes[:, None] == nodes, float(on_node), float(off_node))
    np.fill_diagonal(costs, 0.0)
    return costs


def cost_of(move: Schedule, weights: Floats | None = None) -> float:
    """Return the elements that move between ranks, each counted with its weight, see :func:`relabel`."""
    if weights is None:
        return float(move.totals.sent.sum())
    total = 0.0
    for rank in range(move.ranks):
        targets, nbytes = move.sent_to(rank)
        total += float(weights[rank, targets] @ nbytes) / move.itemsize
    return total


def _checked_costs(name: str, given: npt.ArrayLike, shape: tuple[int, ...]) -> Floats:
    try:
        costs = np.asarray(given, np.float64)
    except (TypeError, ValueError, OverflowError):
        costs = np.array(np.nan)
    if costs.shape != shape or not np.isfinite(costs).all() or (costs < 0).any():
        raise ValueError(
            f"relabel: {name} must be finite numbers of at least 0, of shape {shape}, got {reprlib.repr(given)}"
        )
    return costs


def _best_labels(moves: Sequence[Schedule], factors: Sequence[float], ranks: int, weights: Floats | None) -> list[int]:
    rows, columns, counts = _overlaps(moves, factors)
    same = list(range(ranks))
    if ranks > MAX_MATCHED_RANKS:
        labels = _largest_first(rows, columns, counts, ranks)
    else:
        held = np.zeros((ranks, ranks))  # [rank of the target, rank of the source]
        np.add.at(held, (rows, columns), counts)
        gain = held  # saving, up to a constant, if the rank of a column takes over the part of the rank of a row
        if weights is not None:
            expected = held @ weights
            gain = expected.max() - expected
        labels = assign(gain).tolist()
        sides = [side for move in moves for side in (move.source, move.target)]
        if all(side.core.replicas == 1 and not isinstance(side, BoxDistribution) for side in sides):
            return labels if gain[same, labels].sum() > gain[same, same].sum() else same
    # with replicas, such as overlapping boxes, the overlaps do not determine the cost
    renumbered = [dataclasses.replace(move, target=move.target.on_ranks(labels)) for move in moves]
    costs = [
        sum(factor * cost_of(move, weights) for factor, move in zip(factors, some, strict=True))
        for some in (moves, renumbered)
    ]
    return same if costs[0] <= costs[1] else labels


def _overlaps(moves: Sequence[Schedule], factors: Sequence[float]) -> tuple[Integers, Integers, Floats]:
    """Return the overlap of target and source parts as sparse triples (target rank, source rank, weight)."""
    found = [_core.messages(move.source.core, move.target.core, move.transform.encoded, True) for move in moves]
    columns, rows, counts = np.concatenate(found).T
    return rows, columns, counts * np.repeat(np.array(factors, np.float64), list(map(len, found)))


def _largest_first(rows: Integers, columns: Integers, counts: Floats, ranks: int) -> list[int]:
    labels, taken = [-1] * ranks, [False] * ranks
    for at in np.argsort(-counts, kind="stable").tolist():
        row, column = int(rows[at]), int(columns[at])
        if labels[row] < 0 and not taken[column]:
            labels[row], taken[column] = column, True
    free = iter([rank for rank in range(ranks) if not taken[rank]])
    return [label if label >= 0 else next(free) for label in labels]


def assign(matrix: Floats) -> Integers:
    """
    Return a column for each row of a matrix, each at most once, with the largest sum of entries.

    The matrix has at least as many columns as rows and no negative entries. Of a small one all assignments are tried.
    Else, if every row can have its largest entry, a matching finds that, which is fast; if not, an optimal assignment
    or, with more than ``MAX_EXACT_ROWS`` rows, the matching completed in order.
    """
    largest = matrix.max(axis=1, keepdims=True)
    if (matrix == largest)[np.arange(len(matrix)), np.arange(len(matrix))].all():
        return np.arange(len(matrix))
    if math.perm(matrix.shape[1], len(matrix)) <= MAX_TRIED_ASSIGNMENTS:
        tried = np.array(list(permutations(range(matrix.shape[1]), len(matrix))))
        return np.asarray(tried[matrix[np.arange(len(matrix)), tried].sum(axis=1).argmax()], np.int64)
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    matched = np.asarray(maximum_bipartite_matching(csr_matrix(matrix == largest), perm_type="column"), np.int64)
    if (matched >= 0).all():
        return matched
    if len(matrix) <= MAX_EXACT_ROWS:
        from scipy.optimize import linear_sum_assignment

        return np.asarray(linear_sum_assignment(matrix, maximize=True)[1], np.int64)
    free = np.setdiff1d(np.arange(matrix.shape[1]), matched)
    matched[matched < 0] = free[: (matched < 0).sum()]
    return matched

"""Distributions whose parts have about equal weight. Start reading at: balanced_by."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist.box_distribution import BoxDistribution
from dace_redist.distribution import Distribution
from dace_redist.integers import AnyInts, integers

Cuts = npt.NDArray[np.int64]


def balanced_by(
    weights: npt.ArrayLike, grid: AnyInts, *, shape: AnyInts | None = None
) -> Distribution | BoxDistribution:
    """
    Return a distribution in which all ranks have about equal weight. Local.

    If ``grid`` splits one axis, no other contiguous parts have a smaller largest weight, up to rounding if weights are
    not integers: exact bisection (Pinar and Aykanat 2004). If it splits several, each rank gets a box by recursive
    coordinate bisection (Berger and Bokhari 1987), which is no optimum in general; its last cuts are along one axis and
    exact.

    :param weights: Weight of each index, at least 0: an array with the tensor's leading dimensions. Equal on all ranks.
    :param grid: Number of parts along each axis; ranks are row-major. Axes beyond it are not split.
    :param shape: Global shape, which begins with that of ``weights``; default: that shape.
    :return: A distribution in parts of given lengths if one axis is split, else one box per rank.
    :raises ValueError: If an argument is invalid.
    :raises TypeError: If a weight is not a real number, or a size not an integer.
    """
    weights, grid = _checked_weights(weights), integers("grid", grid)
    shape = weights.shape if shape is None else integers("shape", shape)
    if shape[: weights.ndim] != weights.shape:
        raise ValueError(f"balanced_by: shape must begin with that of weights, {weights.shape}, got {shape}")
    if len(grid) > weights.ndim or min(grid, default=1) < 1:
        raise ValueError(f"balanced_by: grid must have at most {weights.ndim} entries, all at least 1, got {grid}")
    split = [axis for axis, parts in enumerate(grid) if parts > 1]
    if len(split) < 2:
        axis = split[0] if split else 0
        block: list[Any] = ["balanced"] * len(shape)
        if split:
            block[axis] = tuple(np.diff(balanced_cuts(_along(weights, axis), grid[axis])).tolist())
        return Distribution(shape, grid, block=block)
    ranks = np.arange(math.prod(grid)).reshape(grid + (1,) * (weights.ndim - len(grid)))
    boxes = np.zeros((ranks.size, 2, len(shape)), np.int64)
    boxes[:, 1] = shape
    _bisect(weights, np.zeros(weights.ndim, np.int64), ranks, boxes)
    return BoxDistribution(shape, boxes, np.arange(ranks.size))


def _checked_weights(weights: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return the weights as an array of 64-bit integers or floating-point numbers."""
    array = np.asarray(weights)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"balanced_by: weights must be real numbers, got {array.dtype}")
    if array.size and not (array.min() >= 0 and array.max() < np.inf):
        raise ValueError(f"balanced_by: weights must be finite and at least 0, got {array.min()} to {array.max()}")
    exact = array.dtype.kind != "f" and array.sum(dtype=np.float64) < 1 << 61  # sums of two sums fit 64 bits
    return array.astype(np.int64 if exact else np.float64, copy=False)


def _along(weights: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
    return np.asarray(weights.sum(axis=tuple(other for other in range(weights.ndim) if other != axis)))


def _bisect(
    weights: npt.NDArray[Any], offset: Cuts, ranks: npt.NDArray[np.int64], boxes: npt.NDArray[np.int64]
) -> None:
    """
    Set the boxes of some ranks, by recursive bisection of the axis with most parts.

    :param weights: Weights of the box that all these ranks share.
    :param offset: First index of that box, along the axes of the weights.
    :param ranks: Ranks, an array of as many dimensions.
    :param boxes: Offset and extent of the box of each rank, [ranks, 2, dimensions].
    """
    if ranks.size == 1:
        boxes[ranks.item(), :, : weights.ndim] = offset, weights.shape
        return
    axis = int(np.argmax(ranks.shape))
    along, parts = _along(weights, axis), ranks.shape[axis]
    half = parts // 2
    cuts, ends = np.array([0, _halved(along, half, parts - half), len(along)]), [0, half, parts]
    if parts == ranks.size:
        cuts, ends = balanced_cuts(along, parts), list(range(parts + 1))
    for lo, hi, first, last in zip(cuts, cuts[1:], ends, ends[1:], strict=False):
        inside, those = (np.s_[(slice(None),) * axis + (slice(*ends),)] for ends in ((lo, hi), (first, last)))
        _bisect(weights[inside], offset + lo * (np.arange(weights.ndim) == axis), ranks[those], boxes)


def _weight_before(weights: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the weight before each index, and that of all; of equal weights if all are 0."""
    weights = weights if weights.any() else np.ones_like(weights)
    return np.concatenate([weights[:0].sum(keepdims=True), np.cumsum(weights)])


def _halved(weights: npt.NDArray[Any], first: int, second: int) -> int:
    """Return the cut by which the heavier of two groups of some parts is lightest, by weight per part."""
    sums = _weight_before(weights)
    near = int(sums.searchsorted(sums.dtype.type(sums[-1] / (first + second) * first)))
    return min(max(near - 1, 0), near, key=lambda cut: max(sums[cut] / first, (sums[-1] - sums[cut]) / second))


def balanced_cuts(weights: npt.NDArray[Any], parts: int) -> Cuts:
    """
    Return the ends of contiguous parts, of which the heaviest is as light as possible: ``parts + 1`` indices from 0.

    Of all such parts these are close to equal weight.

    :param weights: Weight of each index, at least 0; integers or floating-point numbers of 64 bits.
    """
    sums = _weight_before(weights)
    limit = _smallest_limit(sums, parts)
    if sums.dtype.kind == "f":
        limit += np.spacing(sums[-1])  # by which the sums are rounded
    earliest = len(weights) - _filled(-sums[::-1], parts, limit)[0][::-1]  # cuts that leave enough for the other parts
    cuts = np.zeros(parts + 1, np.int64)
    for part in range(1, parts):
        begin = sums[cuts[part - 1]]
        ideal = begin + sums.dtype.type((sums[-1] - begin) / (parts - part + 1))  # of another type takes long to find
        near = int(sums.searchsorted(ideal))
        near -= near > 0 and ideal - sums[near - 1] < sums[near] - ideal
        reach = int(sums.searchsorted(begin + limit, "right")) - 1
        cuts[part] = min(max(near, earliest[part], cuts[part - 1]), reach)
    cuts[parts] = len(weights)
    return cuts


def _filled(sums: npt.NDArray[Any], parts: int, limit: Any) -> tuple[Cuts, Any, Any]:
    """
    Fill parts up to a limit, one after another.

    :param sums: Weight before each index, ascending.
    :return: Their ends, the weight of the heaviest, and the smallest limit by which one of them would be longer.
    """
    ends, heaviest, longer = np.zeros(parts + 1, np.int64), sums[0] - sums[0], np.inf
    for part in range(parts):
        begin = sums[ends[part]]
        end = int(sums.searchsorted(begin + limit, "right")) - 1
        ends[part + 1], heaviest = end, max(heaviest, sums[end] - begin)
        if end < len(sums) - 1:
            longer = min(longer, sums[end + 1] - begin)
    return ends, heaviest, longer


def _smallest_limit(sums: npt.NDArray[Any], parts: int) -> Any:
    """Return the smallest weight that the heaviest part can have, by exact bisection between weights of parts."""
    exact, total = sums.dtype.kind == "i", sums[-1]
    low = max(-(-total // parts) if exact else total / parts, np.diff(sums).max(initial=0))
    high, trial = total, low  # the best, if it suffices
    while low < high:
        ends, heaviest, longer = _filled(sums, parts, trial)
        if ends[-1] == len(sums) - 1:
            high = min(heaviest, trial)
        else:
            low = max(longer, trial + 1 if exact else np.nextafter(trial, np.inf))
        middle = low + ((high - low) // 2 if exact else (high - low) / 2)
        trial = low if middle >= high else middle
    return high

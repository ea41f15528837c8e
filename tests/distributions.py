"""Random distributions, and the owners of their elements by brute force; shared by several tests."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from seeds import some

from dace_redist.distribution import BoxDistribution, Distribution, TiledDistribution, decode_distribution

MOST = {1: 40, 2: 12, 3: 7, 4: 4, 5: 3, 6: 3, 7: 2, 8: 2}  # largest extent by number of dimensions
CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
#: Of tests that follow every element in Python.
FEW = settings(CALM, max_examples=some(60))


def same_on_all_ranks(examples: int, ranks: int = 1) -> Callable[[Any], Any]:
    """
    Return settings of a random test in which all ranks draw the same cases, fixed or by ``DACE_REDIST_SEED``.

    :param examples: Number of cases on up to 4 ranks, of which :func:`seeds.some` takes a share.
    :param ranks: Number of ranks; above 4 the number of cases is reduced, since they take longer.
    """
    seed = os.environ.get("DACE_REDIST_SEED")
    chosen = settings(
        max_examples=some(examples) * 4 // max(4, ranks),
        derandomize=seed is None,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    return chosen if seed is None else lambda test: hypothesis.seed(int(seed))(chosen(test))


#: Mostly tensors with elements; of 0 dimensions, or with extents of 0, one in a few.
shapes = st.one_of(
    *[st.integers(1, 8).flatmap(lambda n: st.lists(st.integers(1, MOST[n]), min_size=n, max_size=n).map(tuple))] * 4,
    st.lists(st.integers(0, 4), max_size=4).map(tuple),
)


def blocks(extent: int, parts: int) -> st.SearchStrategy[Any]:
    """Blocks of one axis: balanced, as large as possible, of some size, or parts of any length, also of 0."""
    cuts = st.lists(st.integers(0, extent), min_size=parts - 1, max_size=parts - 1).map(sorted)
    lengths = cuts.map(lambda cuts: tuple(np.diff([0, *cuts, extent]).tolist()))
    return st.one_of(st.none(), st.just("ceil"), st.integers(1, extent or 2), lengths)


@st.composite
def blocked(draw: st.DrawFn, shape: tuple[int, ...], ranks: int = 16) -> Distribution:
    """Draw blocks of any kind over any of the ranks, with dimensions that are not split, replicas and pins."""
    grid: list[int] = []
    for _ in range(draw(st.integers(0, len(shape) + 2))):
        grid.append(draw(st.integers(1, min(7, ranks // math.prod(grid)))))
    padded = [*draw(st.permutations(range(len(grid)))), *[None] * len(shape)][: len(shape)]
    dims = [axis if axis is None or draw(st.booleans()) else None for axis in draw(st.permutations(padded))]
    block = [draw(blocks(n, 1 if axis is None else grid[axis])) for n, axis in zip(shape, dims, strict=True)]
    pins = [None if g in dims or draw(st.booleans()) else draw(st.integers(0, p - 1)) for g, p in enumerate(grid)]
    size = math.prod(grid)
    chosen = draw(st.one_of(st.none(), st.permutations(range(ranks)).map(lambda order: order[:size])))
    return Distribution(shape, grid, dims=dims, block=block, ranks=chosen, pins=pins)


@st.composite
def tiled(draw: st.DrawFn, shape: tuple[int, ...], ranks: int = 7) -> TiledDistribution:
    """Draw an owner for every tile."""
    tile = tuple(draw(st.integers(max(1, extent // 4), extent or 2)) for extent in shape)
    tiles = tuple(-(-n // t) for n, t in zip(shape, tile, strict=True))
    seed = draw(st.integers(0, 2**32 - 1))
    owners = np.random.default_rng(seed).integers(0, draw(st.integers(1, ranks)), tiles)
    return TiledDistribution(shape, tile, owners)


@st.composite
def boxed(draw: st.DrawFn, shape: tuple[int, ...], ranks: int = 7, covering: bool = True) -> BoxDistribution:
    """Draw boxes that overlap anyhow, in any order; a source needs them to cover the tensor."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    boxes = []

    def cut(offset: list[int], extent: list[int], depth: int) -> None:
        long = [axis for axis, n in enumerate(extent) if n > 1]
        if not long or depth == 0 or random.random() < 0.15:
            return boxes.append((offset, extent))
        axis = int(random.choice(long))
        at = int(random.integers(1, extent[axis]))
        cut(offset, [at if i == axis else n for i, n in enumerate(extent)], depth - 1)
        start = [low + at if i == axis else low for i, low in enumerate(offset)]
        cut(start, [n - at if i == axis else n for i, n in enumerate(extent)], depth - 1)

    for _ in range(draw(st.integers(1, 2)) if covering else 0):
        cut([0] * len(shape), list(shape), draw(st.integers(0, 5)))
    for _ in range(draw(st.integers(0, 4))):
        offset = [int(random.integers(0, n + 1)) for n in shape]
        boxes.append((offset, [int(random.integers(0, n - low + 1)) for n, low in zip(shape, offset, strict=True)]))
    owners = random.integers(0, draw(st.integers(1, ranks)), len(boxes))
    return BoxDistribution(shape, [boxes[i] for i in random.permutation(len(boxes))], owners)


def distributions(shape: tuple[int, ...], ranks: int = 16, covering: bool = True) -> st.SearchStrategy[Any]:
    """
    Draw a distribution of any kind.

    :param covering: True for a source, of which some rank holds each element.
    """
    few = min(7, ranks)
    return st.one_of(*[blocked(shape, ranks)] * 3, tiled(shape, few), boxed(shape, few, covering))


def rows_to_columns(comm: Any, shape: tuple[int, int] = (6, 8)) -> tuple[Any, Any, Any, Any]:
    """Return a split of the rows and one of the columns, and this rank's parts of a matrix that holds its indices."""
    sides = Distribution(shape, (comm.size, 1)), Distribution(shape, (1, comm.size))
    whole = np.arange(float(shape[0] * shape[1])).reshape(shape)
    return *sides, *(side.local(whole, comm.rank) for side in sides)


def some_distribution(shape: tuple[int, ...], ranks: int, number: int) -> Any:
    """Return a random distribution of any kind, equal on all ranks."""
    found = []  # the first is the simplest, whatever the seed, and the second never blocked

    @hypothesis.seed(int(number))
    @settings(CALM, max_examples=3, phases=[hypothesis.Phase.generate], database=None)
    @hypothesis.given(distributions(shape, ranks))
    def draw(distribution: Any) -> None:
        found.append(distribution)

    draw()
    return found[-1]


@st.composite
def with_margins(draw: st.DrawFn, drawn: st.SearchStrategy[Any]) -> Any:
    """Draw a distribution, mostly with margins, as far as its parts are wide enough."""
    distribution = draw(drawn)
    ndim = len(distribution.shape)
    halo = draw(st.lists(st.sampled_from([0, 1, 1, 2, 3]), min_size=ndim, max_size=ndim))
    periodic = draw(st.lists(st.booleans(), min_size=ndim, max_size=ndim))
    while any(halo):
        try:
            return decode_distribution(distribution.encoded, halo=halo, periodic=periodic)
        except ValueError:  # parts are narrower
            halo[int(np.argmax(halo))] -= 1
    return distribution


one = shapes.flatmap(distributions)
pairs = shapes.flatmap(lambda shape: st.tuples(distributions(shape), distributions(shape)))


@st.composite
def regions(draw, shape):
    """Draw axes and region of a redistribution from a tensor of this shape, or None; and the shape of its target."""
    ndim = len(shape)
    axes = draw(st.sampled_from([None, *[tuple(draw(st.permutations(range(ndim))))] * 2]))
    permuted = tuple(shape[axis] for axis in axes or range(ndim))
    if draw(st.booleans()):
        return axes, None, permuted
    least = draw(st.sampled_from([1] * 7 + [0]))  # of elements along each axis; small numbers are drawn more often
    source_offset = tuple(draw(st.integers(0, max(0, extent - least))) for extent in shape)
    rest = [n - low for n, low in zip(shape, source_offset, strict=True)]
    box = tuple(n - draw(st.integers(0, max(0, n - least))) for n in rest)
    target_offset = tuple(draw(st.integers(0, 3)) for _ in shape)
    turned = zip(target_offset, axes or range(ndim), strict=True)
    target_shape = tuple(low + box[axis] + draw(st.integers(0, 3)) for low, axis in turned)
    return axes, (source_offset, target_offset, box), target_shape


@st.composite
def factors(draw, size):
    """Draw up to 6 extents whose product is ``size``."""
    extents = []
    while (size > 1 or draw(st.booleans())) and len(extents) < 5:
        extents.append(draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0])))
        size //= extents[-1]
    return (*extents, size) if size > 1 else tuple(extents)


@st.composite
def reshapes(draw, shape):
    """Draw another shape of as many elements: neighbouring extents multiplied, one of them split, or any other."""
    size = math.prod(shape)
    if size == 0:
        return draw(st.permutations([*shape, draw(st.integers(0, 3))]).map(tuple))
    kind = draw(st.sampled_from(["merge", "split", "any"]))
    if kind == "any" or not shape:
        return draw(factors(size))
    first = draw(st.integers(0, len(shape) - 1))
    last = draw(st.integers(first + 1, len(shape))) if kind == "merge" else first + 1
    middle = math.prod(shape[first:last])
    return (*shape[:first], *((middle,) if kind == "merge" else draw(factors(middle))), *shape[last:])[:12]


@st.composite
def maps(draw, shape):
    """Draw axes, and a region or a new shape, of a redistribution from a tensor of this shape; and its target's."""
    axes, region, target_shape = draw(regions(shape))
    if region is not None or draw(st.booleans()):
        return {"axes": axes, "region": region}, target_shape
    target_shape = draw(reshapes(target_shape))
    return {"axes": axes, "reshape": target_shape}, target_shape


@st.composite
def ends(draw, shape, target_shape, how, ranks=16, margins=True):
    """Draw source and target of a redistribution; of a reshape without boxes, and without margins of the target."""
    if how.get("reshape") is None:
        source, target = distributions(shape, ranks), distributions(target_shape, ranks, covering=False)
        target = with_margins(target) if margins else target
    else:
        few = min(7, ranks)
        source, target = (st.one_of(blocked(extents, ranks), tiled(extents, few)) for extents in (shape, target_shape))
    return draw(with_margins(source) if margins else source), draw(target)


@st.composite
def mapped_pairs(draw):
    """Draw source, target, and how elements move between them."""
    shape = draw(shapes)
    how, target_shape = draw(maps(shape))
    return *draw(ends(shape, target_shape, how)), how


# Brute force ------------------------------------------------------------------------------------------------------


def coordinate(distribution, axis, index):
    """Return the grid coordinate along a tensor axis that owns a global index, by definition."""
    dim, block = distribution.dims[axis], distribution.block[axis]
    extent, parts = distribution.shape[axis], 1 if dim is None else distribution.grid[dim]
    if block == "balanced":
        quotient, longer = divmod(extent, parts)
        block = (quotient + 1,) * longer + (quotient,) * (parts - longer)
    if isinstance(block, tuple):
        return next(part for part in range(parts) if index < sum(block[: part + 1]))
    return index // (-(-extent // parts) if block == "ceil" else block) % parts


def owners_of(distribution, index):
    """Return all owners of an element; the first has coordinate 0 along all replica axes."""
    if isinstance(distribution, BoxDistribution):
        boxes = zip(distribution.boxes, distribution.owners.tolist(), strict=True)
        return [owner for (low, n), owner in boxes if np.all(low <= index) and np.all(index < low + n)]
    if isinstance(distribution, TiledDistribution):
        tile = tuple(i // t for i, t in zip(index, distribution.tile, strict=True))
        return [int(distribution.owner_of_tile[tile])]
    pinned = zip(distribution.grid, distribution.pins, strict=True)
    coordinates = [range(p) if pin is None else [pin] for p, pin in pinned]
    for axis, dim in enumerate(distribution.dims):
        if dim is not None:
            coordinates[dim] = [coordinate(distribution, axis, index[axis])]
    positions = [int(np.ravel_multi_index(at, distribution.grid)) for at in itertools.product(*coordinates)]
    return positions if distribution.ranks is None else [distribution.ranks[position] for position in positions]


def whole(shape):
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


def parts(distribution, array, ranks):
    return [distribution.local(array, rank) for rank in range(ranks)]


def moved(source, target, axes=None, region=None, reshape=None):
    """Return the whole target after moving the whole source into it, with NumPy."""
    if reshape is not None:
        return source.transpose(axes or range(source.ndim)).reshape(reshape)
    source_offset, target_offset, box = region or ((0,) * source.ndim, (0,) * source.ndim, source.shape)
    inside = (*(slice(low, low + n) for low, n in zip(source_offset, box, strict=True)), ...)
    part = source[inside].transpose(axes or range(source.ndim))
    result = target.copy()
    result[(*(slice(low, low + n) for low, n in zip(target_offset, part.shape, strict=True)), ...)] = part
    return result

"""Random redistributions for Hypothesis, and the brute-force oracle: every element carries its global index."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from distributions import regions
from hypothesis import strategies as st

from dace_redist import Distribution, TiledDistribution, empty

DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES += ("float16", "float32", "float64", "complex64", "complex128")

#: The strategies that move NumPy arrays, and small random options for each: split messages, short rings, many chunks.
OPTIONS = {
    "Datatype": {},
    "Pack": {},
    "Threaded": {"threads": st.integers(1, 3)},
    "Pipelined": {
        "chunk_bytes": st.sampled_from([1, 24, 1000, 8 << 20]),
        "depth": st.integers(1, 4),
        "growth": st.sampled_from([1.0, 1.5, 3.0]),
    },
    "RMA": {},
    "Shared": {"slot_bytes": st.sampled_from([1, 40, 1000, 64 << 10]), "depth": st.integers(1, 3)},
    "Hierarchical": {"slot_bytes": st.sampled_from([24, 64 << 10]), "chunk_bytes": st.sampled_from([24, 8 << 20])},
    "Aggregated": {"slot_bytes": st.sampled_from([24, 64 << 10]), "chunk_bytes": st.sampled_from([24, 8 << 20])},
}


@dataclass(frozen=True)
class RandomCase:
    """A redistribution of one tensor, on some of the ranks of a communicator."""

    source: Any
    target: Any
    dtype: str
    layout: str = "C"  # of the local arrays: one of LAYOUTS
    options: dict[str, dict[str, Any]] = field(default_factory=dict)  # by strategy
    axes: tuple[int, ...] | None = None
    region: tuple[tuple[int, ...], ...] | None = None
    node_ranks: int = 0  # that count as a node; 0: all

    @property
    def shape(self) -> tuple[int, ...]:
        return self.source.shape

    def whole(self) -> np.ndarray:
        """Return the source; the value of an element is its global linear index, as far as the type allows."""
        return self._values(self.shape)

    def background(self) -> np.ndarray:
        """Return the target before."""
        return np.array(np.flip(self._values(self.target.shape)))

    def there(self) -> dict[str, Any]:
        """Axes and region."""
        return {"axes": self.axes, "region": self.region}

    def back(self) -> dict[str, Any]:
        """Axes and region of the way back."""
        axes = self.axes or range(len(self.shape))
        region = self.region and (self.region[1], self.region[0], tuple(self.region[2][axis] for axis in axes))
        return {"axes": self.axes and tuple(np.argsort(self.axes)), "region": region}

    def _values(self, shape: tuple[int, ...]) -> np.ndarray:
        index = np.arange(math.prod(shape)).reshape(shape)
        if self.dtype == "bool":
            return np.asarray(index % 3 == 0)
        bits = min(8 * np.dtype(self.dtype).itemsize - 1, 62)
        return np.asarray(index % (1 << bits), dtype=self.dtype)


#: How a local array may lie in memory.
LAYOUTS = ("C", "F", "padded", "backwards", "every other", "node-shared", "node-shared padded")


def local_array(part: np.ndarray, layout: str) -> np.ndarray:
    """Return a copy of ``part`` in memory of a given layout."""
    if layout == "F":
        return np.array(part, order="F")
    allocate = empty if layout.startswith("node-shared") else np.empty
    steps = [2 if layout == "every other" and i == part.ndim - 1 else 1 for i in range(part.ndim)]
    margins = [1 + i % 2 if layout.endswith("padded") else 0 for i in range(part.ndim)]
    larger = allocate(
        tuple(n * step + margin for n, step, margin in zip(part.shape, steps, margins, strict=True)), part.dtype
    )
    larger[...] = 1
    here = larger[(*(slice(0, n * step, step) for n, step in zip(part.shape, steps, strict=True)), ...)]
    if layout == "backwards" and part.ndim > 0:  # else NumPy makes a scalar
        here = np.flip(here)
    here[...] = part
    return here


@st.composite
def blocked(draw: st.DrawFn, shape: tuple[int, ...], ranks: int) -> Distribution:
    """Draw a uniform, balanced or block-cyclic distribution over any ranks, with unsplit dimensions and replicas."""
    grid: list[int] = []
    while (not grid and draw(st.integers(0, 7))) or (
        math.prod(grid) < ranks and len(grid) <= len(shape) and draw(st.booleans())
    ):
        grid.append(draw(st.integers(1, ranks // math.prod(grid))))
    size = math.prod(grid)
    axes = draw(st.permutations([*range(len(grid)), *[None] * len(shape)]))
    blocks = [draw(st.one_of(st.none(), st.just("ceil"), st.integers(1, n or 2))) for n in shape]
    chosen = draw(st.one_of(st.none(), st.permutations(range(ranks))))
    return Distribution(
        shape, grid, dims=axes[: len(shape)], block=blocks, ranks=None if chosen is None else chosen[:size]
    )


@st.composite
def tiled(draw: st.DrawFn, shape: tuple[int, ...], ranks: int) -> TiledDistribution:
    """Draw an owner for every tile."""
    tile = [draw(st.integers(max(1, n // 3), n or 2)) for n in shape]
    tiles = [math.ceil(n / t) for n, t in zip(shape, tile, strict=True)]
    owners = draw(st.lists(st.integers(0, ranks - 1), min_size=math.prod(tiles), max_size=math.prod(tiles)))
    return TiledDistribution(shape, tile, np.reshape(np.array(owners, np.int64), tiles))


@st.composite
def cases(draw: st.DrawFn, ranks: int) -> RandomCase:
    """Draw redistributions of 0-D to 5-D tensors over at most ``ranks`` ranks, some of them without elements."""
    ndim = draw(st.integers(0, 5))
    least = draw(st.sampled_from([0, 1, 1, 1]))
    shape = tuple(draw(st.integers(least, {1: 40, 2: 20, 3: 10}.get(ndim, 6))) for _ in range(ndim))
    axes, region, target_shape = draw(regions(shape)) if draw(st.booleans()) else (None, None, shape)
    source, target = (
        draw(st.one_of(blocked(extents, ranks), blocked(extents, ranks), tiled(extents, ranks)))
        for extents in (shape, target_shape)
    )
    short = st.sampled_from([1 << 30, 1 << 30, 64, 17])
    options = {
        name: {"max_message_bytes": draw(short), **{option: draw(values) for option, values in extra.items()}}
        for name, extra in OPTIONS.items()
    }
    layout = draw(st.sampled_from(LAYOUTS))
    dtype, node_ranks = draw(st.sampled_from(DTYPES)), draw(st.integers(0, 3))
    return RandomCase(source, target, dtype, layout, options, axes, region, node_ranks)

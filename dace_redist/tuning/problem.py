"""A redistribution for which a strategy is chosen, and its key, which does not depend on how it is written."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dace_redist.distribution import AnyDistribution, Distribution
from dace_redist.planned_distribution import balanced_lengths
from dace_redist.schedule import Schedule

#: Places of source and target by the name of their memory: a rank's own memory, node-shared memory, where
#: :func:`dace_redist.shared_empty` puts arrays, and the GPUs of the ranks.
PLACES: Mapping[str, tuple[str, str]] = {
    "ordinary": ("ordinary", "ordinary"),
    "shared-source": ("shared", "ordinary"),
    "shared-target": ("ordinary", "shared"),
    "shared-both": ("shared", "shared"),
    "gpu": ("gpu", "gpu"),
    "gpu-source": ("gpu", "ordinary"),
    "gpu-target": ("ordinary", "gpu"),
}
MEMORIES = tuple(PLACES)
MAIN_MEMORIES = tuple(name for name, places in PLACES.items() if "gpu" not in places)
GPU_MEMORIES = tuple(name for name, places in PLACES.items() if "gpu" in places)


@dataclasses.dataclass(frozen=True)
class TuningProblem:
    """A redistribution for which a strategy is chosen, and where its arrays lie, one of :data:`MEMORIES`."""

    schedule: Schedule
    memory: str = MEMORIES[0]

    def __str__(self) -> str:
        """Type, shape and memory, as in ``int32[8, 9]``."""
        shape = ", ".join(map(str, self.schedule.shape))
        return f"{self.schedule.dtype}[{shape}]{'' if self.memory == MEMORIES[0] else f' ({self.memory})'}"

    @property
    def on_gpu(self) -> bool:
        """True if an array lies on a GPU."""
        return self.memory in GPU_MEMORIES

    @property
    def identity(self) -> dict[str, str]:
        """Names and values that distinguish it from other problems."""
        return {"schedule": schedule_key(self.schedule), "dtype": self.schedule.dtype.name, "memory": self.memory}


def memory_name(source: bool, target: bool, place: str = "shared") -> str:
    """Return the name of the memory whose source, target or both lie in a place, and not in ordinary memory."""
    wanted = tuple(place if side else "ordinary" for side in (source, target))
    return next(name for name, places in PLACES.items() if places == wanted)


def sides_on_gpu(memory: str) -> tuple[bool, bool]:
    """Return whether source and target lie on a GPU, of one of :data:`MEMORIES`."""
    source, target = PLACES[memory]
    return source == "gpu", target == "gpu"


def check_memory(memory: Any, known: Sequence[str] = MEMORIES) -> str:
    """Return ``memory``; raise a ValueError if it is not one of ``known``."""
    if memory not in known:
        raise ValueError(f"memory must be one of {', '.join(known)}, got {memory!r}")
    return str(memory)


def schedule_key(schedule: Schedule) -> str:
    """
    Return a digest of ownership before and after, the index map, and the size of an element.

    It has 32 hexadecimal digits, equal in every process and however the distributions are written.
    """
    digest = hashlib.blake2b(str(schedule.itemsize).encode(), digest_size=16)
    for distribution in (schedule.source, schedule.target):
        digest.update(b"|" + np.asarray(canonical(distribution).encoded_array, dtype="<i8").tobytes())
    if schedule.transform.encoded:
        digest.update(b"|" + np.asarray(schedule.transform.encoded, dtype="<i8").tobytes())
    return digest.hexdigest()


def canonical(distribution: AnyDistribution) -> AnyDistribution:
    """
    Return the one form of all distributions in which every rank holds the same elements in the same order.

    Grid axes of one coordinate are left out, blocks are numbers where they are of one size, lengths of parts are left
    out where they are balanced, and ranks where they count up from 0. Tiles stay as they are.
    """
    if not isinstance(distribution, Distribution):
        return distribution
    kept = [axis for axis, extent in enumerate(distribution.grid) if extent > 1]
    number = {axis: position for position, axis in enumerate(kept)}
    size = math.prod(distribution.grid)
    return Distribution(
        distribution.shape,
        [distribution.grid[axis] for axis in kept] or [1],
        dims=[None if dim is None else number.get(dim) for dim in distribution.dims],
        block=[_canonical_block(distribution, axis) for axis in range(len(distribution.shape))],
        ranks=None if distribution.ranks == tuple(range(size)) else distribution.ranks,
        pins=[distribution.pins[axis] for axis in kept] or [None],
        halo=distribution.halo,
        periodic=distribution.periodic,
    )


def _canonical_block(distribution: Distribution, axis: int) -> Any:
    """Return elements per block, ``"balanced"``, or the lengths of parts."""
    length, block = distribution.core.uniform_block(axis), distribution.block[axis]  # a symbol is an error here
    if length < 0 and isinstance(block, tuple):
        return "balanced" if block == balanced_lengths(sum(block), len(block)) else block
    return "balanced" if length < 0 else length or "ceil"

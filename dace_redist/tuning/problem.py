"""A redistribution for which a strategy is chosen, and its key, which does not depend on how it is written."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dace_redist.distribution import AnyDistribution, Distribution
from dace_redist.schedule import Schedule

#: Where arrays in main memory may lie: in a rank's own memory, or one of them, or both, where
#: :func:`dace_redist.empty` puts them.
MAIN_MEMORIES = ("ordinary", "shared-source", "shared-target", "shared-both")
#: Arrays on the GPUs of the ranks: both, or one of them, the other one in a rank's own memory.
GPU_MEMORIES = ("gpu", "gpu-source", "gpu-target")
#: Where the arrays of a redistribution may lie.
MEMORIES = MAIN_MEMORIES + GPU_MEMORIES

#: Strategies whose time the cost model predicts.
MODELLED = ("Datatype", "Pack", "Threaded", "Pipelined", "RMA", "Shared", "Hierarchical", "Aggregated")


@dataclasses.dataclass(frozen=True)
class Problem:
    """
    A redistribution for which a strategy is chosen.

    :param schedule: Its schedule; all sizes are numbers.
    :param memory: Where its arrays lie, one of :data:`MEMORIES`.
    """

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


def memory_name(source_is_shared: bool, target_is_shared: bool) -> str:
    """Return one of :data:`MAIN_MEMORIES`."""
    return MAIN_MEMORIES[source_is_shared + 2 * target_is_shared]


def gpu_memory_name(source_on_gpu: bool, target_on_gpu: bool) -> str:
    """Return one of :data:`GPU_MEMORIES`; one side at least lies on a GPU."""
    return {(True, True): "gpu", (True, False): "gpu-source", (False, True): "gpu-target"}[source_on_gpu, target_on_gpu]


def sides_on_gpu(memory: str) -> tuple[bool, bool]:
    """Return whether source and target lie on a GPU, of one of :data:`MEMORIES`."""
    return memory in ("gpu", "gpu-source"), memory in ("gpu", "gpu-target")


def check_memory(memory: Any, known: Sequence[str] = MEMORIES) -> str:
    """
    Return ``memory``.

    :raises ValueError: If it is not one of ``known``.
    """
    if memory not in known:
        raise ValueError(f"memory must be one of {', '.join(known)}, got {memory!r}")
    return str(memory)


def schedule_key(schedule: Schedule) -> str:
    """
    Return a digest of ownership before and after, the index map, and the size of an element.

    It is equal in every process and however the distributions are written, see :func:`canonical`.

    :param schedule: Its schedule; all sizes are numbers.
    :return: 32 hexadecimal digits.
    """
    digest = hashlib.blake2b(str(schedule.itemsize).encode(), digest_size=16)
    for distribution in (schedule.source, schedule.target):
        digest.update(b"|" + np.asarray(canonical(distribution).encoded, dtype="<i8").tobytes())
    if schedule.index_map.encoded:
        digest.update(b"|" + np.asarray(schedule.index_map.encoded, dtype="<i8").tobytes())
    return digest.hexdigest()


def canonical(distribution: AnyDistribution) -> AnyDistribution:
    """
    Return the one form of all distributions in which every rank holds the same elements in the same order.

    Grid axes of one coordinate are left out, blocks are numbers where they are of one size, and ranks are left out
    where they count up from 0. Tiles stay as they are.

    :param distribution: All its sizes are numbers.
    """
    if not isinstance(distribution, Distribution):
        return distribution
    lengths = map(distribution.core.uniform_block, range(len(distribution.shape)))  # a symbol is an error here
    kept = [axis for axis, extent in enumerate(distribution.grid) if extent > 1]
    number = {axis: position for position, axis in enumerate(kept)}
    size = math.prod(distribution.grid)
    return Distribution(
        distribution.shape,
        [distribution.grid[axis] for axis in kept] or [1],
        dims=[None if dim is None else number.get(dim) for dim in distribution.dims],
        block=["balanced" if length < 0 else length or "ceil" for length in lengths],
        ranks=None if distribution.ranks == tuple(range(size)) else distribution.ranks,
        pins=[distribution.pins[axis] for axis in kept] or [None],
    )

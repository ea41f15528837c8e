"""Redistributions that are measured, and the memory that their arrays lie in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

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
GPU_MEMORIES = tuple(name for name, places in PLACES.items() if "gpu" in places)


@dataclasses.dataclass(frozen=True)
class PlacedSchedule:
    """A schedule, and the memory that its arrays lie in, one of :data:`MEMORIES`."""

    schedule: Schedule
    memory: str = MEMORIES[0]

    @property
    def on_gpu(self) -> bool:
        """True if an array lies on a GPU."""
        return self.memory in GPU_MEMORIES


def memory_name(source: bool, target: bool, place: str = "shared") -> str:
    """Return the name of the memory whose source, target or both lie in a place, and not in ordinary memory."""
    wanted = tuple(place if side else "ordinary" for side in (source, target))
    return next(name for name, places in PLACES.items() if places == wanted)


def check_memory(memory: Any) -> str:
    """Return ``memory``; raise a ValueError if it is not one of :data:`MEMORIES`."""
    if memory not in MEMORIES:
        raise ValueError(f"memory must be one of {', '.join(MEMORIES)}, got {memory!r}")
    return str(memory)

"""Cases of the benchmark (``cases.json``): redistributions, numbers of ranks, memory of the local arrays."""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dace_redist.distribution import AnyDistribution, Distribution, TiledDistribution
from dace_redist.schedule import Schedule, schedule
from dace_redist.strategies import check_options, find_strategy
from dace_redist.timing.comparison import Candidate

#: Sizes of the cases: for tests, for two cores and 24 GiB of memory, for a large machine.
PRESETS = ("tiny", "default", "large")

#: Groups that are measured only if they are named.
OPTIONAL_GROUPS = ("messages",)

#: Memory of the arrays. Ordinary: both in private memory; else one of them in node-shared memory, or both, allocated
#: by NumPy under ``dace_redist.node_shared_memory``; or both private, but mapped as shared memory, which the stand-in
#: of XPMEM in ``tests/cpp`` can attach; or both on the GPU.
VARIANTS = ("ordinary", "shared-target", "shared-source", "shared-both", "mapped", "gpu")

#: Variants measured by default.
USUAL_VARIANTS = VARIANTS[:3]


@dataclasses.dataclass(frozen=True)
class Within:
    """Local arrays that are parts of larger ones of ``shape``, as the faces of fields with ghost cells are."""

    shape: tuple[int, ...]
    source_at: tuple[int, ...]
    target_at: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class DeviceMesh:
    """Mesh of PyTorch's DTensor; for each of its axes, the tensor axis that it splits on each side, or None."""

    mesh: Sequence[int]
    source: Sequence[int | None]
    target: Sequence[int | None]


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """
    One redistribution.

    :param series: Cases of one series are drawn as one line over ``x``, of the kind ``x_name``.
    :param within: Larger arrays that the local arrays lie in, or None.
    :param choices: Strategies to measure; empty: all.
    :param region: Sub-tensor that moves, as in :func:`dace_redist.redistribute`; None: the whole tensor.
    :param pencil: If it is a transfer of mpi4py-fft: the tensor axis that comes together, and the one that is split.
    :param dtensor: Mesh over which DTensor describes both sides, or None.
    """

    name: str
    group: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    source: AnyDistribution
    target: AnyDistribution
    series: str = ""
    x: float = 0
    x_name: str = ""
    within: Within | None = None
    choices: tuple[Candidate, ...] = ()
    region: tuple[tuple[int, ...], ...] | None = None
    pencil: tuple[int, int] | None = None
    dtensor: DeviceMesh | None = None

    @cached_property
    def schedule(self) -> Schedule:
        """Messages of the redistribution."""
        return schedule(self.source, self.target, dtype=self.dtype, region=self.region)

    @property
    def is_whole(self) -> bool:
        """True if the whole tensor moves, between whole local arrays."""
        return self.within is None and self.region is None

    @property
    def ranks(self) -> int:
        """Number of ranks needed."""
        return max(self.source.ranks_needed, self.target.ranks_needed)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclasses.dataclass(frozen=True)
class Catalogue:
    """Cases of a preset in the order in which they are measured, and the description of each group by name."""

    groups: Mapping[str, str]
    cases: tuple[Case, ...]

    def select(self, words: Iterable[str]) -> list[Case]:
        """
        Return cases by group, name, or pattern of names such as ``seed-*``; if none is given, all usual groups.

        :raises ValueError: If a word fits nothing; names similar ones.
        """
        words, chosen = list(words), set()
        for word in words:
            fit = {c.name for c in self.cases if c.group == word or fnmatch.fnmatchcase(c.name, word)}
            if not fit and word not in self.groups:
                close = difflib.get_close_matches(word, [*self.groups, *(case.name for case in self.cases)], n=3)
                hint = f"did you mean {' or '.join(close)}?" if close else f"the groups are {', '.join(self.groups)}"
                raise ValueError(f"no case or group is called {word!r} in this preset; {hint} (--list shows all)")
            chosen |= fit
        if not words:
            return [case for case in self.cases if case.group not in OPTIONAL_GROUPS]
        return [case for case in self.cases if case.name in chosen]


def load(preset: str = "default") -> Catalogue:
    """Read the cases that have sizes for a preset."""
    data = json.loads(Path(__file__).with_name("cases.json").read_text())
    return Catalogue(data["groups"], tuple(case for entry in data["cases"] if (case := _case(entry, preset))))


def _case(entry: dict[str, Any], preset: str) -> Case | None:
    shapes, region = entry.pop("shape"), entry.pop("region", None)
    shape = shapes.get(preset) if isinstance(shapes, dict) else shapes if preset == "default" else None
    if shape is None:
        return None
    within, mesh = entry.pop("within", None), entry.pop("dtensor", None)
    return Case(
        shape=tuple(shape),
        dtype=np.dtype(entry.pop("dtype")),
        source=_distribution(shape, entry.pop("source")),
        target=_distribution(shape, entry.pop("target")),
        within=within and Within(**{key: tuple(values) for key, values in within.items()}),
        choices=tuple(_choice(choice) for choice in entry.pop("choices", ())),
        region=region and tuple(tuple(part) for part in region[preset]),
        dtensor=mesh and DeviceMesh(**mesh),
        **entry,
    )


def _distribution(shape: Sequence[int], words: Mapping[str, Any]) -> AnyDistribution:
    """Return a distribution from arguments of :class:`Distribution`, or random tiles: ``{"tile", "ranks", "seed"}``."""
    if "tile" not in words:
        return Distribution(shape, **words)
    tiles = [math.ceil(n / t) for n, t in zip(shape, words["tile"], strict=True)]
    owners = np.random.default_rng(words["seed"]).integers(0, words["ranks"], tiles)
    return TiledDistribution(shape, words["tile"], owners)


def _choice(words: dict[str, Any]) -> Candidate:
    name = words.pop("strategy")
    return Candidate(name, check_options(find_strategy(name), words))

"""Cases of the benchmark: redistributions, numbers of ranks, and memory of the local arrays. Start: load."""

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
from dace_redist.transform import element_type

#: Sizes that the cases come in: for tests, for two cores and 24 GiB of memory, for a large machine.
PRESETS = ("tiny", "default", "large")

#: Memory of the arrays. Ordinary: both in private memory; else one of them in node-shared memory, or both, allocated
#: by NumPy with ``dace_redist.node_shared_memory``.
VARIANTS = ("ordinary", "shared-target", "shared-source", "shared-both")

#: Those that are measured unless others are asked for.
USUAL_VARIANTS = VARIANTS[:3]


@dataclasses.dataclass(frozen=True)
class Within:
    """
    Local arrays that are parts of larger ones, as a face is of a field with ghost cells.

    :param shape: Shape of the larger array of every rank.
    :param source_at: Where in it the part lies that is sent, the index of its first element.
    :param target_at: The same for what arrives.
    """

    shape: tuple[int, ...]
    source_at: tuple[int, ...]
    target_at: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class ConfiguredStrategy:
    """A strategy with options, as one method of a case."""

    strategy: str
    options: tuple[tuple[str, int | float], ...] = ()

    @property
    def label(self) -> str:
        """Name in tables and plots."""
        return " ".join([self.strategy, *(f"{name}={value}" for name, value in self.options)])


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """
    One redistribution to be measured.

    :param name: Its one name.
    :param group: What it is part of.
    :param shape: Global shape.
    :param dtype: Type of the elements.
    :param source: Distribution before.
    :param target: Distribution after.
    :param series: Cases with the same series are drawn as one line.
    :param x: Position in the series, of the kind ``x_name``.
    :param within: Larger arrays that the local arrays lie in, or None.
    :param choices: Strategies to measure; empty: all.
    :param region: The part of the tensor that moves, as in :func:`dace_redist.redistribute`; None: the whole.
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
    choices: tuple[ConfiguredStrategy, ...] = ()
    region: tuple[tuple[int, ...], ...] | None = None

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
        """Number of ranks that it needs."""
        return max(self.source.ranks_needed, self.target.ranks_needed)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclasses.dataclass(frozen=True)
class Catalogue:
    """
    All cases of a preset.

    :param groups: Description of each group, by name.
    :param cases: The cases, in the order in which they are measured.
    """

    groups: Mapping[str, str]
    cases: tuple[Case, ...]

    def select(self, words: Iterable[str]) -> list[Case]:
        """
        Cases by group, name, or a pattern of names such as ``seed-*``; none given: all.

        :raises ValueError: If a word fits nothing; names what is close to it.
        """
        words = list(words)
        chosen: set[str] = set()
        for word in words:
            fit = [c.name for c in self.cases if c.group == word or fnmatch.fnmatchcase(c.name, word)]
            if not fit and word not in self.groups:
                raise ValueError(self._unknown(word))
            chosen.update(fit)
        return [case for case in self.cases if not words or case.name in chosen]

    def _unknown(self, word: str) -> str:
        known = [*self.groups, *(case.name for case in self.cases)]
        close = difflib.get_close_matches(word, known, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are the groups {', '.join(self.groups)}"
        return f"no case or group is called {word!r} in this preset; {hint} (--list shows all)"


def load(preset: str = "default", path: Path | None = None) -> Catalogue:
    """
    Read the cases.

    :param preset: One of :data:`PRESETS`.
    :param path: File with the cases; default: those of the package.
    :raises ValueError: If the file or the preset is wrong; says what.
    """
    if preset not in PRESETS:
        raise ValueError(f"unknown preset {preset!r}; there are {', '.join(PRESETS)}")
    path = path or Path(__file__).with_name("cases.json")
    try:
        data = json.loads(path.read_text())
        entries = [_case(entry, data["groups"], preset) for entry in data["cases"]]
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path.name} holds no cases: {type(error).__name__}: {error}") from None
    cases = tuple(case for case in entries if case is not None)
    names = [case.name for case in cases]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{path.name}: two cases are called {name!r}")
    return Catalogue(data["groups"], cases)


def _case(entry: Mapping[str, Any], groups: Mapping[str, str], preset: str) -> Case | None:
    """Return the case of one entry; None if it has no such preset."""
    entry = dict(entry)
    name, shapes = entry.pop("name"), entry.pop("shape")
    shape = shapes.get(preset) if isinstance(shapes, dict) else shapes if preset == "default" else None
    if shape is None:
        return None
    region = entry.pop("region", None)
    try:
        if entry["group"] not in groups:
            raise ValueError(f"unknown group {entry['group']!r}")
        within = entry.pop("within", None)
        return Case(
            name=name,
            shape=tuple(shape),
            dtype=element_type(entry.pop("dtype")),
            source=_distribution(shape, entry.pop("source")),
            target=_distribution(shape, entry.pop("target")),
            within=within and Within(**{key: tuple(values) for key, values in within.items()}),
            choices=tuple(_choice(choice) for choice in entry.pop("choices", ())),
            region=region and tuple(tuple(part) for part in region[preset]),
            **entry,
        )
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"case {name!r}: {error}") from None


def _distribution(shape: Sequence[int], words: Mapping[str, Any]) -> AnyDistribution:
    """Return a distribution from arguments of :class:`Distribution`, or random tiles: ``{"tile", "ranks", "seed"}``."""
    if "tile" not in words:
        return Distribution(shape, **words)
    tiles = [math.ceil(n / t) for n, t in zip(shape, words["tile"], strict=True)]
    owners = np.random.default_rng(words["seed"]).integers(0, words["ranks"], tiles)
    return TiledDistribution(shape, words["tile"], owners)


def _choice(words: Mapping[str, Any]) -> ConfiguredStrategy:
    options = {name: value for name, value in words.items() if name != "strategy"}
    return ConfiguredStrategy(
        words["strategy"], tuple(check_options(find_strategy(words["strategy"]), options).items())
    )

"""Records of a case: one per method, with its bounds. Start reading at: case_records."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dace_redist.distribution import AnyDistribution, Distribution
from dace_redist.tuning.measure import Figure
from dace_redist.tuning.report import parsec_bound
from redistribution import free_memory
from redistribution import methods as kinds
from redistribution.bounds import NodeTraffic
from redistribution.catalogue import Case, ConfiguredStrategy
from redistribution.methods import Method, Skipped, Wanted


@dataclasses.dataclass(frozen=True)
class Settings:
    """
    Settings of the measurements.

    :param wanted: Selection of methods.
    :param precision: As in :func:`dace_redist.tuning.measure.measure`, like the next four.
    :param tune_seconds: Seconds of tuning of each case, for each kind of memory, beforehand; None: no tuning.
    :param rate: Bytes per second of the link of a node, or None if unknown.
    :param preset: Name of the sizes.
    :param output: File that gets a JSON line per case and method, appended; or None.
    """

    wanted: Wanted = Wanted()
    precision: float = 0.05
    least: int = 7
    most: int = 200
    limit_seconds: float = 60.0
    drop_slower_than: float | None = 10.0
    tune_seconds: float | None = None
    rate: float | None = None
    preset: str = "default"
    output: Path | None = None


@dataclasses.dataclass(frozen=True)
class Ranks:
    """Those that measure a case: their communicator, the node of each, and what they run on."""

    comm: Any
    nodes: Sequence[int]
    environment: Mapping[str, Any]


def case_records(
    case: Case,
    settings: Settings,
    ranks: Ranks,
    methods: Sequence[Method],
    figures: Mapping[str, Figure],
) -> list[dict[str, Any]]:
    """A record for each method that was measured."""
    common = _case_facts(case, settings) | {"environment": ranks.environment}
    bounds = _bounds(case, settings, ranks.nodes, figures)
    reference = figures.get(kinds.STOCK)
    lines = []
    for method in methods:
        figure = figures[method.label]
        line = common | {"method": method.label, "kind": method.kind, "strategy": method.strategy}
        line |= {"options": dict(method.options), "variant": method.variant}
        line |= {"chosen": method.chosen} if method.chosen else {}
        if method.kind == "strategy":
            line["extra_bytes"] = free_memory.extra_bytes(case, ConfiguredStrategy(method.strategy, method.options))
        line |= {"median": figure.median, "low": figure.low, "high": figure.high}
        line |= {"repetitions": len(figure.seconds), "seconds": list(figure.seconds)}
        if reference is not None:
            line["ratio_to_stock"] = reference.median / figure.median
        for name, seconds in bounds.items():
            line[f"share_of_{name}"] = seconds / figure.median
        lines.append(line | {f"{name}_seconds": seconds for name, seconds in bounds.items()})
    return lines


def _case_facts(case: Case, settings: Settings) -> dict[str, Any]:
    sizes = [message.nbytes(case.dtype.itemsize) for r in range(case.ranks) for message in case.schedule.sends(r)]
    return {
        "case": case.name,
        "group": case.group,
        "preset": settings.preset,
        "series": case.series,
        "x": case.x,
        "x_name": case.x_name,
        "shape": list(case.shape),
        "dtype": str(case.dtype),
        "source": _words(case.source),
        "target": _words(case.target),
        **({"region": [list(part) for part in case.region]} if case.region else {}),
        "ranks": case.ranks,
        "bytes": case.nbytes,
        "bytes_moved": sum(sizes),
        "largest_message": max(sizes, default=0),
    }


def _words(distribution: AnyDistribution) -> dict[str, Any]:
    """A distribution in the words that make it, without what is as usual."""
    if not isinstance(distribution, Distribution):
        return {"tile": list(distribution.tile)}
    words = {"grid": list(distribution.grid)}
    plain = Distribution(distribution.shape, distribution.grid)
    for name in ("dims", "block", "ranks", "pins"):
        value = getattr(distribution, name)
        if value != getattr(plain, name):
            words[name] = list(value)
    return words


def skipped_record(case: Case, settings: Settings, one: Skipped) -> dict[str, Any]:
    """Return the record of a method that was not measured."""
    facts = _case_facts(case, settings)
    return {name: facts[name] for name in ("case", "group", "preset")} | {
        "method": one.label,
        "skipped": one.reason,
    }


def _bounds(case: Case, settings: Settings, nodes: Sequence[int], figures: Mapping[str, Figure]) -> dict[str, float]:
    """Seconds that each bound says: of the copy where nothing leaves a node, else of the wire, if its rate is known."""
    copy = figures[kinds.COPY].median
    traffic = NodeTraffic.of(case.schedule, nodes)
    if not max(traffic.remote):
        return {"copy": copy}
    if settings.rate is None:
        return {}
    memory_rate = _copied_per_node(case, nodes) / copy
    return {
        "wire": traffic.wire_seconds(settings.rate),
        "parsec": traffic.bound_seconds(settings.rate, memory_rate),
        "parsec_formula_5": max(traffic.remote)
        / parsec_bound(max(traffic.remote), max(traffic.local), settings.rate, memory_rate),
    }


def _copied_per_node(case: Case, nodes: Sequence[int]) -> float:
    """Most bytes that the ranks of a node copy in the plain copy."""
    copied = np.zeros(max(nodes) + 1)
    for rank, node in enumerate(nodes):
        copied[node] += np.prod(case.target.local_shape(rank)) * case.dtype.itemsize
    return float(copied.max())

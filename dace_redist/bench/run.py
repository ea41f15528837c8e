"""Measures the cases of the benchmark on the ranks of an MPI job. Start reading at: run."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from dace_redist.bench import memory, report, stock
from dace_redist.bench import methods as kinds
from dace_redist.bench.arrays import Arrays
from dace_redist.bench.bounds import Traffic, parsec_bound
from dace_redist.bench.cases import Case, Choice
from dace_redist.bench.environment import describe
from dace_redist.bench.methods import Method, Skipped, Wanted
from dace_redist.distribution import AnyDistribution, Distribution
from dace_redist.mpi.barrier import wait_politely
from dace_redist.mpi.core_binding import pinned_to_core
from dace_redist.mpi.topology import place_of
from dace_redist.tuning import measure as measuring
from dace_redist.tuning.measure import Figure
from dace_redist.tuning.tune import tune


@dataclasses.dataclass(frozen=True)
class Settings:
    """
    How to measure.

    :param wanted: Which methods.
    :param precision: As in :func:`dace_redist.tuning.measure.measure`, like the next four.
    :param tune_seconds: How long to tune each case first, for each kind of memory; None: not at all.
    :param rate: Bytes per second of the link of a node, or None if unknown.
    :param preset: Which sizes.
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


def run(cases: Sequence[Case], settings: Settings) -> int:
    """
    Measure cases one after another and print tables on rank 0. Collective over the world.

    :param cases: What to measure; cases that need more ranks than there are, are skipped with a line.
    :param settings: How.
    :return: Exit code: 1 if a method left wrong elements, 2 if no case could run, else 0.
    """
    from mpi4py import MPI

    from dace_redist.mpi.launch import check_launcher

    world = MPI.COMM_WORLD
    try:
        check_launcher(world)
        return _run(cases, settings, world)
    except Exception:
        if world.size == 1:
            raise
        traceback.print_exc()  # the other ranks may wait for this one
        sys.stderr.flush()
        world.Abort(1)
        raise


def _run(cases: Sequence[Case], settings: Settings, world: Any) -> int:
    progress, wrong = Progress(world.rank == 0, len(cases)), []
    nodes = list(place_of(world).node_of)
    records: list[dict[str, Any]] = []
    with _lines(settings.output if world.rank == 0 else None) as output:
        for case in cases:
            progress.begin(case)
            if case.ranks > world.size:
                progress.say(f"{case.name}: skipped, it needs {case.ranks} ranks; mpiexec -n {case.ranks} starts them")
                continue
            try:
                found = _measure_case(case, settings, world, nodes, progress)
            except kinds.WrongResultError as error:
                wrong.append(str(error))
                progress.say(f"WRONG: {error}")
                continue
            records += found
            if world.rank == 0:
                print(report.case_table(found), flush=True)
            for record in found:
                output(record)
    progress.end()
    if world.rank == 0 and records:
        print(report.group_table(records))
        print(report.requirements_table(records), flush=True)
    if not records and not wrong:
        progress.say(f"no case could run on {world.size} ranks")
    return 1 if wrong else 0 if records else 2


@dataclasses.dataclass(frozen=True)
class _Ranks:
    """Those that measure a case: their communicator, the node of each, and what they run on."""

    comm: Any
    nodes: Sequence[int]
    environment: Mapping[str, Any]


def _measure_case(
    case: Case, settings: Settings, world: Any, nodes: Sequence[int], progress: Progress
) -> list[dict[str, Any]]:
    """The lines of a case, on rank 0. Collective over the world; ranks that the case does not need sleep."""
    from mpi4py import MPI

    takes_part = world.rank < case.ranks
    comm = world.Split(0 if takes_part else MPI.UNDEFINED)
    records: list[dict[str, Any]] = []
    failure = ""
    with contextlib.ExitStack() as stack:
        baseline = _stock(case, world, stack, progress)
        if takes_part:
            ranks = _Ranks(comm, nodes[: comm.size], describe(comm.size, nodes[: comm.size]))
            stack.enter_context(pinned_to_core(comm))
            try:
                records = _measure_on(case, settings, ranks, baseline, progress)
            except kinds.WrongResultError as error:
                failure = str(error)  # the same on all that take part
            comm.Free()
        wait_politely(world)
    failure = world.bcast(failure)
    if failure:
        raise kinds.WrongResultError(failure)
    gc.collect()  # large arrays
    return records


def _stock(case: Case, world: Any, stack: contextlib.ExitStack, progress: Progress) -> stock.Stock | str:
    """The stock program, or why there is none."""
    reason = stock.why_not(case)
    if reason is not None:
        return reason
    progress.doing("stock DaCe")
    try:
        return stack.enter_context(stock.Stock(case, world))
    except RuntimeError as error:
        return str(error)


def _measure_on(
    case: Case,
    settings: Settings,
    ranks: _Ranks,
    baseline: stock.Stock | str,
    progress: Progress,
) -> list[dict[str, Any]]:
    comm = ranks.comm
    arrays, methods, skipped = Arrays(case, comm), [], []
    reason = memory.too_little(arrays.missing_bytes("ordinary"), comm)
    if reason is not None:
        progress.say(f"{case.name}: skipped: {reason}")
        return [_skipped(case, settings, Skipped("all", reason))]
    if settings.tune_seconds is not None:
        for variant in settings.wanted.variants:
            progress.doing(f"tuning, {variant}")
            tune(case.schedule, comm=comm, memory=variant, limit_seconds=settings.tune_seconds, progress=False)
    try:
        for made in kinds.prepare(case, comm, arrays, baseline, settings.wanted):
            progress.doing(f"checking {made.label}")
            if isinstance(made, Method):
                methods.append(made)
            else:
                skipped.append(made)
        for reason in dict.fromkeys(one.reason for one in skipped):
            labels = "; ".join(one.label for one in skipped if one.reason == reason)
            progress.say(f"{case.name}: skipped {labels}: {reason}")
        figures = measuring.measure(
            {method.label: method.run for method in methods},
            comm,
            precision=settings.precision,
            least=settings.least,
            most=settings.most,
            limit_seconds=settings.limit_seconds,
            drop_slower_than=settings.drop_slower_than,
            apart=[m.label for m in methods if m.kind in ("stock", "bound") or m.strategy == "Auto"],
            progress=lambda label, count, _: progress.doing(f"repetition {count} of {label}"),
        )
        records = _records(case, settings, ranks, methods, figures)
        return records + [_skipped(case, settings, one) for one in skipped]
    finally:
        for method in methods:
            method.free()
        arrays.free()


def _records(
    case: Case,
    settings: Settings,
    ranks: _Ranks,
    methods: Sequence[Method],
    figures: Mapping[str, Figure],
) -> list[dict[str, Any]]:
    """A line for each method that was measured."""
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
            line["extra_bytes"] = memory.extra_bytes(case, Choice(method.strategy, method.options))
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


def _skipped(case: Case, settings: Settings, one: Skipped) -> dict[str, Any]:
    facts = _case_facts(case, settings)
    return {name: facts[name] for name in ("case", "group", "preset")} | {
        "method": one.label,
        "skipped": one.reason,
    }


def _bounds(case: Case, settings: Settings, nodes: Sequence[int], figures: Mapping[str, Figure]) -> dict[str, float]:
    """Seconds that each bound says: of the copy where nothing leaves a node, else of the wire, if its rate is known."""
    copy = figures[kinds.COPY].median
    traffic = Traffic.of(case.schedule, nodes)
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


class Progress:
    """Says on standard error how far it is: on a terminal in one line that changes, else a line per case."""

    def __init__(self, speaks: bool, count: int, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._speaks, self._count, self._number = speaks, count, 0
        self._changes = speaks and self._stream.isatty()
        self._head, self._last = "", 0.0

    def begin(self, case: Case) -> None:
        """The next case."""
        self._number += 1
        self._head = f"{case.name} ({self._number} of {self._count}, {case.ranks} ranks)"
        if not self._changes:
            self.say(self._head)

    def doing(self, what: str) -> None:
        """What is being done; too often is no harm."""
        if self._changes and time.monotonic() - self._last > 0.1:
            self._last = time.monotonic()
            self._write(f"\r\033[K{self._head}: {what}"[:200])

    def say(self, line: str) -> None:
        """A line that stays."""
        self._write(("\r\033[K" if self._changes else "") + f"{line}\n")

    def end(self) -> None:
        """Takes the changing line away."""
        if self._changes:
            self._write("\r\033[K")

    def _write(self, text: str) -> None:
        if self._speaks:
            self._stream.write(text)
            self._stream.flush()


@contextlib.contextmanager
def _lines(path: Path | None) -> Iterator[Any]:
    """A function that appends a line of JSON to a file, if there is one, at once."""
    if path is None:
        yield lambda record: None
        return
    with path.open("a") as file:

        def write(record: Mapping[str, Any]) -> None:
            file.write(json.dumps(record) + "\n")
            file.flush()

        yield write

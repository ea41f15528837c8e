"""Measurement of the cases of the benchmark on the ranks of an MPI job. Start reading at: run."""

from __future__ import annotations

import contextlib
import gc
import math
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import click
from records import append, environment

from dace_redist.mpi.collective import sleeping_barrier
from dace_redist.mpi.launch import check_launcher
from dace_redist.mpi.topology import pinned_to_core, topology_of
from dace_redist.schedule import Schedule
from dace_redist.timing.measure import Figure, measure
from redistribution import methods as kinds
from redistribution import stock, tables
from redistribution.arrays import Arrays
from redistribution.catalogue import Case
from redistribution.methods import Method, Skipped

_WARMUP = 10  # rounds: plans choose how messages are copied in their first 9 calls


def run(cases: Sequence[Case], options: Mapping[str, Any]) -> int:
    """
    Measure cases one after another and print tables on rank 0. Collective over the world.

    :param cases: Cases; those that need more ranks than the job has are skipped with a line.
    :param options: Those of the command line, by name: see ``bench.py --help``.
    :return: Exit code: 2 if no case could run, else 0; a method that leaves wrong elements ends the job with 1.
    """
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    try:
        check_launcher(world)
        return _run(cases, options, world)
    except Exception:
        if world.size == 1:
            raise
        traceback.print_exc()  # the other ranks may wait for this one
        sys.stderr.flush()
        world.Abort(1)
        raise


def _run(cases: Sequence[Case], options: Mapping[str, Any], world: Any) -> int:
    node_of, measured = list(topology_of(world).node_of), 0
    records: list[dict[str, Any]] = []

    def say(line: str) -> None:
        if world.rank == 0:
            click.echo(line, err=True)

    for number, case in enumerate(cases, start=1):
        say(f"{case.name} ({number} of {len(cases)}, {case.ranks} ranks)")
        if case.ranks > world.size:
            say(f"{case.name}: skipped, it needs {case.ranks} ranks; mpiexec -n {case.ranks} starts them")
            continue
        found = _measure_case(case, options, world, node_of)
        records += found
        measured += 1
        if world.rank == 0:
            for reason in dict.fromkeys(record["skipped"] for record in found if "skipped" in record):
                labels = "; ".join(record["method"] for record in found if record.get("skipped") == reason)
                say(f"{case.name}: skipped {labels}: {reason}")
            click.echo(tables.case_table(found))
            append(options["output"], *found)
    if world.rank == 0 and records:
        click.echo(tables.summary(records))
    if not measured:
        say(f"no case could run on {world.size} ranks")
    return 0 if measured else 2


def _measure_case(case: Case, options: Mapping[str, Any], world: Any, node_of: list[int]) -> list[dict[str, Any]]:
    """Return the records of a case, on its ranks. Collective over the world; other ranks sleep."""
    from mpi4py import MPI

    takes_part = world.rank < case.ranks
    comm = world.Split(0 if takes_part else MPI.UNDEFINED)
    records: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        baseline: stock.Stock | str = ""
        try:
            baseline = stock.Stock(case)
            stack.callback(baseline.free)
        except (ValueError, RuntimeError, OSError) as error:
            baseline = str(error)
        if takes_part:
            where = environment(case.ranks, node_of[: comm.size])  # which counts cores, before the rank stays on one
            stack.enter_context(pinned_to_core(comm))
            found = _measure_on(case, options, comm, node_of[: comm.size], baseline)
            records = [_facts(case, options) | {"environment": where} | record for record in found]
            comm.Free()
        sleeping_barrier(world)
    gc.collect()  # large arrays
    return records


def _measure_on(
    case: Case, options: Mapping[str, Any], comm: Any, node_of: Sequence[int], baseline: stock.Stock | str
) -> list[dict[str, Any]]:
    arrays, made = Arrays(case, comm), list[Method | Skipped]()  # plans do not keep the arrays
    try:
        made.extend(kinds.prepare(arrays, baseline, options))
        methods = [one for one in made if isinstance(one, Method)]
        apart = [m.label for m in methods if m.kind in ("stock", "bound") or m.choice.strategy == "Auto"]
        runs = {method.label: partial(_repeated, method.run, options["batch"]) for method in methods}
        limits = {"least": options["least"], "limit_seconds": options["limit"], "drop_slower_than": 10.0}
        batches = measure(runs, comm, warmup=_WARMUP, apart=apart, **limits)
        figures = {label: Figure.of([s / options["batch"] for s in one.seconds]) for label, one in batches.items()}
    finally:
        for one in made:
            if isinstance(one, Method):
                one.free()
    bounds = bounds_of(case.schedule, node_of, figures[kinds.COPY].median, options["rate"])
    records = [_record(method, figures, bounds) for method in methods]
    return records + [{"method": one[0], "skipped": one[1]} for one in made if isinstance(one, tuple)]


def _repeated(run: Callable[[], Any], times: int) -> None:
    for _ in range(times):
        run()


def _record(method: Method, figures: Mapping[str, Figure], bounds: Mapping[str, float]) -> dict[str, Any]:
    figure = figures[method.label]
    record: dict[str, Any] = {"method": method.label, "kind": method.kind, "variant": method.variant}
    record |= {"strategy": method.choice.strategy, "options": dict(method.choice.options)}
    record |= {"median": figure.median, "low": figure.low, "high": figure.high}
    record["repetitions"] = len(figure.seconds)
    if kinds.STOCK in figures:
        record["ratio_to_stock"] = figures[kinds.STOCK].median / figure.median
    return record | {f"share_of_{name}": seconds / figure.median for name, seconds in bounds.items()}


def bounds_of(moved: Schedule, node_of: Sequence[int], copy: float, rate: float | None) -> dict[str, float]:
    """
    Return lower bounds of the time in seconds: between nodes that of the busiest link, on a node those of copies.

    :param copy: Seconds in which every rank copies its part of the target.
    :param rate: Bytes per second of a node's link, if known.
    """
    if moved.bytes_between_nodes(node_of):
        return {"bound": moved.bound(rate, node_of=node_of)} if rate else {}
    largest = max(math.prod(moved.target.local_shape(rank)) for rank in range(moved.ranks)) * moved.itemsize
    return {"copy": copy, "bound": moved.bound(largest / copy, copies=2)}


def _facts(case: Case, options: Mapping[str, Any]) -> dict[str, Any]:
    names = ("group", "series", "x", "x_name", "ranks")
    facts = {"case": case.name, **{name: getattr(case, name) for name in names}, "preset": options["preset"]}
    facts |= {"shape": list(case.shape), "dtype": str(case.dtype), "bytes": case.nbytes}
    return facts | {"bytes_moved": case.schedule.bytes_moved()}

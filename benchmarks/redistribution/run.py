"""Measurement of the cases of the benchmark on the ranks of an MPI job. Start reading at: run."""

from __future__ import annotations

import contextlib
import gc
import json
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dace_redist.mpi.collective import sleeping_barrier
from dace_redist.mpi.topology import pinned_to_core, topology_of
from dace_redist.redistribution.bench import BENCH
from dace_redist.tuning import measure as measuring
from dace_redist.tuning.problem import Problem
from dace_redist.tuning.tune import tune
from redistribution import free_memory, stock, tables
from redistribution import methods as kinds
from redistribution.arrays import Arrays
from redistribution.catalogue import Case
from redistribution.environment import describe
from redistribution.methods import Method, Skipped
from redistribution.progress import Progress
from redistribution.records import Ranks, Settings, case_records, skipped_record


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
    nodes = list(topology_of(world).node_of)
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
                print(tables.case_table(found), flush=True)
            for record in found:
                output(record)
    progress.end()
    if world.rank == 0 and records:
        print(tables.group_table(records))
        print(tables.requirements_table(records), flush=True)
    if not records and not wrong:
        progress.say(f"no case could run on {world.size} ranks")
    return 1 if wrong else 0 if records else 2


def _measure_case(
    case: Case, settings: Settings, world: Any, nodes: Sequence[int], progress: Progress
) -> list[dict[str, Any]]:
    """Return the lines of a case, on rank 0. Collective over the world; ranks that the case does not need sleep."""
    from mpi4py import MPI

    takes_part = world.rank < case.ranks
    comm = world.Split(0 if takes_part else MPI.UNDEFINED)
    records: list[dict[str, Any]] = []
    failure = ""
    with contextlib.ExitStack() as stack:
        baseline = _stock(case, world, stack, progress)
        if takes_part:
            ranks = Ranks(comm, nodes[: comm.size], describe(comm.size, nodes[: comm.size]))
            stack.enter_context(pinned_to_core(comm))
            try:
                records = _measure_on(case, settings, ranks, baseline, progress)
            except kinds.WrongResultError as error:
                failure = str(error)  # the same on all that take part
            comm.Free()
        sleeping_barrier(world)
    failure = world.bcast(failure)
    if failure:
        raise kinds.WrongResultError(failure)
    gc.collect()  # large arrays
    return records


def _stock(case: Case, world: Any, stack: contextlib.ExitStack, progress: Progress) -> stock.Stock | str:
    """Return the stock program, or the reason why it does not exist."""
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
    ranks: Ranks,
    baseline: stock.Stock | str,
    progress: Progress,
) -> list[dict[str, Any]]:
    comm = ranks.comm
    arrays, methods, skipped = Arrays(case, comm), [], []
    reason = free_memory.too_little(arrays.missing_bytes("ordinary"), comm)
    if reason is not None:
        progress.say(f"{case.name}: skipped: {reason}")
        return [skipped_record(case, settings, Skipped("all", reason))]
    if settings.tune_seconds is not None:
        for variant in settings.wanted.variants:
            progress.doing(f"tuning, {variant}")
            problem = Problem(case.schedule, variant)
            tune({(): problem}, BENCH, comm=comm, limit_seconds=settings.tune_seconds, progress=False)
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
        records = case_records(case, settings, ranks, methods, figures)
        return records + [skipped_record(case, settings, one) for one in skipped]
    finally:
        for method in methods:
            method.free()
        arrays.free()


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

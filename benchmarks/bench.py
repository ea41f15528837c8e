"""Benchmark of every strategy against stock DaCe, other libraries, and the limits of the machine; see ``--help``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from records import json_option, names_option
from redistribution import run, tables
from redistribution.catalogue import PRESETS, USUAL_VARIANTS, VARIANTS, Case, load
from redistribution.methods import PEERS, STRATEGIES

from dace_redist.cli import run_command
from dace_redist.report.units import format_bytes


def _rate(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """Return the bytes per second of a rate such as ``1gbit`` or ``100mbit``, in the words of tc(8)."""
    if value is None:
        return None
    match, known = re.fullmatch(r"([0-9]*\.?[0-9]+)(bit|kbit|mbit|gbit)", value.strip().lower()), ", ".join(_BITS)
    if match is None or not float(match[1]) > 0:
        raise click.BadParameter(f"{value!r} is no rate; expected a number and one of {known}, such as 1gbit")
    return float(match[1]) * _BITS[match[2]] / 8


_BITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_SECONDS, _COUNT = click.FloatRange(0, min_open=True), click.IntRange(1)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True})
@click.argument("words", metavar="[CASE]...", nargs=-1)
@click.option("--preset", type=click.Choice(PRESETS), default="default", help="sizes of the cases")
@click.option("--ranks", multiple=True, type=_COUNT, help="only cases of so many ranks (may be repeated)")
@click.option("--list", "only_list", is_flag=True, help="list the cases and measure nothing")
@json_option("output")
@click.option("--strategies", metavar="LIST", callback=names_option(*STRATEGIES), help="strategies; default: all")
@click.option(
    "--variants",
    metavar="LIST",
    default=",".join(USUAL_VARIANTS),
    callback=names_option(*VARIANTS),
    help="memory of the arrays; shared-both: allocated by NumPy under node_shared_memory(); mapped: private, for a "
    "stand-in of XPMEM; gpu: on the GPU",
)
@click.option(
    "--peers", type=click.Choice(PEERS), default="all", help="measure other libraries, too, or MPI's own ways"
)
@click.option("--rate", metavar="RATE", callback=_rate, help="rate of a node's link, such as 1gbit, for its bound")
@click.option("--least", type=_COUNT, default=7, help="minimum of repetitions")
@click.option("--batch", type=_COUNT, default=1, help="calls that are timed as one, if they are short")
@click.option("--limit", type=_SECONDS, default=60.0, help="maximum of seconds for each case")
@click.option("--summary", multiple=True, type=_FILE, help="print the summary of results (may be repeated)")
def bench(
    words: tuple[str, ...], ranks: tuple[int, ...], only_list: bool, summary: tuple[Path, ...], **options: Any
) -> None:
    """
    Measure strategies against stock DaCe, other libraries and a plain copy.

    Started under mpiexec with as many ranks as the cases need; those that need more are skipped.

    \b
    mpiexec -n 12 python benchmarks/bench.py seed --json results.jsonl
    """  # noqa: D301 (click reads the backspace)
    if summary:
        click.echo(tables.summary(tables.read(summary)))
        return
    catalogue = load(options["preset"])
    try:
        chosen = [case for case in catalogue.select(words) if not ranks or case.ranks in ranks]
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if only_list:
        click.echo(_case_list(catalogue.groups, chosen))
        return
    if code := run.run(chosen, options):
        raise click.exceptions.Exit(code)


def _case_list(groups: Mapping[str, str], cases: Sequence[Case]) -> str:
    lines = []
    for group, text in groups.items():
        own = [case for case in cases if case.group == group]
        lines += [f"{group}: {text}"] if own else []
        lines += [
            f"  {case.name:24}{case.ranks:3} ranks  {format_bytes(case.nbytes):>9}  "
            f"{case.dtype}[{'x'.join(map(str, case.shape))}]"
            for case in own
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    run_command(bench, "bench.py")

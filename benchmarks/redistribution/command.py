"""The command line of the benchmark: ``python benchmarks/bench.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from dace_redist.report.units import format_bytes
from dace_redist.strategies import host_strategies
from redistribution.bounds import parse_rate
from redistribution.catalogue import PRESETS, USUAL_VARIANTS, VARIANTS, Case, load


def _rate(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    try:
        return None if value is None else parse_rate(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _names(*known: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a reader of lists of known words such as ``Auto,Pack``."""

    def read(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...] | None:
        if value is None:
            return None
        choice = click.Choice(known, case_sensitive=False)
        return tuple(choice.convert(word.strip(), None, None) for word in value.split(","))

    return read


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("words", metavar="[CASE]...", nargs=-1)
@click.option("--cases", metavar="LIST", help="cases, groups or patterns such as seed-*, like the arguments")
@click.option(
    "--preset",
    type=click.Choice(PRESETS),
    default="default",
    show_default=True,
    help="sizes: for a try, for 2 cores with 24 GiB, for a large machine",
)
@click.option("--list", "only_list", is_flag=True, help="list the cases and measure nothing")
@click.option("--json", "output", type=click.Path(dir_okay=False, path_type=Path), help="append a JSON line per result")
@click.option("--strategies", metavar="LIST", callback=_names("Auto", *host_strategies()), help="only these of ours")
@click.option(
    "--variants",
    metavar="LIST",
    default=",".join(USUAL_VARIANTS),
    show_default=True,
    callback=_names(*VARIANTS),
    help="where the arrays lie; shared-both: made by NumPy under node_shared_memory()",
)
@click.option("--peers/--no-peers", default=True, show_default=True, help="measure what others offer, too")
@click.option(
    "--tune-seconds",
    metavar="SECONDS",
    type=click.FloatRange(0, min_open=True),
    help="tune each case first, so long for each kind of memory, and record the winners",
)
@click.option("--rate", metavar="RATE", callback=_rate, help="of a node's link, such as 1gbit: the bound between nodes")
@click.option(
    "--precision",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.05,
    show_default=True,
    help="half width of the 95 % interval of each median at which to stop",
)
@click.option("--least", type=click.IntRange(1), default=7, show_default=True, help="repetitions in any case")
@click.option("--most", type=click.IntRange(1), default=200, show_default=True, help="repetitions at most")
@click.option(
    "--limit",
    type=click.FloatRange(0, min_open=True),
    default=60.0,
    show_default=True,
    help="seconds to measure a case at most",
)
@click.option(
    "--plot",
    "plot",
    nargs=2,
    metavar="FILE FOLDER",
    type=click.Path(path_type=Path),
    help="draw the results in FILE and measure nothing",
)
@click.option(
    "--summary",
    "summary",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="print the tables of the results in a file (may be repeated) and measure nothing",
)
def bench(words: tuple[str, ...], cases: str | None, preset: str, only_list: bool, **options: Any) -> None:
    """
    Measure strategies against stock DaCe, peers and the machine.

    Started under mpiexec; needs as many ranks as the cases, and skips those that need more.

    \b
    mpiexec -n 12 python benchmarks/bench.py seed --json results.jsonl
    python benchmarks/bench.py --plot results.jsonl figures
    """  # noqa: D301 (click reads the backspace)
    if options["plot"] or options["summary"]:
        _show_results(options["plot"], options["summary"])
        return
    words += tuple(word.strip() for word in cases.split(",")) if cases else ()
    try:
        catalogue = load(preset)
        chosen = catalogue.select(words)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if only_list:
        click.echo(_case_list(catalogue.groups, chosen))
        return
    if options["most"] < options["least"]:
        raise click.UsageError(f"--most {options['most']} is less than --least {options['least']}")
    from redistribution import run
    from redistribution.methods import Wanted
    from redistribution.records import Settings

    wanted = Wanted(options["strategies"], options["variants"], options["peers"])
    settings = Settings(
        wanted=wanted,
        precision=options["precision"],
        least=options["least"],
        most=options["most"],
        limit_seconds=options["limit"],
        tune_seconds=options["tune_seconds"],
        rate=options["rate"],
        preset=preset,
        output=options["output"],
    )
    code = run.run(chosen, settings)
    if code:
        raise click.exceptions.Exit(code)


def _show_results(plot: tuple[Path, Path] | None, summary: tuple[Path, ...]) -> None:
    from redistribution import tables

    if summary:
        records = tables.read(summary)
        click.echo(tables.group_table(records))
        click.echo(tables.requirements_table(records))
    if plot:
        from redistribution.figures import draw_all

        for path in draw_all(tables.read(plot[:1]), plot[1]):
            click.echo(path)


def _case_list(groups: Mapping[str, str], cases: Sequence[Case]) -> str:
    lines = []
    for group, text in groups.items():
        own = [case for case in cases if case.group == group]
        if own:
            lines.append(f"{group}: {text}")
            lines += [
                f"  {case.name:24}{case.ranks:3} ranks  {format_bytes(case.nbytes):>9}  "
                f"{case.dtype}[{'x'.join(map(str, case.shape))}]"
                for case in own
            ]
    return "\n".join(lines)

"""
Fills in the generated parts of the manual, which can be read without Sphinx then.

Run: python docs/extensions/reference_pages.py. A part stands between ``<!-- generated: KIND ARGUMENTS -->`` and
``<!-- end -->``:

- ``command NAME``: help of a command;
- ``gallery NAME RANKS SIZES``: a program of the gallery, its times from ``benchmarks/results``, a picture of its plan;
- ``strategies``, ``options``: tables of :mod:`dace_redist.strategies`;
- ``refused``: table of NumPy's functions that distributed programs do not compute.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
import numpy as np

from dace_redist import cli
from dace_redist.strategies import OPTIONS, STRATEGIES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / page for page in ("strategies.md", "gallery.md", "einsum.md", "reference/command-line.md")]
PART = re.compile(r"(<!-- generated: (?P<kind>\w+) ?(?P<arguments>[^\n]*?) ?-->\n).*?(<!-- end -->)", re.DOTALL)
#: Parts of the help of commands that the page leaves out: examples, usage without arguments, and what it states once.
EXAMPLES = re.compile(r"^(  (dace-redist|mpi|cmake|DACE_)(.*\\\n)*.*\n)+\n?", re.MULTILINE)
STATED_ONCE = re.compile(r"^Usage: .*OPTIONS\]\n+|^ +(-h, |-q, )?--(help|json|plot|quiet) .*\n?", re.MULTILINE)
#: Options of every strategy, which the page states once.
EVERY_STRATEGY = ("max_in_flight_bytes", "max_message_bytes", "threads")


def table(rows: Iterator[Sequence[str]]) -> str:
    """Markdown of a table, whose first row is its head."""
    head, *body = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body)).replace(" --- ", "---")


def command(name: str) -> str:
    """Return the help of a command; options of several commands stand in one only."""
    called = cli.cli.commands[name]
    text = called.get_help(click.Context(called, info_name=f"dace-redist {name}", terminal_width=92))
    text = STATED_ONCE.sub("", EXAMPLES.sub("", text))
    text = re.sub(r"(INTEGER|FLOAT) RANGE( *)", r"\1      \2", text)
    text = text.replace("required]", "mandatory]")
    text = text.strip().removesuffix("Options:").strip()
    if name != "explain":
        text = re.sub(r"^Redistribution:\n(?: .*\n)+", "Redistribution: see explain\n", text, flags=re.MULTILINE)
        text = re.sub(r"(--memory NAME +)memory of the arrays:.*\n(?: {9,}.*\n)*", r"\1see explain\n", text)
    meaning = "strategy to measure, repeatable; default: all" if name == "tune" else "see tune"
    text = re.sub(r"(--strategy NAME +)strategy to .*\n(?: {9,}.*\n)*", rf"\1{meaning}\n", text)
    return f"```text\n{text}\n```"


def gallery(name: str, ranks: str, *sizes: str) -> str:
    """Return the source, the times and the picture of a program of the gallery."""
    sys.path.insert(0, str(ROOT / "tests"))
    program = importlib.import_module("programs").PROGRAMS[name].program
    numbers = {symbol: int(size) for symbol, _, size in (text.partition("=") for text in sizes)}
    picture = f"[![Plan for {ranks} ranks](figures/gallery/{name}.png)](figures/gallery/{name}.png)"
    times = f"With {', '.join(sizes)}: {speed_up(name, numbers)}"
    plan = f"<details><summary>Plan for {ranks} ranks</summary>\n\n{picture}\n\n</details>"
    return f"```py\n{inspect.getsource(program.f).strip()}\n```\n\n{times}\n\n{plan}"


def speed_up(name: str, sizes: Mapping[str, int]) -> str:
    """
    Return a sentence with the last measured times of a program of the gallery.

    :raises ValueError: If it was not measured with these sizes.
    """
    records = map(json.loads, (ROOT / "benchmarks" / "results" / "gallery.jsonl").read_text().splitlines())
    found = [record for record in records if (record["program"], record["sizes"]) == (name, sizes)]
    if not found:
        raise ValueError(f"{name} was not measured with {sizes}: run benchmarks/einsum/gallery_speedups.py")
    ours, numpy = (1e3 * seconds for seconds in found[-1]["seconds"].values())
    return (
        f"{ours:.0f} ms on {found[-1]['ranks']} ranks, {numpy:.0f} ms by NumPy: a speed-up of **{numpy / ours:.1f}**."
    )


def strategies() -> str:
    """Return the table of strategies."""
    rows = [("strategy", "algorithm", "options", "memory per rank, besides the arrays")]
    for strategy in STRATEGIES.values():
        options = ", ".join(f"`{name}`" for name in strategy.options if name not in EVERY_STRATEGY) or "-"
        rows.append((f"`{strategy.name}`", strategy.summary, options, strategy.memory))
    return table(iter(rows))


def options() -> str:
    """Return the table of options."""
    rows = [("option", "default", "meaning")]
    for name, option in OPTIONS.items():
        rows.append((f"`{name}`", str(option.default), option.description))
    return table(iter(rows))


def refused() -> str:
    """Return the table of functions of elements without code, with the types that NumPy computes them in."""
    from dace.frontend.python.replacements.ufunc import ufuncs

    from dace_redist.transformations.distribute.read.numpy_code import CODE_OF, REMEDIES

    words = {"?": "bool", "i": "integers", "u": "integers", "f": "real numbers", "c": "complex numbers"}
    rows: dict[tuple[str, str], list[str]] = {}
    for name in sorted({getattr(np, name).__name__ for name in ufuncs if isinstance(getattr(np, name), np.ufunc)}):
        kinds = {np.dtype(loop[0]).kind.replace("b", "?") for loop in getattr(np, name).types if loop[0] in "?bBfF"}
        missing = dict.fromkeys(words[kind] for kind in words if kind in kinds and (name, kind) not in CODE_OF)
        types = "all" if {*missing} == {words[kind] for kind in kinds} else ", ".join(missing)
        if missing:
            rows.setdefault((types, REMEDIES.get(name, "")), []).append(f"`np.{name}`")
    named = [(", ".join(names), types, instead.removeprefix("write ")) for (types, instead), names in rows.items()]
    return table(iter([("function", "elements", "write instead"), *named]))


KINDS = {
    "refused": refused,
    "command": command,
    "gallery": gallery,
    "strategies": strategies,
    "options": options,
}


def filled(text: str) -> str:
    """Return a page with its generated parts made anew."""
    return PART.sub(lambda part: f"{part[1]}{KINDS[part['kind']](*part['arguments'].split())}\n{part[4]}", text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text()))

"""
Fills in the generated parts of the manual, which can be read without Sphinx then.

Run: python docs/extensions/reference_pages.py. A part stands between ``<!-- generated: KIND ARGUMENTS -->`` and
``<!-- end -->``:

- ``python NAME``: signature and docstring of a public name, and a list of members;
- ``command NAME``: help of a command;
- ``gallery NAME RANKS SIZES``: a program of the gallery, its times from ``benchmarks/results``, a picture of its plan;
- ``strategies``, ``options``: tables of :mod:`dace_redist.strategies`;
- ``refused``: table of NumPy's functions that distributed programs do not compute.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

import dace_redist
from dace_redist import cli
from dace_redist.strategies import OPTIONS, STRATEGIES

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "docs" / page
    for page in ("strategies.md", "gallery.md", "einsum.md", "reference/python.md", "reference/command-line.md")
]
PART = re.compile(r"(<!-- generated: (?P<kind>\w+) ?(?P<arguments>[^\n]*?) ?-->\n).*?(<!-- end -->)", re.DOTALL)
ROLE = re.compile(r":\w+:`~?(?:dace_redist\.)?(?:[a-z_]+\.)*([^`]+)`")
FIELD = re.compile(r"^:(?P<kind>\w+)(?: (?P<name>[\w, ]+))?: (?P<text>.*(?:\n(?!:).*)*)", re.MULTILINE)
#: Members that the entry of a class lists; ``+`` before one: in full.
MEMBERS = {
    "Distribution": (
        "split replicated block_cyclic on_rank from_cart from_scalapack scalapack_descriptor on_ranks with_shape "
        "local_shape interior owner "
        "local slices global_index is_equivalent_to ranks_needed"
    ),
    "DistributedArray": "from_function full zeros redistribute gather allgather to",
    "Plan": "from_datatypes from_messages empty_target inverse adjoint free schedule +__call__ +start",
    "Request": "test wait waitall Test Wait",
    "Schedule": (
        "bytes_moved bytes_between_nodes bound volume_matrix sends receives self_copy messages arrays inverse "
        "adjoint busiest_rank run_lengths exchanges ranks to_json plot to_smpi to_goal"
    ),
    "DistributedProgram": ("plan ranks inputs outputs tensor plot with_sizes scatter compile gather +run +__call__"),
}
#: Columns that fit on the rendered page.
SIGNATURE_WIDTH = 80
#: Stated once, at the top of the page, as ``comm``.
COMMON_ERRORS = ("TypeError", "BuildError", "OSError")
#: Stated once, at the top of the page.
EVERYWHERE = re.compile(r"^On every rank, (i)(?=f )")
FAILURE = re.compile(r"If (MPI|MPI or (a|the) GPU) fails|If arrays lie on GPUs and a rank has none|If .*\bdamaged\b.*")
INVALID = re.compile(r"If an argument is invalid(?: on \w+ rank)?(?:, or (?:if )?(?!(?:if )?the ranks)|[^,]*$|, .*)")
#: Parts of the help of commands that the page leaves out: examples, usage without arguments, and what it states once.
EXAMPLES = re.compile(r"^(  (dace-redist|mpi|cmake|DACE_)(.*\\\n)*.*\n)+\n?", re.MULTILINE)
STATED_ONCE = re.compile(r"^Usage: .*OPTIONS\]\n+|^ +(-h, |-q, )?--(help|json|plot|quiet) .*\n?", re.MULTILINE)
#: Options of every strategy, which the page states once.
EVERY_STRATEGY = ("max_message_bytes", "threads")
HEADINGS = {"return": "returns", "raises": "raises", "warns": "warns"}


def prose(text: str) -> str:
    """Markdown of a docstring's text: roles and double backquotes become code, a paragraph becomes one line."""
    paragraphs = re.split(r"\n\s*\n", text.strip())
    plain = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return ROLE.sub(r"`\1`", plain).replace("``", "`")


def signature(name: str, function: Any) -> str:
    """Return a signature without types."""
    try:
        found = inspect.signature(function)
    except ValueError:
        return name
    kept = [value.replace(annotation=value.empty) for key, value in found.parameters.items() if key != "self"]
    line = name + str(inspect.Signature(kept)).replace("(/, ", "(").replace("<class 'numpy.float64'>", "numpy.float64")
    return "\n".join(textwrap.wrap(line, SIGNATURE_WIDTH, subsequent_indent="    ", break_on_hyphens=False))


def sentence(text: str) -> str:
    """Return the first sentence of a text, without its full stop."""
    return re.split(r"\.(?:\s+(?=[A-Z`\"])|$)", prose(text), maxsplit=1)[0]


#: Types of Python for those that include NumPy's.
OF_NUMPY_TOO = {"AnyInts": "Sequence[int]", "AnyInt": "int", "AnyNumber": "complex", "Sizes": "Sequence[Size]"}


def type_of(parameter: inspect.Parameter | None) -> str:
    """Return the type of a parameter in brackets, without the None that a default of None implies."""
    if parameter is None or parameter.annotation in (inspect.Parameter.empty, "Any"):
        return ""
    text = re.sub(r"(npt|MPI|os|contextlib)[.]", "", str(parameter.annotation)).removesuffix(" | None")
    return f" (`{re.sub('|'.join(OF_NUMPY_TOO), lambda found: OF_NUMPY_TOO[found[0]], text)}`)"


def documentation(function: Any, constructed: bool = True) -> Iterator[str]:
    """First paragraph of a docstring, and a list of its fields: the first sentence of each."""
    text = inspect.getdoc(function) or ""
    fields = list(FIELD.finditer(text))
    yield prose((text[: fields[0].start()] if fields else text).partition("\n\n")[0])
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        return
    entries = []
    for found, name in ((field, name) for field in fields for name in (field["name"] or "").split(", ")):
        words = found["text"]
        words = prose(words).removesuffix(".") if inspect.isclass(function) else sentence(words)
        if found["kind"] in HEADINGS:
            heading = f"{HEADINGS[found['kind']]} `{name}`" if name else HEADINGS[found["kind"]]
            words = re.sub("on (one|any) of them", r"on \1 rank", EVERYWHERE.sub(lambda start: start[1].upper(), words))
            words = FAILURE.sub("", INVALID.sub("If ", words))
            trivial = words in ("", "If ", "The plan", "`sdfg`") or name in COMMON_ERRORS
            entries += [] if trivial else [f"- *{heading}*: {words}"]
        elif name != "comm" and (found["kind"] == "ivar" or constructed):
            kind = "" if words.startswith("See `") else type_of(parameters.get(name))
            entries.append(f"- `{name}`{kind}: {words}")
    if entries:
        yield "\n".join(merged(entries))


def merged(entries: Sequence[str]) -> Iterator[str]:
    """Join neighbours of one meaning, and link the function that they refer to."""
    for words, group in itertools.groupby(entries, lambda entry: entry.partition(": ")[2]):
        names = ", ".join(entry.removesuffix(f": {words}") for entry in group).replace(", - ", ", ")
        if words.startswith("See `"):
            function = words.removeprefix("See `").rstrip("`")
            words = f"see [`{function}`](#{function.lower()})"
        yield f"{names}: {words}"


def members_of(owner: Any, members: Sequence[str]) -> Iterator[str]:
    """Signature and first sentence of each member, as entries of a list."""
    for name in members:
        member, called = inspect.getattr_static(owner, name), getattr(owner, name)
        text = inspect.getdoc(getattr(member, "func", called)) or ""
        words = re.sub(r"^Return (the )?", "", sentence(text.partition("\n\n")[0]))
        shown = signature(name, called).replace("\n   ", "") if callable(called) else name
        yield f"- `{shown}`: {words}"


def table(rows: Iterator[Sequence[str]]) -> str:
    """Markdown of a table, whose first row is its head."""
    head, *body = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body)).replace(" --- ", "---")


def python(name: str) -> str:
    """Return the entry of a public name."""
    thing = getattr(dace_redist, name)
    constructed = not inspect.isclass(thing) or "Distribution" in name or name == "DistributedArray"
    parts = [f"```py\n{signature(name, thing)}\n```"] if constructed else []
    parts += documentation(thing, constructed)
    members = MEMBERS.get(name, "").split()
    brief = [member for member in members if not member.startswith("+")]
    parts += ["Members:\n\n" + "\n".join(members_of(thing, brief))] if brief else []
    for member in (member[1:] for member in members if member.startswith("+")):
        shown = f"{name}.{member}" if member != "__call__" else name.lower().removeprefix("distributed")
        parts += [f"```py\n{signature(shown, getattr(thing, member))}\n```"]
        parts += documentation(getattr(thing, member))
    return "\n\n".join(parts)


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
    program = importlib.import_module("gallery").GALLERY[name].program
    numbers = {symbol: int(size) for symbol, _, size in (text.partition("=") for text in sizes)}
    picture = f"[![Plan for {ranks} ranks](figures/gallery/{name}.png)](figures/gallery/{name}.png)"
    times = f"With {', '.join(sizes)}: {speed_up(name, numbers)}"
    return f"```py\n{inspect.getsource(program.f).strip()}\n```\n\n{times}\n\n{picture}"


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
    "python": python,
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

"""Command-line options that describe a redistribution. Start reading at: problem_options."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from dace_redist.distribution import Distribution
from dace_redist.schedule import Schedule, schedule
from dace_redist.transform import OPS, Transform, element_type

_Callback = Callable[[click.Context, click.Parameter, Any], Any]


def whole_numbers(*known: str) -> _Callback:
    """Return a reader of lists such as ``8,balanced,-`` or ``4x2``: numbers, ``known`` words, and ``-`` for None."""

    def entry(word: str, value: str) -> int | str | None:
        if word in known:
            return None if word == "-" else word
        if word.isascii() and word.removeprefix("-").isdigit():
            if len(word) > 18:
                raise click.BadParameter(f"{word} is larger than any size or rank can be")
            return int(word)
        also = "".join(f" or {other!r}" for other in known)
        raise click.BadParameter(f"{word!r} in {value!r} is not a whole number{also}; expected a list such as 4,2,1")

    def read(_: click.Context, __: click.Parameter, value: str | None) -> tuple[int | str | None, ...] | None:
        if value is None or not value.strip():  # an empty list: of a tensor of 0 dimensions
            return None if value is None else ()
        words = value.split("x" if re.fullmatch(r"\d+(x\d+)+", value) else ",")
        return tuple(entry(word.strip(), value) for word in words)

    return read


def read_type(_: click.Context, __: click.Parameter, value: str) -> np.dtype[Any]:
    """Read an element type."""
    try:
        return element_type(value)
    except TypeError as error:
        raise click.BadParameter(str(error)) from None


def _factor(_: click.Context, __: click.Parameter, value: str) -> complex:
    try:
        return complex(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a number, such as 0.5 or 1+2j") from None


#: Options of a distribution: end of the name, words among its numbers, meaning.
_SIDE_OPTIONS = (
    ("-ranks", (), "rank of each grid position, row-major"),
    ("-dims", ("-",), "grid axis that splits each dimension, - for none"),
    ("-block", ("-", "balanced", "ceil"), "elements per block of each dimension, - or balanced, or ceil"),
    ("", (), "process grid, as in 4,1 or 4x1"),
)

#: Options that select and permute the elements moved.
_INDEX_OPTIONS = (
    ("--to-shape", "to_shape", "global shape of the target; default: the source's"),
    ("--axes", "axes", "source axis of each target axis"),
    ("--reshape", "reshape", "global shape of the target, as numpy.reshape without -1"),
    ("--region-shape", "region_shape", "extents of the sub-tensor to move, in the source's axes"),
    ("--region-from", "region_from", "its first index in the source; default: 0,0,..."),
    ("--region-to", "region_to", "its first index in the target; default: 0,0,..."),
)

#: Options of the operation on elements on their way.
_OPERATION_OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("--to-dtype", "target_dtype"), {"metavar": "TYPE", "help": "element type of the target; default: the source's"}),
    (("--alpha",), {"default": "1", "callback": _factor, "help": "factor of the source"}),
    (("--beta",), {"default": "0", "callback": _factor, "help": "factor of the old target, which is added"}),
    (("--conj",), {"is_flag": True, "help": "conjugate the source"}),
    (("--op",), {"type": click.Choice(OPS), "help": "reduce the source's replicas, which are partial results"}),
)


#: Option of a file to write.
file_option = functools.partial(click.option, type=click.Path(dir_okay=False, path_type=Path))
json_option = click.option("--json", "as_json", is_flag=True, help="print JSON")
plot_option = file_option("--plot", "path", help="draw to .png, .svg or .pdf")
ranks_per_node_option = functools.partial(click.option, "--ranks-per-node", type=click.IntRange(1))


def print_found(found: Any, as_json: bool) -> None:
    """Print a result that has ``to_json``."""
    click.echo(json.dumps(found.to_json()) if as_json else str(found))


class GroupedCommand(click.Command):
    """Command whose help lists the options of a redistribution under headings of their own."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: D102
        groups: dict[str, list[tuple[str, str]]] = {"Redistribution": [], "Operation": [], "Options": []}
        operation = {names[-1].strip("-") for names, _ in _OPERATION_OPTIONS}
        layout = {"shape", "dtype", *(name for _, name, _ in _INDEX_OPTIONS)}
        layout |= {f"{side}{end.replace('-', '_')}" for side in ("source", "target") for end, _, _ in _SIDE_OPTIONS}
        for param in self.get_params(ctx):
            if not isinstance(param, click.Option):
                continue
            group = "Operation" if param.name in operation else "Redistribution" if param.name in layout else "Options"
            groups[group] += filter(None, [param.get_help_record(ctx)])
        for title, rows in groups.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def operation_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the operation on elements on their way to a command."""
    for names, how in reversed(_OPERATION_OPTIONS):
        command = click.option(*names, **how)(command)
    return command


def _list_option(flag: str, name: str, text: str, required: bool = False, known: Sequence[str] = ()) -> Any:
    return click.option(flag, name, metavar="LIST", required=required, help=text, callback=whole_numbers(*known))


def problem_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a redistribution to a command: its shape, both sides and the type of the elements."""
    kind: Any = click.option(
        "--dtype", metavar="TYPE", default="float64", show_default=True, callback=read_type, help="element type"
    )
    command = kind(command)
    for flag, name, text in reversed(_INDEX_OPTIONS):
        command = _list_option(flag, name, text)(command)
    for side, name in (("to", "target"), ("from", "source")):
        for end, known, text in _SIDE_OPTIONS:
            field = name + end.replace("-", "_")
            text = f"as --from{end}" if side == "to" and end else f"{name}: {text}"
            command = _list_option(f"--{side}{end}", field, text, not end, known)(command)
    return _list_option("--shape", "shape", "global shape, as in 48,24,72 or 48x24x72", True)(command)  # type: ignore[no-any-return]


def described_schedule(sides: dict[str, Any]) -> Schedule:
    """
    Return the schedule that the options describe.

    :raises click.BadParameter: If they do not fit each other; names the option.
    """
    region: Any = None
    shape, dtype = sides["shape"], sides["dtype"]
    if sides["region_shape"] is not None:
        zeros = (0,) * len(shape)
        region = (sides["region_from"] or zeros, sides["region_to"] or zeros, sides["region_shape"])
    elif sides["region_from"] or sides["region_to"]:
        raise click.BadParameter("missing: a sub-tensor needs its extents", param_hint="--region-shape")
    try:
        mapped = Transform(len(shape), dtype, axes=sides["axes"], region=region)
    except (ValueError, TypeError) as error:
        raise click.BadParameter(str(error), param_hint="--axes" if region is None else "--region-shape") from None
    if sides["reshape"] is not None and -1 in sides["reshape"]:
        raise click.BadParameter("name all extents, without -1", param_hint="--reshape")
    target_shape, of_shape = sides["to_shape"] or sides["reshape"], "--to-shape"
    if target_shape is None:
        target_shape, of_shape = tuple(shape[axis] for axis in mapped.source_axes), "--shape"
    source = _distribution("from", shape, sides, "source", "--shape")
    target = _distribution("to", target_shape, sides, "target", of_shape)
    given = ("target_dtype", "alpha", "beta", "conj", "op")
    computed = {name: sides[name] for name in given if name in sides}
    return schedule(source, target, dtype, axes=mapped.axes, region=region, reshape=sides["reshape"], **computed)


def _distribution(side: str, shape: Sequence[int], sides: dict[str, Any], name: str, of_shape: str) -> Distribution:
    """Return the distribution of a side; an error names the option at fault, ``of_shape`` where it is the shape."""
    more = {word: sides[f"{name}_{word}"] for word in ("dims", "block", "ranks")}
    grid = sides[name]
    if more["dims"] is None and len(grid) > len(shape):
        raise click.BadParameter(
            f"more grid axes ({len(grid)}) than dimensions ({len(shape)}); "
            f"say with --{side}-dims which grid axis each dimension is split over",
            param_hint=f"--{side}",
        )
    try:
        return Distribution(shape, grid, **more)
    except (ValueError, TypeError) as error:
        told = str(error).removeprefix("Distribution: ").replace("(None: not split)", "(-: not split)")
        option = _option_at_fault(side, shape, {"grid": grid, **more}, of_shape)
        raise click.BadParameter(told, param_hint=option) from None


def _option_at_fault(side: str, shape: Sequence[int], given: dict[str, Any], of_shape: str) -> str:
    """Return the first option that makes the distribution invalid when options are applied one by one."""
    options = {of_shape: ("grid", ()), f"--{side}": ("grid", given["grid"])}
    options |= {f"--{side}-{word}": (word, given[word]) for word in ("dims", "block", "ranks")}
    known: dict[str, Any] = {}
    for option, (word, value) in options.items():
        known[word] = value
        try:
            Distribution(shape, **known)
        except (ValueError, TypeError):
            return option
    return f"--{side}"

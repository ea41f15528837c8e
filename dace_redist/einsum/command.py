"""The sub-command ``dace-redist einsum``: prints a plan. Needs neither DaCe nor MPI."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dace_redist.integers import checked_memory_bytes
from dace_redist.problem_options import json_option, plot_option, print_found, ranks_per_node_option, read_type
from dace_redist.transform import COMPUTED_TYPES

if TYPE_CHECKING:
    from dace_redist.einsum.statement import Statement


def index_sizes(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """Read index sizes such as ``i=512,j=512``; the option may be repeated or absent."""
    sizes: dict[str, int] = {}
    for word in ",".join(values).split(",") if values else ():
        index, found, size = (part.strip() for part in word.partition("="))
        if not found or len(index) != 1 or not size.isdecimal():
            raise click.BadParameter(
                f"{word.strip()!r} is not the size of an index, such as i=512; commas stand between sizes"
            )
        if index in sizes:
            raise click.BadParameter(f"the index {index!r} has two sizes, {sizes[index]} and {size}")
        sizes[index] = int(size)
    return sizes


def bytes_of_memory(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """Return the bytes of ``4GiB``, ``500MB`` or a plain number, if given."""
    try:
        return checked_memory_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _itemsize(context: click.Context, parameter: click.Parameter, value: str) -> int:
    """Return the bytes of an element of a type that can be multiplied, not only moved."""
    dtype = read_type(context, parameter, value)
    known = [name for name in COMPUTED_TYPES if name != "bool"]
    if dtype.name not in known or not dtype.isnative:
        wrong = f"elements of type {dtype} cannot be multiplied; expected one of {', '.join(known)}"
        raise click.BadParameter(wrong)
    return dtype.itemsize


@click.command("einsum")
@click.argument("einsums")
@click.option(
    "--sizes", metavar="LIST", required=True, multiple=True, callback=index_sizes, help="size of each index: i=512,a=24"
)
@click.option("--ranks", type=click.IntRange(min=1), required=True, help="ranks to plan for")
@click.option(
    "--dtype", "itemsize", metavar="TYPE", default="float64", show_default=True, callback=_itemsize, help="element type"
)
@click.option("--memory-bytes", metavar="BYTES", callback=bytes_of_memory, help="limit per rank, as in 4GiB")
@ranks_per_node_option("node_size", help="minimise traffic between nodes of so many ranks")
@json_option
@plot_option
def einsum(
    einsums: str,
    sizes: dict[str, int],
    ranks: int,
    as_json: bool,
    path: Path | None,
    **others: Any,
) -> None:
    """
    Plan distributed einsums: order, grids, bytes moved.

    Semicolons separate several einsums; tensors are named by their indices, so that one may use the result of another.

    \b
    dace-redist einsum 'ijk,ja,ka->ia' --sizes i=512,j=512,k=512,a=24 --ranks 8
    dace-redist einsum 'ij,jk->ik; ik,kl->il' --sizes i=4096,j=4096,k=4096,l=4096 --ranks 4
    """  # noqa: D301 (click reads the backspace)
    from dace_redist.einsum.planner import plan_einsums

    statements, shapes = _read_statements(einsums, sizes)
    plan = plan_einsums(statements, shapes, ranks, **others)
    if path is not None:
        plan.plot(path)
    print_found(plan, as_json)


def _read_statements(text: str, sizes: dict[str, int]) -> tuple[list[Statement], dict[str, tuple[int, ...]]]:
    """
    Return the statements of einsums separated by semicolons, and the shapes of all operands.

    A tensor is named by its indices; a second operand of one einsum with the same indices is another tensor.

    :raises click.UsageError: If an index has no size, a size has no index, or a comma seems to be missing.
    """
    from dace_redist.einsum.expression import Einsum
    from dace_redist.einsum.statement import Statement

    statements: list[Statement] = []
    shapes: dict[str, tuple[int, ...]] = {}
    for words in filter(str.strip, text.split(";")):
        _check_commas(words)
        parsed = Einsum.parse(words)
        missing = [index for index in parsed.indices if index not in sizes]
        if missing:
            raise click.UsageError(f"--sizes gives no size for the index {missing[0]!r} of '{words.strip()}'")
        written, seen, names = {s.result for s in statements}, Counter[str](), []
        for operand in parsed.operands:
            seen[operand] += 1
            names.append(operand if seen[operand] == 1 or operand in written else f"{operand}.{seen[operand]}")
            shapes[names[-1]] = tuple(sizes[index] for index in operand)
        statements.append(Statement(parsed, tuple(names), parsed.result or "scalar", words.strip()))
    if not statements:
        raise click.UsageError("there is no einsum; expected one such as 'ij,jk->ik'")
    unused = sorted(set(sizes).difference(*(statement.einsum.indices for statement in statements)))
    if unused:
        raise click.UsageError(f"--sizes gives a size for {unused[0]!r}, which is no index of {text.strip()!r}")
    return statements, shapes


def _check_commas(einsum: str) -> None:
    """Reject a blank between two operands of several letters: a missing comma would join them to one operand."""
    for operand in einsum.partition("->")[0].split(","):
        parts = operand.split()
        if any(len(part) > 1 for part in parts[:-1]):
            raise click.UsageError(f"'{einsum.strip()}': is a comma missing between {' and '.join(parts)}?")

"""A program as it is read from an SDFG: steps over whole tensors, loops and branches around them."""

from __future__ import annotations

import linecache
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from dace.sdfg.state import ConditionalBlock, LoopRegion

from dace_redist.einsum.statement import Statement


@dataclass(frozen=True)
class Slice:
    """
    A box of a tensor that is copied to or from another tensor.

    :param tensor: The tensor.
    :param offsets: First index of the box along each axis: numbers, sizes, or indices of loops.
    :param extents: Its extents.
    :param kept: Axes of the tensor that the other tensor has; along the others the box has one element.
    :param other: The other tensor.
    :param written: Whether the box is written, else it is read.
    """

    tensor: str
    offsets: tuple[Any, ...]
    extents: tuple[Any, ...]
    kept: tuple[int, ...]
    other: str
    written: bool = False


@dataclass(frozen=True)
class Reshape:
    """A tensor whose elements are those of another one, in the same order in memory (NumPy's order "C")."""

    source: str


@dataclass(frozen=True)
class Step:
    """
    A statement and how to compute it.

    :param statement: Which tensors, and how their dimensions go together.
    :param alpha: What an einsum is multiplied by.
    :param code: What an elementwise statement computes: a tasklet's Python code.
    :param inputs: The name that ``code`` has for each operand that it reads. If these lack an index of the result, as
        for constants and broadcasts, the result itself follows them as an operand that is not read.
    :param output: The name that ``code`` has for the result.
    :param indices: Names that ``code`` has for indices of the result, each with that index and what is added to it.
    :param reduction: ``"max"`` or ``"min"``: what is taken of the elements instead of their sum.
    :param moved: Elements that are moved instead of computed; the statement then names the result only.
    """

    statement: Statement
    alpha: Any = 1
    code: str = ""
    inputs: tuple[str, ...] = ()
    output: str = ""
    indices: Mapping[str, tuple[str, Any]] = field(default_factory=dict)
    reduction: str = ""
    moved: Slice | Reshape | None = None

    @property
    def read(self) -> tuple[str, ...]:
        """Names of the tensors that it reads, one for each operand read."""
        if isinstance(self.moved, Reshape):
            return (self.moved.source,)
        if self.moved is not None:
            return (self.moved.other if self.moved.written else self.moved.tensor,)
        operands = self.statement.operands
        return operands[: len(self.inputs)] if self.statement.elementwise else operands

    @property
    def names(self) -> set[str]:
        """Names of all tensors that it uses."""
        return {*self.read, *self.statement.operands, self.statement.result}


@dataclass(frozen=True)
class Loop:
    """
    Steps that are repeated.

    :param region: DaCe's loop; the distributed program has one with the same head.
    :param body: What is in it.
    :param repeats: How often it runs; 1 if that is not known.
    :param certain: Whether all of it runs at least once whatever the sizes.
    :param scalars: Scalars that its condition reads.
    """

    region: LoopRegion
    body: tuple[Item, ...]
    repeats: int
    certain: bool = False
    scalars: tuple[str, ...] = ()


@dataclass(frozen=True)
class Branch:
    """
    Steps of which one set runs, as a condition on scalars says.

    :param region: DaCe's block of branches.
    :param bodies: What is in each of its branches.
    :param scalars: Scalars that its conditions read.
    """

    region: ConditionalBlock
    bodies: tuple[tuple[Item, ...], ...]
    scalars: tuple[str, ...] = ()


@dataclass(frozen=True)
class Assignment:
    """
    Values of symbols, which may depend on scalars.

    :param values: Expressions by the symbols' names.
    :param scalars: Scalars that they read.
    """

    values: Mapping[str, str]
    scalars: tuple[str, ...] = ()


@dataclass(frozen=True)
class Jump:
    """
    The end of a loop, or of one of its iterations.

    :param kind: DaCe's block, ``BreakBlock`` or ``ContinueBlock``.
    """

    kind: type


Item: TypeAlias = "Step | Loop | Branch | Assignment | Jump"
Body = Sequence[Item]


def blocks_of(item: Item) -> tuple[Body, ...]:
    """The bodies in a loop or in branches; none of other items."""
    return item.bodies if isinstance(item, Branch) else (item.body,) if isinstance(item, Loop) else ()


def with_blocks(item: Item, change: Callable[[Body], tuple[Item, ...]]) -> Item:
    """A loop or branches with changed bodies; other items as they are."""
    if isinstance(item, Loop):
        return replace(item, body=change(item.body))
    return replace(item, bodies=tuple(map(change, item.bodies))) if isinstance(item, Branch) else item


def all_items(body: Body) -> Iterator[Item]:
    """The items in the order of the program, each once, followed by those in it."""
    for item in body:
        yield item
        for block in blocks_of(item):
            yield from all_items(block)


def all_steps(body: Body) -> Iterator[Step]:
    """The steps in the order of the program, each once, those in loops and branches too."""
    return (item for item in all_items(body) if isinstance(item, Step))


def source_line(info: Any) -> str:
    """File, line and text of the statement that DaCe's debug information points at; empty if it does not know."""
    if info is None or not info.filename or not info.start_line:
        return ""
    text = linecache.getline(info.filename, info.start_line).strip()
    return f"{os.path.basename(info.filename)}:{info.start_line}" + (f": {text}" if text else "")

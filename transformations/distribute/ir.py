"""Intermediate representation of a program: statements over whole tensors, moves, loops and branches."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from dace import data
from dace.frontend.python.astutils import ASTFindReplace
from dace.sdfg.state import ConditionalBlock, LoopRegion

from dace_redist.einsum.statement import Statement
from dace_redist.transformations.distribute.shapes import equal


class Box(NamedTuple):
    """
    A box of a tensor.

    :param offsets: First index along each axis: numbers, sizes, or indices of loops.
    :param extents: Elements along each axis.
    :param kept: Axes of a tensor of these elements; along the others the box has one element.
    """

    offsets: tuple[Any, ...]
    extents: tuple[Any, ...]
    kept: tuple[int, ...]

    @property
    def shape(self) -> tuple[Any, ...]:
        """Shape of a tensor of the elements of the box."""
        return tuple(self.extents[axis] for axis in self.kept)

    def is_whole(self, array: data.Data) -> bool:
        """Return True if the box covers the whole array."""
        starts = all(equal(offset, 0) for offset in self.offsets)
        return starts and all(equal(extent, n) for extent, n in zip(self.extents, array.shape, strict=True))


@dataclass(frozen=True)
class Move:
    """
    Copy of elements of one tensor to another.

    :param source: Name of the tensor that is read.
    :param result: Name of the tensor that is written.
    :param where: As for ``Statement``; likewise ``repeats`` and ``loops``.
    """

    source: str
    result: str
    where: str
    repeats: int
    loops: tuple[str, ...]

    @property
    def label(self) -> str:
        """Name of the statement in errors."""
        return self.where

    @property
    def read(self) -> tuple[str, ...]:
        """Names of the tensors that are read."""
        return (self.source,)

    @property
    def names(self) -> set[str]:
        """Names of both tensors."""
        return {self.source, self.result}

    def planned(self, dimensions: int) -> Statement:
        """Return its statement in the plan: an elementwise one of this many dimensions, which only names the result."""
        place = {"where": self.where, "repeats": self.repeats, "loops": self.loops}
        return Statement.copy(self.result, self.result, dimensions, **place)


@dataclass(frozen=True)
class Slice(Move):
    """Copy of a box of the source to the result or, if ``written``, of the source to a box of the result."""

    box: Box
    written: bool


@dataclass(frozen=True)
class Reshape(Move):
    """Copy to a tensor of another shape, in the same order in memory (NumPy's order "C")."""


@dataclass(frozen=True)
class Block:
    """
    Loop or branches; at most one branch runs.

    :param region: DaCe's loop or branches; the distributed program has a block with the same head.
    :param bodies: The items of each body.
    :param scalars: Scalars that its conditions read.
    :param certain: True for a loop whose body runs at least once for all sizes.
    """

    region: LoopRegion | ConditionalBlock
    bodies: tuple[tuple[Item, ...], ...]
    scalars: tuple[str, ...] = ()
    certain: bool = False


@dataclass(frozen=True)
class Assignment:
    """Assignment of expressions to symbols, by name, and the scalars that they read."""

    values: Mapping[str, str]
    scalars: tuple[str, ...] = ()


@dataclass(frozen=True)
class Jump:
    """End of a loop, or of one of its iterations: DaCe's ``BreakBlock`` or ``ContinueBlock``."""

    kind: type


Operation: TypeAlias = Statement | Move
Item: TypeAlias = "Operation | Block | Assignment | Jump"
Body = Sequence[Item]


def blocks_of(item: Item) -> tuple[Body, ...]:
    """Return the bodies of a block; none of other items."""
    return item.bodies if isinstance(item, Block) else ()


def with_blocks(item: Item, change: Callable[[Body], tuple[Item, ...]]) -> Item:
    """Return a block with changed bodies; other items unchanged."""
    return replace(item, bodies=tuple(map(change, item.bodies))) if isinstance(item, Block) else item


def all_items(body: Body) -> Iterator[Item]:
    """Yield the items in the order of the program, each followed by those in it."""
    for item in body:
        yield item
        for block in blocks_of(item):
            yield from all_items(block)


def operations(body: Body) -> Iterator[Operation]:
    """Yield the statements and moves in the order of the program, those in loops and branches too."""
    return (item for item in all_items(body) if isinstance(item, Statement | Move))


def scalars_of(body: Body) -> set[str]:
    """Return the scalars that conditions and values of symbols read."""
    return {name for item in all_items(body) for name in getattr(item, "scalars", ())}


def renamed(code: str, values: Mapping[str, str]) -> str:
    """Replace names by expressions in Python code; ``name[0]`` of such a name counts as the name."""
    return ast.unparse(_Renaming(dict(values)).visit(ast.parse(code))) if values else code


class _Renaming(ASTFindReplace):  # type: ignore[misc]
    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:  # noqa: N802
        first = isinstance(node.slice, ast.Constant) and node.slice.value == 0
        if first and isinstance(node.value, ast.Name) and node.value.id in self.repldict:
            return self.visit(node.value)  # type: ignore[no-any-return]
        return self.generic_visit(node)

"""Intermediate representation of a program: shapes and types of tensors, statements, moves, loops and branches."""

from __future__ import annotations

import ast
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import sympy
from dace import FLOAT_TYPES, SDFG, data, dtypes, symbolic
from dace.frontend.python.astutils import ASTFindReplace
from dace.properties import CodeBlock
from dace.sdfg.state import BreakBlock, ConditionalBlock, ContinueBlock, LoopRegion
from networkx.utils import UnionFind

from dace_redist.einsum.statement import Statement
from dace_redist.library_nodes.node import simplified
from dace_redist.library_nodes.tasklets import changing_symbols


def logical_shape(descriptor: data.Data) -> tuple[Any, ...]:
    """Return the shape of a tensor; empty for a scalar, which DaCe may hold in an array of one element."""
    shape = tuple(descriptor.shape)
    return () if isinstance(descriptor, data.Scalar) or shape == (1,) else shape


def equal(a: Any, b: Any) -> bool:
    """Return True if two sizes are equal for all values of their symbols; symbols are identified by name."""
    difference = symbolic.pystr_to_symbolic(f"({symbolic.symstr(a)}) - ({symbolic.symstr(b)})")
    return bool(simplified(difference) == 0)


def common_type(types: Sequence[dtypes.typeclass]) -> dtypes.typeclass:
    """Return the type in which NumPy computes with arrays of these types."""
    return dtypes.typeclass(np.result_type(*(dtype.as_numpy_dtype() for dtype in types)).type)


def is_complex(dtype: dtypes.typeclass) -> bool:
    """Return True for a complex element type."""
    return bool(np.issubdtype(dtype.type, np.complexfloating))


def neutral_element(reduction: str, dtype: dtypes.typeclass) -> Any:
    """Return the neutral element of the reduction ``"max"`` or ``"min"``; elements may be infinite."""
    if dtype in dtypes.FLOAT_TYPES:
        return -math.inf if reduction == "max" else math.inf
    return (dtypes.min_value if reduction == "max" else dtypes.max_value)(dtype)


def in_numbers(shape: Sequence[Any], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return a shape with values for its symbols."""
    return tuple(
        int(sizes[extent.name] if isinstance(extent, symbolic.symbol) else symbolic.evaluate(extent, dict(sizes)))
        for extent in shape
    )


def check_sizes(sdfg: SDFG, sizes: Mapping[str, int]) -> None:
    """
    Check that all symbols of a program have values.

    :raises ValueError: If a value is missing, is not that of a symbol, or is not a number.
    """
    used = {str(s) for array in sdfg.arrays.values() for n in array.shape for s in symbolic.symlist(n).values()}
    used = {str(s) for s in sdfg.free_symbols} | used - changing_symbols(sdfg)
    missing, unknown = sorted(used - set(sizes)), sorted(set(sizes) - used)
    if missing:
        raise ValueError(
            f'"{sdfg.name}": sizes of {", ".join(missing)} are missing; the plan depends on them: give '
            f"sizes=dict({', '.join(f'{name}=...' for name in missing)})"
        )
    if unknown:
        raise ValueError(f'"{sdfg.name}" has no size {", ".join(unknown)}; it has {", ".join(sorted(used)) or "none"}')
    for name, size in sizes.items():
        whole = sdfg.symbols.get(name) not in FLOAT_TYPES
        if isinstance(size, bool) or not isinstance(size, Integral if whole else Real):
            kind = "an integer" if whole else "a number"
            raise ValueError(f'"{sdfg.name}": size {name} must be {kind}, got {size!r}')


def shapes_of(sdfg: SDFG, sizes: Mapping[str, int], body: Body) -> dict[str, tuple[int, ...]]:
    """
    Return the logical shape of every array of a program, in numbers: the largest one that it may have.

    :param sizes: Checked by :func:`check_sizes`.
    :raises ValueError: If an extent is negative, or a maximum or minimum is one of no elements; names the statement.
    """
    shapes = {name: in_numbers(bound, sizes) for name, bound in bounds_of(sdfg, body).items()}
    labels = {operation.result: operation.label for operation in operations(body)}
    for name, shape in shapes.items():
        if any(extent < 0 for extent in shape) and (name in labels or not sdfg.arrays[name].transient):
            where = labels.get(name, f'"{sdfg.name}": {name}')
            raise ValueError(
                f"{where}: with these sizes the shape is {shape}; give sizes for which no extent is negative, and "
                "write x[:-k], for a size k, as x[: x.shape[0] - k]"
            )
    for operation in operations(body):
        for begin, extent, whole in _ends_in_numbers(operation, sdfg, sizes):
            if begin < 0 or begin + extent > whole:
                raise ValueError(
                    f"{operation.label}: with these sizes it takes elements {begin} to {begin + extent} of {whole}; "
                    "give sizes for which there are as many, and write x[-k:], for a size k, as x[x.shape[0] - k :]"
                )
        if getattr(operation, "reduction", "") and 0 not in shapes[operation.result] and 0 in shapes[operation.read[0]]:
            raise ValueError(
                f"{operation.label}: with these sizes it is the {operation.reduction} of no elements, as in NumPy an "
                "error; give larger sizes"
            )
    return shapes


def _ends_in_numbers(operation: Operation, sdfg: SDFG, sizes: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
    """Yield first index, extent and length of each axis of a slice, where they are the same in all iterations."""
    if isinstance(operation, Slice):
        box = operation.box
        for ends in zip(box.offsets, box.extents, sdfg.arrays[operation.whole].shape, strict=True):
            if {name for end in ends for name in symbolic.symlist(end)} <= {*sizes}:
                yield in_numbers(ends, sizes)


class Box(NamedTuple):
    """
    A box of a tensor.

    :param offsets: First index along each axis: numbers, sizes, or indices of loops.
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
    Copy of a tensor to another one, in the same order in memory (NumPy's order "C"); their shapes may differ.

    :param place: ``where`` and ``loops`` of a ``Statement``.
    """

    source: str
    result: str
    place: Mapping[str, Any]

    @property
    def label(self) -> str:
        """Name of the statement in errors."""
        return str(self.place["where"])

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
        return Statement.copy(self.result, self.result, dimensions, at_home=self.read, **self.place)


@dataclass(frozen=True)
class Slice(Move):
    """
    Copy of a box of the source to the result or, if ``written``, of the source to a box of the result.

    :param is_inside: True if the box is known to lie in its tensor; else the program checks it.
    """

    box: Box
    written: bool
    is_inside: bool = True

    @property
    def whole(self) -> str:
        """Name of the tensor of which the box is a part."""
        return self.result if self.written else self.source

    @property
    def part(self) -> str:
        """Name of the tensor of the elements of the box."""
        return self.source if self.written else self.result

    def extents(self, shapes: Mapping[str, tuple[Any, ...]]) -> tuple[Any, ...]:
        """Return the extents of the box, given the shape of its tensor."""
        known = dict(zip(self.box.kept, shapes[self.part], strict=True))
        return tuple(known.get(axis, 1) for axis in range(len(self.box.extents)))


@dataclass(frozen=True)
class Block:
    """
    Loop or branches; at most one branch runs.

    :param region: DaCe's loop or branches; the distributed program has a block with the same head.
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


#: End of a loop, or of one of its iterations.
Jump: TypeAlias = type[BreakBlock] | type[ContinueBlock]
Operation: TypeAlias = Statement | Move
Item: TypeAlias = "Operation | Block | Assignment | Jump"
Body = Sequence[Item]


def all_items(body: Body) -> Iterator[Item]:
    """Yield the items in the order of the program, each followed by those in it."""
    for item in body:
        yield item
        for block in item.bodies if isinstance(item, Block) else ():
            yield from all_items(block)


def operations(body: Body) -> Iterator[Operation]:
    """Yield the statements and moves in the order of the program, those in loops and branches too."""
    return (item for item in all_items(body) if isinstance(item, Statement | Move))


def names_of(body: Body) -> set[str]:
    """Return the names of all tensors that are used."""
    return {name for operation in operations(body) for name in operation.names}


def written_by(item: Item) -> set[str]:
    """Return the names of the tensors that an item, or what is in it, writes."""
    return {operation.result for operation in operations([item])}


def scalars_of(body: Body) -> set[str]:
    """Return the scalars that conditions and values of symbols read."""
    return {name for item in all_items(body) for name in getattr(item, "scalars", ())}


def codes_of(block: Any) -> list[CodeBlock]:
    """Return the conditions of branches, or the code that controls a loop; none of other blocks."""
    codes = [condition for condition, _ in getattr(block, "branches", ())]
    codes += [getattr(block, name, None) for name in ("init_statement", "loop_condition", "update_statement")]
    return [code for code in codes if code is not None]


def renamed(code: str, values: Mapping[str, str]) -> str:
    """Replace names by expressions in Python code; ``name[0]`` of such a name counts as the name."""
    return ast.unparse(_Renaming(dict(values)).visit(ast.parse(code))) if values else code


class _Renaming(ASTFindReplace):  # type: ignore[misc]
    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:  # noqa: N802
        first = isinstance(node.slice, ast.Constant) and node.slice.value == 0
        if first and isinstance(node.value, ast.Name) and node.value.id in self.repldict:
            return self.visit(node.value)  # type: ignore[no-any-return]
        return self.generic_visit(node)


# Extents that change while the program runs

#: Axis of a tensor, by name and number.
Axis: TypeAlias = tuple[str, int]


def changing_axes(sdfg: SDFG) -> dict[str, frozenset[int]]:
    """Return the axes of each array whose extents change while the program runs, as those of ``A[i, :i]``."""
    changing = changing_symbols(sdfg)

    def of(array: data.Data) -> frozenset[int]:
        extents = enumerate(logical_shape(array))
        return frozenset(axis for axis, extent in extents if changing & {*symbolic.symlist(extent)})

    return {name: of(array) for name, array in sdfg.arrays.items()}


def axes_alike(item: Item) -> Iterator[tuple[Axis, Axis]]:
    """
    Yield pairs of axes that an item of a program relates: one that is written, and one that is read.

    Their extents are equal, or one has elements of the other at regular distances.
    """
    if isinstance(item, Slice):
        axes = [(item.whole, axis) for axis in item.box.kept]
        parts = [(item.part, number) for number in range(len(axes))]
        yield from zip(*((axes, parts) if item.written else (parts, axes)), strict=True)
    elif isinstance(item, Statement):
        result = item.einsum.result
        for name, term in zip(item.read, item.einsum.operands, strict=False):
            apart = item.einsum.summed if item.elementwise and len(term) == len(result) else ""
            places = ((axis, axis if index in apart else result.find(index)) for axis, index in enumerate(term))
            yield from (((item.result, place), (name, axis)) for axis, place in places if place >= 0)


def bounds_of(sdfg: SDFG, body: Body) -> dict[str, tuple[Any, ...]]:
    """
    Return the logical shape of every array, with an upper bound for each extent that changes while the program runs.

    An array of such an extent holds parts of others, whose extents bound it.

    :raises ValueError: If an array of such an extent holds other values, too; names the statement.
    """
    shapes, changing = {name: logical_shape(array) for name, array in sdfg.arrays.items()}, changing_axes(sdfg)
    groups, known, items = UnionFind(), defaultdict[Axis, set[Any]](set), list(all_items(body))
    writes = Counter(one.result for one in operations(body) if not getattr(one, "written", False))  # of whole arrays
    for number, operation in enumerate(items) if any(changing.values()) else ():
        pairs = list(axes_alike(operation))
        for pair in pairs:
            inner = [(name, axis) for name, axis in pair if axis in changing[name]]
            groups.union(*inner)
            if len(inner) == 1:
                ((name, axis),) = {*pair} - {*inner}
                known[inner[0]].add(shapes[name][axis])
        if not isinstance(operation, Operation):
            continue
        name = operation.result
        bounded = {axis for (_, axis), read in pairs if read[0] != name}
        if getattr(operation, "written", False):
            bounded = changing[name] if writes[name] else frozenset()
        for after in items[number + 1 : number + 3] if writes[name] == 1 else ():  # it may become a part of an array
            if getattr(after, "written", False) or isinstance(after, Statement) and after.einsum.summed:
                bounded |= {axis for _, (other, axis) in axes_alike(after) if other == name}
        if changing[name] - bounded or (changing[name] and not sdfg.arrays[name].transient):
            raise ValueError(
                f"{operation.label}: cannot be distributed: its extents {shapes[name]} change while the program runs; "
                "write to a slice of an array of sizes, as in w[:k]"
            )
    bounds = {one: set().union(*(known[other] for other in group)) for group in groups.to_sets() for one in group}
    for name, axes in changing.items():
        largest = {axis: sympy.Max(*bounds.get((name, axis), {0})) for axis in axes}
        shapes[name] = tuple(largest.get(axis, extent) for axis, extent in enumerate(shapes[name]))
    return shapes

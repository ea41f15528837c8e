"""Assignments as in Python and NumPy, where DaCe's frontend differs; methods that stand in for those of DaCe."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import sympy
from dace import Memlet, data
from dace.frontend.python.astutils import ASTFindReplace
from dace.frontend.python.newast import ProgramVisitor
from dace.properties import CodeBlock
from dace.sdfg import nodes
from dace.subsets import Range

from dace_redist.transformations.distribute.read.dace_repairs.parameters import SEQUENCE, elements_of, name_of
from dace_redist.transformations.distribute.read.dace_repairs.replaced import dace_attribute, in_place_of
from dace_redist.transformations.distribute.read.numpy_code import BY_SIGN, augmented, resolved, type_of
from dace_redist.transformations.distribute.read.sizes import text_of_sizes

NUMBER = (bool, int, float, complex, np.generic)
#: Functions whose results are numbers of Python, and those of which they are for such operands.
_NUMBER, _OF_NUMBERS = r"len|int|float|complex|bool|round|math\..*", ("abs", "max", "min")
_add_state = dace_attribute(ProgramVisitor, "_add_state")


@in_place_of(ProgramVisitor, "visit_Assign")
def _assign_flat(visit: Any, visitor: Any, node: ast.Assign) -> Any:
    """Add an assignment with one flat tuple of targets."""
    if len(node.targets) == 1 and isinstance(node.targets[0], SEQUENCE):
        targets, values = node.targets[0].elts, [node.value]
        if isinstance(node.value, SEQUENCE):
            targets, values = map(list, zip(*_pairs(node.targets[0], node.value), strict=True))
            node.value = ast.copy_location(ast.Tuple(values, ast.Load()), node)
        node.targets = [ast.copy_location(ast.Tuple(targets, ast.Store()), node)]
    return visit(visitor, node)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the targets in nested tuples or lists with their values."""
    if not isinstance(target, SEQUENCE):
        yield target, value
    elif isinstance(value, SEQUENCE) and len(value.elts) == len(target.elts):
        for parts in zip(target.elts, value.elts, strict=True):
            yield from _pairs(*parts)
    else:
        text = ast.unparse(target)
        raise ValueError(f"{text} takes the elements of one value: assign {text} in a statement of its own")


@in_place_of(ProgramVisitor, "_visit_assign")
def _assign_as_python(
    visit: Any, visitor: Any, node: Any, target: ast.expr, op: str | None, dtype: Any = None, is_return: bool = False
) -> Any:
    """
    Add an assignment, with copies of scalars in ``b = a``, and of the values in ``a, b = b, a``.

    :raises ValueError: For ``a = ...`` if ``a`` is an array with two names, and for a part of a part, or of a view.
    """
    targets, values = [name_of(one) for one in elements_of(target)], elements_of(node.value)
    known = {*visitor.variables}
    _check_parts(visitor, target)
    _check_copies(visitor, target, bool(op))
    if not op and not is_return:
        for name in filter(None, targets):
            _check_one_name(visitor, name, values)
        node = _with_copies(visitor, node, targets, values)
    result = visit(visitor, node, target, op, dtype, is_return)
    literals = [not dtype and bool(_of_literals(visitor, value)) for value in values]
    aligned = len(values) == len(targets)
    literals = literals if aligned else [all(literals)] * len(targets)
    sources = [name_of(value) for value in values] if aligned and not op else [""] * len(targets)
    sources = ["" if source in targets else source for source in sources]  # of a swap
    for name, source, literal in zip(targets, sources, literals, strict=True):
        _note(visitor, name, source, literal, name in known)
    return result


def _with_copies(visitor: Any, node: Any, targets: Sequence[str], values: Sequence[ast.expr]) -> Any:
    """Return an assignment of copies where names would share an array, or a target is a later value."""
    aligned = len(targets) == len(values)  # a call may return several of the values
    copied = [
        _copied(visitor, value, targets[:number] if aligned else targets, targets[number : number + 1])
        for number, value in enumerate(values)
    ]
    node = copy.copy(node)
    node.value = copied[0] if len(copied) == 1 else ast.copy_location(ast.Tuple(copied, ast.Load()), node)
    return node


def _note(visitor: Any, name: str, source: str, literal: bool, was_known: bool) -> None:
    """
    Note on the descriptor of a variable, in the SDFG that is being made, what later statements need.

    A scalar: whether it is a number of Python (``of_literals``). An array: the variable of which it is a copy here, but
    not in NumPy (``same_as``).
    """
    array, copied = (visitor.sdfg.arrays.get(visitor.variables.get(one)) for one in (name, source))
    if isinstance(array, data.Scalar):
        array.of_literals = literal and (not was_known or getattr(array, "of_literals", False))
    elif isinstance(array, data.Array) and array is not copied:
        array.same_as = source
        if isinstance(copied, data.Array):
            copied.same_as = name


def _of_literals(visitor: Any, value: ast.expr) -> bool | None:
    """Return True for an expression of literals, sizes and variables of them; None if scalar arguments may be some."""
    parts = [*_parts(value)]
    arrays = [visitor.sdfg.arrays.get(visitor.variables.get(name_of(part), name_of(part))) for part in parts]
    plain = ast.Constant | ast.Name | ast.BinOp | ast.UnaryOp
    simple = all(isinstance(part, plain) or _called(part) in _OF_NUMBERS for part in parts)
    known = {getattr(array, "of_literals", False) for array in arrays if array is not None}
    return simple and False not in known and (None if None in known else True)


def _parts(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the parts of an expression but for those that are numbers of Python anyway, as ``A.shape[0]``."""
    attributes = {getattr(one, "attr", "") for one in (node, getattr(node, "value", node))}
    if attributes & {"shape", "size", "ndim"} or re.fullmatch(_NUMBER, _called(node)):
        return
    if isinstance(node, ast.expr):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _parts(child)


def _called(node: ast.AST) -> str:
    """Return the name of the function that an expression calls, or nothing."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


@in_place_of(ProgramVisitor, "visit_Call")
@in_place_of(ProgramVisitor, "_visit_op")
def _operation(visit: Any, visitor: Any, node: ast.expr, *operands: Any, **options: Any) -> Any:
    """Read an operation or a call; its result is a number of Python if the operands are."""
    result = visit(visitor, node, *operands, **options)
    (name,) = result if isinstance(result, list) and len(result) == 1 else (result,)  # of a call, of an operation
    array = visitor.sdfg.arrays.get(name) if isinstance(name, str) else None
    if array is not None and array.total_size == 1:
        array.of_literals = _of_literals(visitor, node)
    return result.item() if isinstance(result, np.generic) and _of_literals(visitor, node) else result


def _check_one_name(visitor: Any, name: str, values: Sequence[ast.expr]) -> None:
    array = visitor.variables.get(name)
    same = [other for other, known in visitor.variables.items() if known == array]
    if array not in visitor.sdfg.arrays or any(name_of(value) in same for value in values):
        return
    if array in visitor.views:
        raise ValueError(
            f"{name} is a view of another array, which a new value of {name} would be written to, unlike in NumPy; "
            "give the result another name"
        )
    if len(same) > 1 and visitor.sdfg.arrays[array].total_size != 1:
        first, *others = same
        other = name if name != first else others[0]
        raise ValueError(
            f"{first} and {other} are one array, so a new value of {name} would be one of "
            f"{first if name == other else other}, too, unlike in NumPy; write {other} = np.copy({first}) before"
        )


def _check_parts(visitor: Any, target: ast.expr) -> None:
    """Raise an error for a target such as ``a[1:][0]`` or ``a.T[0]``, of which DaCe writes other elements or a copy."""
    for part in elements_of(target):
        inner = part.value if isinstance(part, ast.Subscript) else part
        while isinstance(inner, ast.Subscript) and not any(isinstance(one, ast.Slice) for one in ast.walk(inner.slice)):
            inner = inner.value
        if not isinstance(inner, ast.Subscript | ast.Attribute | ast.Call):
            continue
        names = {name.id for name in ast.walk(inner) if isinstance(name, ast.Name)} & {*visitor.defined}
        if inner is not part and names:
            raise ValueError(
                f"{ast.unparse(part)} is a part of {ast.unparse(inner)}, and is not written as in NumPy; write the "
                "indices of the array itself, as in a[1:, 0] = b, or assign the whole"
            )


def _check_copies(visitor: Any, target: ast.expr, in_place: bool) -> None:
    """
    Raise an error if an array is changed that has two names in Python, but is copied here.

    :param in_place: True for ``a += b``, which changes a whole array; ``a = b`` gives the name a new value.
    """
    for part in elements_of(target):
        name = name_of(part.value if isinstance(part, ast.Subscript) else part)
        if not in_place and not isinstance(part, ast.Subscript):
            continue
        other = _same_as(visitor, name)
        if name and other and _same_as(visitor, other) == name:
            raise ValueError(
                f"{name} and {other} are one array in NumPy, but two here, since {other} had a value before; use one "
                f"name, or write {other} = np.copy({name}) before"
            )


def _same_as(visitor: Any, name: str) -> str:
    return getattr(visitor.sdfg.arrays.get(visitor.variables.get(name)), "same_as", "")


def _copied(visitor: Any, value: ast.expr, before: Sequence[str], target: Sequence[str]) -> ast.expr:
    """
    Return an expression of a copy for the name of a scalar that gets a second one, or of a variable assigned before.

    :param before: Names that the statement assigns before this value.
    :param target: Name that it assigns the value to.
    """
    name = name_of(value)
    array = visitor.sdfg.arrays.get(visitor.variables.get(name, name))
    second = array is not None and array.transient and array.total_size == 1 and not {*target} & {*visitor.variables}
    if not second and not (name and name in before):
        return value
    call = ast.copy_location(ast.parse("numpy.copy()", mode="eval").body, value)
    call.args = [value]
    return ast.fix_missing_locations(call)


def _check_type(visitor: Any, node: Any, target: Any, operand: Any, sign: str = "") -> None:
    """Raise an error for an assignment, also by ``+=`` or another sign, to a scalar that cannot hold the value."""
    named = next(iter(getattr(node, "targets", [])), getattr(node, "target", None))
    name, value = (one[0] if isinstance(one, tuple) else one for one in (target, operand))
    array = visitor.sdfg.arrays[name]
    if isinstance(named, ast.Subscript | None) or not array.transient or array.total_size != 1:
        return
    if value not in visitor.sdfg.arrays if isinstance(value, str) else not isinstance(value, NUMBER):
        return
    held, kind = array.dtype.as_numpy_dtype(), type_of(visitor.sdfg, value, python=False)
    if sign:
        *_, kind = resolved(visitor.sdfg, BY_SIGN[sign], [name, value])
    dtype, literal = np.dtype(kind), isinstance(kind, type)
    may_differ = literal or getattr(array, "of_literals", False)
    if np.can_cast(dtype, held, "same_kind" if literal else "safe") and (may_differ or dtype == held):
        return
    variable = next((variable for variable, known in visitor.variables.items() if known == name), name)
    first = {"f": "0.0", "c": "0j"}.get(dtype.kind, "0")
    raise ValueError(
        f"{variable} holds {held} by its first assignment, but a value of {dtype} is assigned; write the first "
        f"value as {dtype}, such as {first}"
    )


@in_place_of(ProgramVisitor, "_add_assignment")
def _add_checked_assignment(
    add: Any, visitor: Any, node: Any, target: Any, operand: Any, *rest: Any, **options: Any
) -> None:
    _check_type(visitor, node, target, operand)
    add(visitor, node, target, _of_sizes(visitor, operand), *rest, **options)


def _of_sizes(visitor: Any, operand: Any) -> Any:
    """Return the text of an expression of sizes, and other operands as they are."""
    if not isinstance(operand, sympy.Basic) or isinstance(operand, sympy.Symbol):
        return operand
    for symbol in map(str, operand.free_symbols):
        if symbol not in visitor.sdfg.symbols:
            visitor.sdfg.add_symbol(symbol, visitor.globals[symbol].dtype)
    return text_of_sizes(operand)


@in_place_of(ProgramVisitor, "_add_aug_assignment")
def _add_broadcast_assignment(
    add: Any, visitor: Any, node: Any, rtarget: Any, wtarget: Any, operand: Any, op: str, *rest: Any, **options: Any
) -> None:
    """Add ``A += B`` in NumPy's types, also with a broadcast B."""
    _check_type(visitor, node, wtarget, operand, op)
    arrays = visitor.sdfg.arrays
    read, write, other = (one if isinstance(one, tuple) else (one, None) for one in (rtarget, wtarget, operand))
    code = augmented(visitor.sdfg, op, read[0], other[0], arrays[write[0]].dtype.as_numpy_dtype())
    operand = _of_sizes(visitor, operand)
    simple = not any(rest) and not any(options.values()) and isinstance(other[0], str) and other[0] in arrays
    if simple and other[1] in (None, Range.from_array(arrays[other[0]])):
        subset = write[1] or Range.from_array(arrays[write[0]])
        axes = sliced_axes(getattr(node, "target", None), len(subset))
        shape = arrays[other[0]].shape
        differs = any(step != 1 for _, _, step in subset.ndrange())  # which DaCe ignores
        differs |= list(shape) != [subset.size()[axis] for axis in axes] and arrays[other[0]].total_size != 1
        if differs and 0 < len(shape) <= len(axes):
            _broadcast(visitor, node, (read[0], write[0], subset, axes), other[0], code)
            return
    add(visitor, node, rtarget, wtarget, operand, op, *rest, **options)
    for tasklet in visitor.last_block.nodes():
        if isinstance(tasklet, nodes.Tasklet):
            lines = tasklet.code.code
            (assigned,) = (part for line in lines for part in ast.walk(line) if isinstance(part, ast.Assign))
            assigned.value = ASTFindReplace({"__in1": assigned.value.left}).visit(ast.parse(code, mode="eval").body)
            tasklet.code = CodeBlock("\n".join(ast.unparse(ast.fix_missing_locations(line)) for line in lines))


def _broadcast(visitor: Any, node: Any, target: tuple[str, str, Range, list[int]], operand: str, code: str) -> None:
    read, write, subset, axes = target
    begins = [(begin, step) for begin, _, step in subset.ndrange()]
    indices = [f"{b} + {s} * __i{axis}" if axis in axes else str(b) for axis, (b, s) in enumerate(begins)]
    shape = visitor.sdfg.arrays[operand].shape
    aligned = zip(shape, axes[len(axes) - len(shape) :], strict=True)
    taken = ["0" if extent == 1 else f"__i{axis}" for extent, axis in aligned]
    state = _add_state(visitor, f"augassign_{node.lineno}_{node.col_offset}")
    state.add_mapped_tasklet(
        state.label,
        {f"__i{axis}": f"0:{subset.size()[axis]}" for axis in axes},
        {"__in1": Memlet(f"{read}[{', '.join(indices)}]"), "__in2": Memlet(f"{operand}[{', '.join(taken)}]")},
        f"__out = {code}",
        {"__out": Memlet(f"{write}[{', '.join(indices)}]")},
        external_edges=True,
        debuginfo=visitor.current_lineinfo,
    )


def sliced_axes(node: ast.AST | None, ndim: int) -> list[int]:
    """Return the axes that a part of an array keeps in NumPy: those without a single index."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    dots = [getattr(part, "value", None) is Ellipsis for part in parts]
    if any(dots):
        at = dots.index(True)
        parts = [*parts[:at], *[ast.Slice()] * (ndim - len(parts) + 1), *parts[at + 1 :]]
    return [axis for axis in range(ndim) if axis >= len(parts) or isinstance(parts[axis], ast.Slice)]

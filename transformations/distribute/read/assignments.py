"""Assignments as in Python and NumPy, where DaCe's frontend differs; methods that stand in for those of DaCe."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Sequence
from typing import Any

import dace
import numpy as np
from dace import Memlet
from dace.frontend.python.newast import ProgramVisitor
from dace.subsets import Range


def dace_attribute(kind: type, name: str) -> Any:
    """Return an attribute of one of DaCe's classes, if this version of DaCe has it."""
    if not hasattr(kind, name):
        raise ImportError(
            f"dace_redist.distribute cannot read programs with DaCe {dace.__version__}, whose {kind.__name__} has no "
            f"{name!r}: install dace==2.0.0b1, or pass an SDFG instead of a @dace.program"
        )
    return getattr(kind, name)


_add_assignment = dace_attribute(ProgramVisitor, "_add_assignment")
_add_aug_assignment = dace_attribute(ProgramVisitor, "_add_aug_assignment")
_add_state = dace_attribute(ProgramVisitor, "_add_state")
_visit_assign = dace_attribute(ProgramVisitor, "_visit_assign")


def _assign_as_python(
    visitor: Any, node: Any, target: ast.expr, op: str | None, dtype: Any = None, is_return: bool = False
) -> Any:
    """
    Add an assignment; DaCe makes one array of both names in ``b = a``, and ``a = ...`` writes to that array.

    Scalars are copied, and so are the values of ``a, b = b, a``, which DaCe assigns one after the other.

    :raises ValueError: For ``a = ...`` if ``a`` is an array with two names.
    """
    if not op and not is_return:
        targets, values = [_name(one) for one in _elements(target)], _elements(node.value)
        for name in filter(None, targets):
            _check_one_name(visitor, name, values)
        aligned = len(targets) == len(values)  # a call may return several of the values
        copied = [
            _copied(visitor, value, targets[:number] if aligned else targets, targets[number : number + 1])
            for number, value in enumerate(values)
        ]
        node = copy.copy(node)
        node.value = copied[0] if len(copied) == 1 else ast.copy_location(ast.Tuple(copied, ast.Load()), node)
    return _visit_assign(visitor, node, target, op, dtype, is_return)


def _elements(node: ast.expr) -> list[ast.expr]:
    """Return the elements of a tuple or list, and of those in it; else the expression itself."""
    return [one for part in node.elts for one in _elements(part)] if isinstance(node, ast.Tuple | ast.List) else [node]


def _check_one_name(visitor: Any, name: str, values: Sequence[ast.expr]) -> None:
    array = visitor.variables.get(name)
    same = [other for other, known in visitor.variables.items() if known == array]
    if array not in visitor.sdfg.arrays or visitor.sdfg.arrays[array].total_size == 1:
        return
    if len(same) > 1 and not any(_name(value) in same for value in values):
        first, *others = same
        other = name if name != first else others[0]
        raise ValueError(
            f"{first} and {other} are one array, so a new value of {name} would be one of "
            f"{first if name == other else other}, too, unlike in NumPy; write {other} = np.copy({first}) before"
        )


def _copied(visitor: Any, value: ast.expr, before: Sequence[str], target: Sequence[str]) -> ast.expr:
    """
    Return an expression of a copy for the name of a scalar that gets a second one, or of a variable assigned before.

    :param before: Names that the statement assigns before this value.
    :param target: Name that it assigns the value to.
    """
    name = _name(value)
    array = visitor.sdfg.arrays.get(visitor.variables.get(name, name))
    second = array is not None and array.transient and array.total_size == 1 and not {*target} & {*visitor.variables}
    if not second and not (name and name in before):
        return value
    call = ast.copy_location(ast.parse("numpy.copy()", mode="eval").body, value)
    call.args = [value]
    return ast.fix_missing_locations(call)


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _check_type(visitor: Any, node: Any, target: Any, operand: Any) -> None:
    """Raise an error for an assignment to a scalar variable whose type cannot hold the value."""
    named = next(iter(getattr(node, "targets", [])), getattr(node, "target", None))
    name, value = (one[0] if isinstance(one, tuple) else one for one in (target, operand))
    array = visitor.sdfg.arrays[name]
    if isinstance(named, ast.Subscript | None) or not array.transient or array.total_size != 1:
        return
    if isinstance(value, str) and value in visitor.sdfg.arrays:
        dtype = visitor.sdfg.arrays[value].dtype.as_numpy_dtype()
    elif isinstance(value, bool | int | float | complex | np.generic):
        dtype = np.result_type(type(value))
    else:
        return
    held = array.dtype.as_numpy_dtype()
    if not np.can_cast(dtype, held, "same_kind"):
        variable = next((variable for variable, known in visitor.variables.items() if known == name), name)
        first = {"f": "0.0", "c": "0j"}.get(dtype.kind, "0")
        raise ValueError(
            f"{variable} holds {held} by its first assignment, but a value of {dtype} is assigned; write the first "
            f"value as {dtype}, such as {first}"
        )


def _add_checked_assignment(visitor: Any, node: Any, target: Any, operand: Any, *rest: Any, **options: Any) -> None:
    _check_type(visitor, node, target, operand)
    _add_assignment(visitor, node, target, operand, *rest, **options)


def _add_broadcast_assignment(
    visitor: Any, node: Any, rtarget: Any, wtarget: Any, operand: Any, op: str, *rest: Any, **options: Any
) -> None:
    """Add ``A += B`` as DaCe does, except with a broadcast B, which DaCe misreads."""
    _check_type(visitor, node, wtarget, operand)
    arrays = visitor.sdfg.arrays
    read, write, other = (one if isinstance(one, tuple) else (one, None) for one in (rtarget, wtarget, operand))
    simple = not any(rest) and not any(options.values()) and isinstance(other[0], str) and other[0] in arrays
    if simple and other[1] in (None, Range.from_array(arrays[other[0]])):
        subset = write[1] or Range.from_array(arrays[write[0]])
        axes = sliced_axes(getattr(node, "target", None), len(subset))
        shape = arrays[other[0]].shape
        if 0 < len(shape) <= len(axes) and list(shape) != [subset.size()[axis] for axis in axes]:
            if Range.from_array(arrays[other[0]]).num_elements() != 1:
                _broadcast(visitor, node, (read[0], write[0], subset, axes), other[0], op)
                return
    _add_aug_assignment(visitor, node, rtarget, wtarget, operand, op, *rest, **options)


def _broadcast(visitor: Any, node: Any, target: tuple[str, str, Range, list[int]], operand: str, op: str) -> None:
    read, write, subset, axes = target
    begins = [begin for begin, _, _ in subset.ndrange()]
    indices = [f"{begin} + __i{axis}" if axis in axes else str(begin) for axis, begin in enumerate(begins)]
    shape = visitor.sdfg.arrays[operand].shape
    aligned = zip(shape, axes[len(axes) - len(shape) :], strict=True)
    taken = ["0" if extent == 1 else f"__i{axis}" for extent, axis in aligned]
    state = _add_state(visitor, f"augassign_{node.lineno}_{node.col_offset}")
    state.add_mapped_tasklet(
        state.label,
        {f"__i{axis}": f"0:{subset.size()[axis]}" for axis in axes},
        {"__in1": Memlet(f"{read}[{', '.join(indices)}]"), "__in2": Memlet(f"{operand}[{', '.join(taken)}]")},
        f"__out = __in1 {op} __in2",
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


#: Replacement and original of each method of ``ProgramVisitor``.
METHODS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "_add_assignment": (_add_checked_assignment, _add_assignment),
    "_add_aug_assignment": (_add_broadcast_assignment, _add_aug_assignment),
    "_visit_assign": (_assign_as_python, _visit_assign),
}

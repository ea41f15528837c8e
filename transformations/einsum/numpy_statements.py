"""What the frontend does with statements that DaCe reads wrongly, late, or not at all."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Sequence
from typing import Any

from dace import Memlet, SDFGState
from dace.dtypes import DebugInfo
from dace.frontend.python.nested_call import NestedCall
from dace.frontend.python.newast import ProgramVisitor
from dace.subsets import Range

#: What to write instead of functions that cannot be distributed.
_INSTEAD = {
    "print": "take it out, and print what the program returns",
    "svd": "find the largest singular values by iteration with @, or call it on a gathered tensor outside the program",
    "eigh": "find eigenvalues by iteration with @, or call it on a gathered tensor outside the program",
    "eig": "find eigenvalues by iteration with @, or call it on a gathered tensor outside the program",
    "qr": "orthogonalise by np.linalg.inv of the Gram matrix, or column by column in a loop",
    "sort": "sort the gathered tensor outside the program",
    "argsort": "sort the gathered tensor outside the program",
}

_add_aug_assignment = ProgramVisitor._add_aug_assignment
_visit_test = ProgramVisitor._visit_test
_add_read_slice = ProgramVisitor._add_read_slice


class _SlicedRange(Range):
    """A range of which some axes stay, also where they have one element: those that are sliced, as in ``A[:, 0:1]``."""

    sliced: tuple[int, ...] = ()

    def __deepcopy__(self, memo: Any) -> _SlicedRange:
        return _sliced_range(super().__deepcopy__(memo), self.sliced)

    def squeeze(self, ignore_indices: Sequence[int] | None = None, offset: bool = True) -> Any:
        return super().squeeze([*(ignore_indices or ()), *self.sliced], offset)


def _sliced_range(whole: Range, sliced: tuple[int, ...]) -> _SlicedRange:
    made = _SlicedRange(list(zip(*zip(*whole.ranges, strict=True), whole.tile_sizes, strict=True)))
    made.sliced = sliced
    return made


def refuse_callback(visitor: Any, node: ast.Call, create_graph: bool = True) -> Any:
    """
    Instead of DaCe's own, which has the program call Python.

    :raises ValueError: Always; says which function.
    """
    visitor.current_lineinfo = DebugInfo(node.lineno, filename=visitor.filename)  # which is still the line before
    called = ast.unparse(getattr(node.func, "oldnode", None) or node.func)
    name = called.split(".")[-1].removeprefix("__dace_callback_")
    instead = next((text for key, text in _INSTEAD.items() if name == key or name.endswith(f"_{key}")), "")
    raise ValueError(
        f"cannot be distributed: DaCe does not know this function ({called.replace('numpy.', 'np.')}) and would call "
        f"it in Python; {instead or 'write it as np.einsum or elementwise'}"
    )


def add_state_after_the_last(call: NestedCall, label: str | None = None) -> SDFGState:
    """DaCe's own adds the state to the program, also where the call stands in a loop."""
    call.count += 1
    call.last_state = call.last_state.parent_graph.add_state_after(call.last_state, label)
    return call.last_state


def visit_test(visitor: Any, node: ast.expr) -> tuple[Any, Any, Any]:
    """A condition, with the arrays that its variables are now; DaCe's own keeps the names of the variables."""
    condition, otherwise, region = _visit_test(visitor, node)
    names = {name: array for name, array in visitor.variables.items() if array != name and isinstance(array, str)}
    if region is None and names:
        pattern = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")
        condition, otherwise = (pattern.sub(lambda found: names[found[1]], text) for text in (condition, otherwise))
    return condition, otherwise, region


def add_read_slice(visitor: Any, array: str, node: ast.Subscript, expr: Any) -> Any:
    """A part of an array; DaCe's own drops all axes of one element, also where NumPy keeps them."""
    sliced = _sliced_axes(node, len(expr.subset) + len(expr.new_axes or ()))
    if sliced:
        expr, node = copy.copy(expr), copy.copy(node)
        expr.subset, node.slice = _sliced_range(expr.subset, tuple(sliced)), ast.Slice()
    return _add_read_slice(visitor, array, node, expr)


def _subscripts(node: ast.AST | None) -> list[ast.expr]:
    if not isinstance(node, ast.Subscript):
        return []
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def _constant(node: ast.expr) -> Any:
    return getattr(node, "value", None)


def _sliced_axes(node: ast.AST | None, ndim: int) -> list[int]:
    """The axes of an array that a part of it has, too, as NumPy counts them: those without an index of their own."""
    parts = _subscripts(node)
    if Ellipsis in map(_constant, parts):
        after = len(parts) - 1 - [_constant(part) for part in parts].index(Ellipsis)
        before, whole = len(parts) - 1 - after, [ast.Slice()] * (ndim - len(parts) + 1)
        parts = [*parts[:before], *whole, *parts[before + 1 :]]
    return [axis for axis in range(ndim) if axis >= len(parts) or isinstance(parts[axis], ast.Slice)]


def add_aug_assignment(
    visitor: Any, node: Any, rtarget: Any, wtarget: Any, operand: Any, op: str, *rest: Any, **options: Any
) -> None:
    """``A += B`` as DaCe does it, but for a B that is broadcast, which it reads wrongly."""
    arrays = visitor.sdfg.arrays
    read, write, other = (one if isinstance(one, tuple) else (one, None) for one in (rtarget, wtarget, operand))
    simple = not any(rest) and not any(options.values()) and isinstance(other[0], str) and other[0] in arrays
    if simple and other[1] in (None, Range.from_array(arrays[other[0]])):
        subset = write[1] or Range.from_array(arrays[write[0]])
        axes = _sliced_axes(getattr(node, "target", None), len(subset))
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
    state = visitor._add_state(f"augassign_{node.lineno}_{node.col_offset}")
    state.add_mapped_tasklet(
        state.label,
        {f"__i{axis}": f"0:{subset.size()[axis]}" for axis in axes},
        {"__in1": Memlet(f"{read}[{', '.join(indices)}]"), "__in2": Memlet(f"{operand}[{', '.join(taken)}]")},
        f"__out = __in1 {op} __in2",
        {"__out": Memlet(f"{write}[{', '.join(indices)}]")},
        external_edges=True,
        debuginfo=visitor.current_lineinfo,
    )


#: What stands in for methods of DaCe's classes, while a program is parsed.
PATCHES: list[tuple[type, str, Callable[..., Any]]] = [
    (NestedCall, "add_state", add_state_after_the_last),
    (ProgramVisitor, "create_callback", refuse_callback),
    (ProgramVisitor, "_add_aug_assignment", add_aug_assignment),
    (ProgramVisitor, "_visit_test", visit_test),
    (ProgramVisitor, "_add_read_slice", add_read_slice),
]

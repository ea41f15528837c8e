"""Copies of arrays with other axes, and diagonals: what the frontend adds to an SDFG for functions of NumPy."""

from __future__ import annotations

from collections.abc import Callable
from string import ascii_letters
from typing import Any

from dace import SDFG, Memlet, SDFGState
from dace.frontend.common import op_repository

from dace_redist.transformations.einsum.numpy_functions import add_einsum, new_array, operand_shape

_KNOWN = op_repository.Replacements


def _diagonal(function: str) -> Callable[..., Any]:
    def add(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, **options: Any) -> str:
        shape = operand_shape(sdfg, function, 0, a)
        if options or len(shape) > 2 or (len(shape) == 1 and function == "diagonal"):
            got = ", ".join([f"{len(shape)}-D", *options])
            raise ValueError(f"np.{function} is known for a matrix without options, got {got}; write it as np.einsum")
        if len(shape) == 2:
            return add_einsum(visitor, sdfg, state, "ii->i", a)
        output = new_array(visitor, sdfg, [*shape, *shape], sdfg.arrays[a].dtype)
        state.add_mapped_tasklet(
            "_diag_",
            {"__i0": f"0:{shape[0]}", "__i1": f"0:{shape[0]}"},
            {"__inp": Memlet(f"{a}[__i0]")},
            "__out = __inp if __i0 == __i1 else 0",
            {"__out": Memlet(f"{output}[__i0, __i1]")},
            external_edges=True,
        )
        return output

    return add


def _swapaxes(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, axis1: int, axis2: int) -> Any:
    order = list(range(len(operand_shape(sdfg, "swapaxes", 0, a))))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return _transposed(visitor, sdfg, state, a, order)


def _moveaxis(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, source: Any, destination: Any) -> Any:
    ndim = len(operand_shape(sdfg, "moveaxis", 0, a))
    ends = [
        [at % ndim for at in (axes if isinstance(axes, tuple | list) else [axes])] for axes in (source, destination)
    ]
    order = [axis for axis in range(ndim) if axis not in ends[0]]
    for target, axis in sorted(zip(ends[1], ends[0], strict=True)):
        order.insert(target, axis)
    return _transposed(visitor, sdfg, state, a, order)


def _transpose(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, axes: Any = None) -> str:
    """DaCe's own refuses matrices of one row or column."""
    ndim = len(operand_shape(sdfg, "transpose", 0, a))
    order = list(range(ndim))[::-1] if axes is None else [axis % ndim if axis >= -ndim else axis for axis in axes]
    if sorted(order) != list(range(ndim)):
        raise ValueError(f"np.transpose of {a}: its axes are 0 to {ndim - 1}, each of them once, got {tuple(axes)}")
    return a if ndim < 2 else _transposed(visitor, sdfg, state, a, order)


def _transpose_method(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, *axes: Any) -> str:
    given = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes
    return _transpose(visitor, sdfg, state, a, given or None)


def _transposed(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, order: list[int]) -> str:
    letters = ascii_letters[: len(order)]
    return add_einsum(visitor, sdfg, state, f"{letters}->{''.join(letters[axis] for axis in order)}", a)


def _copy(visitor: Any, sdfg: SDFG, state: SDFGState, a: str) -> str:
    """DaCe's own knows arrays only, not slices of them."""
    shape = operand_shape(sdfg, "copy", 0, a)
    output = new_array(visitor, sdfg, shape or [1], sdfg.arrays[a].dtype)
    copied = Memlet.from_array(a, sdfg.arrays[a])
    state.add_nedge(state.add_read(a), state.add_write(output), copied)
    return output


def _dot(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, b: str) -> Any:
    """Sums over the last axis of one and the last but one of the other operand, as no other function does."""
    left, right = (len(operand_shape(sdfg, "dot", number, name)) for number, name in enumerate((a, b)))
    if not left or not right:
        return _KNOWN.getop("Array", "Mult")(visitor, sdfg, state, a, b)
    rows, columns = ascii_letters[: left - 1], ascii_letters[left : left + right - 1]
    summed = ascii_letters[left - 1]
    inner = columns[: right - 2] + summed + columns[right - 2 :] if right > 1 else summed
    return add_einsum(visitor, sdfg, state, f"{rows}{summed},{inner}->{rows}{columns}", a, b)


#: Functions of NumPy, by their names.
ARRAY_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "numpy.diag": _diagonal("diag"),
    "numpy.diagonal": _diagonal("diagonal"),
    "numpy.transpose": _transpose,
    "numpy.swapaxes": _swapaxes,
    "numpy.moveaxis": _moveaxis,
    "numpy.copy": _copy,
    "numpy.dot": _dot,
}

#: Methods of arrays, by their names.
ARRAY_METHODS: dict[str, Callable[..., Any]] = {
    "dot": _dot,
    "transpose": _transpose_method,
    "diagonal": _diagonal("diagonal"),
    "swapaxes": _swapaxes,
    "copy": _copy,
}

#: Attributes of arrays, by their names.
ARRAY_ATTRIBUTES: dict[str, Callable[..., Any]] = {"T": _transpose}

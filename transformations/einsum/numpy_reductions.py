"""Sums, means, norms, the largest and the smallest element along axes, with all that NumPy's take of an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from string import ascii_letters
from typing import Any

from dace import SDFG, Memlet, SDFGState
from dace.frontend.common import op_repository
from dace.frontend.python.nested_call import NestedCall

from dace_redist.transformations.einsum.numpy_functions import add_einsum, new_array, operand_shape
from dace_redist.transformations.einsum.reading import neutral_element


def _axes(function: str, name: str, shape: Sequence[Any], axis: Any) -> list[int]:
    """The axes that are reduced."""
    given = range(len(shape)) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    for number in given:
        if not isinstance(number, int) or not -len(shape) <= number < len(shape):
            raise ValueError(f"np.{function}: {name} has no axis {number}, but {len(shape)} dimensions")
    return sorted({number % len(shape) for number in given})


def _check_options(function: str, options: dict[str, Any]) -> None:
    if options:
        raise ValueError(
            f"np.{function} is known with axis and keepdims, got {', '.join(options)} besides; leave it out"
        )


def _reduced(nest: NestedCall, function: str, name: str, axes: Sequence[int], keepdims: bool, squares: bool) -> str:
    sdfg = nest.sdfg
    shape = operand_shape(sdfg, function, 0, name)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    if function in ("max", "min"):
        reduced = nest(_extreme)(function, name, axes, [shape[axis] for axis in kept])
    else:
        letters = ascii_letters[: len(shape)]
        subscripts = ",".join([letters] * (2 if squares else 1)) + "->" + "".join(letters[axis] for axis in kept)
        reduced = nest(add_einsum)(subscripts, *[name] * (2 if squares else 1))
    return nest(_with_axes)(reduced, shape, axes) if keepdims else reduced


def _extreme(
    visitor: Any, sdfg: SDFG, state: SDFGState, function: str, a: str, axes: Sequence[int], shape: Sequence[Any]
) -> str:
    dtype = sdfg.arrays[a].dtype
    if "complex" in dtype.to_string():
        raise ValueError(f"np.{function} of complex numbers has no order to go by; take it of np.abs({a})")
    output = new_array(visitor, sdfg, shape or [1], dtype)
    node = state.add_reduce(f"lambda x, y: {function}(x, y)", axes, neutral_element(function, dtype))
    node.debuginfo = visitor.current_lineinfo
    state.add_edge(state.add_read(a), None, node, None, Memlet.from_array(a, sdfg.arrays[a]))
    state.add_edge(node, None, state.add_write(output), None, Memlet.from_array(output, sdfg.arrays[output]))
    return output


def _with_axes(
    visitor: Any, sdfg: SDFG, state: SDFGState, reduced: str, shape: Sequence[Any], axes: Sequence[int]
) -> str:
    """The reduced axes with one element."""
    wanted = [1 if axis in axes else extent for axis, extent in enumerate(shape)]
    result = str(sdfg.add_temp_transient(wanted, sdfg.arrays[reduced].dtype)[0])
    indices = [f"__i{axis}" for axis in range(len(shape))]
    state.add_mapped_tasklet(
        "_keepdims_",
        {index: f"0:{extent}" for index, extent in zip(indices, wanted, strict=True)},
        {"__inp": Memlet(f"{reduced}[{', '.join(i for axis, i in enumerate(indices) if axis not in axes) or 0}]")},
        "__out = __inp",
        {"__out": Memlet(f"{result}[{', '.join(indices)}]")},
        external_edges=True,
    )
    return result


def _reduction(function: str) -> Callable[..., Any]:
    def add(
        visitor: Any, sdfg: SDFG, state: SDFGState, a: str, axis: Any = None, keepdims: bool = False, **options: Any
    ) -> Any:
        _check_options(function, options)
        shape = operand_shape(sdfg, function, 0, a)
        axes = _axes(function, a, shape, axis)
        nest = NestedCall(visitor, sdfg, state)
        result = _reduced(nest, function, a, axes, keepdims, False)
        if function == "mean":
            count = math.prod(shape[number] for number in axes)
            result = nest(_elementwise)(f"lambda x: x / ({count})", result)
        return nest, result

    return add


def _norm(
    visitor: Any, sdfg: SDFG, state: SDFGState, a: str, ord: Any = None, axis: Any = None, keepdims: bool = False
) -> Any:
    shape = operand_shape(sdfg, "linalg.norm", 0, a)
    axes = _axes("linalg.norm", a, shape, axis)
    order = getattr(ord, "value", ord)
    if order is not None and (order != "fro" or len(axes) != 2) and (order != 2 or len(axes) != 1):
        raise ValueError(
            f"np.linalg.norm is known for the square root of the sum of squares, got ord={order!r} along "
            f"{len(axes)} axes; write it as np.max or np.sum of np.abs({a})"
        )
    element = sdfg.arrays[a].dtype.to_string()
    if "float" not in element:
        wanted = (
            f"take it of np.abs({a})" if "complex" in element else "would be floating-point; convert the array first"
        )
        raise ValueError(f"np.linalg.norm of {element} {wanted}")
    nest = NestedCall(visitor, sdfg, state)
    squares = _reduced(nest, "linalg.norm", a, axes, keepdims, True)
    return nest, nest(_elementwise)("lambda x: sqrt(x)", squares)


def _arg(function: str) -> Callable[..., Any]:
    def refuse(visitor: Any, sdfg: SDFG, state: SDFGState, a: Any, *_: Any, **__: Any) -> Any:
        extreme = function.removeprefix("arg")
        raise ValueError(
            f"np.{function} cannot be distributed; write which elements it finds, as in {a} == np.{extreme}({a}), or "
            f"call it on the gathered tensor"
        )

    return refuse


_elementwise = op_repository.Replacements.get("dace.elementwise")

_BY_NAME = {function: _reduction(function) for function in ("sum", "mean", "max", "min")}

#: Functions of NumPy, by their names.
REDUCTIONS: dict[str, Callable[..., Any]] = {
    **{f"numpy.{name}": function for name, function in _BY_NAME.items()},
    "numpy.amax": _BY_NAME["max"],
    "numpy.amin": _BY_NAME["min"],
    "numpy.linalg.norm": _norm,
    "numpy.argmax": _arg("argmax"),
    "numpy.argmin": _arg("argmin"),
}

#: Methods of arrays, by their names.
REDUCING_METHODS = {**_BY_NAME, "argmax": _arg("argmax"), "argmin": _arg("argmin")}

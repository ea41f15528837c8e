"""Frontend replacements of NumPy's functions, methods and attributes; most of them are einsums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from string import ascii_letters
from typing import Any

import numpy as np
from dace import SDFG, Memlet, SDFGState, data, dtypes, symbolic
from dace.frontend.common import op_repository
from dace.frontend.python.nested_call import NestedCall
from dace.libraries.blas.nodes.einsum import Einsum as EinsumNode
from dace.sdfg import nodes

from dace_redist.einsum.expression import Einsum
from dace_redist.library_nodes.indexed import RESULT
from dace_redist.transformations.distribute.ir import common_type, equal, is_complex

#: Replacement of a function, as in DaCe: a function of the visitor, the SDFG, the state, and the arguments.
Replacement = Callable[..., Any]
Shape = tuple[Any, ...]

_DACE = op_repository.Replacements
_dace_astype = _DACE.get_method("Array", "astype")
_dace_conj = _DACE.get("numpy.conj")
_dace_matmul = _DACE.getop("Array", "MatMult")

# What all functions need


def new_array(visitor: Any, sdfg: SDFG, shape: Sequence[Any], dtype: dtypes.typeclass) -> str:
    """Add a transient for a result, named after the variable that it is assigned to."""
    name = visitor.get_target_name() or sdfg.temp_data_name()
    return str(sdfg.add_transient(name, shape or [1], dtype, find_new_name=True)[0])


def operand_shape(sdfg: SDFG, function: str, number: int, operand: Any) -> Shape:
    """Return the shape of an operand; none for a scalar."""
    if not isinstance(operand, str) or operand not in sdfg.arrays:
        inside = (
            " Write all subscripts as one string, and factors outside of the einsum" if function == "einsum" else ""
        )
        raise ValueError(f"operand {number} of np.{function} is {operand}: expected an array.{inside}")
    array = sdfg.arrays[operand]
    return () if isinstance(array, data.Scalar) else tuple(array.shape)


def shapes_of(sdfg: SDFG, function: str, operands: Sequence[Any]) -> list[Shape]:
    """Return the shapes of operands."""
    return [operand_shape(sdfg, function, number, operand) for number, operand in enumerate(operands)]


def add_node(
    visitor: Any, sdfg: SDFG, state: SDFGState, node: nodes.LibraryNode, operands: dict[str | None, str], output: str
) -> str:
    """Connect a node to its operands, by connector, and to its output."""
    node.debuginfo = visitor.current_lineinfo
    state.add_node(node)
    for connector, name in operands.items():
        state.add_edge(state.add_read(name), None, node, connector, Memlet.from_array(name, sdfg.arrays[name]))
    result = next(iter(node.out_connectors), None)
    state.add_edge(node, result, state.add_write(output), None, Memlet.from_array(output, sdfg.arrays[output]))
    return output


def add_map(
    state: SDFGState,
    shape: Sequence[Any],
    inputs: dict[str, tuple[str, Sequence[int | str | None]]],
    output: str,
    code: str,
) -> str:
    """
    Add a map over a shape, whose indices are ``__i0``, ``__i1``, ..., and return the name of its result.

    Without a shape, add a tasklet.

    :param inputs: Name and axes of each operand, by its name in ``code``; None for an axis of one element, a text for
        an index of another value.
    :param code: Expression of the elements of the result.
    """

    def element(array: str, axes: Iterable[int | str | None]) -> Memlet:
        indices = ("0" if axis is None else f"__i{axis}" if isinstance(axis, int) else axis for axis in axes)
        return Memlet(f"{array}[{', '.join(indices) or 0}]")

    reads = {name: element(*operand) for name, operand in inputs.items()}
    if not shape:
        tasklet = state.add_tasklet(f"{output}_tasklet", {*reads}, {"__out"}, f"__out = {code}")
        for name, memlet in reads.items():
            state.add_edge(state.add_read(memlet.data), None, tasklet, name, memlet)
        state.add_edge(tasklet, "__out", state.add_write(output), None, element(output, []))
        return output
    ranges = {f"__i{axis}": f"0:{extent}" for axis, extent in enumerate(shape)}
    written = {"__out": element(output, range(len(shape)))}
    state.add_mapped_tasklet(f"{output}_map", ranges, reads, f"__out = {code}", written, external_edges=True)
    return output


def summed(nest: NestedCall, a: str, mean: bool = False) -> str:
    """Return an array in the type in which NumPy sums it, or takes means."""
    dtype = nest.sdfg.arrays[a].dtype.as_numpy_dtype()
    wanted = (np.mean if mean else np.sum)(np.ones(1, dtype)).dtype
    return a if wanted == dtype else nest(_dace_astype)(a, dtypes.typeclass(wanted.type))


# Functions that are einsums


def add_einsum(
    visitor: Any,
    sdfg: SDFG,
    state: SDFGState,
    subscripts: Any,
    *arrays: str,
    dtype: Any = None,
    optimize: Any = False,
    output: str | None = None,
    out: str | None = None,
    alpha: Any = 1.0,
    beta: Any = 0.0,
) -> str:
    """Add a node for the whole einsum; its contraction order is the planner's choice, whatever ``optimize`` says."""
    output = out if output is None else output
    shapes = shapes_of(sdfg, "einsum", arrays)
    einsum = _broadcast(Einsum.parse(str(getattr(subscripts, "value", subscripts)), [len(s) for s in shapes]), shapes)
    extents = einsum.extents(shapes)
    if output is None:
        element = dtype or common_type([sdfg.arrays[name].dtype for name in arrays])
        output = new_array(visitor, sdfg, [extents[index] for index in einsum.result], element)
    connectors = [f"_{number}" for number in range(len(arrays))]
    node = EinsumNode("einsum", inputs=set(connectors), outputs={RESULT})
    node.einsum_str, node.alpha, node.beta = str(einsum), alpha, beta
    return add_node(visitor, sdfg, state, node, dict(zip(connectors, arrays, strict=True)), output)


def _broadcast(einsum: Einsum, shapes: Sequence[Shape]) -> Einsum:
    """Return an einsum in which axes of one element have indices of their own where others have more elements."""
    used = [list(zip(term, shape, strict=True)) for term, shape in zip(einsum.operands, shapes, strict=True)]
    longer = {index for term in used for index, extent in term if extent != 1}
    free = iter(letter for letter in ascii_letters if letter not in einsum.indices)
    terms = [
        "".join(next(free, i) if n == 1 and i in longer - {j for j, m in term if m != 1} else i for i, n in term)
        for term in used
    ]
    return Einsum(tuple(terms), einsum.result)


def _by_dimensions(**known: str) -> Callable[..., str]:
    """Return subscripts by the numbers of dimensions of the operands: ``_12`` for a vector and a matrix."""

    def subscripts(function: str, shapes: Sequence[Shape], *rest: Any, **options: Any) -> str:
        dimensions = [len(shape) for shape in shapes]
        text = known.get("_" + "".join(map(str, dimensions)))
        if text is None or rest or options:
            got = ", ".join([*(f"{n}-D" for n in dimensions), *map(str, rest), *options])
            possible = " or ".join(", ".join(f"{n}-D" for n in expected[1:]) for expected in known)
            raise ValueError(f"np.{function} is known for {possible} without options, got {got}; write it as np.einsum")
        return text

    return subscripts


def _permuted(function: str, shapes: Sequence[Shape], *given: Any, **options: Any) -> str:
    """Return subscripts of a permutation of dimensions; DaCe rejects matrices of one row or column."""
    ndim = len(shapes[0])
    numbered = np.empty(range(ndim))  # with as many elements along an axis as its number
    try:
        if options or not hasattr(numbered, function):
            order = getattr(np, function)(numbered, *given, **options).shape
        else:
            order = getattr(numbered, function)(*given).shape
    except ValueError as error:
        got = (*given, *options.values())
        raise ValueError(f"np.{function}: its axes are 0 to {ndim - 1}, each of them once, got {got}") from error
    letters = ascii_letters[:ndim]
    return "" if ndim < 2 else f"{letters}->{''.join(letters[axis] for axis in order)}"


def _dot(_: str, shapes: Sequence[Shape]) -> str:
    """Return subscripts of a sum over the last axis of one and the last but one of the other operand."""
    left, right = map(len, shapes)
    rows, columns = ascii_letters[: left - 1], ascii_letters[left : left + right - 1]
    summed = ascii_letters[left - 1]
    inner = columns[: right - 2] + summed + columns[right - 2 :] if right > 1 else summed
    return f"{rows}{summed},{inner}->{rows}{columns}"


def _tensordot(_: str, shapes: Sequence[Shape], axes: Any = 2) -> str:
    """Return subscripts of sums over pairs of axes; DaCe supports neither one pair of numbers nor negative axes."""
    ndim = [len(shape) for shape in shapes]
    pairs = (range(ndim[0] - axes, ndim[0]), range(axes)) if isinstance(axes, int) else axes
    try:
        left, right = (np.arange(n)[np.atleast_1d(np.array(given, int))] for n, given in zip(ndim, pairs, strict=True))
        names = list(ascii_letters[ndim[0] : sum(ndim)])
        for summed, axis in zip(left, right, strict=True):
            names[axis] = ascii_letters[summed]
    except (IndexError, TypeError, ValueError) as error:
        raise ValueError(
            f"np.tensordot: axes must be a number, or as many axes of each of the {ndim[0]}-D and {ndim[1]}-D "
            f"operands, as in ([0, 1], [1, 0]), got {axes}"
        ) from error
    kept = [ascii_letters[axis] for axis in range(ndim[0]) if axis not in left]
    kept += [name for axis, name in enumerate(names) if axis not in right]
    return f"{ascii_letters[: ndim[0]]},{''.join(names)}->{''.join(kept)}"


#: Subscripts and number of operands of functions; the subscripts are a function of the operands' shapes and the other
#: arguments. Without subscripts the result is the operand.
_SUBSCRIPTS: dict[str, tuple[int, Callable[..., str]]] = {
    "outer": (2, _by_dimensions(_11="i,j->ij")),
    "inner": (2, _by_dimensions(_11="i,i->", _12="j,ij->i", _21="ij,j->i", _22="ik,jk->ij")),
    "vdot": (2, _by_dimensions(_11="i,i->", _22="ij,ij->")),
    "trace": (1, _by_dimensions(_2="ii->")),
    "diag": (1, _by_dimensions(_2="ii->i")),
    "diagonal": (1, _by_dimensions(_2="ii->i")),
    "transpose": (1, _permuted),
    "swapaxes": (1, _permuted),
    "moveaxis": (1, _permuted),
    "dot": (2, _dot),
    "tensordot": (2, _tensordot),
}


def _square(visitor: Any, sdfg: SDFG, state: SDFGState, function: str, a: str) -> str:
    """Return a matrix, or its leading square if it has more rows or columns."""
    shape = tuple(sdfg.arrays[a].shape)
    if equal(*shape):
        return a
    if any(map(symbolic.issymbolic, shape)):
        raise ValueError(f"np.{function} of a matrix of shape {shape}: write that of a[:k, :k], k the smaller extent")
    part = str(sdfg.add_temp_transient([min(shape)] * 2, sdfg.arrays[a].dtype)[0])
    state.add_nedge(state.add_read(a), state.add_write(part), Memlet(f"{a}[0:{min(shape)}, 0:{min(shape)}]"))
    return part


def _named(function: str) -> Replacement:
    operands, subscripts = _SUBSCRIPTS[function]

    def add(visitor: Any, sdfg: SDFG, state: SDFGState, *arguments: Any, **options: Any) -> Any:
        arrays, rest = arguments[:operands], arguments[operands:]
        shapes = shapes_of(sdfg, function, arrays)
        if function == "vdot" and is_complex(sdfg.arrays[arrays[0]].dtype):
            nest, text = NestedCall(visitor, sdfg, state), subscripts(function, shapes, *rest, **options)
            return nest, nest(add_einsum)(text, nest(_dace_conj)(arrays[0]), arrays[1])
        if function == "dot" and () in shapes:
            return _DACE.getop("Array", "Mult")(visitor, sdfg, state, *arrays)
        if function == "diag" and len(shapes[0]) == 1 and not rest and not options:
            output = new_array(visitor, sdfg, shapes[0] * 2, sdfg.arrays[arrays[0]].dtype)
            inputs = {"__inp": (arrays[0], [0])}
            return add_map(state, shapes[0] * 2, inputs, output, "__inp if __i0 == __i1 else 0")
        text = subscripts(function, shapes, *rest, **options)
        if function in ("trace", "diag", "diagonal"):
            nest = NestedCall(visitor, sdfg, state)
            square = nest(_square)(function, arrays[0])
            return nest, nest(add_einsum)(text, summed(nest, square) if function == "trace" else square)
        return add_einsum(visitor, sdfg, state, text, *arrays) if text else arrays[0]

    return add


# Functions that DaCe reads only in part


def _matmul(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, b: str) -> Any:
    """Add a product; DaCe supports vectors with matrices only, and compares extents by SymPy's slow assumptions."""
    left, right = shapes_of(sdfg, "matmul", (a, b))
    one_sum = min(len(left), len(right)) == 1 or len(left) == len(right) == 2
    if one_sum and equal(left[-1], right[max(len(right) - 2, 0)]):
        return _EINSUMS["dot"](visitor, sdfg, state, a, b)
    return _dace_matmul(visitor, sdfg, state, a, b)


def _copy(visitor: Any, sdfg: SDFG, state: SDFGState, a: str) -> str:
    """Add a copy; DaCe supports whole arrays only, not slices."""
    output = new_array(visitor, sdfg, operand_shape(sdfg, "copy", 0, a), sdfg.arrays[a].dtype)
    state.add_nedge(state.add_read(a), state.add_write(output), Memlet.from_array(a, sdfg.arrays[a]))
    return output


def _roll(visitor: Any, sdfg: SDFG, state: SDFGState, a: str, shift: Any, axis: Any = None) -> str:
    """Add copies of both parts of an array. A shift beyond the axis gives a negative extent, an error of planning."""
    shape = operand_shape(sdfg, "roll", 0, a)
    axis = 0 if axis is None and len(shape) == 1 else axis
    known = type(shift) is int and type(axis) is int and -len(shape) <= axis < len(shape)
    if not known:
        raise ValueError("np.roll is known for a number of places along one axis, as in np.roll(a, 1, axis=0)")
    if shift == 0:
        return _copy(visitor, sdfg, state, a)
    output, extent, whole = new_array(visitor, sdfg, shape, sdfg.arrays[a].dtype), shape[axis], [(0, n) for n in shape]
    first = shift if shift > 0 else extent + shift  # the first element's place

    def box(begin: Any, end: Any) -> str:
        whole[axis] = (begin, end)
        return ", ".join(f"{low}:{high}" for low, high in whole)

    for source, target in (((0, extent - first), (first, extent)), ((extent - first, extent), (0, first))):
        memlet = Memlet(f"{a}[{box(*source)}]", other_subset=box(*target))
        state.add_nedge(state.add_read(a), state.add_write(output), memlet)
    return output


def _flip(visitor: Any, sdfg: SDFG, state: SDFGState, m: str, axis: Any = None) -> str:
    """Add a copy with reversed axes; DaCe has a view for it, which it does not always accept."""
    shape = operand_shape(sdfg, "flip", 0, m)
    given = range(len(shape)) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    if not all(type(one) is int and -len(shape) <= one < len(shape) for one in given):
        raise ValueError(f"np.flip: {m} has the axes 0 to {len(shape) - 1}, got {axis}")
    reversed_axes = {one % len(shape) for one in given}
    axes = [None if n == 1 else f"{n} - 1 - __i{k}" if k in reversed_axes else k for k, n in enumerate(shape)]
    output = new_array(visitor, sdfg, shape, sdfg.arrays[m].dtype)
    return add_map(state, shape, {"__inp": (m, axes)}, output, "__inp")


_EINSUMS = {name: _named(name) for name in _SUBSCRIPTS}

#: Functions by their names in DaCe.
FUNCTIONS: dict[str, Replacement] = {
    **{f"numpy.{name}": function for name, function in _EINSUMS.items()},
    "numpy.copy": _copy,
    "numpy.einsum": add_einsum,
    "numpy.flip": _flip,
    "numpy.matmul": _matmul,
    "numpy.roll": _roll,
}

#: Methods of arrays.
METHODS: dict[str, Replacement] = {
    **{name: _EINSUMS[name] for name in ("dot", "transpose", "diagonal", "swapaxes", "trace")},
    "copy": _copy,
}

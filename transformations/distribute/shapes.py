"""Shapes and types of tensors, symbolic and with values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from dace import FLOAT_TYPES, SDFG, data, dtypes, symbolic

from dace_redist.library_nodes.node import simplified


def logical_shape(descriptor: data.Data) -> tuple[Any, ...]:
    """Return the shape of a tensor; empty for a scalar, which DaCe may hold in an array of one element."""
    shape = tuple(descriptor.shape)
    return () if isinstance(descriptor, data.Scalar) or shape == (1,) else shape


def equal(a: Any, b: Any) -> bool:
    """Return True if two sizes are equal for all values of their symbols; symbols are identified by name."""
    difference = symbolic.pystr_to_symbolic(f"({symbolic.symstr(a)}) - ({symbolic.symstr(b)})")
    return bool(simplified(difference) == 0)


def same_shape(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Return True if two shapes are equal for all values of their symbols."""
    return len(first) == len(second) and all(map(equal, first, second))


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
    return tuple(int(symbolic.evaluate(extent, dict(sizes))) for extent in shape)


def check_sizes(sdfg: SDFG, sizes: Mapping[str, int]) -> None:
    """
    Check that all symbols of a program have values.

    :raises ValueError: If a value is missing, is not that of a symbol, or is not a number.
    """
    used = {str(s) for array in sdfg.arrays.values() for n in array.shape for s in symbolic.symlist(n).values()}
    used |= {str(s) for s in sdfg.free_symbols}
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


def shapes_of(sdfg: SDFG, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """
    Return the logical shape of every array of a program, in numbers.

    :raises ValueError: As :func:`check_sizes`, or if an extent is negative.
    """
    check_sizes(sdfg, sizes)
    shapes = {name: in_numbers(logical_shape(array), sizes) for name, array in sdfg.arrays.items()}
    for name, shape in shapes.items():
        if any(extent < 0 for extent in shape):
            raise ValueError(f'"{sdfg.name}": with these sizes {name} has shape {shape}; an extent must be at least 0')
    return shapes

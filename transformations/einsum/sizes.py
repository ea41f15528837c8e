"""Shapes in numbers, once the symbols in them have values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from dace import FLOAT_TYPES, SDFG, symbolic

from dace_redist.transformations.einsum.reading import logical_shape


def in_numbers(shape: Sequence[Any], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """A shape with the values of its symbols."""
    return tuple(int(symbolic.evaluate(extent, dict(sizes))) for extent in shape)


def check_sizes(sdfg: SDFG, sizes: Mapping[str, int]) -> None:
    """
    Makes sure that all symbols of a program have values.

    :param sdfg: The program.
    :param sizes: Values of its symbols.
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
    The shape of every array of a program, in numbers.

    :param sdfg: The program.
    :param sizes: Values of all its symbols.
    :raises ValueError: As :func:`check_sizes`, or if an extent is negative.
    """
    check_sizes(sdfg, sizes)
    shapes = {name: in_numbers(logical_shape(array), sizes) for name, array in sdfg.arrays.items()}
    for name, shape in shapes.items():
        if any(extent < 0 for extent in shape):
            raise ValueError(f'"{sdfg.name}": with these sizes {name} has shape {shape}; an extent must be at least 0')
    return shapes

"""Operations on elements on their way: conversion, scaling, addition to what is there, reductions."""

from __future__ import annotations

import dataclasses
import numbers
from typing import Any

import numpy as np
import numpy.typing as npt

#: Types that are computed with, in the order of ``ElementType`` in the library (``element_type.hpp``), from 1 on.
COMPUTED_TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)
#: Reductions, in the order of ``Reduction`` in the library, from 1 on.
OPS = ("sum", "prod", "min", "max")

#: Pairs of types between which GPUs convert.
_CONVERTED_ON_GPUS = ({"float32", "float64"}, {"complex64", "complex128"})


@dataclasses.dataclass(frozen=True)
class ElementOperation:
    """
    Update ``target = alpha * source + beta * target``, or reduction of replicas; made by :func:`element_operation`.

    :param source: Type of the source's elements.
    :param target: Type of the target's elements, to which those of the source are converted first.
    :param beta: Factor of what is there, which is not read if this is 0.
    :param conj: Whether the source is conjugated.
    :param op: Reduction of partial results, one of :data:`OPS`; None: replicas of the source are equal.
    """

    source: np.dtype[Any]
    target: np.dtype[Any]
    alpha: complex = 1
    beta: complex = 0
    conj: bool = False
    op: str | None = None

    @property
    def is_copy(self) -> bool:
        """True if elements are only copied."""
        return (self.source, self.alpha, self.beta, self.conj, self.op) == (self.target, 1, 0, False, None)

    @property
    def encoded(self) -> tuple[int, int, complex, complex, bool, int]:
        """Fields of ``dr_operation`` of the library: numbers of the types, factors, conjugation, number of the op."""
        if self.is_copy:
            return 0, 0, 1, 0, False, 0
        types = [COMPUTED_TYPES.index(dtype.name) + 1 for dtype in (self.source, self.target)]
        return types[0], types[1], self.alpha, self.beta, self.conj, 0 if self.op is None else OPS.index(self.op) + 1

    def check_on_gpu(self, source_on_gpu: bool, target_on_gpu: bool) -> None:
        """
        Make sure that no GPU has to convert elements as it cannot. The side with the larger elements converts.

        :raises TypeError: If one has to; names the types, and the remedy.
        """
        source, target = self.source, self.target
        by_gpu = target_on_gpu if source.itemsize < target.itemsize else source_on_gpu
        if by_gpu and source != target and {source.name, target.name} not in _CONVERTED_ON_GPUS:
            raise TypeError(
                f"elements cannot be converted from {source} to {target} on a GPU, only between float32 and float64, "
                "and between complex64 and complex128; convert the array on the GPU before the redistribution, or its "
                "result afterwards"
            )

    def __str__(self) -> str:
        """Return text such as ``2 * x + 1 * there, as float32``; nothing if elements are copied."""
        if self.is_copy:
            return ""
        value = "conj(x)" if self.conj else "x"
        scaled = value if self.alpha == 1 else f"{self.alpha:g} * {value}"
        reduced = scaled if self.op is None else f"{self.op} of {scaled}"
        updated = reduced if self.beta == 0 else f"{reduced} + {self.beta:g} * there"
        return updated if self.source == self.target else f"{updated}, as {self.target}"


def element_operation(
    source: npt.DTypeLike,
    target: npt.DTypeLike | None = None,
    alpha: Any = 1,
    beta: Any = 0,
    conj: Any = False,
    op: Any = None,
) -> ElementOperation:
    """
    Check a user's arguments and return their operation.

    :param target: Type of the target's elements; None: that of the source's. Conversions follow NumPy's rule
        "same_kind": never from complex to real numbers, from these to integers, or from integers to booleans; integers
        that do not fit wrap around, as with ``numpy.ndarray.astype``.
    :raises TypeError: If a type is not computed with, does not convert to another, or a factor is not of its numbers.
    :raises ValueError: If there is no such op, or ``beta`` is given with one that is not a sum.
    """
    before = np.dtype(source)
    after = before if target is None else np.dtype(target)
    for name, factor in (("alpha", alpha), ("beta", beta)):
        if isinstance(factor, str) or not np.isscalar(factor) or not np.issubdtype(np.asarray(factor).dtype, np.number):
            if not isinstance(factor, bool | np.bool_):
                raise TypeError(f"{name} must be a number, got {factor!r}")
    if not isinstance(conj, bool | np.bool_):
        raise TypeError(f"conj must be True or False, got {conj!r}")
    if op is not None and op not in OPS:
        raise ValueError(f"op must be one of {', '.join(OPS)}, or None, got {op!r}")
    if op not in (None, "sum") and beta != 0:
        raise ValueError(f"beta requires op='sum'; with op={op!r} combine the result with out in a separate step")
    made = ElementOperation(before, after, _plain("alpha", alpha), _plain("beta", beta), bool(conj), op)
    if not made.is_copy:
        _check_types(made)
    return made


def _plain(name: str, factor: Any) -> complex:
    value = complex(factor)
    if isinstance(factor, numbers.Integral) and int(value.real) != factor:
        raise ValueError(f"{name} must be a number that float64 can hold, got {factor}")
    return value if value.imag else value.real


def _check_types(operation: ElementOperation) -> None:
    for dtype in (operation.source, operation.target):
        if dtype.name not in COMPUTED_TYPES or not dtype.isnative:
            raise TypeError(
                f"elements of type {dtype} are only moved; conversion, alpha, beta, conj and op need one of "
                f"{', '.join(COMPUTED_TYPES)}"
            )
    source, target = operation.source, operation.target
    if not np.can_cast(source, target, "same_kind"):
        raise TypeError(
            f'cannot convert elements of {source} to {target} (NumPy\'s casting rule "same_kind"); convert the array '
            "before or after"
        )
    for name, factor in (("alpha", operation.alpha), ("beta", operation.beta)):
        fits = target.kind == "c" or factor.imag == 0
        if target.kind in "iu":
            limits, number = np.iinfo(target), float(factor.real)
            fits = fits and number.is_integer() and limits.min <= number <= limits.max
        if target.kind == "b":
            fits = factor == (name == "alpha")
        if not fits:
            raise TypeError(f"{name} must be a number of the target's type {target}, got {factor}")
    if operation.op in ("min", "max") and target.kind == "c":
        raise TypeError(f"op {operation.op} needs real numbers, got {target}")


def element_type(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy type of a NumPy or DaCe type; raises TypeError if its elements have no fixed size."""
    given = dtype.as_numpy_dtype() if hasattr(dtype, "as_numpy_dtype") else dtype
    try:
        if given is None:
            raise TypeError
        result: np.dtype[Any] = np.dtype(given)
    except (TypeError, ValueError, SyntaxError):
        raise TypeError(f"unknown dtype {dtype!r}: expected a NumPy type such as float64 or int32") from None
    if result.hasobject or result.itemsize == 0:
        raise TypeError(f"dtype {dtype!r} has no fixed size: expected a NumPy type such as float64 or int32")
    return result

"""Changes of a tensor on its way: axes, shape, sub-tensors, conversion, scaling, reduction. Start: Transform."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dace_redist.integers import checked_axes, checked_factor, integers

#: Types that are computed with, in the order of ``ElementType`` in the library (``element_type.hpp``), from 1 on.
COMPUTED_TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128", "float16", "bfloat16"),
)
#: Reductions, in the order of ``Reduction`` in the library, from 1 on.
OPS = ("sum", "prod", "min", "max")

#: Fields of :class:`Transform` for types on the wire and of reductions, and the order of these.
PRECISION = ("wire", "within_nodes", "accumulate", "reproducible")

#: Members of ``dr_operation`` of the library.
EncodedOperation = tuple[int, int, complex, complex, bool, int, int, bool, int, bool]

#: Pairs of types between which GPUs convert.
_CONVERTED_ON_GPUS = ({"float32", "float64"}, {"complex64", "complex128"})


class Region(NamedTuple):
    """
    Box of the source tensor that goes to a box of the target tensor.

    :param source_offset: First index of the box in the source, in the source's axes.
    :param target_offset: First index of the box in the target, in the target's axes.
    :param shape: Extents of the box, in the source's axes.
    """

    source_offset: tuple[Any, ...]
    target_offset: tuple[Any, ...]
    shape: tuple[Any, ...]

    @classmethod
    def checked(cls, region: Any, ndim: int) -> Region:
        """Return the region of a redistribution; an error names the part at fault."""
        try:
            parts = tuple(region)
        except TypeError:
            parts = ()
        if len(parts) != 3:
            raise TypeError(f"region must be (source_offset, target_offset, shape), got {region!r}")
        checked = cls(*(integers(f"region: {name}", part) for name, part in zip(cls._fields, parts, strict=True)))
        for name, part in checked._asdict().items():
            if len(part) != ndim:
                raise ValueError(f"region: {name} needs {ndim} entries, one per dimension, got {part}")
        return checked


@dataclasses.dataclass(frozen=True)
class Transform:
    """
    Elements that move, their indices in the target, and the update ``target = alpha * source + beta * target``.

    Arguments are checked here; the library checks axes and region against the extents of both tensors. Conversions
    follow NumPy's rule "same_kind": never from complex to real numbers, from these to integers, or from integers to
    booleans; integers that do not fit wrap around, as with ``numpy.ndarray.astype``.

    :param ndim: Number of dimensions of the source.
    :param dtype: Element type of the source.
    :param target_dtype: Element type of the target, to which elements are converted first; None: ``dtype``.
    :param axes: As of ``numpy.transpose``: the source axis of each target axis; None: the same order.
    :param region: (source_offset, target_offset, shape), ``ndim`` numbers each; None: the whole tensor.
    :param beta: Factor of the target, which is not read if this is 0.
    :param conj: True to conjugate the source.
    :param op: Reduction of partial results, one of :data:`OPS`; None: replicas of the source are equal.
    :param reshape: Shape to which the source, permuted by ``axes``, is reshaped in C order: the target's; None: none.
    :param wire: Name of the type, one of :data:`COMPUTED_TYPES`, of elements in messages between nodes; None: the
        smaller of the two types.
    :param within_nodes: True to round all elements to ``wire``, also those that stay within a node or on their rank.
    :param accumulate: Name of the type in which ``op`` reduces; None: ``target_dtype``.
    :param reproducible: True to reduce replicas in a binary tree of their numbers.
    :param permutes_last: True if ``axes`` permutes the tensor after the reshape, as the way back does: ``ndim`` is then
        that of the target, and ``reshape`` the shape in between.
    :raises TypeError: If axes or region are not lists of integers, a type is not computed with or not converted to
        the other, or a factor is not of the target's type.
    :raises ValueError: If the axes are not a permutation, a part of the region has another number of entries, the op
        is unknown, ``beta`` is given with one that is not a sum, both a region and a reshape are given, ``wire`` is
        larger than elements in messages are without it, or one of the last four is given without what it is for.
    """

    ndim: int
    dtype: np.dtype[Any]
    target_dtype: np.dtype[Any] = None  # type: ignore[assignment]  # set below
    axes: tuple[int, ...] | None = None
    region: Region | None = None
    alpha: complex = 1
    beta: complex = 0
    conj: bool = False
    op: str | None = None
    reshape: tuple[Any, ...] | None = None
    wire: str | None = None
    within_nodes: bool = False
    accumulate: str | None = None
    reproducible: bool = False
    permutes_last: bool = False

    def __post_init__(self) -> None:
        fields = self.__dict__  # the class is frozen
        fields["dtype"] = element_type(self.dtype)
        fields["target_dtype"] = self.dtype if self.target_dtype is None else element_type(self.target_dtype)
        fields["axes"] = checked_axes(self.axes, self.ndim)
        fields["region"] = None if self.region is None else Region.checked(self.region, self.ndim)
        if self.region is not None and self.reshape is not None:
            raise ValueError("region and reshape cannot be combined: move the region first, and reshape its result")
        for name in ("alpha", "beta"):
            fields[name] = checked_factor(name, fields[name])
        fields["conj"] = _flag("conj", self.conj)
        fields |= checked_precision(**{name: fields[name] for name in PRECISION})
        if self.op is not None and self.op not in OPS:
            raise ValueError(f"op must be one of {', '.join(OPS)}, or None, got {self.op!r}")
        if self.op not in (None, "sum") and self.beta != 0:
            raise ValueError(
                f"beta requires op='sum'; with op={self.op!r} combine the result with out in a separate step"
            )
        if not self.is_copy:
            self._check_types()
        self._check_precision()

    def _check_types(self) -> None:
        source, target = self.dtype, self.target_dtype
        for dtype in (source, target):
            if dtype.name not in COMPUTED_TYPES or not dtype.isnative:
                raise TypeError(
                    f"elements of type {dtype} are only moved; conversion, alpha, beta, conj and op need one of "
                    f"{', '.join(COMPUTED_TYPES)}"
                )
        self._check_conversion(source.name, target.name)
        for between in (self.wire, self.accumulate):
            if between is not None:
                self._check_conversion(source.name, between)
                self._check_conversion(between, target.name)
        for name, factor in (("alpha", self.alpha), ("beta", self.beta)):
            fits = target.kind == "c" or factor.imag == 0
            if target.kind in "iu":
                limits, number = np.iinfo(target), float(factor.real)
                fits = fits and number.is_integer() and limits.min <= number <= limits.max
            if target.kind == "b":
                fits = factor == (name == "alpha")
            if not fits:
                raise TypeError(f"{name} must be a number of the target's type {target}, got {factor}")
        if self.op in ("min", "max") and target.kind == "c":
            raise TypeError(f"op {self.op} needs real numbers, got {target}")

    @staticmethod
    def _check_conversion(source: str, target: str) -> None:
        before, after = ("float16" if name == "bfloat16" else name for name in (source, target))  # as ml_dtypes has it
        if not np.can_cast(before, after, "same_kind"):
            raise TypeError(
                f'cannot convert elements of {source} to {target} (NumPy\'s casting rule "same_kind"); convert the '
                "array before or after"
            )

    def _check_precision(self) -> None:
        if self.op is None and (self.accumulate or self.reproducible):
            raise ValueError("accumulate and reproducible require op, such as op='sum': nothing is reduced without")
        least = self.target_dtype.itemsize
        if self.accumulate is not None and _nbytes(self.accumulate) < least:
            raise ValueError(f"accumulate must have at least {least} bytes, as the target has, got {self.accumulate}")
        if self.within_nodes and self.wire is None:
            raise ValueError("within_nodes requires wire, the type to which elements are rounded")
        if self.wire is None:
            return
        without = min(self.dtype.itemsize, self.target_dtype.itemsize)
        if _nbytes(self.wire) > without:
            raise ValueError(f"wire must have at most {without} bytes, those of elements without it, got {self.wire}")
        if self.reproducible and not self.within_nodes:
            raise ValueError(
                "reproducible requires within_nodes=True with wire: which elements move between nodes depends on where "
                "ranks run"
            )

    @cached_property
    def is_copy(self) -> bool:
        """True if elements are only moved, nothing is computed."""
        computed = (self.dtype, self.alpha, self.beta, self.conj, self.op, self.wire)
        return computed == (self.target_dtype, 1, 0, False, None, None)

    @property
    def itemsize(self) -> int:
        """Bytes of an element in a message within a node: of the smaller one of both types, or of ``wire``."""
        return self.wire_itemsize if self.within_nodes else min(self.dtype.itemsize, self.target_dtype.itemsize)

    @property
    def wire_itemsize(self) -> int:
        """Bytes of an element in a message between nodes."""
        return min(self.dtype.itemsize, self.target_dtype.itemsize) if self.wire is None else _nbytes(self.wire)

    @property
    def result_itemsize(self) -> int:
        """Bytes of an element of the result in a message within a node, from one of its replicas to others."""
        return self.target_dtype.itemsize if self.target_dtype.kind in "fc" else self.reduced_itemsize

    @property
    def reduced_itemsize(self) -> int:
        """Bytes of an element of a sum in a buffer."""
        return self.target_dtype.itemsize if self.accumulate is None else _nbytes(self.accumulate)

    @property
    def sum_itemsize(self) -> int:
        """Bytes of an element of a sum in a message between nodes."""
        return self.wire_itemsize if self._wires_results else self.reduced_itemsize

    @property
    def forwarded_itemsize(self) -> int:
        """Bytes of an element of the result in a message between nodes, from one of its replicas to others."""
        return self.wire_itemsize if self._wires_results else self.result_itemsize

    @property
    def _wires_results(self) -> bool:
        computed = self.op is not None or (self.alpha, self.beta) != (1, 0)
        alike = self.wire is not None and _kind(self.wire) == _kind(self.accumulate or self.target_dtype.name)
        return alike and not (computed and self.within_nodes)

    @cached_property
    def encoded(self) -> tuple[Any, ...]:
        """
        Axes, region and reshape as numbers for the library: none, the axes, the axes and the parts of the region, or
        the kind of reshape and the axes.
        """
        if self.reshape is not None:
            return (-2 if self.permutes_last else -1, *self.source_axes)
        if self.region is not None:
            return (*self.source_axes, *(number for part in self.region for number in part))
        return self.axes or ()

    @cached_property
    def encoded_array(self) -> npt.NDArray[np.int64]:
        """:attr:`encoded` as an array; all its numbers are known."""
        return np.array(self.encoded, np.int64)

    @cached_property
    def encoded_operation(self) -> EncodedOperation:
        """Fields of ``dr_operation`` of the library: numbers of types, factors, conjugation, number of the op, ..."""
        if self.is_copy:
            return 0, 0, 1, 0, False, 0, 0, False, 0, False
        names = self.dtype.name, self.target_dtype.name, self.wire, self.accumulate
        source, target, wire, accumulate = (0 if name is None else COMPUTED_TYPES.index(name) + 1 for name in names)
        op = 0 if self.op is None else OPS.index(self.op) + 1
        precision = wire, self.within_nodes, accumulate, self.reproducible
        return source, target, self.alpha, self.beta, self.conj, op, *precision

    @property
    def source_axes(self) -> tuple[int, ...]:
        """Source axis of each target axis."""
        return self.axes or tuple(range(self.ndim))

    @property
    def target_axes(self) -> tuple[int, ...]:
        """Target axis of each source axis."""
        return tuple(map(self.source_axes.index, range(self.ndim)))

    def covers(self, target_shape: Sequence[int]) -> bool:
        """Check that every element of the target gets a value."""
        if self.region is None:
            return True
        extents = [self.region.shape[axis] for axis in self.source_axes]
        return 0 in target_shape or list(target_shape) == extents

    def inverse(self, shape: Sequence[int]) -> Transform:
        """
        Return the way back.

        :param shape: Shape of the source.
        :raises ValueError: If elements are scaled, added or reduced.
        :raises TypeError: If the conversion of elements has no inverse by NumPy's rule "same_kind".
        """
        if (self.alpha, self.beta, self.op) != (1, 0, None):
            raise ValueError(f"inverse: elements are not only moved and converted, but computed: {self.operation_text}")
        region = None
        if self.region is not None:
            source, target, extents = self.region
            region = Region(target, source, tuple(extents[axis] for axis in self.source_axes))
        reshape, last = None, self.reshape is not None and not self.permutes_last
        if self.reshape is not None:
            reshape = tuple(shape[axis] for axis in self.source_axes) if last else tuple(shape)
        axes = self.axes and self.target_axes
        types = self.target_dtype, self.dtype
        precision = {"wire": self.wire, "within_nodes": self.within_nodes}
        how: dict[str, Any] = {"conj": self.conj, "reshape": reshape, "permutes_last": last, **precision}
        return Transform(self.ndim, *types, axes, region, **how)

    def adjoint(self, shape: Sequence[int], shares: int, reduces: bool) -> Transform:
        """
        Return the conjugate transpose, with respect to the real part of the inner product.

        :param shape: Shape of the source.
        :param shares: Replicas of the source that get an equal share each; 1: each gets all.
        :param reduces: True if the replicas of the target are partial sums.
        :raises ValueError: If the redistribution is not linear.
        :raises TypeError: If the conversion of elements has no inverse by NumPy's rule "same_kind".
        """
        if self.op not in (None, "sum") or self.beta != 0:
            raise ValueError(
                f"adjoint: the redistribution must be linear in its source, got {self.operation_text}; plan it without "
                'beta, and with no op but "sum"'
            )
        back = dataclasses.replace(self, alpha=1, op=None, accumulate=None, reproducible=False).inverse(shape)
        alpha = self.alpha if self.conj else self.alpha.conjugate()
        sums: dict[str, Any] = {"accumulate": self.accumulate, "reproducible": self.reproducible} if reduces else {}
        return dataclasses.replace(back, alpha=alpha / shares, op="sum" if reduces else None, **sums)

    def check_on_gpu(self, source_on_gpu: bool, target_on_gpu: bool) -> None:
        """
        Check that GPUs support the conversion. The side with the larger elements converts.

        :raises TypeError: If not; names the types, and the remedy.
        """
        source, target = self.dtype, self.target_dtype
        by_gpu = target_on_gpu if source.itemsize < target.itemsize else source_on_gpu
        if by_gpu and source != target and {source.name, target.name} not in _CONVERTED_ON_GPUS:
            raise TypeError(
                f"elements cannot be converted from {source} to {target} on a GPU, only between float32 and float64, "
                "and between complex64 and complex128; convert the array on the GPU before the redistribution, or its "
                "result afterwards"
            )

    @property
    def map_text(self) -> str:
        """Text such as ``axes (1, 0), region of (3, 4) from (0, 2) to (1, 1)``; empty for the identity."""
        parts = [] if self.axes is None else [f"axes {self.axes}"]
        if self.region is not None:
            source, target, shape = self.region
            parts.append(f"region of {shape} from {source} to {target}")
        if self.reshape is not None:
            parts.insert(0 if self.permutes_last else 1, f"reshape to {self.reshape}")
        return ", ".join(parts)

    @property
    def operation_text(self) -> str:
        """Text such as ``2 * x + 1 * there, as float32``; empty if elements are copied."""
        if self.is_copy:
            return ""
        value = "conj(x)" if self.conj else "x"
        scaled = value if self.alpha == 1 else f"{self.alpha:g} * {value}"
        how = " in a tree" if self.reproducible else ""
        how += f" in {self.accumulate}" if self.accumulate else ""
        reduced = scaled if self.op is None else f"{self.op}{how} of {scaled}"
        updated = reduced if self.beta == 0 else f"{reduced} + {self.beta:g} * there"
        converted = "" if self.dtype == self.target_dtype else f", as {self.target_dtype}"
        where = "everywhere" if self.within_nodes else "between nodes"
        return f"{updated}{converted}{f', {self.wire} {where}' if self.wire else ''}"


def checked_precision(**given: Any) -> dict[str, Any]:
    """Return fields of :data:`PRECISION` with types by their names; a TypeError if one has a wrong type."""
    read = {"wire": _computed_type, "accumulate": _computed_type, "within_nodes": _flag, "reproducible": _flag}
    return {name: read[name](name, value) for name, value in given.items()}


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def _computed_type(name: str, dtype: Any) -> str | None:
    if dtype is None:
        return None
    found = dtype if isinstance(dtype, str) and dtype in COMPUTED_TYPES else element_type(dtype).name
    if found not in COMPUTED_TYPES:
        raise TypeError(f"{name} must be one of {', '.join(COMPUTED_TYPES)}, got {dtype!r}")
    return found


def _kind(name: str) -> str:
    return "f" if name == "bfloat16" else np.dtype(name).kind


def _nbytes(name: str) -> int:
    return 2 if name == "bfloat16" else np.dtype(name).itemsize


def element_type(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy type of a NumPy or DaCe type; raises TypeError if its elements have no fixed size."""
    if isinstance(dtype, np.dtype):
        result = dtype
    else:
        try:
            if dtype is None:
                raise TypeError
            result = np.dtype(dtype.as_numpy_dtype() if hasattr(dtype, "as_numpy_dtype") else dtype)
        except (TypeError, ValueError, SyntaxError):
            raise TypeError(
                f"unknown dtype {reprlib.repr(dtype)}: expected a NumPy type such as float64 or int32"
            ) from None
    if result.hasobject or result.itemsize == 0:
        raise TypeError(f"dtype {dtype!r} has no fixed size: expected a NumPy type such as float64 or int32")
    if result.subdtype is not None:
        base, shape = result.subdtype
        raise TypeError(f"dtype {result} has a shape: expected its base {base}, and axes {shape} of the tensor")
    return result

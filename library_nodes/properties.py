"""Property of nodes and descriptors that holds a distribution."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Any, get_args

import numpy as np
import sympy
from dace import properties, symbolic

from dace_redist.distribution import AnyDistribution, decode_distribution


class _Encoded(tuple[Any, ...]):
    """Numbers and symbols in which DaCe replaces symbols as in a shape, and the distribution that they encode."""

    @cached_property
    def distribution(self) -> AnyDistribution:
        """The distribution; a ValueError if the numbers that were put for symbols encode none."""
        return decode_distribution(self)

    def __deepcopy__(self, memo: Any) -> _Encoded:
        """Return itself: neither it nor a distribution changes."""
        return self


class DistributionProperty(properties.ShapeProperty):
    """Property that holds a distribution; JSON has its fields."""

    def __init__(self, **described: str) -> None:
        super().__init__(default=_Encoded(), **described)

    def __get__(self, obj: Any, objtype: type | None = None) -> Any:
        return self if obj is None else getattr(obj, self.private_name).distribution

    def __set__(self, obj: Any, value: AnyDistribution | Sequence[Any]) -> None:
        if isinstance(value, AnyDistribution):
            encoded = _Encoded(value.encoded)
            encoded.distribution = value
        elif (encoded := _Encoded(value)) == vars(obj).get(self.private_name):  # of the symbols none was replaced
            return
        setattr(obj, self.private_name, encoded)

    def to_json(self, encoded: _Encoded) -> Any:
        """Return the kind of a distribution, and its fields by name; numbers that encode none as they are."""
        try:
            distribution = encoded.distribution
        except ValueError:
            return super().to_json(encoded)
        fields = {field.name: getattr(distribution, field.name) for field in dataclasses.fields(distribution)}
        return {"kind": type(distribution).__name__} | {name: _to_json(value) for name, value in fields.items()}

    def from_json(self, value: dict[str, Any], context: Any = None) -> AnyDistribution:
        """Return a distribution."""

        def read(part: Any) -> Any:
            if isinstance(part, list):
                return [read(one) for one in part]
            is_size = isinstance(part, str) and part not in ("balanced", "ceil")
            return super(DistributionProperty, self).from_json([part], context)[0] if is_size else part

        fields = {name.removesuffix("_of_tile"): read(part) for name, part in value.items() if name != "kind"}
        return next(kind for kind in get_args(AnyDistribution) if kind.__name__ == value["kind"])(**fields)


def _to_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_to_json(one) for one in value]
    if isinstance(value, sympy.Basic):
        return symbolic.serialize_symbolic(value)
    return value.tolist() if isinstance(value, np.ndarray) else value

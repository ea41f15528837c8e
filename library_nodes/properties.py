"""Property of nodes and descriptors that holds a distribution."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import sympy
from dace import properties, symbolic

from dace_redist.distribution import AnyDistribution, decode_distribution


class DistributionProperty(properties.ShapeProperty):
    """
    Property that holds a distribution; JSON has its fields.

    A node keeps the numbers and symbols that encode it, in which DaCe replaces symbols as in a shape.
    """

    def __get__(self, obj: Any, objtype: type | None = None) -> Any:
        return self if obj is None else decode_distribution(super().__get__(obj, objtype))

    def __set__(self, obj: Any, value: AnyDistribution | Sequence[Any]) -> None:
        super().__set__(obj, value.encoded if isinstance(value, AnyDistribution) else value)

    def to_json(self, encoded: Sequence[Any]) -> Any:
        """Return the kind of a distribution, and its fields by name; numbers that encode none as they are."""
        try:
            distribution = decode_distribution(encoded)
        except ValueError:
            return super().to_json(encoded)
        fields = {field.name: getattr(distribution, field.name) for field in dataclasses.fields(distribution)}
        return {"kind": type(distribution).__name__} | {name: _to_json(value) for name, value in fields.items()}

    def from_json(self, value: Any, context: Any = None) -> Any:
        """Return a distribution, or numbers that encode one."""
        if not isinstance(value, dict):
            return super().from_json(value, context)

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

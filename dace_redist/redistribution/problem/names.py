"""Tensors by name: lists in the places of dicts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_named(*values: Any) -> bool:
    """Return True if any of the values is a dict."""
    return any(isinstance(value, Mapping) for value in values)


def by_name(values: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """
    Return the names of tensors in alphabetical order, and the values with lists in the place of dicts.

    :param values: Arguments of a call; None, and arguments that are not of each tensor, stay as they are.
    :raises ValueError: If the dicts have different names, or none.
    :raises TypeError: If an argument that must be a dict is something else.
    """
    first, given = next((key, value) for key, value in values.items() if isinstance(value, Mapping))
    names = tuple(sorted(given, key=str))
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"{first} must have names, at least one, got {list(given)}")
    return names, {key: _listed(key, value, names, first) for key, value in values.items()}


def _listed(key: str, value: Any, names: tuple[str, ...], first: str) -> Any:
    if isinstance(value, Mapping):
        if value.keys() != set(names):
            wrong = ", ".join(map(repr, sorted(value.keys() ^ set(names), key=str)))
            raise ValueError(f"{key} must have the names of {first}; only one of the two has {wrong}")
        return [value[name] for name in names]
    if value is not None and key in ("array", "source", "target", "out"):
        raise TypeError(f"{key} must be a dict with the names of {first}, got {type(value).__name__}")
    return value

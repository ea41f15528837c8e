"""Tensors by name: lists in the places of dicts."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Set
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
    ordered = _ordered(tuple(given))
    if ordered is None:
        raise ValueError(f"{first} must have names, at least one, got {list(given)}")
    names, found = ordered
    return names, {key: _listed(key, value, names, found, first) for key, value in values.items()}


@functools.lru_cache(64)
def _ordered(given: tuple[Any, ...]) -> tuple[tuple[str, ...], Set[str]] | None:
    """Return names in alphabetical order, and their set; None if there are none, or one is no name."""
    if not given or not all(isinstance(name, str) and name for name in given):
        return None
    return tuple(sorted(given)), frozenset(given)


def _listed(key: str, value: Any, names: tuple[str, ...], found: Set[str], first: str) -> Any:
    if isinstance(value, Mapping):
        if value.keys() != found:
            wrong = ", ".join(map(repr, sorted(value.keys() ^ found, key=str)))
            raise ValueError(f"{key} must have the names of {first}; only one of the two has {wrong}")
        return [value[name] for name in names]
    if value is not None and key in ("array", "source", "target", "out"):
        raise TypeError(f"{key} must be a dict with the names of {first}, got {type(value).__name__}")
    return value

"""Tensors by name: lists in the places of dicts."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
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
    names, pick = ordered
    return names, {key: _listed(key, value, names, pick, first) for key, value in values.items()}


@functools.lru_cache(64)
def _ordered(given: tuple[Any, ...]) -> tuple[tuple[str, ...], Callable[[Any], Any]] | None:
    """Return names in alphabetical order, and what picks their values; None if there are none, or one is no name."""
    if not given or not all(isinstance(name, str) and name for name in given):
        return None
    names = sorted(given)
    return tuple(names), operator.itemgetter(*names) if len(names) > 1 else lambda value: (value[names[0]],)


def _listed(key: str, value: Any, names: tuple[str, ...], pick: Callable[[Any], Any], first: str) -> Any:
    if isinstance(value, Mapping):
        try:  # dicts of a thousand names: no comparison of the names, as each is looked up
            if len(value) == len(names) and (type(value) is dict or value.keys() == {*names}):
                return [*pick(value)]
        except KeyError:
            pass
        wrong = ", ".join(map(repr, sorted(value.keys() ^ {*names}, key=str)))
        raise ValueError(f"{key} must have the names of {first}; only one of the two has {wrong}")
    if value is not None and key in ("array", "source", "target", "out"):
        raise TypeError(f"{key} must be a dict with the names of {first}, got {type(value).__name__}")
    return value

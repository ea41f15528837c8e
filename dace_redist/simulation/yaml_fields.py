"""Reads a YAML file field by field; errors name the line, what was expected and what was given. Start at: Fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import yaml

Value = TypeVar("Value")
Reader = Callable[[Any], Value]

_POWERS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_BYTES_PER_SECOND = {
    f"{prefix}{unit}": power * nbytes
    for prefix, power in _POWERS.items()
    for unit, nbytes in (("B/s", 1.0), ("bit/s", 0.125))
}
_FLOPS = {f"{prefix}FLOP/s": power for prefix, power in _POWERS.items()}


class Fields:
    """
    The fields of a mapping in a YAML file, each of which is taken once.

    :param node: The mapping, as ``yaml.compose`` returns it.
    :param where: What the mapping is, for errors: the file, and the field that it is the value of.
    :raises ValueError: If it is no mapping, or has a field twice.
    """

    def __init__(self, node: yaml.Node, where: str) -> None:
        self._where, self._line = where, node.start_mark.line + 1
        if not isinstance(node, yaml.MappingNode):
            raise ValueError(f"{self.at(node)}: expected fields such as 'nodes: 4', got {_text(node)}")
        self._left: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = str(key.value)
            if name in self._left:
                raise ValueError(f"{self.at(key)}: {name} is given twice")
            self._left[name] = value

    def at(self, node: yaml.Node | None = None) -> str:
        """Where a value stands, for errors; of none given the mapping."""
        return f"{self._where}, line {self._line if node is None else node.start_mark.line + 1}"

    def take(self, name: str, read: Reader[Value], expected: str, default: Any = ...) -> Value:
        """
        The value of a field.

        :param name: Its name.
        :param read: Makes the value of what YAML has; a ValueError or TypeError says that it cannot.
        :param expected: What is expected, for errors, such as ``a rate such as 10 GB/s``.
        :param default: Value of a field that is missing; ``...``: it must not be.
        :raises ValueError: If it is missing, or wrong; names the line.
        """
        if name not in self._left:
            if default is ...:
                raise ValueError(f"{self.at()}: {name} is missing, expected {expected}")
            return default  # type: ignore[no-any-return]
        node = self._left.pop(name)
        try:
            return read(yaml.SafeLoader("").construct_object(node, deep=True))
        except (ValueError, TypeError, yaml.YAMLError):
            raise ValueError(f"{self.at(node)}: {name} must be {expected}, got {_text(node)}") from None

    def take_fields(self, name: str) -> Fields | None:
        """The fields of a mapping within this one; None if there is none."""
        node = self._left.pop(name, None)
        return None if node is None else Fields(node, self._where)

    def end(self, known: Sequence[str] = ()) -> None:
        """
        Check that nothing is left.

        :param known: Names of all fields, for the error.
        :raises ValueError: If there is a field that nobody took.
        """
        for name, node in self._left.items():
            names = f"; expected are {', '.join(known)}" if known else ""
            raise ValueError(f"{self.at(node)}: {name} is unknown here{names}")


def _text(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return repr(node.value)
    return "a list" if isinstance(node, yaml.SequenceNode) else "fields"


def whole(least: int = 1) -> Reader[int]:
    """Reads a whole number of at least so many."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError
        return value

    return read


def positive(value: Any) -> float:
    """Reads a finite number above 0."""
    return _checked(value, {})


def rate(value: Any) -> float:
    """Reads bytes per second: a number, or one with a unit such as ``10 GB/s`` or ``100 Gbit/s``."""
    return _checked(value, _BYTES_PER_SECOND)


def seconds(value: Any) -> float:
    """Reads a time: a number of seconds, or one with a unit such as ``1.3 us``."""
    return _checked(value, _SECONDS)


def flops(value: Any) -> float:
    """Reads operations per second: a number, or one with a unit such as ``40 GFLOP/s``."""
    return _checked(value, _FLOPS)


def whole_list(value: Any) -> tuple[int, ...]:
    """Reads whole numbers, each at least 1."""
    if not isinstance(value, list) or not value:
        raise ValueError
    return tuple(map(whole(), value))


def word(value: Any) -> str:
    """Reads a text that is not empty."""
    if not isinstance(value, str | int) or not str(value).strip():
        raise ValueError
    return str(value).strip()


def _checked(value: Any, units: Mapping[str, float]) -> float:
    if isinstance(value, str):
        found = re.fullmatch(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*(\S*)\s*", value)
        if found is None or (found[2] and found[2] not in units):
            raise ValueError
        value = float(found[1]) * (units[found[2]] if found[2] else 1.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError
    return float(value)

"""Reads a YAML file field by field; errors name the line, what was expected and what was given. Start at: Fields."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
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

#: What the readers of numbers with a unit take, for errors.
A_RATE = "a rate from 1 kB/s to 1e6 TB/s with its unit, such as 10 GB/s or 100 Gbit/s"
A_TIME = "a time above 0 and at most 1000 s with its unit, such as 1.3 us"
OPERATIONS = "above 0 with its unit, such as 40 GFLOP/s"


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
        self._values: dict[str, yaml.Node] = {}
        self._known: list[str] = []  # names asked for
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else _text(key)
            if name in self._values:
                raise ValueError(f"{self.at(key)}: {name} is given twice")
            self._values[name] = value

    def at(self, node: yaml.Node | None = None) -> str:
        """Where a value stands, for errors; of none given the mapping."""
        return f"{self._where}, line {self._line if node is None else node.start_mark.line + 1}"

    def at_field(self, name: str) -> str:
        """Where the value of a field stands, for errors; of one that is missing the mapping."""
        return self.at(self._values.get(name))

    def take(self, name: str, read: Reader[Value], expected: str, default: Any = ...) -> Value:
        """
        The value of a field.

        :param name: Its name.
        :param read: Makes the value of what YAML has; a ValueError or TypeError says that it cannot.
        :param expected: What is expected, for errors, such as ``a rate such as 10 GB/s``.
        :param default: Value of a field that is missing; ``...``: it must not be.
        :raises ValueError: If it is missing, or wrong; names the line.
        """
        self._known.append(name)
        if name not in self._values:
            if default is ...:
                raise ValueError(f"{self.at()}: {name} is missing, expected {expected}")
            return default  # type: ignore[no-any-return]
        node = self._values[name]
        try:
            return read(yaml.SafeLoader("").construct_object(node, deep=True))
        except (ValueError, TypeError, yaml.YAMLError):
            raise ValueError(f"{self.at(node)}: {name} must be {expected}, got {_text(node)}") from None

    def take_fields(self, name: str) -> Fields | None:
        """The fields of a mapping within this one; None if there is none."""
        self._known.append(name)
        node = self._values.get(name)
        return None if node is None else Fields(node, self._where)

    def end(self) -> None:
        """
        Check that nothing is left.

        :raises ValueError: If there is a field that nobody took; names those that were asked for.
        """
        for name, node in self._values.items():
            if name not in self._known:
                known = ", ".join(self._known)
                raise ValueError(f"{self.at(node)}: {name} is unknown here; expected are {known}")


def read(path: Path, where: str) -> yaml.Node:
    """
    What a YAML file holds, for :class:`Fields`.

    :param path: Path of the file.
    :param where: What it is, for errors.
    :raises ValueError: If it is no YAML, or empty.
    :raises OSError: If it cannot be read.
    """
    try:
        node = yaml.compose(path.read_text(), yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{where} is no YAML: {' '.join(str(error).split())}") from None
    if node is None:
        raise ValueError(f"{where} is empty, expected fields such as 'nodes: 4'")
    return node


def _text(node: yaml.Node) -> str:
    """A value as it is written, in short: what a list or a field contains may be long, or contain itself."""
    if isinstance(node, yaml.SequenceNode):
        entries = [one.value if isinstance(one, yaml.ScalarNode) else "..." for one in node.value]
        return textwrap.shorten(f"[{', '.join(entries)}]", 60, placeholder=" ...]")
    return repr(node.value) if isinstance(node, yaml.ScalarNode) else "fields"


def whole(least: int = 1) -> Reader[int]:
    """Reads a whole number of at least so many."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError
        return value

    return read


def positive(value: Any) -> float:
    """Reads a finite number above 0."""
    return _checked(float(value) if isinstance(value, str) else value)  # YAML takes 1e3 for a text


def rate(value: Any) -> float:
    """Reads bytes per second, see :data:`A_RATE`."""
    return _checked(_with_unit(value, _BYTES_PER_SECOND), 1e3, 1e18)


def seconds(value: Any) -> float:
    """Reads a time in seconds, see :data:`A_TIME`."""
    return _checked(_with_unit(value, _SECONDS), most=1e3)


def flops(value: Any) -> float:
    """Reads operations per second, see :data:`OPERATIONS`."""
    return _checked(_with_unit(value, _FLOPS))


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


def _with_unit(value: Any, units: Mapping[str, float]) -> float:
    found = re.fullmatch(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*(\S+)\s*", value) if isinstance(value, str) else None
    if found is None or found[2] not in units:
        raise ValueError
    return float(found[1]) * units[found[2]]


def _checked(value: Any, least: float = 0.0, most: float = float("inf")) -> float:
    """A number above 0 and below infinity, within limits."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError
    if not least <= value <= most:
        raise ValueError
    return float(value)

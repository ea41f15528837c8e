"""
Reads machine files: YAML that pydantic models describe. Errors name the line, what was expected, and what was given.

Start reading at: Mapped.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pydantic
import yaml
from pydantic import BeforeValidator, Field

_POWERS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_BYTES_PER_SECOND = {
    f"{p}{unit}": power * n for p, power in _POWERS.items() for unit, n in (("B/s", 1), ("bit/s", 0.125))
}
_FLOPS = {f"{prefix}FLOP/s": power for prefix, power in _POWERS.items()}

A_RATE = "a rate from 1 kB/s to 1e6 TB/s with its unit, such as 10 GB/s or 100 Gbit/s"
A_TIME = "a time above 0 and at most 1000 s with its unit, such as 1.3 us"
OPERATIONS = "above 0 with its unit, such as 40 GFLOP/s"


def _with_unit(units: Mapping[str, float]) -> BeforeValidator:
    """Reads a number with one of these units."""

    def read(value: Any) -> float:
        found = re.fullmatch(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*(\S+)\s*", value) if isinstance(value, str) else None
        if found is None or found[2] not in units:
            raise ValueError
        return float(found[1]) * units[found[2]]

    return BeforeValidator(read)


def _no_truth(value: Any) -> Any:
    if isinstance(value, bool):  # else 1.0
        raise ValueError
    return value


def _word(value: Any) -> str:
    if not isinstance(value, str | int) or not str(value).strip():
        raise ValueError
    return str(value).strip()


Whole = Annotated[int, Field(strict=True, ge=1)]
Wholes = Annotated[tuple[Whole, ...], Field(min_length=1)]
Positive = Annotated[float, BeforeValidator(_no_truth), Field(gt=0, allow_inf_nan=False)]
Word = Annotated[str, BeforeValidator(_word)]
Rate = Annotated[float, _with_unit(_BYTES_PER_SECOND), Field(ge=1e3, le=1e18)]
Time = Annotated[float, _with_unit(_SECONDS), Field(gt=0, le=1e3)]
Flops = Annotated[float, _with_unit(_FLOPS), Field(gt=0, allow_inf_nan=False)]


class Fields(pydantic.BaseModel):
    """The fields of a mapping; descriptions are for errors, and name other fields in braces."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


_Model = TypeVar("_Model", bound=Fields)


class Mapped:
    """A mapping of a YAML file ``where``, for errors that name a line."""

    def __init__(self, node: yaml.Node, where: str) -> None:
        self.node, self.where = node, where
        if not isinstance(node, yaml.MappingNode):
            raise ValueError(f"{self.at()}: expected fields such as 'nodes: 4', got {text(node)}")
        self.values: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else text(key)
            if name in self.values:
                raise ValueError(f"{self.at(key)}: {name} is given twice")
            self.values[name] = value

    def at(self, node: yaml.Node | None = None) -> str:
        """Return the file and the line of a value, by default of the mapping."""
        return f"{self.where}, line {(node or self.node).start_mark.line + 1}"

    def plain(self, name: str) -> Any:
        """Return the value of a field; a value that YAML cannot make is invalid for every field."""
        try:
            return yaml.SafeLoader("").construct_object(self.values[name], deep=True)
        except (ValueError, yaml.YAMLError):
            return object()

    def read(self, model: type[_Model]) -> _Model:
        """Return the mapping as a model; a ValueError names the line of a field that is missing, unknown or wrong."""
        plain = {name: self.plain(name) for name in self.values}
        try:
            return model.model_validate(plain)
        except pydantic.ValidationError as error:
            wrong = error.errors()[0]
        name = str(wrong["loc"][0])
        fields = {field.alias or key: field for key, field in model.model_fields.items()}
        if name not in fields:
            known = ", ".join(fields)
            raise ValueError(f"{self.at(self.values[name])}: {name} is unknown here; expected are {known}")
        expected = str(fields[name].description).format_map(plain)
        if name not in self.values:
            raise ValueError(f"{self.at()}: {name} is missing, expected {expected}")
        raise ValueError(f"{self.at(self.values[name])}: {name} must be {expected}, got {text(self.values[name])}")


def compose(path: Path, where: str) -> yaml.Node:
    """Return the content of a YAML file, ``where`` in errors; a ValueError if it is not YAML, or empty."""
    try:
        node = yaml.compose(path.read_text(), yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from None
    if node is None:
        raise ValueError(f"{where} is empty, expected fields such as 'nodes: 4'")
    return node


def text(node: yaml.Node) -> str:
    """A value as it is written, in short: the content of a list or a field may be long, or contain itself."""
    if isinstance(node, yaml.SequenceNode):
        entries = [one.value if isinstance(one, yaml.ScalarNode) else "..." for one in node.value]
        return textwrap.shorten(f"[{', '.join(entries)}]", 60, placeholder=" ...]")
    return repr(node.value) if isinstance(node, yaml.ScalarNode) else "fields"

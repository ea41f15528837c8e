"""
Reads machine files: YAML that pydantic models describe. Errors name the line, what was expected, and what was given.

Start reading at: read_yaml.
"""

from __future__ import annotations

import re
import textwrap
from collections import abc
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
OPERATIONS = "from 1 FLOP/s to 1e9 TFLOP/s with its unit, such as 40 GFLOP/s"


def _with_unit(units: abc.Mapping[str, float]) -> BeforeValidator:
    """Reads a number with one of these units."""

    def read(value: Any) -> float:
        found = re.fullmatch(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*(\S+)\s*", value) if isinstance(value, str) else None
        if found is None or found[2] not in units:
            raise ValueError
        return float(found[1]) * units[found[2]]

    return BeforeValidator(read)


def _whole(value: Any) -> Any:
    if not re.fullmatch(r"[+-]?[0-9_]+", str(value)):  # else 8.0 is taken
        raise ValueError
    return value


Whole = Annotated[int, BeforeValidator(_whole), Field(ge=1)]
Wholes = Annotated[tuple[Whole, ...], Field(min_length=1, max_length=32)]
Cores = Annotated[float, Field(ge=1e-3, le=1e6)]
Word = Annotated[str, pydantic.StringConstraints(strip_whitespace=True, min_length=1)]
Rate = Annotated[float, _with_unit(_BYTES_PER_SECOND), Field(ge=1e3, le=1e18)]
Time = Annotated[float, _with_unit(_SECONDS), Field(gt=0, le=1e3)]
Flops = Annotated[float, _with_unit(_FLOPS), Field(ge=1, le=1e21)]


class Fields(pydantic.BaseModel):
    """The fields of a mapping; descriptions are for errors, and name other fields in braces."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


_Model = TypeVar("_Model", bound=Fields)
_NOTHING = ("", "~", "null", "Null", "NULL")


class Mapping(dict[str, Any]):
    """
    The fields of a mapping in a YAML file, for errors that name a line.

    Values are as they are written; None where there is none, which counts as a missing field.
    """

    def __init__(self, node: yaml.Node, loader: _Loader) -> None:
        self._where, self._line, self._lines = loader.where, node.start_mark.line, dict[str, int]()
        if not isinstance(node, yaml.MappingNode):
            raise ValueError(not_fields(self.at(), loader.construct_object(node, deep=True)))
        for key, value in node.value:
            read = loader.construct_object(key, deep=True)
            name = read if isinstance(read, str) else text(read)
            if name in self:
                raise ValueError(f"{self._where}, line {key.start_mark.line + 1}: {name} is given twice")
            nothing = isinstance(value, yaml.ScalarNode) and value.style is None and value.value in _NOTHING
            self[name] = None if nothing else loader.construct_object(value, deep=True)
            self._lines[name] = value.start_mark.line

    def at(self, name: str = "") -> str:
        """Return the file and the line of a field; of the mapping, if it is not given."""
        return f"{self._where}, line {self._lines.get(name, self._line) + 1}"

    def read(self, model: type[_Model]) -> _Model:
        """Return the mapping as a model; a ValueError names the line of a field that is missing, unknown or wrong."""
        try:
            return model.model_validate({name: value for name, value in self.items() if value is not None})
        except pydantic.ValidationError as error:
            names = [str(one["loc"][0]) for one in error.errors()]
        fields = {field.alias or key: field for key, field in model.model_fields.items()}
        name = next((name for name in names if name not in fields), names[0])  # a misspelled one is missing, too
        if name not in fields:
            raise ValueError(f"{self.at(name)}: {name} is unknown here; expected are {', '.join(fields)}")
        expected = str(fields[name].description).format_map({key: text(value) for key, value in self.items()})
        if name not in self:
            raise ValueError(f"{self.at()}: {name} is missing, expected {expected}")
        raise ValueError(f"{self.at(name)}: {name} must be {expected}, got {text(self[name])}")


class _Loader(yaml.BaseLoader):  # type: ignore[misc]
    """Reads mappings with the lines of their fields; scalars stay text."""

    where = ""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Mapping:
        return Mapping(node, self)


def read_yaml(path: Path) -> Mapping:
    """Return the fields of a machine file; a ValueError if it is not YAML, empty, or has no fields."""
    where = f"machine file {path}"
    try:
        loader = _Loader(path.read_bytes())
        loader.where = where
        node = loader.get_single_node()
        if node is None:
            raise ValueError(f"{where} is empty, expected fields such as 'nodes: 4'")
        return Mapping(node, loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from None


def not_fields(where: str, value: Any) -> str:
    """Return the text of an error about a value in the place of a mapping."""
    return f"{where}: expected fields such as 'nodes: 4', got {text(value)}"


def text(value: Any) -> str:
    """Return a value as it is written, in short: the content of a list or of a field may be long."""
    if isinstance(value, list):
        entries = [one if isinstance(one, str) else "..." for one in value]
        return textwrap.shorten(f"[{', '.join(entries)}]", 60, placeholder=" ...]")
    if value is None or isinstance(value, str):
        value = value or ""
        return repr(value if len(value) <= 60 else f"{value[:56]} ...")
    return "fields"

"""
Reads machine files: YAML that pydantic models describe. Errors name the line, what was expected, and what was given.

Start reading at: read_machine.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pydantic
import yaml
from pydantic import AfterValidator, BeforeValidator, Field

from dace_redist.simulation.network import Dragonfly, FatTree, Network, Torus

_POWERS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_BYTES_PER_SECOND = {
    f"{p}{unit}": power * n for p, power in _POWERS.items() for unit, n in (("B/s", 1), ("bit/s", 0.125))
}
_FLOPS = {f"{prefix}FLOP/s": power for prefix, power in _POWERS.items()}

_A_RATE = "a rate from 1 kB/s to 1e6 TB/s with its unit, such as 10 GB/s or 100 Gbit/s"
_A_TIME = "a time above 0 and at most 1000 s with its unit, such as 1.3 us"
_OPERATIONS = "above 0 with its unit, such as 40 GFLOP/s"


def _checked(value: Any, least: float = 0.0, most: float = float("inf")) -> float:
    """A number above 0 and below infinity, within limits."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError
    if not least <= value <= most:
        raise ValueError
    return float(value)


def _with_unit(units: Mapping[str, float], least: float = 0.0, most: float = float("inf")) -> BeforeValidator:
    """Reads a number with one of these units."""

    def read(value: Any) -> float:
        found = re.fullmatch(r"\s*([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*(\S+)\s*", value) if isinstance(value, str) else None
        if found is None or found[2] not in units:
            raise ValueError
        return _checked(float(found[1]) * units[found[2]], least, most)

    return BeforeValidator(read)


def _positive(value: Any) -> float:
    return _checked(float(value) if isinstance(value, str) else value)  # YAML takes 1e3 for a text


def _word(value: Any) -> str:
    if not isinstance(value, str | int) or not str(value).strip():
        raise ValueError
    return str(value).strip()


Whole = Annotated[int, Field(strict=True, ge=1)]
Wholes = Annotated[tuple[Whole, ...], Field(min_length=1)]
Positive = Annotated[float, BeforeValidator(_positive)]
Word = Annotated[str, BeforeValidator(_word)]
Rate = Annotated[float, _with_unit(_BYTES_PER_SECOND, 1e3, 1e18)]
Time = Annotated[float, _with_unit(_SECONDS, most=1e3)]
Flops = Annotated[float, _with_unit(_FLOPS)]


class _Fields(pydantic.BaseModel):
    """The fields of a mapping; descriptions are for errors, and name other fields in braces."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class MachineFile(_Fields):
    """A machine file, with its network unread."""

    name: Word | None = Field(None, description="a name")
    nodes: Whole | None = Field(None, description="the number of nodes, at least 1")
    cores: Positive = Field(description="the number of cores of a node, above 0")
    flops: Flops = Field(description=f"what a core computes, {_OPERATIONS}")
    memory: Rate = Field(description=f"what all cores of a node read and write, {_A_RATE}")
    copies: Rate | None = Field(None, alias="copy", description=f"what a core copies, {_A_RATE}")
    profile: Word | None = Field(None, description="the path of a machine profile, see dace-redist calibrate")
    network: Any = Field(None, description="fields of a network")


class _Network(_Fields):
    """The fields of every network."""

    kind: str
    link: Rate = Field(description=f"the rate of a node's link, {_A_RATE}")
    latency: Time = Field(description=f"what a message between two nodes takes, {_A_TIME}")
    hop: Time = Field(1e-7, description=f"what each further link on the way adds, {_A_TIME}")


def _as_long_as_down(up: tuple[int, ...], info: pydantic.ValidationInfo) -> tuple[int, ...]:
    if len(up) != len(info.data.get("down", up)) or up[0] != 1:
        raise ValueError
    return up


Up = Annotated[Wholes, AfterValidator(_as_long_as_down)]
_FURTHER_LINK = (Rate | None, Field(None, description=_A_RATE))  # by default as fast as the node's


def _number(what: str, least: int = 1) -> tuple[Any, Any]:
    return int, Field(strict=True, ge=least, description=f"the number of {what}, at least {least}")


def _list(of: Any, expected: str) -> tuple[Any, Any]:
    return of, Field(description=f"a list {expected}")


_NETWORKS: dict[str, dict[str, tuple[Any, Any]]] = {
    "switch": {"ports": _number("nodes at the switch", 2)},
    "fat-tree": {
        "down": _list(Wholes, "such as [16, 32]: per level what is below each switch"),
        "up": _list(Up, "as long as down, {down}, the first 1: per level how many switches are above"),
        "trunk": _FURTHER_LINK,
    },
    "dragonfly": {
        "groups": _number("groups"),
        "chassis": _number("chassis of a group"),
        "routers": _number("routers of a chassis"),
        "nodes_per_router": _number("nodes at a router"),
        "cables": _number("cables between two groups"),
        "chassis_link": _FURTHER_LINK,
        "group_link": _FURTHER_LINK,
        "cable": _FURTHER_LINK,
    },
    "torus": {"dims": _list(Wholes, "such as [8, 8, 8]: nodes along each dimension"), "trunk": _FURTHER_LINK},
}
_KINDS: dict[str, type[_Network]] = {
    kind: pydantic.create_model(kind, __base__=_Network, **fields)  # type: ignore[call-overload]
    for kind, fields in _NETWORKS.items()
}


def _network(file: _Network) -> Network:
    link = file.link
    values = {name: link if value is None else value for name, value in file.model_dump(exclude={"kind"}).items()}
    if file.kind == "switch":
        values |= {"down": (values.pop("ports"),), "up": (1,), "trunk": link}
    made: dict[str, type[Network]] = {"dragonfly": Dragonfly, "torus": Torus}
    return made.get(file.kind, FatTree)(**values)


_Model = TypeVar("_Model", bound=_Fields)


class _Mapping:
    """A mapping of a YAML file ``where``, for errors that name a line."""

    def __init__(self, node: yaml.Node, where: str) -> None:
        self.node, self.where = node, where
        if not isinstance(node, yaml.MappingNode):
            raise ValueError(f"{self.at()}: expected fields such as 'nodes: 4', got {_text(node)}")
        self.values: dict[str, yaml.Node] = {}
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else _text(key)
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
        raise ValueError(f"{self.at(self.values[name])}: {name} must be {expected}, got {_text(self.values[name])}")


def compose(path: Path, where: str) -> yaml.Node:
    """Return the content of a YAML file, ``where`` in errors; a ValueError if it is not YAML, or empty."""
    try:
        node = yaml.compose(path.read_text(), yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{where} is no YAML: {' '.join(str(error).split())}") from None
    if node is None:
        raise ValueError(f"{where} is empty, expected fields such as 'nodes: 4'")
    return node


def read_machine(path: Path) -> tuple[MachineFile, int, Network | None, str]:
    """
    Read a machine file: its fields, the number of nodes, the network, and the place of ``profile`` for errors.

    A ValueError about a value that is missing, unknown or impossible names the file and the line.
    """
    where = f"machine file {path}"
    top = _Mapping(compose(path, where), where)
    file, network = top.read(MachineFile), None
    at_nodes = top.at(top.values.get("nodes"))
    if "network" in top.values:
        described = _Mapping(top.values["network"], where)
        kind = described.plain("kind") if "kind" in described.values else None
        if not isinstance(kind, str) or kind not in _KINDS:
            given = described.values.get("kind")
            wrong = "is missing, expected" if given is None else "must be"
            got = "" if given is None else f", got {_text(given)}"
            raise ValueError(f"{described.at(given)}: kind {wrong} one of {', '.join(_KINDS)}{got}")
        network = _network(described.read(_KINDS[kind]))
    connected = 1 if network is None else network.nodes
    nodes = file.nodes or connected
    if network is None and nodes > 1:
        expected = f"expected one for {nodes} nodes, with kind, link and latency"
        raise ValueError(f"{at_nodes}: network is missing, {expected}")
    if nodes > connected:
        raise ValueError(f"{at_nodes}: nodes must be at most {connected}, which the network connects, got {nodes}")
    return file, nodes, network, top.at(top.values.get("profile"))


def _text(node: yaml.Node) -> str:
    """A value as it is written, in short: the content of a list or a field may be long, or contain itself."""
    if isinstance(node, yaml.SequenceNode):
        entries = [one.value if isinstance(one, yaml.ScalarNode) else "..." for one in node.value]
        return textwrap.shorten(f"[{', '.join(entries)}]", 60, placeholder=" ...]")
    return repr(node.value) if isinstance(node, yaml.ScalarNode) else "fields"

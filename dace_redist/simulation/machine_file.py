"""
Reads machine files: YAML that pydantic models describe. Errors name the line, what was expected, and what was given.

Start reading at: read_machine.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any, TypeVar

import pydantic
import yaml
from pydantic import Field

from dace_redist.simulation.network import KINDS, Network
from dace_redist.simulation.quantities import A_RATE, OPERATIONS, Fields, Flops, Positive, Rate, Whole, Word


class MachineFile(Fields):
    """A machine file, with its network unread."""

    name: Word | None = Field(None, description="a name")
    nodes: Whole | None = Field(None, description="the number of nodes, at least 1")
    cores: Positive = Field(description="the number of cores of a node, above 0")
    flops: Flops = Field(description=f"what a core computes, {OPERATIONS}")
    memory: Rate = Field(description=f"what all cores of a node read and write, {A_RATE}")
    copies: Rate | None = Field(None, alias="copy", description=f"what a core copies, {A_RATE}")
    profile: Word | None = Field(None, description="the path of a machine profile, see dace-redist calibrate")
    network: Any = Field(None, description="fields of a network")


_Model = TypeVar("_Model", bound=Fields)


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
        raise ValueError(f"{where} is not valid YAML: {' '.join(str(error).split())}") from None
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
        if not isinstance(kind, str) or kind not in KINDS:
            given = described.values.get("kind")
            wrong = "is missing, expected" if given is None else "must be"
            got = "" if given is None else f", got {_text(given)}"
            raise ValueError(f"{described.at(given)}: kind {wrong} one of {', '.join(KINDS)}{got}")
        network = described.read(KINDS[kind])
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

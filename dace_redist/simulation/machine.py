"""Descriptions of machines: nodes, cores, rates and the network between nodes, from a short file. Start at: Machine."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
from functools import cached_property
from pathlib import Path

import numpy as np
from pydantic import Field

from dace_redist.report.units import count
from dace_redist.simulation.machine_file import (
    A_RATE,
    OPERATIONS,
    Cores,
    Fields,
    Flops,
    Mapping,
    Rate,
    Whole,
    Word,
    not_fields,
    read_yaml,
    text,
)
from dace_redist.simulation.network import KINDS, Array, Network
from dace_redist.tuning import profile as machine_profile
from dace_redist.tuning.profile import Curve, MachineProfile, NetworkRates

_SHIPPED = Path(__file__).with_name("machines")
_LONGEST = 1 << 24  # bytes; beyond, a message takes what its rate says
_MAX_LINKS = 20_000_000  # each is a number in memory


class Machine(Fields):
    """A machine as its file describes it; :meth:`load` reads it. Rates are in bytes per second."""

    name: Word = Field(description="a name")
    nodes: Whole = Field(description="the number of nodes, at least 1")
    #: A fraction where nodes share cores, as emulated ones do.
    cores: Cores = Field(description="the number of cores of a node, from 0.001 to a million")
    #: In contractions.
    flops: Flops = Field(description=f"what a core computes, {OPERATIONS}")
    memory: Rate = Field(description=f"what all cores of a node read and write, {A_RATE}")
    #: None: as in the profile.
    core_copy: Rate | None = Field(None, alias="copy", description=f"what a core copies, {A_RATE}")
    #: Rates of copies, and of messages on a node.
    profile: MachineProfile = Field(
        default_factory=machine_profile.default_profile,
        description="the path of a machine profile, see dace-redist calibrate",
    )
    #: None: there is one node.
    network: Network | None = Field(None, description="fields of a network")

    @classmethod
    def load(cls, given: str | os.PathLike[str] | Machine) -> Machine:
        """
        Read a description: a YAML file, or a machine of the package, see :func:`names`; a machine is returned as it is.

        :raises ValueError: If a value is missing, unknown or impossible; names the file and the line.
        :raises FileNotFoundError: If there is neither such a file nor such a machine; names the machines.
        """
        if isinstance(given, Machine):
            return given
        path = Path(given)
        if not path.exists() and str(given) in names():
            path = _SHIPPED / f"{given}.yaml"
        if not path.is_file():
            close = difflib.get_close_matches(str(given), names(), n=1)
            hint = f" (did you mean {close[0]}?)" if close else ""
            raise FileNotFoundError(
                f"there is no machine file {str(given)!r}{hint}; with the package come {', '.join(names())}"
            )
        if _is_profile(path):
            raise ValueError(
                f"machine file {path} is a machine profile, which dace-redist explain takes; dace-redist simulate "
                "takes a machine file, which describes nodes and network, and names a profile by "
                f"'profile: {path.name}'"
            )
        fields = read_yaml(path)
        network = _network(fields) if "network" in fields else None
        fields["network"] = network
        if isinstance(given_profile := fields.get("profile"), str):
            fields["profile"] = _profile(given_profile, path, fields.at("profile"))
        connected = 1 if network is None else network.nodes
        for name, default in (("name", path.stem), ("nodes", connected)):
            if fields.get(name) is None:
                fields[name] = default
        machine = fields.read(cls)
        if network is None and machine.nodes > 1:
            expected = f"expected one for {machine.nodes} nodes, with kind, link and latency"
            raise ValueError(f"{fields.at('nodes')}: network is missing, {expected}")
        if machine.nodes > connected:
            limit = f"nodes must be at most {connected}, which the network connects, got {machine.nodes}"
            raise ValueError(f"{fields.at('nodes')}: {limit}")
        return machine

    def __str__(self) -> str:
        network = "" if self.network is None else f", {self.network.kind}"
        return f"{self.name}: {self.nodes:,} node{'s' * (self.nodes > 1)} of {self.cores:g} cores{network}"


@dataclasses.dataclass(frozen=True)
class Job:
    """
    Ranks on the nodes of a machine.

    :param ranks: Number of ranks, which fill one node after another.
    :param scattered: True if the nodes lie anywhere in the machine, not side by side.
    :raises ValueError: If the machine has not so many nodes, or none has a rank.
    """

    machine: Machine
    ranks: int
    ranks_per_node: int
    scattered: bool = False

    def __post_init__(self) -> None:
        each, name, there = self.ranks_per_node, self.machine.name, self.machine.nodes
        if not isinstance(each, int | np.integer) or each < 1:
            raise ValueError(f"ranks_per_node must be a whole number of at least 1, got {each!r}")
        if self.nodes > there:
            raise ValueError(
                f"{self.ranks} ranks need {self.nodes} nodes with {each} per node, but {name} has {there}"
                + (f"; up to {there * each} ranks fit, or take more per node" if self.nodes > 1 else "")
            )

    @classmethod
    def of(cls, machine: Machine, ranks: int, ranks_per_node: int | None = None, scattered: bool = False) -> Job:
        """Return a job; default: as many ranks on a node as it has cores, and at least one."""
        each = max(1, int(machine.cores)) if ranks_per_node is None else ranks_per_node
        return cls(machine, ranks, each, scattered)

    @cached_property
    def rates(self) -> MachineProfile:
        """The profile for the cost model, on its machine's cores, with its network."""
        machine, profile = self.machine, self.machine.profile
        factor = 1 / profile.oversubscription  # seconds that a rank has a core for
        if machine.core_copy is not None:
            factor = 1 / machine.core_copy / profile.copies.pack.seconds_per_byte[-1][-1]
        ranks = max(1, min(self.busy_ranks_per_node, int(machine.cores)))
        factor *= max(1.0, ranks / machine.cores)  # a profile's seconds contain the wait for a core
        parts = profile.model_dump(include={"copies", "node"})
        scaled = machine_profile.combined([parts], lambda seconds: factor * seconds[0])
        network = None
        if machine.network is not None:
            latency, link = machine.network.latency, machine.network.link
            messages = Curve(nbytes=[8, _LONGEST], seconds=[latency, latency + _LONGEST / link])
            network = NetworkRates(messages=messages, link=Curve(nbytes=[1], seconds=[1 / link]))
        each = {"ranks_per_node": ranks, "cores_per_node": machine.cores, "network": network}
        return MachineProfile.model_validate(profile.model_dump() | scaled).model_copy(update=each)

    @cached_property
    def node_of(self) -> Array:
        """The node of each rank; scattered ones are at the same places in every call."""
        nodes = np.arange(self.machine.nodes)
        if self.scattered:
            np.random.default_rng(0).shuffle(nodes)
        return np.repeat(nodes[: self.nodes], self.ranks_per_node)[: self.ranks]

    @property
    def busy_ranks_per_node(self) -> int:
        """Ranks of a full node."""
        return min(self.ranks, self.ranks_per_node)

    def __str__(self) -> str:
        return f"{count(self.ranks, 'rank')} on {count(self.nodes, 'node')}"

    @property
    def nodes(self) -> int:
        """Number of its nodes."""
        return -(-self.ranks // self.ranks_per_node)


def _network(fields: Mapping) -> Network:
    described = fields["network"]
    if not isinstance(described, Mapping):
        raise ValueError(not_fields(fields.at("network"), described))
    kind = described.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        wrong = "is missing, expected" if kind is None else "must be"
        got = "" if kind is None else f", got {text(kind)}"
        raise ValueError(f"{described.at('kind')}: kind {wrong} one of {', '.join(KINDS)}{got}")
    network = described.read(KINDS[kind])
    links = sum(kind.count for kind in network.kinds)
    if links > _MAX_LINKS:
        expected = f"a network of at most {_MAX_LINKS:,} links, got {links:,}: describe the part that the ranks use"
        raise ValueError(f"{fields.at('network')}: expected {expected}")
    return network


def names() -> list[str]:
    """Return the names of the machines that ship with the package."""
    return sorted(path.stem for path in _SHIPPED.glob("*.yaml"))


def describes_machine(given: str | os.PathLike[str]) -> bool:
    """Check for the name of a machine of the package, or a file with fields of a machine."""
    path = Path(given)
    if not path.exists():
        return str(given) in names()
    try:
        return not _is_profile(path) and len({"cores", "flops", "memory", "network"} & read_yaml(path).keys()) > 1
    except (OSError, ValueError):
        return False


def _is_profile(path: Path) -> bool:
    """True for a machine profile, as ``dace-redist calibrate`` writes it."""
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.get("format") == machine_profile.FILE.head["format"]


def _profile(given: str, path: Path, where: str) -> MachineProfile:
    """A profile of any machine and release: the description tells the machine."""
    try:
        found, reason = machine_profile.load(path.parent / given)
    except FileNotFoundError:
        made = f"make it with dace-redist calibrate --output {path.parent / given}"
        found, reason = None, f"there is no file {path.parent / given}; {made}, or leave profile out"
    except (OSError, ValueError) as error:
        found, reason = None, str(error)
    if found is None:
        raise ValueError(f"{where}: the profile {given} cannot be used: {reason}")
    return found

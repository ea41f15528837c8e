"""Descriptions of machines: nodes, cores, rates and the network between nodes, from a short file. Start at: Machine."""

from __future__ import annotations

import dataclasses
import difflib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
import yaml

from dace_redist.simulation import yaml_fields as fields
from dace_redist.simulation.network import Array, Dragonfly, FatTree, Network, Torus
from dace_redist.simulation.yaml_fields import Fields
from dace_redist.tuning import profile as machine_profile
from dace_redist.tuning.profile import MachineProfile
from dace_redist.tuning.rates import Curve, Factors, NetworkRates

_SHIPPED = Path(__file__).with_name("machines")
_LONGEST = 1 << 24  # bytes; beyond, a message takes what its rate says


@dataclasses.dataclass(frozen=True)
class Machine:
    """
    A machine as it is described; :meth:`load` reads it.

    :param name: What it is.
    :param nodes: Nodes that it has.
    :param cores: Cores of a node; a fraction where nodes share cores, as emulated ones do.
    :param flops: Operations per second of a core, in contractions.
    :param memory: Bytes per second that all cores of a node read and write together.
    :param copy: Bytes per second that a core copies; None: as in the profile.
    :param profile: What copies, and messages on a node, take.
    :param network: Between the nodes; None: there is one node.
    """

    name: str
    nodes: int
    cores: float
    flops: float
    memory: float
    copy: float | None
    profile: MachineProfile
    network: Network | None

    @classmethod
    def load(cls, given: str | os.PathLike[str] | Machine) -> Machine:
        """
        Read a description.

        :param given: Path of a YAML file, or name of a machine that ships with the package, see :func:`names`; a
            machine is returned as it is.
        :raises ValueError: If a value is missing, unknown or impossible; names the file and the line.
        :raises FileNotFoundError: If there is neither such a file nor such a machine; says which there are.
        :raises OSError: If it cannot be read.
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
        where = f"machine file {path}"
        if _is_profile(path):
            raise ValueError(
                f"{where} is a machine profile, which dace-redist explain takes; dace-redist simulate takes a machine "
                f"file, which describes nodes and network, and names a profile by 'profile: {path.name}'"
            )
        return _machine(Fields(fields.read(path, where), where), path)

    def node_of(self, ranks: int, ranks_per_node: int, scattered: bool = False) -> Array:
        """
        The node of each rank; ranks fill one node after another.

        :param ranks: Number of ranks.
        :param ranks_per_node: Ranks on each node.
        :param scattered: Whether the nodes are any of the machine, as a busy machine's scheduler gives them; the same
            ones at every call.
        :raises ValueError: If the machine has not so many nodes, or none has a rank.
        """
        _check_ranks_per_node(ranks_per_node)
        needed = -(-ranks // ranks_per_node)
        if needed > self.nodes:
            raise ValueError(
                f"{ranks} ranks need {needed} nodes with {ranks_per_node} per node, but {self.name} has {self.nodes}"
                + (f"; up to {self.nodes * ranks_per_node} ranks fit, or take more per node" if needed > 1 else "")
            )
        nodes = np.arange(self.nodes)
        if scattered:
            np.random.default_rng(0).shuffle(nodes)
        return np.repeat(nodes[:needed], ranks_per_node)[:ranks]

    def rates(self, ranks_per_node: int) -> MachineProfile:
        """
        What the cost model looks up: the profile, on this machine's cores, with its network.

        :param ranks_per_node: Ranks on each node.
        :raises ValueError: If these are less than 1.
        """
        _check_ranks_per_node(ranks_per_node)
        profile, copies = self.profile, self.profile.copies.pack
        factor = 1 / profile.oversubscription  # seconds that a rank has a core for
        if self.copy is not None:
            factor = 1 / self.copy / copies.seconds_per_byte[-1][-1]
        ranks = max(1, min(ranks_per_node, int(self.cores)))
        factor *= max(1.0, ranks / self.cores)  # a profile's seconds contain the wait for a core
        scaled = {part: _scaled(getattr(profile, part), factor) for part in ("copies", "node")}
        each = {"ranks_per_node": ranks, "cores_per_node": self.cores, "network": self._network_rates()}
        return profile.model_copy(update=scaled | each)

    def _network_rates(self) -> NetworkRates | None:
        if self.network is None:
            return None
        longest = self.network.latency + _LONGEST / self.network.link
        messages = Curve(nbytes=[8, _LONGEST], seconds=[self.network.latency, longest])
        return NetworkRates(messages=messages, link_seconds_per_byte=1 / self.network.link)

    def contraction_seconds(self, flops: float, nbytes: float, ranks_per_node: int) -> float:
        """
        What a contraction takes on a rank: the larger one of computing and of reading and writing its tensors.

        :param flops: Operations of the rank.
        :param nbytes: Bytes of its operands and of its result.
        :param ranks_per_node: Ranks that share the cores and the memory of a node.
        :raises ValueError: If these are less than 1.
        """
        _check_ranks_per_node(ranks_per_node)
        return ranks_per_node * max(flops / (self.cores * self.flops), nbytes / self.memory)

    def __str__(self) -> str:
        """Its name, nodes, cores and network."""
        network = "" if self.network is None else f", {self.network.kind}"
        return f"{self.name}: {self.nodes:,} node{'s' * (self.nodes > 1)} of {self.cores:g} cores{network}"


def names() -> list[str]:
    """Names of the machines that ship with the package."""
    return sorted(path.stem for path in _SHIPPED.glob("*.yaml"))


def describes_machine(given: str | os.PathLike[str]) -> bool:
    """
    Whether this is something that :meth:`Machine.load` takes: the name of a machine that ships with the package, or a
    file with some of its fields.

    :param given: A name, or a path of any file.
    """
    path = Path(given)
    if not path.exists():
        return str(given) in names()
    try:
        node = None if _is_profile(path) else fields.read(path, str(path))
    except (OSError, ValueError):
        return False
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return len({"cores", "flops", "memory", "network"} & {str(key.value) for key, _ in pairs}) > 1


def _is_profile(path: Path) -> bool:
    """Whether a file is a machine profile, as ``dace-redist calibrate`` writes it."""
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.get("format") == f"dace-redist {machine_profile.KIND}"


def _check_ranks_per_node(given: int) -> None:
    if not isinstance(given, int | np.integer) or given < 1:
        raise ValueError(f"ranks_per_node must be a whole number of at least 1, got {given!r}")


def _scaled(value: Any, factor: float) -> Any:
    """All times in a part of a machine profile times a factor; whole numbers are sizes, and factors stay."""
    if isinstance(value, Factors):
        return value
    if isinstance(value, pydantic.BaseModel):
        scaled = {name: _scaled(getattr(value, name), factor) for name in type(value).model_fields}
        return value.model_copy(update=scaled)
    if isinstance(value, dict):
        return {key: _scaled(entry, factor) for key, entry in value.items()}
    if isinstance(value, list):
        return [_scaled(entry, factor) for entry in value]
    return factor * value if isinstance(value, float) else value


def _machine(top: Fields, path: Path) -> Machine:
    name = top.take("name", fields.word, "a name", path.stem)
    nodes = top.take("nodes", fields.whole(), "the number of nodes, at least 1", None)
    cores = top.take("cores", fields.positive, "the number of cores of a node, above 0")
    flops = top.take("flops", fields.flops, f"what a core computes, {fields.OPERATIONS}")
    memory = top.take("memory", fields.rate, f"what all cores of a node read and write, {fields.A_RATE}")
    copy = top.take("copy", fields.rate, f"what a core copies, {fields.A_RATE}", None)
    profile = top.take("profile", fields.word, "the path of a machine profile, see dace-redist calibrate", None)
    described = top.take_fields("network")
    network = None if described is None else _network(described)
    usual = 1 if network is None else network.nodes
    count = usual if nodes is None else nodes
    if network is None and count > 1:
        expected = f"expected one for {count} nodes, with kind, link and latency"
        raise ValueError(f"{top.at_field('nodes')}: network is missing, {expected}")
    if count > usual:
        expected = f"at most {usual}, which the network connects"
        raise ValueError(f"{top.at_field('nodes')}: nodes must be {expected}, got {count}")
    top.end()
    found = _profile(profile, path, top.at_field("profile"))
    return Machine(name, count, cores, flops, memory, copy, found, network)


def _profile(given: str | None, path: Path, where: str) -> MachineProfile:
    """A profile of any machine and release: the description says what it stands for."""
    if given is None:
        return machine_profile.default_profile()
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


def _network(described: Fields) -> Network:
    kinds = {"switch": _switch, "fat-tree": _fat_tree, "dragonfly": _dragonfly, "torus": _torus}

    def known(value: Any) -> str:
        if value not in kinds:
            raise ValueError
        return str(value)

    kind = described.take("kind", known, f"one of {', '.join(kinds)}")
    link = described.take("link", fields.rate, f"the rate of a node's link, {fields.A_RATE}")
    latency = described.take("latency", fields.seconds, f"what a message between two nodes takes, {fields.A_TIME}")
    hop = described.take("hop", fields.seconds, f"what each further link on the way adds, {fields.A_TIME}", 1e-7)
    network = kinds[kind](described, {"link": link, "latency": latency, "hop": hop})
    described.end()
    return network


def _switch(described: Fields, common: dict[str, float]) -> Network:
    ports = described.take("ports", fields.whole(2), "the number of nodes at the switch, at least 2")
    return FatTree(**common, down=(ports,), up=(1,), trunk=common["link"])


def _fat_tree(described: Fields, common: dict[str, float]) -> Network:
    down = described.take("down", fields.whole_list, "a list such as [16, 32]: per level what is below each switch")

    def as_many(value: Any) -> tuple[int, ...]:
        up = fields.whole_list(value)
        if len(up) != len(down) or up[0] != 1:
            raise ValueError
        return up

    expected = f"a list as long as down, {list(down)}, the first 1: per level how many switches are above"
    up = described.take("up", as_many, expected)
    return FatTree(**common, down=down, up=up, trunk=_rate_of(described, "trunk", common))


def _dragonfly(described: Fields, common: dict[str, float]) -> Network:
    counts = {
        name: described.take(name, fields.whole(), f"the number of {what}, at least 1")
        for name, what in (
            ("groups", "groups"),
            ("chassis", "chassis of a group"),
            ("routers", "routers of a chassis"),
            ("nodes_per_router", "nodes at a router"),
            ("cables", "cables between two groups"),
        )
    }
    rates = {name: _rate_of(described, name, common) for name in ("chassis_link", "group_link", "cable")}
    return Dragonfly(**common, **counts, **rates)  # type: ignore[arg-type]


def _torus(described: Fields, common: dict[str, float]) -> Network:
    dims = described.take("dims", fields.whole_list, "a list such as [8, 8, 8]: nodes along each dimension")
    return Torus(**common, dims=dims, trunk=_rate_of(described, "trunk", common))


def _rate_of(described: Fields, name: str, common: dict[str, float]) -> float:
    return described.take(name, fields.rate, fields.A_RATE, common["link"])

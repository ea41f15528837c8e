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

from dace_redist.simulation.machine_file import compose, read_machine
from dace_redist.simulation.network import Array, Network
from dace_redist.tuning import profile as machine_profile
from dace_redist.tuning.profile import Curve, MachineProfile, NetworkRates

_SHIPPED = Path(__file__).with_name("machines")
_LONGEST = 1 << 24  # bytes; beyond, a message takes what its rate says


@dataclasses.dataclass(frozen=True)
class Machine:
    """
    A machine as it is described; :meth:`load` reads it.

    :param cores: Cores of a node; a fraction where nodes share cores, as emulated ones do.
    :param flops: Operations per second of a core, in contractions.
    :param memory: Bytes per second that all cores of a node read and write together.
    :param copy: Bytes per second that a core copies; None: as in the profile.
    :param profile: Rates of copies, and of messages on a node.
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
        file, nodes, network, where = read_machine(path)
        profile = _profile(file.profile, path, where)
        name = file.name or path.stem
        return cls(name, nodes, file.cores, file.flops, file.memory, file.copies, profile, network)

    def node_of(self, ranks: int, ranks_per_node: int, scattered: bool = False) -> Array:
        """
        Return the node of each rank; ranks fill one node after another. A ValueError if the machine is too small.

        :param scattered: True if the nodes lie anywhere in the machine, at the same places in every call.
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
        """Return the profile for the cost model, on this machine's cores, with its network."""
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
        return NetworkRates(messages=messages, link=Curve(nbytes=[1], seconds=[1 / self.network.link]))

    def contraction_seconds(self, flops: float, nbytes: float, ranks_per_node: int) -> float:
        """
        Return the time of a contraction on a rank: of computing or of memory traffic, whichever is longer.

        :param nbytes: Bytes of its operands and of its result.
        """
        _check_ranks_per_node(ranks_per_node)
        return ranks_per_node * max(flops / (self.cores * self.flops), nbytes / self.memory)

    def __str__(self) -> str:
        """Its name, nodes, cores and network."""
        network = "" if self.network is None else f", {self.network.kind}"
        return f"{self.name}: {self.nodes:,} node{'s' * (self.nodes > 1)} of {self.cores:g} cores{network}"


def names() -> list[str]:
    """Return the names of the machines that ship with the package."""
    return sorted(path.stem for path in _SHIPPED.glob("*.yaml"))


def describes_machine(given: str | os.PathLike[str]) -> bool:
    """Check for the name of a machine of the package, or a file with fields of a machine."""
    path = Path(given)
    if not path.exists():
        return str(given) in names()
    try:
        node = None if _is_profile(path) else compose(path, str(path))
    except (OSError, ValueError):
        return False
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return len({"cores", "flops", "memory", "network"} & {str(key.value) for key, _ in pairs}) > 1


def _is_profile(path: Path) -> bool:
    """True for a machine profile, as ``dace-redist calibrate`` writes it."""
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.get("format") == f"dace-redist {machine_profile.KIND}"


def _check_ranks_per_node(given: int) -> None:
    if not isinstance(given, int | np.integer) or given < 1:
        raise ValueError(f"ranks_per_node must be a whole number of at least 1, got {given!r}")


def _scaled(value: Any, factor: float) -> Any:
    """All times in a part of a machine profile times a factor; whole numbers are sizes."""
    if isinstance(value, pydantic.BaseModel):
        scaled = {name: _scaled(getattr(value, name), factor) for name in type(value).model_fields}
        return value.model_copy(update=scaled)
    if isinstance(value, dict):
        return {key: _scaled(entry, factor) for key, entry in value.items()}
    if isinstance(value, list):
        return [_scaled(entry, factor) for entry in value]
    return factor * value if isinstance(value, float) else value


def _profile(given: str | None, path: Path, where: str) -> MachineProfile:
    """A profile of any machine and release: the description tells the machine."""
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

"""The machine profile: times of copies and messages on a machine, kept as JSON. Start reading at: MachineProfile."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pydantic

from dace_redist._version import __version__
from dace_redist.mpi.topology import Topology
from dace_redist.tuning import files

FILE = files.Kind(
    "machine profile",
    2,
    "make it anew with dace-redist calibrate, or name another file with DACE_REDIST_MACHINE",
    "name another file with --output",
)
#: Used where no profile was made.
DEFAULT_PROFILE = Path(__file__).with_name("default_machine.json")


class Strict(pydantic.BaseModel):
    """A model that refuses unknown fields and converts no types."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)


Count = Annotated[int, pydantic.Field(ge=1, lt=1 << 62)]
#: Of a measurement, or per byte: less than the minimum is no time of a machine, and rates would overflow.
Seconds = Annotated[float, pydantic.Field(gt=1e-21, lt=1e6, allow_inf_nan=False)]


def _ascending(values: list[int]) -> list[int]:
    if not values or any(a >= b for a, b in zip(values, values[1:], strict=False)):
        raise ValueError(f"expected sizes in ascending order, got {values}")
    return values


Sizes = Annotated[list[Count], pydantic.AfterValidator(_ascending)]


class Curve(Strict):
    """Seconds by size in bytes."""

    nbytes: Sizes
    seconds: list[Seconds]

    @pydantic.model_validator(mode="after")
    def _equal_lengths(self) -> Curve:
        if len(self.seconds) != len(self.nbytes):
            raise ValueError(f"expected seconds of {len(self.nbytes)} sizes, got {len(self.seconds)}")
        return self

    def at(self, nbytes: float) -> float:
        """Interpolate linearly; constant below the smallest size, constant bandwidth above the largest."""
        if nbytes > self.nbytes[-1]:
            return self.seconds[-1] * nbytes / self.nbytes[-1]
        return float(np.interp(nbytes, self.nbytes, self.seconds))

    @property
    def latency(self) -> float:
        """Seconds of the smallest size."""
        return self.seconds[0]

    @property
    def rate(self) -> float:
        """Bytes per second at the largest size."""
        return self.nbytes[-1] / self.seconds[-1]

    def seconds_per_byte(self, *sizes: int) -> float:
        """Slowest rate of messages of these sizes without their latency; at least 0, which noise may make it miss."""
        return max(0.0, *((self.at(each) - self.latency) / each for each in sizes))


class Surface(Strict):
    """Seconds per byte by footprint (bytes that a rank moves), and by the length of contiguous runs in bytes."""

    footprints: Sizes
    runs: Sizes
    seconds_per_byte: list[list[Seconds]]

    @pydantic.model_validator(mode="after")
    def _equal_lengths(self) -> Surface:
        wanted = (len(self.footprints), len(self.runs))
        got = (len(self.seconds_per_byte), sorted({len(row) for row in self.seconds_per_byte}))
        if got != (wanted[0], [wanted[1]]):
            raise ValueError(f"expected {wanted[0]} x {wanted[1]} numbers, got {got[0]} rows of {got[1]}")
        return self

    def at(self, footprint: float, run: float) -> float:
        """Interpolate linearly where all axes are logarithmic; constant beyond."""
        lengths, wanted = np.log(self.runs), math.log(max(run, 1))
        rows = [np.interp(wanted, lengths, np.log(row)) for row in self.seconds_per_byte]
        return float(np.exp(np.interp(math.log(max(footprint, 1)), np.log(self.footprints), rows)))


class Latency(Strict):
    """Seconds of an exchange of nearly no bytes, and those added by each message of a rank."""

    exchange: Annotated[float, pydantic.Field(ge=0, lt=1e6, allow_inf_nan=False)]
    message: Seconds


class Copies(Strict):
    """Copies of one rank: to contiguous memory, from it, and transposed, by the size of an element."""

    pack: Surface
    unpack: Surface
    permuted: Surface


class NodeRates(Strict):
    """
    Exchanges between the ranks of a node, all at work at the same time.

    Surfaces are of exchanges in which each rank sends to all others, by the run that is contiguous on both sides.

    :param latency: By kind: ``messages``, ``shared``; in main memory also ``datatypes``, ``puts`` if MPI has windows,
        and ``handshake``: added by a message that is too long to be eager.
    :param messages: Contiguous messages, of which each rank sends one and receives one.
    :param push: Copied by the sender into the target: a node-shared one, or one on a GPU.
    :param pull: Out of a node-shared source, by the protocol that the library takes; None between GPUs.
    :param staged: Between ordinary arrays: through a ring, long runs by the kernel; None between GPUs.
    :param datatypes: Described by MPI's derived datatypes; None between GPUs.
    """

    latency: dict[str, Latency]
    messages: Curve
    push: Surface
    pull: Surface | None = None
    staged: Surface | None = None
    datatypes: Surface | None = None


class NetworkRates(Strict):
    """
    Exchanges between nodes; each rank sends to one and receives from another.

    :param messages: Contiguous MPI messages, one rank of each node at work.
    :param link: With all ranks of a node at work: seconds that a chunk takes of the node's link, by its size.
    """

    messages: Curve
    link: Curve

    def link_seconds_per_byte(self, nbytes: float) -> float:
        """Return the seconds per byte of a node's link in messages or chunks of ``nbytes``."""
        nbytes = max(nbytes, self.link.nbytes[0])
        return self.link.at(nbytes) / nbytes


class Rates(Strict):
    """
    Copies and exchanges of arrays in one kind of memory.

    :param node: None where each rank has a node of its own.
    :param network: None where all ranks were on one node.
    """

    copies: Copies
    node: NodeRates | None
    network: NetworkRates | None


class DeviceRates(Rates):
    """
    Copies on GPUs, without ``launch``, and exchanges between them.

    :param name: Model of the GPUs.
    :param launch: Seconds of a kernel that copies nearly nothing, until it is done.
    :param to_main_memory: Arrays copied to pinned main memory.
    :param to_gpu: Arrays copied from there.
    """

    name: str
    launch: Seconds
    to_main_memory: Curve
    to_gpu: Curve


class MachineProfile(Rates):
    """
    Times of copies and messages, with all ranks of a node at work at the same time.

    It holds for a ``machine``, ``mpi`` and ``package``. ``ranks_per_node`` and ``cores_per_node`` are those of the
    calibration: with more ranks than cores its seconds contain the wait for a core.

    :param device: None where no GPU could be used.
    """

    format: str
    version: int
    machine: str
    mpi: str
    package: str
    date: str
    nodes: Count
    ranks_per_node: Count
    cores_per_node: Count
    device: DeviceRates | None = None

    @pydantic.model_validator(mode="after")
    def _same_parts(self) -> MachineProfile:
        for part in ("node", "network") if self.device is not None else ():
            if (getattr(self.device, part) is None) != (getattr(self, part) is None):
                raise ValueError(f"device.{part} must be there where {part} is, and only there")
        if self.node is not None and None in (self.node.pull, self.node.staged, self.node.datatypes):
            raise ValueError("node must have pull, staged and datatypes")
        kinds = {"messages", "shared"}
        for part, rates, needed in (
            ("node", self.node, kinds | {"datatypes"}),
            ("device.node", None if self.device is None else self.device.node, kinds),
        ):
            if rates is not None and (missing := needed - rates.latency.keys()):
                raise ValueError(f"{part}.latency must have {', '.join(sorted(missing))}")
        return self

    @property
    def oversubscription(self) -> float:
        """Ranks per core, at least 1."""
        return max(1.0, self.ranks_per_node / self.cores_per_node)

    def why_not(self, topology: Topology, on_gpu: bool = False) -> str:
        """Return why it does not hold on a topology, or for arrays on its GPUs; ``""`` if it does."""
        found = {"machine": self.machine, "MPI": self.mpi, "version of dace-redist": self.package}
        here = {"machine": topology.machine, "MPI": topology.mpi, "version of dace-redist": __version__}
        if differing := files.differences(found, here):
            return f"it is of {differing}"
        if topology.node_count > 1 and self.network is None:
            return "it was made on one node, the ranks are on several"
        if topology.ranks_per_node > 1 and self.node is None:
            return "it was made with one rank per node, here are several"
        if on_gpu and self.device is None:
            return "it was made where no GPU could be used"
        if on_gpu and self.device is not None and self.device.name != topology.gpu:
            return f"it is of another GPU ({self.device.name}, here {topology.gpu})"
        return ""


def fastest(rounds: Sequence[MachineProfile]) -> MachineProfile:
    """Return the smallest seconds of each measurement of several profiles that were made one after another."""
    measured = [one.model_dump(include={"copies", "node", "network", "device"}) for one in rounds]
    return MachineProfile.model_validate(rounds[-1].model_dump() | combined(measured, min))


def combined(values: Sequence[Any], combine: Callable[[Sequence[float]], float]) -> Any:
    """
    Combine the times at each place of nested lists and dictionaries, as of models; None where one is.

    Whole numbers, which are sizes, and names stay.
    """
    if any(value is None for value in values):
        return None
    if isinstance(values[0], dict):
        return {key: combined([value[key] for value in values], combine) for key in values[0]}
    if isinstance(values[0], list):
        return [combined(entries, combine) for entries in zip(*values, strict=True)]
    return combine(values) if isinstance(values[0], float) else values[0]


def load(path: Path) -> tuple[MachineProfile | None, str]:
    """Read a profile, or say why it is ignored; errors as of :func:`dace_redist.tuning.files.Kind.load`."""
    profile, reason = FILE.load(path, MachineProfile)
    return profile, f"{path} is ignored: {reason}" if reason else ""


def default_profile() -> MachineProfile:
    """Return the profile that ships with the package."""
    profile, _ = load(DEFAULT_PROFILE)
    assert profile is not None
    return profile


def for_topology(path: Path, topology: Topology, on_gpu: bool = False) -> tuple[MachineProfile | None, str]:
    """Read a profile that holds on a topology, or for arrays on its GPUs; returns and raises as :func:`load`."""
    profile, ignored = load(path)
    if profile is None or not (reason := profile.why_not(topology, on_gpu)):
        return profile, ignored
    where = f"{path} is ignored{' for arrays on a GPU' if on_gpu else ''}"
    return None, f"{where}: {reason}; calibrate again here"

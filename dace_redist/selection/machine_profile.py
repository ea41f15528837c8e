"""The machine profile: what copies and messages take on a machine, kept as JSON. Start reading at: MachineProfile."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pydantic

from dace_redist._version import __version__
from dace_redist.mpi.topology import Topology
from dace_redist.report.text import count
from dace_redist.selection import json_file
from dace_redist.selection.curves import Count, Curve, Factors, Latency, Seconds, Surface, TwoSides
from dace_redist.selection.json_file import Strict

KIND = "machine profile"
#: Changes when a file of this version could no longer be read.
VERSION = 1

#: Stands in where no profile was made.
DEFAULT_PROFILE = Path(__file__).with_name("default_machine.json")

_REMEDY = "make it anew with dace-redist calibrate, or name another file with DACE_REDIST_MACHINE"


class Kernels(Strict):
    """Copies of one rank: to contiguous memory, from it, and transposed."""

    pack: Surface
    unpack: Surface
    permuted: Surface


class Copies(Kernels):
    """The copy kernel in main memory: also to contiguous memory by non-temporal stores."""

    non_temporal: Surface


class Exchanges(Strict):
    """
    What moves between ranks of one node, each of which sends to one and receives from another.

    :param messages: Contiguous messages.
    :param chunks: Chunks of a contiguous message that moves in chunks: seconds of one by its size.
    :param push: Copied by the sender into the target: a node-shared one, or one on a GPU.
    :param latency: By kind of message: ``messages``, ``shared``, in main memory also ``datatypes``, ``puts``.
    """

    messages: Curve
    chunks: Curve
    push: TwoSides
    latency: dict[str, Latency]


class NodeRates(Exchanges):
    """
    What moves between ranks of one node in main memory.

    :param puts: Contiguous puts into a window; None if MPI has no windows.
    :param datatypes: Described by MPI's derived datatypes.
    :param staged: Through a ring in node-shared memory.
    :param pull: Copied by the receiver out of a node-shared source.
    :param read: Copied by the kernel out of the sender's memory; long runs on both sides.
    :param thread_start: Seconds until OpenMP threads share a copy.
    :param staged_wait: How many times as long staged messages take where every rank has one for every other one, by the
        bytes of a rank's array: ranks that share cores wait for each other's pieces. None where each has a core. The
        model takes it for all staged messages.
    """

    puts: Curve | None
    datatypes: TwoSides
    staged: TwoSides
    pull: TwoSides
    read: Surface
    thread_start: Seconds
    staged_wait: Factors | None = None


class NetworkRates(Strict):
    """
    What moves between nodes, of which each rank sends to one and receives from another.

    :param messages: Contiguous MPI messages, one rank of each node at work.
    :param link_seconds_per_byte: What a byte takes that a node sends, or receives at the same time, with all its ranks
        at work.
    :param chunks: The same by the size of the chunks that messages are cut into: seconds of one. None: a byte takes as
        long in all of them.
    """

    messages: Curve
    link_seconds_per_byte: Seconds
    chunks: Curve | None = None

    def seconds_per_byte(self, nbytes: float) -> float:
        """What a byte takes of a node's link in chunks of so many bytes."""
        if self.chunks is None or nbytes < self.chunks.nbytes[0]:
            return self.link_seconds_per_byte
        return self.chunks.at(nbytes) / nbytes


class DeviceRates(Strict):
    """
    What GPUs copy, and what moves between them.

    :param name: Model of the GPUs.
    :param launch: Seconds of a kernel that copies nearly nothing, until it is done.
    :param kernels: Copies of one rank in the memory of its GPU; without ``launch``.
    :param to_main_memory: Arrays copied to pinned main memory.
    :param to_gpu: Arrays copied from there.
    :param node: Between GPUs of the ranks of a node, ``push`` as strategy Shared moves: by a kernel of the sender where
        GPUs reach each other. None where each rank has a node of its own.
    :param network: Between GPUs of different nodes; None where all ranks were on one node.
    """

    name: str
    launch: Seconds
    kernels: Kernels
    to_main_memory: Curve
    to_gpu: Curve
    node: Exchanges | None
    network: NetworkRates | None


class MachineProfile(Strict):
    """
    What copies and messages take, with all ranks of a node at work at the same time.

    ``machine``, ``mpi`` and ``package`` say what it holds for. ``ranks_per_node`` and ``cores_per_node`` are those of
    the calibration: with more ranks than cores its seconds contain the wait for a core.

    :param network: None where all ranks were on one node.
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
    copies: Copies
    node: NodeRates | None
    network: NetworkRates | None
    device: DeviceRates | None = None

    @pydantic.model_validator(mode="after")
    def _same_parts(self) -> MachineProfile:
        for part in ("node", "network") if self.device is not None else ():
            if (getattr(self.device, part) is None) != (getattr(self, part) is None):
                raise ValueError(f"device.{part} must be there where {part} is, and only there")
        return self

    @property
    def turns(self) -> float:
        """Ranks per core, at least 1: how many times as long a rank waits for its core as it has it, and has it."""
        return max(1.0, self.ranks_per_node / self.cores_per_node)

    def __str__(self) -> str:
        """What it is of, and a few of its figures, in GB/s and microseconds."""
        nodes = f"{count(self.nodes, 'node')} of {count(self.ranks_per_node, 'rank')}"
        lines = [
            f"machine   {self.machine}, {self.mpi}, {nodes}",
            *_kernel_rows("", self.copies),
        ]
        if self.node is not None:
            lines += [_row(f"{name} {side}", getattr(getattr(self.node, name), side)) for name, side in _TWO_SIDED]
            lines += [_row("read", self.node.read), _curve_row("messages", self.node.messages)]
            lines += [_curve_row("chunks", self.node.chunks)]
            lines += [_curve_row("puts", self.node.puts)] if self.node.puts is not None else []
            lines += [_wait_row(self.node.staged_wait)] if self.node.staged_wait is not None else []
        if self.network is not None:
            link = f"{1e-9 / self.network.link_seconds_per_byte:.3g} GB/s of a node's link"
            lines += [f"{_curve_row('network', self.network.messages)}, {link}"]
        return "\n".join([*lines, *(_device_rows(self.device) if self.device is not None else [])])

    def why_not(self, topology: Topology) -> str:
        """Why it does not hold on a topology; ``""`` if it does."""
        pairs = (("machine", topology.machine), ("mpi", topology.mpi), ("package", __version__))
        words = {"machine": "machine", "mpi": "MPI", "package": "version of dace-redist"}
        differences = [
            f"another {words[name]} ({getattr(self, name)}, here {here})"
            for name, here in pairs
            if getattr(self, name) != here
        ]
        if differences:
            return f"it is of {' and '.join(differences)}"
        if topology.node_count > 1 and self.network is None:
            return "it was made on one node, the ranks are on several"
        if topology.ranks_per_node > 1 and self.node is None:
            return "it was made with one rank per node, here are several"
        return ""

    def why_not_on_gpu(self, topology: Topology) -> str:
        """Why it does not hold for arrays on the GPUs of a topology on which it holds otherwise; ``""`` if it does."""
        if self.device is None:
            return "it was made where no GPU could be used"
        if self.device.name != topology.gpu:
            return f"it is of another GPU ({self.device.name}, here {topology.gpu})"
        return ""


_TWO_SIDED = [(name, side) for name in ("datatypes", "staged", "push", "pull") for side in ("sent", "received")]


def _kernel_rows(prefix: str, kernels: Kernels) -> list[str]:
    return [_row(f"{prefix}{name}", getattr(kernels, name)) for name in type(kernels).model_fields]


def _device_rows(device: DeviceRates) -> list[str]:
    rows = [f"{'GPU':<20}{device.name}; {1e6 * device.launch:.3g} microseconds for a kernel"]
    rows += _kernel_rows("GPU ", device.kernels)
    rows += [_curve_row("GPU to main memory", device.to_main_memory), _curve_row("main memory to GPU", device.to_gpu)]
    if device.node is not None:
        rows += [_row(f"GPU push {side}", getattr(device.node.push, side)) for side in ("sent", "received")]
        rows += [_curve_row(f"GPU {name}", getattr(device.node, name)) for name in ("messages", "chunks")]
    if device.network is not None:
        rows += [_curve_row("GPU network", device.network.messages)]
    return rows


def _row(name: str, surface: Surface) -> str:
    """Rates of the shortest and the longest runs, for the least and the largest footprint."""
    runs = f"runs of {surface.runs[0]:,} to {surface.runs[-1]:,} B"
    rates = [
        f"{1e-9 / row[0]:.3g} to {1e-9 / row[-1]:.3g} GB/s moving {footprint:,} B"
        for footprint, row in zip(surface.footprints, surface.seconds_per_byte, strict=True)
    ]
    return f"{name:<20}{runs}: {rates[0]}, {rates[-1]}"


def _wait_row(wait: Factors) -> str:
    """How many times as long staged messages take, for the least and the largest array."""
    ends = [f"{wait.factors[end]:.3g} times for arrays of {wait.nbytes[end]:,} B" for end in (0, -1)]
    return f"{'staged, all to all':<20}{', '.join(ends)}"


def _curve_row(name: str, curve: Curve) -> str:
    return f"{name:<20}{1e6 * curve.latency:.3g} microseconds, {1e-9 * curve.rate:.3g} GB/s"


def fastest(rounds: Sequence[MachineProfile]) -> MachineProfile:
    """The least seconds of each measurement of several profiles that were made one after another."""
    return rounds[-1].model_validate(
        rounds[-1].model_dump() | _least([one.model_dump(include=_MEASURED) for one in rounds])
    )


#: Fields of a profile that hold what was measured.
_MEASURED = {"copies", "node", "network", "device"}


def _least(values: Sequence[Any]) -> Any:
    """The least of numbers at the same place of nested lists and dictionaries; None where one is. Names stay."""
    first = values[0]
    if any(value is None for value in values):
        return None
    if isinstance(first, dict):
        return {key: _least([value[key] for value in values]) for key in first}
    if isinstance(first, list):
        return [_least(list(entries)) for entries in zip(*values, strict=True)]
    return min(values)


def save(profile: MachineProfile, path: Path) -> None:
    """
    Write a profile.

    :raises OSError: If it cannot be written; names the file.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        json_file.replace(path, profile.model_dump(exclude_defaults=True))
    except OSError as error:
        raise OSError(f"{KIND} {path} cannot be written: {error}; name another file with --output") from None


def load(path: Path) -> tuple[MachineProfile | None, str]:
    """
    Read a profile.

    :param path: Path of the file.
    :return: The profile, or None; and why it was ignored, or ``""``.
    :raises ValueError: If it is no profile, damaged, or holds impossible values; names the file and the field.
    :raises OSError: If it cannot be read.
    """
    facts = path.stat()
    return _load(path, facts.st_mtime_ns, facts.st_size, facts.st_ino)


@functools.lru_cache(maxsize=8)
def _load(path: Path, _mtime: int, _size: int, _inode: int) -> tuple[MachineProfile | None, str]:
    """Reads the file unless it is as it was last time."""
    content = json_file.load(path, MachineProfile, KIND, VERSION, _REMEDY)
    if isinstance(content, int):
        return None, f"{path} is ignored: {json_file.other_version(KIND, content, VERSION)}"
    return content, ""


def default_profile() -> MachineProfile:
    """The profile that ships with the package."""
    profile, _ = load(DEFAULT_PROFILE)
    assert profile is not None
    return profile


def for_topology(path: Path, topology: Topology) -> tuple[MachineProfile | None, str]:
    """
    The profile of a file, if it holds on a topology.

    :return: The profile, or None; and why it was ignored, or ``""``.
    :raises ValueError: As :func:`load`.
    :raises OSError: As :func:`load`.
    """
    profile, ignored = load(path)
    reason = profile.why_not(topology) if profile is not None else ""
    return (None, f"{path} is ignored: {reason}; calibrate again here") if reason else (profile, ignored)

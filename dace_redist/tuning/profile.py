"""The machine profile: what copies and messages take on a machine, kept as JSON. Start reading at: MachineProfile."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pydantic

from dace_redist._version import __version__
from dace_redist.mpi.topology import Topology
from dace_redist.tuning import files
from dace_redist.tuning.files import Strict
from dace_redist.tuning.rates import Count, DeviceRates, Kernels, NetworkRates, NodeRates

KIND = "machine profile"
#: Changes when a file of this version could no longer be read.
VERSION = 1
#: Used where no profile was made.
DEFAULT_PROFILE = Path(__file__).with_name("default_machine.json")

_REMEDY = "make it anew with dace-redist calibrate, or name another file with DACE_REDIST_MACHINE"


class MachineProfile(Strict):
    """
    Times of copies and messages, with all ranks of a node at work at the same time.

    It holds for a ``machine``, ``mpi`` and ``package``. ``ranks_per_node`` and ``cores_per_node`` are those of the
    calibration: with more ranks than cores its seconds contain the wait for a core.

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
    copies: Kernels
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
    def oversubscription(self) -> float:
        """Ranks per core, at least 1."""
        return max(1.0, self.ranks_per_node / self.cores_per_node)

    def why_not(self, topology: Topology) -> str:
        """Return why it does not hold on a topology; ``""`` if it does."""
        rows = (
            ("machine", self.machine, topology.machine),
            ("MPI", self.mpi, topology.mpi),
            ("version of dace-redist", self.package, __version__),
        )
        differences = [f"another {word} ({its}, here {here})" for word, its, here in rows if its != here]
        if differences:
            return f"it is of {' and '.join(differences)}"
        if topology.node_count > 1 and self.network is None:
            return "it was made on one node, the ranks are on several"
        if topology.ranks_per_node > 1 and self.node is None:
            return "it was made with one rank per node, here are several"
        return ""

    def why_not_on_gpu(self, topology: Topology) -> str:
        """Return why a profile that holds on a topology does not for arrays on its GPUs; ``""`` if it does."""
        if self.device is None:
            return "it was made where no GPU could be used"
        if self.device.name != topology.gpu:
            return f"it is of another GPU ({self.device.name}, here {topology.gpu})"
        return ""


def fastest(rounds: Sequence[MachineProfile]) -> MachineProfile:
    """Return the smallest seconds of each measurement of several profiles that were made one after another."""
    measured = [one.model_dump(include={"copies", "node", "network", "device"}) for one in rounds]
    return MachineProfile.model_validate(rounds[-1].model_dump() | _smallest(measured))


def _smallest(values: Sequence[Any]) -> Any:
    """The smallest of the numbers at each place of nested lists and dictionaries; None where one is. Names stay."""
    if any(value is None for value in values):
        return None
    if isinstance(values[0], dict):
        return {key: _smallest([value[key] for value in values]) for key in values[0]}
    if isinstance(values[0], list):
        return [_smallest(entries) for entries in zip(*values, strict=True)]
    return min(values)


def save(profile: MachineProfile, path: Path) -> None:
    """
    Write a profile.

    :raises OSError: If it cannot be written; names the file.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace(path, profile.model_dump(exclude_defaults=True))


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the file, and the remedy, in errors of writing it."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{KIND} {path} cannot be written: {error}; name another file with --output") from None


def load(path: Path) -> tuple[MachineProfile | None, str]:
    """
    Read a profile.

    :return: The profile, or None; and why it was ignored, or ``""``.
    :raises ValueError: If it is not a profile, damaged, or holds impossible values; names the file and the field.
    :raises OSError: If it cannot be read.
    """
    facts = path.stat()
    return _load(path, facts.st_mtime_ns, facts.st_size, facts.st_ino)


@functools.lru_cache(maxsize=8)
def _load(path: Path, _mtime: int, _size: int, _inode: int) -> tuple[MachineProfile | None, str]:
    """Read a file once for each of its states."""
    content = files.load(path, MachineProfile, KIND, VERSION, _REMEDY)
    if isinstance(content, int):
        return None, f"{path} is ignored: {files.other_version(KIND, content, VERSION)}"
    return content, ""


def default_profile() -> MachineProfile:
    """Return the profile that ships with the package."""
    profile, _ = load(DEFAULT_PROFILE)
    assert profile is not None
    return profile


def for_topology(path: Path, topology: Topology) -> tuple[MachineProfile | None, str]:
    """Read a profile that holds on a topology; return value and errors as of :func:`load`."""
    profile, ignored = load(path)
    reason = profile.why_not(topology) if profile is not None else ""
    return (None, f"{path} is ignored: {reason}; calibrate again here") if reason else (profile, ignored)

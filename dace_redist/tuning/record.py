"""The tuning record: the winner of each redistribution, kept as JSON. Start reading at: Record."""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import filelock
import pydantic

from dace_redist._version import __version__
from dace_redist.errors import naming_file
from dace_redist.mpi.topology import Topology
from dace_redist.native.toolchain import processor_flags
from dace_redist.native.variants import levels
from dace_redist.report.text import describe
from dace_redist.strategies import check_options, find_strategy, with_options
from dace_redist.tuning import record_path
from dace_redist.tuning.problem import TuningProblem

_LOCK_SECONDS = 30.0  # writing takes milliseconds: whoever holds the lock longer will not release it
_ANOTHER = "name another file with DACE_REDIST_RECORD"
_REMEDY = f"move it away, or {_ANOTHER}"

_FORMAT = "dace-redist tuning record"
#: Changes when a record of this version could no longer be read.
VERSION = 1

#: Fields that must agree for an entry to hold: what it is for, and where it was measured, with their names in messages.
_FOR = ("schedule", "dtype", "memory", "layout")
_WHERE = {"mpi": "MPI", "machine": "machine", "gpu": "GPU", "package": "version of dace-redist"}


class Strict(pydantic.BaseModel):
    """A model that refuses unknown fields and converts no types."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)


class Winner(Strict):
    """A strategy with the options that are not at their defaults."""

    strategy: str
    options: dict[str, int | float]

    def __str__(self) -> str:
        return with_options(self.strategy, self.options)


class Measured(Winner):
    """
    The time of one candidate, or why it could not be measured.

    Only times of one ``round`` may be compared: those were measured in turns.
    """

    round: str
    median_seconds: float | None = None
    low_seconds: float | None = None
    high_seconds: float | None = None
    repetitions: int = 0
    note: str = ""


class Entry(Strict):
    """
    The winner of one redistribution on one topology.

    It is identified by ``schedule`` (a digest, see :func:`dace_redist.tuning.problem.schedule_key`), ``dtype``,
    ``memory`` (where the arrays lie), ``layout``, ``mpi``, ``machine``, ``gpu`` (its model, for arrays there) and
    ``package``. ``shape``, ``source`` and ``target`` are for people.
    """

    shape: str
    source: str
    target: str
    schedule: str
    dtype: str
    memory: str
    layout: str
    mpi: str
    machine: str
    package: str
    date: str
    winner: Winner
    measured: list[Measured]
    gpu: str = ""

    def agrees(self, identity: Mapping[str, str], names: Sequence[str] = (*_FOR, *_WHERE)) -> bool:
        """Return whether it has these values in all fields of these names."""
        return all(getattr(self, name) == identity[name] for name in names)


class _File(Strict):
    format: str
    version: int
    entries: list[Entry]


def make_entry(problem: TuningProblem, topology: Topology, winner: Winner, measured: Sequence[Measured]) -> Entry:
    """Return the entry of a redistribution that was measured on a topology just now."""
    return Entry(
        shape=" x ".join(map(str, problem.schedule.shape)),
        source=describe(problem.schedule.source),
        target=describe(problem.schedule.target),
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        winner=winner,
        measured=list(measured),
        **_identity(problem, topology),
    )


def _identity(problem: TuningProblem, topology: Topology) -> dict[str, str]:
    machine = ", ".join([topology.machine, *levels(processor_flags())[-1:]])
    where = {"layout": topology.layout, "mpi": topology.mpi, "machine": machine, "package": __version__}
    return problem.identity | where | {"gpu": topology.gpu if problem.on_gpu else ""}


class Record:
    """A file of tuned choices. A file that is not there is an empty record."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        """Open the record of :func:`dace_redist.tuning.record_path`."""
        self.path = record_path(path)

    def find(self, problem: TuningProblem, topology: Topology) -> tuple[Winner | None, str]:
        """
        Return the winner of a redistribution on a topology.

        :return: The winner, or None; and why an entry for the same problem was ignored, or ``""``.
        :raises ValueError: If the file is not a record, or damaged; names it.
        :raises OSError: If it cannot be read.
        """
        entries, reason = self._read()
        if reason:
            return None, f"{self.path} is ignored: {reason}"
        wanted = _identity(problem, topology)
        near = [entry for entry in entries if entry.agrees(wanted, _FOR)]
        for entry in near:
            if entry.agrees(wanted):
                return self._usable(entry.winner), ""
        if not near:
            return None, ""
        found = {name: getattr(near[-1], name) for name in _WHERE}
        reason = " and ".join(
            f"another {_WHERE[name]} ({value}, here {wanted[name]})"
            for name, value in found.items()
            if value != wanted[name]
        )
        choice = f"the choice for {near[-1].dtype}[{near[-1].shape}] in {self.path}"
        return None, f"{choice} is ignored: it is of {reason}; tune again here"

    def check_writable(self) -> None:
        """Check that :meth:`add` will work; errors as of it."""
        with self._locked():
            self._entries_to_keep()

    def add(self, entry: Entry) -> None:
        """
        Add an entry, in the place of one for the same problem, machine, MPI and version.

        Processes may add at the same time. Readers see the file before or after, never a part.

        :raises ValueError: If the file is not a record, is damaged, or of another version; names it.
        :raises OSError: If it cannot be written.
        """
        with self._locked():
            kept = [old for old in self._entries_to_keep() if not old.agrees(dict(entry))]
            self._replace(_File(format=_FORMAT, version=VERSION, entries=[*kept, entry]))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = filelock.FileLock(f"{self.path}.lock")
        with self._writing():
            try:
                lock.acquire(timeout=_LOCK_SECONDS)
            except filelock.Timeout:
                raise OSError(f"another process has held {lock.lock_file} for {_LOCK_SECONDS:g} s") from None
        try:
            yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Make the folder of the file; an OSError in the block names the file and the remedy."""
        with naming_file("tuning record", self.path, _ANOTHER):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            yield

    def _replace(self, content: _File) -> None:
        """Write the file atomically: a reader finds all of the old content or all of the new."""
        path = self.path
        with self._writing(), contextlib.ExitStack() as cleanup:
            descriptor, name = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".part", dir=path.parent)
            part = Path(name)
            cleanup.callback(part.unlink, missing_ok=True)
            with open(descriptor, "w") as file:
                file.write(json.dumps(content.model_dump(exclude_defaults=True), indent=1) + "\n")
                file.flush()
                os.fsync(file.fileno())
            part.chmod(path.stat().st_mode if path.exists() else 0o644)  # mkstemp's files are for their owner only
            os.replace(part, path)

    def _entries_to_keep(self) -> Sequence[Entry]:
        entries, reason = self._read()
        if reason:
            raise ValueError(f"{self.path}: {reason}; {_ANOTHER}")
        return entries

    def _read(self) -> tuple[Sequence[Entry], str]:
        """The entries; or none of a file of another version, and the reason."""
        try:
            facts = self.path.stat()
            file, reason = _load(self.path, facts.st_mtime_ns, facts.st_size, facts.st_ino)
        except FileNotFoundError:
            return (), ""
        return file.entries if file is not None else (), reason

    def _usable(self, winner: Winner) -> Winner:
        try:
            check_options(find_strategy(winner.strategy), winner.options)
        except (ValueError, TypeError) as error:
            raise ValueError(f"tuning record {self.path} is damaged: {error}; {_REMEDY}") from None
        return winner


@functools.lru_cache(maxsize=16)
def _load(path: Path, *_: int) -> tuple[_File | None, str]:
    """
    Read and check a file; cached while its time, size and number are the same.

    :return: The content and ``""``; of a record of another version None and the reason.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise OSError(f"tuning record {path} cannot be read: {error}; {_REMEDY}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"tuning record {path} is not valid JSON ({error}): damaged, half-written or another file; {_REMEDY}"
        ) from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ValueError(f"{path} is not a tuning record of dace-redist, but another file; {_REMEDY}")
    found = content.get("version")
    if isinstance(found, int) and not isinstance(found, bool) and found != VERSION:
        return None, f"it is a tuning record of version {found}, this package reads and writes version {VERSION}"
    try:
        return _File.model_validate(content), ""
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise ValueError(f"tuning record {path} is damaged: {where}: {first['msg']}; {_REMEDY}") from None

"""The tuning record: the winner of each redistribution, kept as JSON. Start reading at: Record."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence

import filelock
import pydantic

from dace_redist._version import __version__
from dace_redist.mpi.topology import Topology
from dace_redist.report.text import describe
from dace_redist.strategies import check_options, find_strategy, with_options
from dace_redist.tuning import files
from dace_redist.tuning.problem import Problem

_LOCK_SECONDS = 30.0  # writing takes milliseconds: whoever holds the lock longer will not release it
_ANOTHER = "name another file with DACE_REDIST_RECORD"
FILE = files.Kind("tuning record", 1, f"move it away, or {_ANOTHER}", _ANOTHER)

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


def make_entry(problem: Problem, topology: Topology, winner: Winner, measured: Sequence[Measured]) -> Entry:
    """Return the entry of a redistribution that was measured on a topology just now."""
    return Entry(
        shape=" x ".join(map(str, problem.schedule.shape)),
        source=describe(problem.schedule.source),
        target=describe(problem.schedule.target),
        date=files.now(),
        winner=winner,
        measured=list(measured),
        **_identity(problem, topology),
    )


def _identity(problem: Problem, topology: Topology) -> dict[str, str]:
    where = {"layout": topology.layout, "mpi": topology.mpi, "machine": topology.machine, "package": __version__}
    return problem.identity | where | {"gpu": topology.gpu if problem.on_gpu else ""}


class Record:
    """A file of tuned choices. A file that is not there is an empty record."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        """Open the record of :func:`dace_redist.tuning.files.record_path`."""
        self.path = files.record_path(path)

    def find(self, problem: Problem, topology: Topology) -> tuple[Winner | None, str]:
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
        found = {word: getattr(near[-1], name) for name, word in _WHERE.items()}
        reason = files.differences(found, {word: wanted[name] for name, word in _WHERE.items()})
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
            FILE.replace(self.path, _File(**FILE.head, entries=[*kept, entry]))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = filelock.FileLock(f"{self.path}.lock")
        with FILE.writing(self.path):
            try:
                lock.acquire(timeout=_LOCK_SECONDS)
            except filelock.Timeout:
                raise OSError(f"another process has held {lock.lock_file} for {_LOCK_SECONDS:g} s") from None
        try:
            yield
        finally:
            lock.release()

    def _entries_to_keep(self) -> Sequence[Entry]:
        entries, reason = self._read()
        if reason:
            raise ValueError(f"{self.path}: {reason}; {_ANOTHER}")
        return entries

    def _read(self) -> tuple[Sequence[Entry], str]:
        """The entries; or none of a file of another version, and the reason."""
        try:
            file, reason = FILE.load(self.path, _File)
        except FileNotFoundError:
            return (), ""
        return file.entries if file is not None else (), reason

    def _usable(self, winner: Winner) -> Winner:
        try:
            check_options(find_strategy(winner.strategy), winner.options)
        except (ValueError, TypeError) as error:
            raise ValueError(f"tuning record {self.path} is damaged: {error}; {FILE.remedy}") from None
        return winner

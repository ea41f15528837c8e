"""Ranks that act together: agreed errors and facts, and a barrier that leaves the cores to those that work."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from dace_redist.errors import BuildError, RedistributionError
from dace_redist.mpi.waiting import watch
from dace_redist.report.units import count

if TYPE_CHECKING:
    from mpi4py import MPI

Fact = TypeVar("Fact")

_OF_SYSTEM = (FileNotFoundError, PermissionError, OSError, MemoryError)
_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (RedistributionError, BuildError, ValueError, TypeError, *_OF_SYSTEM, ImportError, RuntimeError)
}  # subclasses before their bases


#: Not empty in a process that was forked after MPI was initialized.
_MPI_OF_PARENT: list[bool] = []


def _note_fork() -> None:
    module = sys.modules.get("mpi4py.MPI")
    if module is not None and module.Is_initialized():
        _MPI_OF_PARENT.append(True)


os.register_at_fork(after_in_child=_note_fork)


def checked_communicator(comm: Any) -> MPI.Intracomm:
    """
    Return ``comm``, or the world if it is None.

    :raises TypeError: If it is not an intra-communicator of this rank.
    :raises RedistributionError: If MPI was not initialized or was finalized, and would end the process, or belongs to
        the parent of this process.
    """
    from mpi4py import MPI

    if _MPI_OF_PARENT:
        raise RedistributionError(
            "this process was forked from one that uses MPI, and cannot use it: start it in another way, as by the "
            'method "spawn" of multiprocessing'
        )
    if not MPI.Is_initialized():
        raise RedistributionError("MPI was not initialized: call MPI.Init() before")
    if MPI.Is_finalized():
        raise RedistributionError("MPI was finalized")
    comm = MPI.COMM_WORLD if comm is None else comm
    null = isinstance(comm, MPI.Comm) and comm == MPI.COMM_NULL
    if null or not isinstance(comm, MPI.Intracomm):
        given = "MPI_COMM_NULL, as of a communicator that was freed or leaves this rank out" if null else repr(comm)
        raise TypeError(f"comm must be an mpi4py intra-communicator of this rank, got {given}")
    return comm


def check_congruent(comm: MPI.Intracomm, other: MPI.Intracomm) -> None:
    """Check that the communicator of an array has the ranks of another in the same order."""
    from mpi4py import MPI

    if comm is not other and MPI.Comm.Compare(checked_communicator(comm), other) not in (MPI.IDENT, MPI.CONGRUENT):
        raise ValueError(
            f"comm must have the ranks of the array's communicator in its order: these are {count(comm.size, 'rank')}, "
            f"comm has {other.size}; redistribute() takes one communicator"
        )


@contextlib.contextmanager
def together(comm: Any, values: Mapping[str, object] | None = None) -> Iterator[None]:
    """
    Raise on every rank what the block raises on one. Collective; the block itself must not communicate.

    :param values: Objects that all ranks must have alike, by their names; compared by their ``repr``.
    :raises ValueError: On every rank, if a rank has another value than rank 0.
    :raises Exception: The rank's own failure; on a rank without one that of the first rank that failed, as
        RedistributionError, BuildError, ValueError, TypeError, FileNotFoundError, PermissionError, OSError,
        MemoryError, ImportError or RuntimeError, with the number of that rank.
    """
    failure: Exception | None = None
    try:
        yield
    except Exception as error:
        failure = error
    mine = {name: repr(value) for name, value in (values or {}).items()}
    agreed(comm, failure, digest(mine) or 1, lambda: mine)


def digest(values: object) -> int:
    """Return a hash of 56 bits of values, from their ``repr``."""
    return int.from_bytes(hashlib.blake2b(repr(values).encode(), digest_size=7).digest(), "little")


def agreed(
    comm: Any,
    failure: Exception | None,
    number: int,
    values: Callable[[], Mapping[str, str]] = dict,
    facts: Sequence[bool] = (),
) -> list[bool] | None:
    """
    Raise on every rank a difference in what the ranks do, or the failure of any. Collective.

    :param failure: Failure of this rank, or None.
    :param number: Hash of what this rank does, of 56 bits; 0 if it failed, or cannot tell yet.
    :param values: Returns what that is, in words, by name; called only if ranks differ or one failed.
    :return: The logical OR of each fact over all ranks; None if a rank cannot tell yet.
    """
    from mpi4py import MPI

    watch()
    unknown = number == 0 and failure is None
    highest = np.array([number, -number, failure is not None, unknown, *facts], np.int64)
    comm.Allreduce(MPI.IN_PLACE, highest, MPI.MAX)
    most, minus_least, failed, unknown, *found = highest.tolist()
    if failed or not (unknown or most == -minus_least):
        _raise_of_any(failure, comm.allgather((values() if number else {}, encoded_failure(failure))))
    return None if unknown else [*map(bool, found)]


def _raise_of_any(failure: Exception | None, found: Sequence[tuple[Mapping[str, str], str]]) -> NoReturn:
    """Raise the first difference between the ranks that tell what they do, else the first failure."""
    telling = [(rank, values) for rank, (values, _) in enumerate(found) if values]
    for rank, values in telling[1:]:
        first_rank, first = telling[0]
        for name, value in first.items():
            if values.get(name, value) != value:
                each = f"{value} on rank {first_rank} and {values[name]} on rank {rank}"
                raise ValueError(f"the ranks differ in {name}: {each}")
        if [*values] != [*first]:
            names = f"rank {first_rank} checks {', '.join(first)} and rank {rank} {', '.join(values)}"
            raise ValueError(f"the ranks do different things: {names}")
    failures = (decoded_failure(encoded, rank) for rank, (_, encoded) in enumerate(found))
    raise failure or next(filter(None, failures), ValueError("the ranks do different things"))


def encoded_failure(failure: Exception | None) -> str:
    """Return the kind and text of a failure for other ranks; ``""`` for None."""
    if failure is None:
        return ""
    return f"{failure_kind(failure).__name__}: {failure}"


def failure_kind(failure: Exception) -> type[Exception]:
    """Return the kind of error that other ranks raise for a failure."""
    return next((kind for kind in _KINDS.values() if isinstance(failure, kind)), RuntimeError)


def decoded_failure(encoded: str, rank: int) -> Exception | None:
    """Return the failure of another rank from :func:`encoded_failure`; None for another text."""
    name, _, text = encoded.partition(": ")
    return _KINDS[name](f"on rank {rank}: {text}") if name in _KINDS else None


def check_same(comm: Any, values: Mapping[str, object]) -> None:
    """Make sure that all ranks have the same values, see :func:`together`. Collective."""
    with together(comm, values):
        pass


def sleeping_barrier(comm: Any, seconds: float = 0.01) -> None:
    """Wait in a barrier that sleeps between polls instead of spinning. Collective."""
    request = comm.Ibarrier()
    while not request.Test():
        time.sleep(seconds)


@functools.cache
def _keyval() -> int:
    from mpi4py import MPI

    return int(MPI.Comm.Create_keyval())


def remembered(comm: Any, key: Hashable, find: Callable[[], Fact]) -> Fact:
    """
    Return a fact of a communicator that is found at the first call with ``key``. Collective if ``find`` is.

    ``key`` is equal on all ranks, and ``find`` fails on every rank if on one.
    """
    facts = comm.Get_attr(_keyval())
    if facts is None:
        facts = {}
        comm.Set_attr(_keyval(), facts)
    if key not in facts:
        facts[key] = find()
    found: Fact = facts[key]
    return found

"""Ranks that do something together: what fails on one of them fails on all, so that none waits for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dace_redist.errors import BuildError, RedistributionError

if TYPE_CHECKING:
    from mpi4py import MPI

_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind for kind in (RedistributionError, BuildError, ValueError, TypeError, OSError, RuntimeError)
}  # BuildError before RuntimeError, of which it is one


def checked_communicator(comm: Any) -> MPI.Intracomm:
    """
    ``comm``, or the world if it is None.

    :raises TypeError: If it is no communicator of this rank.
    """
    from mpi4py import MPI

    comm = MPI.COMM_WORLD if comm is None else comm
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise TypeError(f"comm must be an mpi4py intra-communicator of this rank, got {comm!r}")
    return comm


@contextlib.contextmanager
def together(comm: Any, what: str = "", value: object = None) -> Iterator[None]:
    """
    Raises on every rank what the block raises on one. Collective; the block itself must not communicate.

    :param comm: mpi4py communicator.
    :param what: What ``value`` is, for the message.
    :param value: What all ranks must have alike; its ``repr`` says all about it.
    :raises ValueError: On every rank, if a rank has another value than rank 0.
    :raises Exception: The rank's own failure; on a rank without one that of the first rank that failed, as
        RedistributionError, BuildError, ValueError, TypeError, OSError or RuntimeError, with the number of that rank.
    """
    failure: Exception | None = None
    try:
        yield
    except Exception as error:
        failure = error
    found = comm.allgather((what, repr(value), None if failure is None else (_kind(failure), str(failure))))
    for rank, (other_what, other, _) in enumerate(found):
        if other_what != found[0][0]:
            raise ValueError(f"the ranks do different things: rank 0 checks {found[0][0]} and rank {rank} {other_what}")
        if other != found[0][1]:
            raise ValueError(f"the ranks differ in {what}: {found[0][1]} on rank 0 and {other} on rank {rank}")
    if failure is not None:
        raise failure
    for rank, (_, _, failed) in enumerate(found):
        if failed is not None:
            raise _KINDS[failed[0]](f"on rank {rank}: {failed[1]}")


def _kind(failure: Exception) -> str:
    return next((name for name, kind in _KINDS.items() if isinstance(failure, kind)), "RuntimeError")


def check_same(comm: Any, what: str, value: object) -> None:
    """
    Makes sure that all ranks ask for the same. Collective.

    :param comm: mpi4py communicator.
    :param what: What ``value`` is, for the message.
    :param value: Anything whose ``repr`` says all about it.
    :raises ValueError: On every rank, if a rank has another value than rank 0.
    """
    with together(comm, what, value):
        pass

"""Ranks that do something together: what fails on one of them fails on all, so that none waits for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

_KINDS: dict[str, type[Exception]] = {kind.__name__: kind for kind in (ValueError, TypeError, OSError, RuntimeError)}


@contextlib.contextmanager
def together(comm: Any) -> Iterator[None]:
    """
    Raises on every rank what the block raises on one. Collective; the block itself must not communicate.

    :param comm: mpi4py communicator.
    :raises Exception: The rank's own failure; on a rank without one that of the first rank that failed, as ValueError,
        TypeError, OSError or RuntimeError, with the number of that rank.
    """
    failure: Exception | None = None
    try:
        yield
    except Exception as error:
        failure = error
    failures = comm.allgather(None if failure is None else (_kind(failure), str(failure)))
    if failure is not None:
        raise failure
    for rank, failed in enumerate(failures):
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
    values = comm.allgather(repr(value))
    for rank, other in enumerate(values):
        if other != values[0]:
            raise ValueError(f"the ranks differ in {what}: {values[0]} on rank 0 and {other} on rank {rank}")

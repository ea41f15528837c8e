"""Facts of a communicator that all its ranks have agreed on, kept as long as it lives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

Fact = TypeVar("Fact")


@functools.cache
def _keyval() -> int:
    from mpi4py import MPI

    return int(MPI.Comm.Create_keyval())


def remembered(comm: Any, key: Hashable, find: Callable[[], Fact]) -> Fact:
    """
    Return a fact of a communicator, found at the first call with its key. Collective if ``find`` is.

    :param comm: mpi4py communicator.
    :param key: Names the fact; the same on all ranks.
    :param find: Finds the fact; what it raises, it raises on every rank.
    :return: The fact.
    """
    facts = comm.Get_attr(_keyval())
    if facts is None:
        facts = {}
        comm.Set_attr(_keyval(), facts)
    if key not in facts:
        facts[key] = find()
    found: Fact = facts[key]
    return found

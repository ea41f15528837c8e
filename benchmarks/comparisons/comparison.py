"""One comparison, as :mod:`compare` measures it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import dace_redist
from dace_redist.mpi.collective import together

#: Allocation of arrays, by kind of memory.
MEMORIES: dict[str, Callable[..., Any]] = {"ordinary": np.empty, "node-shared": dace_redist.shared_empty}


class UnsuitableError(Exception):
    """Comparison or method that does not fit the ranks, the case or the machine; raised on every rank."""


class Comparison(NamedTuple):
    """
    What distinguishes it from others of its kind, and collective methods by name, first that of this package.

    :param settle: Untimed repetitions before each timed one.
    """

    what: str
    methods: dict[str, Callable[[], Any]]
    settle: int = 0


def agreeing(comm: Any, methods: dict[str, Callable[[], Any]], out: Any) -> dict[str, Callable[[], Any]]:
    """
    Return methods that fill an array, after a check that each leaves in it what the first one does. Collective.

    :raises AssertionError: If one does not.
    """
    first, *others = methods
    methods[first]()
    expected = out.copy()
    for name in others:
        out[...] = -1
        methods[name]()
        with together(comm):
            assert np.array_equal(out, expected), f"{first} and {name} do not agree"
    return methods


def in_each_memory(prepare: Callable[..., Iterator[Comparison]]) -> Callable[..., Iterator[Comparison]]:
    """Have a function prepare its comparison for each kind of memory in turn, its third argument."""

    @functools.wraps(prepare)
    def every(comm: Any, shape: tuple[int, ...]) -> Iterator[Comparison]:
        for memory in MEMORIES:
            yield from prepare(comm, shape, memory)

    return every

"""One comparison, as :mod:`compare` measures it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import dace_redist

#: Allocation of arrays, by kind of memory.
MEMORIES: dict[str, Callable[..., Any]] = {"ordinary": np.empty, "node-shared": dace_redist.shared_empty}


class UnsuitableError(Exception):
    """Comparison that does not fit the number of ranks or the machine; raised on every rank."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """
    Methods to compare.

    :param what: What distinguishes it from others of its kind.
    :param methods: Methods by name, collective; the first one is that of this package.
    :param remarks: Returns further lines of its report from the median seconds by method.
    """

    what: str
    methods: dict[str, Callable[[], Any]]
    remarks: Callable[[dict[str, float]], list[str]] = lambda _: []


def in_each_memory(prepare: Callable[..., Iterator[Comparison]]) -> Callable[..., Iterator[Comparison]]:
    """Have a function prepare its comparison for each kind of memory in turn, its third argument."""

    @functools.wraps(prepare)
    def every(comm: Any, shape: tuple[int, ...], **options: Any) -> Iterator[Comparison]:
        for memory in MEMORIES:
            yield from prepare(comm, shape, memory, **options)

    return every

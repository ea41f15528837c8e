"""Sums of the margins of local arrays and the elements that they mirror. Start reading at: HaloSum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import Distribution
from dace_redist.redistribution.arrays import c_strides
from dace_redist.redistribution.message_plan import PlansOfMessages

#: Block of a message: peer, offset, counts and strides, in elements.
_Block = tuple[int, int, tuple[int, ...], tuple[int, ...]]


class HaloSum:
    """
    Transpose of a halo exchange: adds each margin to the elements that it mirrors. Making it is collective.

    Axis after axis, from the last, the margins of each side go to the neighbours, with the margins of the axes that
    follow: a corner reaches its owner by one exchange per axis.

    :param distribution: Distribution with a halo. Each replica keeps its own sums.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        distribution: Distribution,
        dtype: npt.DTypeLike,
        strategy: str,
        options: Mapping[str, int | float],
    ) -> None:
        how: dict[str, Any] = {"comm": comm, "beta": 1, "strategy": strategy, **options}
        sides = _messages(distribution, comm.rank)
        self._plans = [PlansOfMessages.from_messages(*messages, dtype, **how) for messages in sides]

    def __call__(self, array: npt.NDArray[Any]) -> None:
        """Add the margins of a local array, in C order, in place; its margins are undefined afterwards. Collective."""
        for plan in self._plans:
            plan(array, array)

    def free(self) -> None:
        """Free the plans. Local."""
        for plan in self._plans:
            plan.free()


def _messages(distribution: Distribution, rank: int) -> Iterator[tuple[list[_Block], list[_Block]]]:
    """Give the blocks that a rank sends and receives in each exchange, at most one of each."""
    ranks, shape, halo = distribution.rank_grid(), distribution.local_shape(rank), distribution.halo
    places = np.argwhere(ranks == rank).tolist()
    strides = c_strides(shape, 1)

    def blocks(axis: int, first: int, step: int) -> list[_Block]:
        """Return the block from an index on, as wide as the halo, for the neighbour that is a step away."""
        for *place, replica in places:
            place[axis] += step
            parts = ranks.shape[axis]
            if distribution.periodic[axis] or 0 <= place[axis] < parts:
                place[axis] %= parts
                low = [0 if i < axis else first if i == axis else halo[i] for i in range(len(shape))]
                counts = [n - 2 * m if i > axis else n for i, (n, m) in enumerate(zip(shape, halo, strict=True))]
                counts[axis] = halo[axis]
                peer = int(ranks[tuple(place)][replica])
                return [(peer, int(np.dot(low, strides)), tuple(counts), strides)]
        return []

    for axis in reversed(range(len(halo))):
        width, extent = halo[axis], shape[axis]
        if width > 0:
            yield blocks(axis, 0, -1), blocks(axis, extent - 2 * width, 1)
            yield blocks(axis, extent - width, 1), blocks(axis, width, -1)

"""Adjoints of redistributions from or to distributions with a halo. Start reading at: HaloGradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from dace_redist.distribution import AnyDistribution, Distribution
from dace_redist.native.interface import PeerBlock
from dace_redist.redistribution.arrays import c_strides
from dace_redist.redistribution.message_plan import from_messages
from dace_redist.redistribution.problem import Problem
from dace_redist.redistribution.request import FreeablePlan
from dace_redist.schedule import Schedule


class HaloGradients(FreeablePlan):
    """
    Calls of the plan of an adjoint, where a side has a halo; mixed into a :class:`Plan`, whose members it uses.

    Gradients in margins are added to those of the elements that they mirror, in a copy, before they are moved.
    """

    def set_halos(self: Any, tensor: Schedule) -> None:
        """Note the margins of the two sides. Collective."""
        self.target, self._sums = tensor.source, []
        self._interior: Any = tensor.source.interior(self._rank) if any(tensor.source.halo) else ...
        if isinstance(tensor.target, Distribution) and any(tensor.target.halo):
            how: dict[str, Any] = {"comm": self._comm, "beta": 1, "strategy": self.strategy, **self.options}
            for messages in _messages(tensor.target, self._rank):
                self._sums.append(from_messages(*messages, self.dtype, **how))

    def __call__(self: Any, array: Any, out: Any = None) -> Any:
        """Move the gradients; those in margins are added to the elements that they mirror."""
        if out is None:
            out = np.zeros(self.target.local_shape(self._rank), self.target_dtype)
        views = self._checked(array, out[self._interior])
        if self._sums and views.sources[0] is not None:
            array = views.sources[0].as_numpy().copy("C")
            for plan in self._sums:
                plan(array, array)
            views = self._checked(array, out[self._interior])
        self._run(views)
        return out

    def free(self: Any) -> None:
        """Free the plan's buffers."""
        super().free()
        for plan in self._sums:
            plan.free()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ValueError(f"the adjoint of a redistribution with a halo can only be called and freed, got {self!r}")

    start = inverse = adjoint = __sdfg__ = _refuse


def adjoint_of_owned(forward: Problem, name: str, **partial: bool) -> Schedule:
    """
    Return the adjoint of the redistribution of the elements that ranks own, from arrays with margins.

    :param name: Of the plan, for errors.
    :raises ValueError: If a halo is not one of blocks, or arrays are several or lie on a GPU.
    """
    tensor, *others = forward.tensors
    sides = [side for side in (tensor.source, tensor.target) if any(side.halo)]
    if others or forward.lists or forward.on_gpu or not all(isinstance(side, Distribution) for side in sides):
        raise ValueError(
            "adjoint: a plan with a halo must be of one tensor in main memory, and each side with a halo a "
            f"Distribution; got {name}: plan each tensor by itself, from and to distributions without halo"
        )
    owned = Schedule(_owned(tensor.source), _owned(tensor.target), tensor.transform).adjoint(**partial)
    return dataclasses.replace(owned, source=tensor.target)


def _owned(distribution: AnyDistribution) -> AnyDistribution:
    none = (0,) * len(distribution.shape)
    return dataclasses.replace(distribution, halo=none) if any(distribution.halo) else distribution


def _messages(distribution: Distribution, rank: int) -> Iterator[tuple[list[PeerBlock], list[PeerBlock]]]:
    """
    Give the blocks that a rank sends and receives in each exchange of the transpose of a halo exchange, at most one of
    each: the elements of a margin are added to those that they mirror, and are undefined afterwards.

    Axis after axis, from the last, the margins of each side go to the neighbours, with the margins of the axes that
    follow: a corner reaches its owner by one exchange per axis. Each replica keeps its own sums.
    """
    ranks, shape, halo = distribution.rank_grid(), distribution.local_shape(rank), distribution.halo
    places = np.argwhere(ranks == rank).tolist()
    strides = c_strides(shape, 1)

    def blocks(axis: int, first: int, step: int) -> list[PeerBlock]:
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

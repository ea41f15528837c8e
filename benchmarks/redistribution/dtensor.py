"""PyTorch's DTensor over gloo, where it can express a case and is installed."""

from __future__ import annotations

import itertools
import math
import os
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt

from dace_redist.distribution import AnyDistribution, Distribution
from redistribution.catalogue import Case

#: For each axis of a device mesh the tensor axis that is split along it, or None for replicas.
Placements = list[int | None]


def mesh_of(case: Case) -> tuple[list[int], Placements, Placements] | None:
    """
    Return a device mesh over which DTensor can describe both sides of a case, and how; None if there is none.

    It is the coarsest mesh of which each side's process grid, numbered row by row, merges neighbouring axes.
    """
    if not case.is_whole or not (_is_plain(case.source) and _is_plain(case.target)):
        return None
    # A grid of 2 x 6 ranks and one of 6 x 2 are cut at 2 and 6 of 12 ranks: both fit a mesh of 2 x 3 x 2.
    cuts = sorted({cut for side in (case.source, case.target) for cut in _cuts(side)})
    if cuts[-1] != case.ranks or any(high % low for low, high in itertools.pairwise(cuts)):
        return None
    placements = [_placements(side, cuts) for side in (case.source, case.target)]
    if placements[0] is None or placements[1] is None or case.source.ranks_needed != case.target.ranks_needed:
        return None
    return [high // low for low, high in itertools.pairwise(cuts)], placements[0], placements[1]


def _is_plain(distribution: AnyDistribution) -> bool:
    """Return True for one block of ceil(n/p) elements per part, and ranks numbered row by row."""
    if not isinstance(distribution, Distribution) or distribution.ranks is not None:
        return False
    even = all(
        block == "ceil" or (block == "balanced" and extent % (1 if axis is None else distribution.grid[axis]) == 0)
        for extent, block, axis in zip(distribution.shape, distribution.block, distribution.dims, strict=True)
    )
    return even and all(pin is None for pin in distribution.pins)


def _cuts(distribution: AnyDistribution) -> list[int]:
    """Return the numbers of parts of the ranks, from 1 to all, that the leading axes of the process grid make."""
    assert isinstance(distribution, Distribution)
    return [1, *itertools.accumulate(distribution.grid, lambda parts, extent: parts * extent)]


def _placements(distribution: AnyDistribution, cuts: list[int]) -> Placements | None:
    """Return the tensor axis of each mesh axis; None if splitting in steps gives other blocks than at once."""
    assert isinstance(distribution, Distribution)
    split = {axis: i for i, axis in enumerate(distribution.dims) if axis is not None}
    axis_at: dict[int, int] = {}  # the grid axis that ends at a cut
    for axis, (low, high) in enumerate(itertools.pairwise(_cuts(distribution))):
        axis_at |= {cut: axis for cut in cuts if low < cut <= high}
    placements = [split.get(axis_at[cut]) for cut in cuts[1:]]
    for i, extent in enumerate(distribution.shape):
        parts = 1 if distribution.dims[i] is None else distribution.grid[distribution.dims[i]]  # type: ignore[index]
        if placements.count(i) > 1 and extent % parts:
            return None
    return placements


def init_gloo(comm: Any) -> None:
    """Make PyTorch's process group of a communicator's ranks, with one thread each. Collective."""
    import torch
    from torch import distributed

    torch.set_num_threads(1)  # as all that is measured
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    path = comm.bcast(tempfile.mktemp(prefix="dace-redist-gloo-"))
    store = distributed.FileStore(path, comm.size)
    distributed.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)


class Redistribute:
    """
    A case as ``DTensor.redistribute``. Making and freeing it is collective.

    :param case: A case that :func:`mesh_of` finds a mesh for.
    :param comm: Communicator of its ranks.
    :raises ImportError: If PyTorch is not installed.
    """

    def __init__(self, case: Case, comm: Any) -> None:
        from torch.distributed.tensor import Replicate, Shard, init_device_mesh

        mesh = mesh_of(case)
        assert mesh is not None
        init_gloo(comm)
        self._mesh, self._shape = init_device_mesh("cpu", tuple(mesh[0])), case.shape
        self._placements = [[Replicate() if i is None else Shard(i) for i in side] for side in mesh[1:]]
        self._checked = False

    def run(self, source: npt.NDArray[Any], target: npt.NDArray[Any]) -> None:
        """Redistribute into a new array; the first result is copied to ``target`` for the check. Collective."""
        import torch
        from torch.distributed.tensor import DTensor

        strides = [math.prod(self._shape[i + 1 :]) for i in range(len(self._shape))]
        tensor = DTensor.from_local(
            torch.from_numpy(source),
            self._mesh,
            self._placements[0],
            run_check=False,
            shape=torch.Size(self._shape),
            stride=tuple(strides),
        )
        moved = tensor.redistribute(placements=self._placements[1]).to_local()
        if not self._checked:
            target[...] = np.asarray(moved)
            self._checked = True

    def free(self) -> None:
        """End the process group."""
        from torch import distributed

        distributed.destroy_process_group()

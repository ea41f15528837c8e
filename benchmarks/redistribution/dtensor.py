"""PyTorch's DTensor over gloo, for the cases with a device mesh."""

from __future__ import annotations

import math
import os
import tempfile
from typing import Any

import numpy as np
import numpy.typing as npt

from redistribution.catalogue import Case


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

    :param case: A case with a device mesh.
    :param comm: Communicator of its ranks.
    :raises ImportError: If PyTorch is not installed.
    """

    def __init__(self, case: Case, comm: Any) -> None:
        from torch.distributed.tensor import Replicate, Shard, init_device_mesh

        mesh = case.dtensor
        assert mesh is not None
        init_gloo(comm)
        self._mesh, self._shape = init_device_mesh("cpu", tuple(mesh.mesh)), case.shape
        self._placements = [
            [Replicate() if i is None else Shard(i) for i in side] for side in (mesh.source, mesh.target)
        ]
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

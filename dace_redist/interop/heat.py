"""Arrays of Heat: ``heat.DNDarray``, split along one axis or on every rank."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from dace_redist.interop import Part, blocks
from dace_redist.interop.torch import to_torch
from dace_redist.planned_distribution import balanced_lengths


def communicator(array: Any) -> MPI.Intracomm:
    """Return the communicator of an array."""
    return array.comm.handle  # type: ignore[no-any-return]


def read(array: Any, comm: MPI.Intracomm) -> Part:
    """Return this rank's part of an array. Local."""
    own, shape, axis = communicator(array), tuple(array.gshape), array.split
    if axis is None or array.balanced:
        lengths = () if axis is None else balanced_lengths(shape[axis], own.size)
        return Part(array.larray, blocks.split(shape, axis, lengths, own.size), own)
    return Part(array.larray, blocks.split_as_held(shape, axis), own)


def make(part: Part) -> Any:
    """Return a ``DNDarray`` without a copy. The distribution splits one axis over all ranks, or is replicated."""
    import heat

    of = blocks.Blocks.of(part.distribution)
    axis = of.split_axis("Heat", part.comm.size)
    local = to_torch(part.local)
    balanced = axis is None or of.lengths[axis] == balanced_lengths(of.shape[axis], part.comm.size)
    kind, device = heat.types.canonical_heat_type(local.dtype), heat.get_device() if local.is_cuda else heat.cpu
    own = heat.communication.MPICommunication(part.comm)
    return heat.DNDarray(local, of.shape, kind, axis, device, own, balanced)

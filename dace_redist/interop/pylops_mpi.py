"""Arrays of PyLops-MPI: ``pylops_mpi.DistributedArray``, split along one axis or on every rank."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from dace_redist.interop import Part, blocks


def communicator(array: Any) -> MPI.Intracomm:
    """Return the communicator of an array."""
    return array.base_comm  # type: ignore[no-any-return]


def read(array: Any, comm: MPI.Intracomm) -> Part:
    """Return this rank's part of an array. Local."""
    own, shape, axis = communicator(array), tuple(array.global_shape), array.axis
    if array.partition.name != "SCATTER":
        return Part(array.local_array, blocks.split(shape, None, (), own.size), own)
    return Part(array.local_array, blocks.split_as_held(shape, axis), own)


def make(part: Part, **how: Any) -> Any:
    """
    Return a ``DistributedArray`` without a copy. The distribution splits one axis over all ranks, or is replicated.

    :param how: Further arguments of ``pylops_mpi.DistributedArray``, such as ``mask``.
    """
    import pylops_mpi

    of = blocks.Blocks.of(part.distribution)
    axis = of.split_axis("PyLops-MPI", part.comm.size)
    given = {"base_comm": part.comm, "local_array": part.local, **how}
    if axis is None:
        return pylops_mpi.DistributedArray(of.shape, partition=pylops_mpi.Partition.UNSAFE_BROADCAST, **given)
    shapes = [(*of.shape[:axis], length, *of.shape[axis + 1 :]) for length in of.lengths[axis]]
    return pylops_mpi.DistributedArray(of.shape, axis=axis, local_shapes=shapes, **given)

"""Arrays of JAX: ``jax.Array``, sharded over the devices of several processes."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from dace_redist.distribution import AnyDistribution
from dace_redist.interop import Part, blocks


def read(array: Any, comm: MPI.Intracomm) -> Part:
    """
    Return this rank's part of an array, which has at most one device in each process. Local.

    :raises ValueError: If JAX's processes are not the ranks of ``comm``.
    """
    _check_ranks(comm)
    where = distribution(array.shape, array.sharding)
    shards = array.addressable_shards
    local = shards[0].data if shards else np.empty(where.local_shape(comm.rank), array.dtype)
    return Part(local, where, comm)


def distribution(shape: tuple[int, ...], sharding: Any) -> AnyDistribution:
    """
    Return the distribution of an array by its sharding; its ranks are JAX's processes.

    :param shape: Global shape, in elements.
    :raises ValueError: If a process has several devices.
    """
    boxes, owners = [], []
    for device, index in sharding.devices_indices_map(tuple(shape)).items():
        ranges = [range(*part.indices(extent)) for part, extent in zip(index, shape, strict=True)]
        boxes.append((tuple(part.start for part in ranges), tuple(map(len, ranges))))
        owners.append(device.process_index)
    if len(set(owners)) < len(owners):
        raise ValueError(f"array must have one device in each process, got {len(owners)} devices of {len(set(owners))}")
    return blocks.of_boxes(shape, boxes, owners)


def make(part: Part, sharding: Any = None) -> Any:
    """
    Return a ``jax.Array``.

    :param sharding: Sharding of the array; default: a ``NamedSharding`` of axes ``"x0"``, ``"x1"``, ... for the axes of
        the tensor.
    :raises ValueError: If JAX does not have the parts of the distribution, or not its element type.
    """
    import jax

    _check_ranks(part.comm)
    of = blocks.Blocks.of(part.distribution)
    if sharding is None:
        devices = {device.process_index: device for device in reversed(jax.devices())}
        grid = np.array([devices[rank] for rank in of.ranks.ravel().tolist()]).reshape(of.ranks.shape)
        names = [f"x{axis}" for axis in range(of.ranks.ndim)]
        sharding = jax.sharding.NamedSharding(jax.sharding.Mesh(grid, names), jax.sharding.PartitionSpec(*names[:-1]))
    if any(len(set(lengths)) > 1 for lengths in of.lengths):
        raise ValueError(
            f"JAX needs parts of one length along each axis, got {part.distribution}: redistribute() to such parts "
            "first, or pad the array"
        )
    expected = distribution(of.shape, sharding)
    fits = expected.is_equivalent_to(part.distribution)
    if 0 in of.shape:  # however many parts there are
        fits = sharding.shard_shape(of.shape) == part.local.shape
    if not fits:
        raise ValueError(f"JAX needs {expected}, got {part.distribution}: redistribute() to it first")
    local = np.asarray(part.local, order="C")
    local = local.astype(local.dtype.newbyteorder("="), copy=False)
    shards = [jax.device_put(local, device) for device in sharding.addressable_devices]
    if any(shard.dtype != local.dtype for shard in shards):
        raise ValueError(f'JAX has no {local.dtype} unless jax.config.update("jax_enable_x64", True) is called first')
    return jax.make_array_from_single_device_arrays(of.shape, sharding, shards, dtype=local.dtype)


def _check_ranks(comm: MPI.Intracomm) -> None:
    import jax

    remedy = ": call jax.distributed.initialize() first"
    blocks.check_ranks("JAX", jax.process_index(), jax.process_count(), comm, remedy)

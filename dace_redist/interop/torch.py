"""Arrays of PyTorch: ``DTensor``, sharded or replicated over the axes of a device mesh, or partial results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import Distribution
from dace_redist.interop import Part, blocks

#: Reductions by PyTorch's names.
_OPS = {"sum": "sum", "product": "prod", "min": "min", "max": "max"}


def read(array: Any, comm: MPI.Intracomm) -> Part:
    """
    Return this rank's part of a ``DTensor``; partial results get their reduction. Local.

    :raises ValueError: If ranks of PyTorch are not those of ``comm``, or the placements are not supported.
    """
    _check_ranks(comm)
    partial = {placement.reduce_op for placement in array.placements if placement.is_partial()}
    if partial - {*_OPS} or len(partial) > 1 or (partial and any(one.is_replicate() for one in array.placements)):
        raise ValueError(
            f"array must have one of the reductions {', '.join(_OPS)}, and no replicas of partial results; got "
            f"{array.placements}: call its redistribute() first"
        )
    where = distribution(array.shape, array.device_mesh, array.placements)
    local = array.to_local()
    local = local.wait() if hasattr(local, "wait") else local  # the result of a collective that has not ended
    return Part(local.detach(), where, comm, next((_OPS[name] for name in partial), None))


def distribution(shape: Sequence[int], device_mesh: Any, placements: Sequence[Any]) -> Distribution:
    """
    Return the distribution of a ``DTensor``: mesh axes that are not sharded hold replicas.

    :param shape: Global shape, in elements.
    :raises ValueError: If a placement is neither ``Shard``, ``Replicate`` nor ``Partial``, or the mesh has ranks in an
        order by which PyTorch's collectives, which sort the ranks along an axis, mix up parts.
    """
    mesh = device_mesh.mesh.numpy()
    of_axes: list[list[int]] = [[] for _ in shape]
    for axis, placement in enumerate(placements):
        if type(placement).__name__ not in ("Shard", "Replicate", "Partial"):
            raise ValueError(f"placements must be Shard, Replicate or Partial, got {placement}")
        if placement.is_shard():
            of_axes[placement.dim].append(axis)
    sharded = [axis for axes in of_axes for axis in axes]
    ranks = mesh.transpose(*sharded, *(axis for axis in range(mesh.ndim) if axis not in sharded))
    lengths = tuple(_nested((int(n),), [mesh.shape[a] for a in axes]) for n, axes in zip(shape, of_axes, strict=True))
    even = [len(set(of_axis)) == 1 for of_axis, axes in zip(lengths, of_axes, strict=True) for _ in axes]
    ranks = _in_order_of_groups(ranks, even)
    return blocks.Blocks(lengths, ranks.reshape(*map(len, lengths), -1)).distribution()


def _in_order_of_groups(ranks: npt.NDArray[np.int64], even: Sequence[bool]) -> npt.NDArray[np.int64]:
    """Return ranks in ascending order along the first axes of a mesh; parts may be moved along ``even`` axes only."""
    for axis, is_even in enumerate(even):
        order = np.moveaxis(np.argsort(ranks, axis), axis, 0).reshape(ranks.shape[axis], -1)
        if (np.diff(order, axis=0) < 0).any() and (not is_even or (order != order[:, :1]).any()):
            raise ValueError(
                f"device_mesh must have ascending ranks along the axes of Shard, as PyTorch sorts the parts by ranks, "
                f"got {ranks.tolist()}: use another mesh"
            )
        ranks = ranks.take(order[:, 0], axis)
    return ranks


def _nested(lengths: tuple[int, ...], parts: list[int]) -> tuple[int, ...]:
    """Return the lengths of the parts of an axis that mesh axes split one after another."""
    for count in parts:
        lengths = tuple(piece for length in lengths for piece in blocks.uniform(length, count))
    return lengths


def make(part: Part, device_mesh: Any = None, placements: Sequence[Any] | None = None) -> Any:
    """
    Return a ``DTensor`` without a copy. Collective.

    :param device_mesh: Mesh of the tensor; default: a new one, with an axis for each axis of the tensor that is split
        and one for replicas.
    :param placements: Placements on that mesh.
    :raises ValueError: If PyTorch's placements do not give the parts of the distribution.
    """
    import torch
    from torch.distributed import tensor

    _check_ranks(part.comm)
    of, local = blocks.Blocks.of(part.distribution), to_torch(part.local)
    if device_mesh is None:
        axes = [axis for axis, parts in enumerate(of.ranks.shape) if parts > 1] or [of.ranks.ndim - 1]
        mesh = of.ranks.reshape([of.ranks.shape[axis] for axis in axes])
        device_mesh = tensor.DeviceMesh(local.device.type, torch.from_numpy(mesh.copy()))
        names = {ours: name for name, ours in _OPS.items()}
        others = tensor.Replicate() if part.op is None else tensor.Partial(names[part.op])
        placements = [tensor.Shard(axis) if axis < len(of.shape) else others for axis in axes]
    expected = distribution(of.shape, device_mesh, placements or ())
    if not expected.is_equivalent_to(part.distribution):
        raise ValueError(
            f"placements {placements} need {expected}, got {part.distribution}: redistribute() to it first"
        )
    strides = tuple(int(np.prod(of.shape[axis + 1 :])) for axis in range(len(of.shape)))
    return tensor.DTensor.from_local(
        local, device_mesh, placements, run_check=False, shape=torch.Size(of.shape), stride=strides
    )


def to_torch(array: Any) -> Any:
    """
    Return a local array as a tensor, without a copy unless NumPy's strides are negative, or bytes must be swapped.

    :raises TypeError: If PyTorch does not have the element type.
    """
    import torch

    if not isinstance(array, np.ndarray):
        return array if isinstance(array, torch.Tensor) else torch.from_dlpack(array)
    if any(stride < 0 for stride in array.strides) or not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind != "V":
        return torch.from_numpy(array)
    kind = getattr(torch, array.dtype.name, None)  # as bfloat16
    if kind is None:
        raise TypeError(f"PyTorch has no elements of type {array.dtype}: pass one of its fields, or their bytes")
    return torch.from_numpy(array.view(f"i{array.itemsize}")).view(kind)


def _check_ranks(comm: MPI.Intracomm) -> None:
    from torch import distributed

    if not distributed.is_initialized():
        raise ValueError("PyTorch has no process group: call torch.distributed.init_process_group() first")
    blocks.check_ranks("PyTorch", distributed.get_rank(), distributed.get_world_size(), comm)

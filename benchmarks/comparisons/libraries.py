"""Arrays of other libraries, from axis 0 split to axis 1 split, by this package or by their own calls."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mpi4py import MPI
from redistribution.peers import init_gloo

import dace_redist
from comparisons.comparison import Comparison, UnsuitableError
from dace_redist.mpi.collective import together


def import_heat() -> Any:
    """
    Import Heat.

    Its data sets import torchvision, whose wheels on PyPI need a PyTorch for GPUs; its arrays do not use it.
    """
    if "torchvision" not in sys.modules:
        package = sys.modules["torchvision"] = types.ModuleType("torchvision")
        for name, kind in (("datasets", "MNIST"), ("transforms", "Compose")):
            module = sys.modules[f"torchvision.{name}"] = types.ModuleType(name)
            setattr(module, kind, object)
            setattr(package, name, module)
    return importlib.import_module("heat")


def _heat(comm: MPI.Intracomm, rows: np.ndarray, shape: tuple[int, ...]) -> tuple[Any, Callable[[], Any]]:
    ht = import_heat()
    x = ht.array(rows, is_split=0, comm=ht.communication.MPICommunication(comm))
    return x, lambda: ht.resplit(x, 1)


def _mpiarray(comm: MPI.Intracomm, rows: np.ndarray, shape: tuple[int, ...]) -> tuple[Any, Callable[[], Any]]:
    import mpiarray

    x = mpiarray.DistributedArray(mpiarray.Layout(shape, comm=comm, split=0), rows)
    columns = mpiarray.Layout(shape, comm=comm, split=1)
    return x, lambda: x.redistribute(columns)


def _pylops_mpi(comm: MPI.Intracomm, rows: np.ndarray, shape: tuple[int, ...]) -> tuple[Any, Callable[[], Any]]:
    import pylops_mpi

    x = pylops_mpi.DistributedArray(shape, comm, axis=0, local_array=rows)
    return x, lambda: x.redistribute(1)


def _torch(comm: MPI.Intracomm, rows: np.ndarray, shape: tuple[int, ...]) -> tuple[Any, Callable[[], Any]]:
    import torch
    from torch.distributed import tensor

    if not torch.distributed.is_initialized():
        init_gloo(comm)
    mesh = tensor.init_device_mesh("cpu", (comm.size,))
    x = tensor.DTensor.from_local(torch.from_numpy(rows), mesh, [tensor.Shard(0)])
    return x, lambda: x.redistribute(placements=[tensor.Shard(1)])


LIBRARIES = {
    "heat, resplit": _heat,
    "mpiarray, redistribute": _mpiarray,
    "pylops-mpi, redistribute": _pylops_mpi,
    "PyTorch DTensor on gloo, redistribute": _torch,
}


def resplit(comm: MPI.Intracomm, shape: tuple[int, ...]) -> Iterator[Comparison]:
    """Compare with each library that is installed, on evenly split arrays of float64."""
    if any(extent % comm.size for extent in shape):
        raise UnsuitableError(f"extents must be multiples of {comm.size}")
    source, target = (dace_redist.Distribution.split(shape, axis, comm.size) for axis in (0, 1))
    rows = source.local(np.arange(np.prod(shape), dtype=float).reshape(shape), comm.rank)
    expected = target.local(np.arange(np.prod(shape), dtype=float).reshape(shape), comm.rank)
    for what, prepare in LIBRARIES.items():
        try:
            with together(comm):
                x, own = prepare(comm, rows, shape)
        except (ImportError, RuntimeError) as error:
            raise UnsuitableError(f"{what}: {error}") from error
        if not np.array_equal(dace_redist.redistribute(x, target, comm=comm).local, expected):
            raise AssertionError(what)
        yield Comparison(
            what, {"redistribute(x, target)": lambda x=x: dace_redist.redistribute(x, target, comm=comm), "own": own}
        )

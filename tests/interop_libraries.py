"""Other libraries as tests use them: how each makes arrays of its own, and collects one."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from comparisons.libraries import import_heat
from redistribution import scalapack

from dace_redist import Distribution
from dace_redist.interop import blocks

LIBRARY = ctypes.util.find_library("scalapack-openmpi")
Cases = Iterator[tuple[Any, np.ndarray]]


def numbers(shape: tuple[int, ...], dtype: str = "f8") -> np.ndarray:
    return (1 + np.arange(np.prod(shape, dtype=int))).reshape(shape).astype(dtype)


def imported(name: str) -> Any:
    """Import a library, or skip the test."""
    try:
        return import_heat() if name == "heat" else importlib.import_module(name)
    except ImportError as error:
        pytest.skip(f"{name} is not installed (pip install dace-redist[interop]): {error}")


def free_port(comm: Any) -> int:
    """Number of a free port of this machine, equal on all ranks."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(comm.bcast(probe.getsockname()[1]))


class Heat:
    """Arrays of Heat."""

    shapes = ((7, 5), (6, 4, 3), (9,))
    unit = 1  # that extents are multiples of

    def __init__(self, comm: Any) -> None:
        self.ht = imported("heat")
        self.comm, self.own = comm, self.ht.communication.MPICommunication(comm)

    def arrays(self) -> Cases:
        for shape in self.shapes:
            for split in (None, *range(len(shape))):
                yield self.ht.array(numbers(shape), split=split, comm=self.own), numbers(shape)
        whole, rank = numbers((10, 3), "i4"), self.comm.rank
        first = rank * (rank + 1) // 2  # parts of 1, 2, 3, ... rows
        last = 10 if rank == self.comm.size - 1 else first + rank + 1
        yield self.ht.array(whole[first:last], is_split=0, comm=self.own), whole

    def targets(self) -> Iterator[tuple[Distribution, dict[str, Any]]]:
        for shape in self.shapes:
            for axis in range(len(shape)):
                yield Distribution.split(shape, axis, self.comm.size), {}
            yield Distribution.replicated(shape, self.comm.size), {}
        yield Distribution((10, 3), (self.comm.size,), block="ceil"), {}

    def whole(self, array: Any) -> np.ndarray:
        return array.numpy()

    def local(self, array: Any) -> np.ndarray:
        return array.larray.numpy()


class PylopsMpi(Heat):
    """Arrays of PyLops-MPI."""

    def __init__(self, comm: Any) -> None:
        self.module, self.comm = imported("pylops_mpi"), comm

    def arrays(self) -> Cases:
        kind = self.module.DistributedArray
        for shape in self.shapes:
            for axis in range(len(shape)):
                yield kind.to_dist(numbers(shape), base_comm=self.comm, axis=axis), numbers(shape)
            yield kind.to_dist(numbers(shape), self.comm, partition=self.module.Partition.BROADCAST), numbers(shape)
        lengths = [*range(1, self.comm.size), 10 - sum(range(self.comm.size))]
        shapes = [(length, 3) for length in lengths]
        yield kind.to_dist(numbers((10, 3), "f4"), self.comm, local_shapes=shapes), numbers((10, 3), "f4")

    def whole(self, array: Any) -> np.ndarray:
        return array.asarray()

    def local(self, array: Any) -> np.ndarray:
        return array.local_array


class Mpiarray(Heat):
    """Arrays of mpiarray."""

    shapes = ((7, 5), (6, 4, 8), (9,))

    def __init__(self, comm: Any) -> None:
        self.module, self.comm = imported("mpiarray"), comm

    def arrays(self) -> Cases:
        for shape in self.shapes:
            for split in (None, 0, -1, tuple(range(len(shape)))):
                for halo in (0, 1):
                    yield self.module.array(numbers(shape), split=split, halo=halo, comm=self.comm), numbers(shape)
        cuts = [[0, *range(1, self.comm.size), 10], None]
        yield self.module.array(numbers((10, 3)), bounds=cuts, comm=self.comm), numbers((10, 3))

    def targets(self) -> Iterator[tuple[Distribution, dict[str, Any]]]:
        for shape in self.shapes:
            yield Distribution.split(shape, len(shape) - 1, self.comm.size), {}
            yield Distribution.replicated(shape, self.comm.size), {}
        yield Distribution((8, 8), (2, 2) if self.comm.size == 4 else (1, self.comm.size)), {}
        yield Distribution((8, 8), (self.comm.size,), dims=(None, 0)), {}

    def whole(self, array: Any) -> np.ndarray:
        return array.gather()

    def local(self, array: Any) -> np.ndarray:
        return array.local


class Mpi4pyFft(Heat):
    """Arrays of mpi4py-fft."""

    shapes = ((7, 5), (6, 4, 8))

    def __init__(self, comm: Any) -> None:
        self.module, self.comm = imported("mpi4py_fft"), comm

    def arrays(self) -> Cases:
        pencil = imported("mpi4py_fft.pencil")
        for shape in self.shapes:
            for dims in ([0] * (len(shape) - 1) + [1], [1] + [0] * (len(shape) - 1)):
                subcomm = pencil.Subcomm(self.comm, dims)
                array = self.module.DistArray(shape, subcomm, dtype="c16")
                array[...] = numbers(shape, "c16")[array.local_slice()]
                yield array, numbers(shape, "c16")
            array = self.module.DistArray((3, *shape), subcomm, rank=1)
            array[...] = numbers((3, *shape))[array.local_slice()]
            yield array, numbers((3, *shape))

    def targets(self) -> Iterator[tuple[Distribution, dict[str, Any]]]:
        for shape in self.shapes:
            for axis in range(len(shape)):
                yield Distribution.split(shape, axis, self.comm.size), {}
        grid = (1, 3) if self.comm.size == 3 else (self.comm.size // 2 or 1, min(2, self.comm.size))
        yield Distribution((5, 8, 6), grid), {}
        yield Distribution((3, 5, 8), (self.comm.size,), dims=(None, 0, None)), {"rank": 1}

    def whole(self, array: Any) -> np.ndarray:
        whole = np.zeros(array.global_shape, array.dtype)
        whole[array.local_slice()] = array
        self.comm.Allreduce(np.copy(whole), whole)
        return whole

    def local(self, array: Any) -> np.ndarray:
        return array.view(np.ndarray)


class Torch(Heat):
    """``DTensor`` of PyTorch."""

    shapes = ((7, 5), (6, 4, 8), (9,))

    def __init__(self, comm: Any, order: Any = None) -> None:
        self.torch, self.comm = imported("torch"), comm
        self.tensor = imported("torch.distributed.tensor")
        if not self.torch.distributed.is_initialized():
            where = f"tcp://127.0.0.1:{free_port(comm)}"
            self.torch.distributed.init_process_group("gloo", init_method=where, rank=comm.rank, world_size=comm.size)
        ranks = self.torch.arange(comm.size) if order is None else self.torch.tensor(order)
        self.line = self.tensor.DeviceMesh("cpu", ranks)
        rows = 2 if comm.size == 4 else 1
        self.grid = self.tensor.DeviceMesh("cpu", ranks.reshape(rows, -1))
        self.turned = self.tensor.DeviceMesh("cpu", ranks.reshape(rows, -1).T.contiguous())

    def placements(self, ndim: int) -> Iterator[tuple[Any, list[Any]]]:
        shard, replicate = self.tensor.Shard, self.tensor.Replicate()
        yield self.line, [replicate]
        yield self.line, [shard(ndim - 1)]
        for mesh in (self.grid, self.turned):
            yield mesh, [shard(0), shard(ndim - 1)]  # of one axis twice for a vector
            yield mesh, [shard(0), replicate]
            yield mesh, [replicate, shard(0)]
            yield mesh, [shard(ndim - 1), shard(0)]

    def arrays(self) -> Cases:
        for shape in self.shapes:
            for mesh, placements in self.placements(len(shape)):
                for dtype in ("f8", "i4"):
                    whole = numbers(shape, dtype)
                    yield self.tensor.distribute_tensor(self.torch.from_numpy(whole), mesh, placements), whole
        whole = numbers((4, 6))
        for ops in (["sum"], ["sum", "sum"], ["max"]):
            local = self.torch.from_numpy(whole * (self.comm.rank + 1))
            mesh = self.line if len(ops) == 1 else self.grid
            factor = {"sum": sum(range(1, self.comm.size + 1)), "max": self.comm.size}[ops[0]]
            yield self.tensor.DTensor.from_local(local, mesh, [*map(self.tensor.Partial, ops)]), factor * whole
        whole = numbers((4 * self.comm.size, 250_000))
        rows = self.tensor.distribute_tensor(self.torch.from_numpy(whole), self.line, [self.tensor.Shard(0)])
        yield rows.redistribute(self.line, [self.tensor.Replicate()], async_op=True), whole

    def targets(self) -> Iterator[tuple[Distribution, dict[str, Any]]]:
        from dace_redist.interop.torch import distribution

        for shape in self.shapes:
            for mesh, placements in self.placements(len(shape)):
                where = distribution(shape, mesh, placements)
                yield where, {"device_mesh": mesh, "placements": placements}
        yield Distribution((8, 4), (self.comm.size,)), {}
        yield Distribution.replicated((8, 4), self.comm.size), {}
        if self.comm.size == 4:
            yield Distribution((8, 4), (2, 2), dims=(1, 0)), {}
            yield Distribution((8, 4), (2, 2), dims=(None, 0)), {}

    def whole(self, array: Any) -> np.ndarray:
        return array.full_tensor().numpy()

    def local(self, array: Any) -> np.ndarray:
        return array.to_local().numpy()


class Jax(Heat):
    """Arrays of JAX, of a process for each rank."""

    shapes = ((12, 24), (12, 3, 24), (36,))
    unit = 12

    def __init__(self, comm: Any, order: Any = None) -> None:
        self.jax, self.comm, self.order = imported("jax"), comm, slice(None) if order is None else order
        self.jax.config.update("jax_cpu_collectives_implementation", "gloo")
        self.jax.config.update("jax_platforms", "cpu")
        self.jax.config.update("jax_enable_x64", True)
        if not self.jax.distributed.is_initialized():
            self.jax.distributed.initialize(f"127.0.0.1:{free_port(comm)}", comm.size, comm.rank)

    def shardings(self, shape: tuple[int, ...]) -> Iterator[Any]:
        sharding, devices = self.jax.sharding, np.array(self.jax.devices())[self.order]
        spec = sharding.PartitionSpec
        line = sharding.Mesh(devices, "x")
        grid = sharding.Mesh(devices.reshape(2 if self.comm.size == 4 else 1, -1), ("x", "y"))
        yield sharding.NamedSharding(line, spec())
        yield sharding.NamedSharding(line, spec("x"))
        yield sharding.NamedSharding(grid, spec(("x", "y")))
        yield sharding.NamedSharding(grid, spec(("y", "x")))
        yield sharding.NamedSharding(grid, spec("y"))
        if len(shape) > 1:
            yield sharding.NamedSharding(grid, spec("x", *[None] * (len(shape) - 2), "y"))
            yield sharding.NamedSharding(grid, spec("y", *[None] * (len(shape) - 2), "x"))

    def arrays(self) -> Cases:
        for shape in self.shapes:
            for sharding in self.shardings(shape):
                whole = numbers(shape)
                yield self.jax.make_array_from_callback(shape, sharding, lambda index, of=whole: of[index]), whole
        whole = numbers((12, 3)).astype(self.jax.numpy.bfloat16)
        yield self.jax.make_array_from_callback((12, 3), sharding, lambda index: whole[index]), whole

    def targets(self) -> Iterator[tuple[Distribution, dict[str, Any]]]:
        from dace_redist.interop.jax import distribution

        for shape in self.shapes:
            for sharding in self.shardings(shape):
                yield distribution(shape, sharding), {"sharding": sharding}
        for shape in ((12, 8), (0, 8)):
            yield Distribution(shape, (self.comm.size,)), {}
            yield Distribution.replicated(shape, self.comm.size), {}
        if self.comm.size == 4:
            yield Distribution((8, 4), (2, 2), dims=(1, 0)), {}

    def whole(self, array: Any) -> np.ndarray:
        from jax.experimental import multihost_utils

        return multihost_utils.process_allgather(array, tiled=True)

    def local(self, array: Any) -> np.ndarray:
        return np.asarray(array.addressable_shards[0].data)


class WithPartitions(Heat):
    """Arrays of Heat, by their partition interface."""

    def arrays(self) -> Cases:
        for array, whole in super().arrays():
            if array.split is not None:

                class Other:
                    __partitioned__ = array.__partitioned__

                yield Other(), whole

    def targets(self) -> Iterator[tuple[Distribution, dict[str, Any]]]:
        yield from super().targets()
        yield Distribution((8, 4), (2, 2) if self.comm.size == 4 else (1, self.comm.size)), {}

    def whole(self, array: Any) -> np.ndarray:
        interface = array.__partitioned__
        mine = {key: interface["get"](interface["partitions"][key]["data"]) for key in interface["locals"]}
        whole = np.zeros(interface["shape"])
        for found in self.comm.allgather(mine):
            for key, data in found.items():
                part = interface["partitions"][key]
                assert data.shape == part["shape"]
                whole[tuple(slice(a, a + n) for a, n in zip(part["start"], part["shape"], strict=True))] = data
        return whole

    def local(self, array: Any) -> np.ndarray:
        return next(part["data"] for part in array.__partitioned__["partitions"].values() if part["data"] is not None)


class Scalapack(Heat):
    """``NPScal`` of scalapack4py."""

    shapes = ((7, 5), (12, 9))

    def __init__(self, comm: Any) -> None:
        reason = scalapack.library_missing()
        if reason is not None:
            pytest.skip(reason)
        self.module, self.comm = imported("scalapack4py.npscal"), comm
        library = imported("scalapack4py").ScaLAPACK4py(ctypes.CDLL(LIBRARY, mode=ctypes.RTLD_GLOBAL))
        grids = {(1, comm.size), (comm.size, 1), (2, comm.size // 2 or 1)} if comm.size != 3 else {(1, 3), (3, 1)}
        self.grids = [
            self.module.BLACSGrid(library, comm=comm, nprow=rows, npcol=columns)
            for rows, columns in sorted(grids)
            if rows * columns == comm.size
        ]

    def arrays(self) -> Cases:
        for shape in self.shapes:
            for number, grid in enumerate(self.grids):
                first = {"drsrc": grid.nprow - 1, "dcsrc": grid.npcol - 1} if number else {}
                yield self.module.asarray(numbers(shape), grid=grid, dmb=2, dnb=3, **first), numbers(shape)

    def targets(self) -> Iterator[tuple[Distribution, dict[str, Any]]]:
        for shape in self.shapes:
            for grid in self.grids:
                yield Distribution.block_cyclic(shape, (grid.nprow, grid.npcol), (3, 2)), {"grid": grid}
                yield Distribution(shape, (grid.nprow, grid.npcol), block="ceil"), {"grid": grid}

    def whole(self, array: Any) -> np.ndarray:
        return np.asarray(array)

    def local(self, array: Any) -> np.ndarray:
        return array.loc_array


class Petsc(Heat):
    """``Vec``, also of a ``DMDA``, and dense ``Mat`` of petsc4py, also converted from ScaLAPACK."""

    def __init__(self, comm: Any) -> None:
        self.petsc, self.comm = imported("petsc4py.PETSc"), comm
        self.options = self.petsc.Options()

    def dmdas(self) -> Iterator[Any]:
        for sizes in ((9,), (7, 5), (6, 4, 8)):
            for dof, width in ((1, 0), (3, 1)):
                yield self.petsc.DMDA().create(sizes=sizes, dof=dof, stencil_width=width, comm=self.comm)
        lengths = [*range(1, self.comm.size), 10 - sum(range(self.comm.size))]
        how = {"proc_sizes": (self.comm.size, 1), "ownership_ranges": (lengths, [3])}
        yield self.petsc.DMDA().create(sizes=(10, 3), boundary_type="periodic", comm=self.comm, **how)

    def shape_of(self, dm: Any) -> tuple[int, ...]:
        return dm.getSizes() + ((dm.getDof(),) if dm.getDof() > 1 else ())

    def own(self, dm: Any) -> tuple[slice, ...]:
        return tuple(slice(first, first + extent) for first, extent in zip(*dm.getCorners(), strict=True))

    def arrays(self) -> Cases:
        for dm in self.dmdas():
            vec, whole, own = dm.createGlobalVec(), numbers(self.shape_of(dm)), self.own(dm)
            dm.getVecArray(vec)[own] = whole[own]
            yield vec, whole
        vec = self.petsc.Vec().createMPI((self.comm.rank + 2, None), comm=self.comm)
        vec[slice(*vec.getOwnershipRange())] = 1 + np.arange(*vec.getOwnershipRange())
        yield vec, numbers((vec.getSize(),))
        for matrix in self.matrices():
            yield self.filled(matrix)

    def matrices(self) -> Iterator[Any]:
        yield self.petsc.Mat().createDense((7, 5), comm=self.comm)
        yield self.petsc.Mat().createDense(((self.comm.rank + 1, None), (None, 4)), comm=self.comm)
        self.options["mat_scalapack_block_sizes"] = "3,2"
        for shape in ((13, 9), (7, 12)):
            sizes = [(blocks.uniform(extent, self.comm.size)[self.comm.rank], extent) for extent in shape]
            matrix = self.petsc.Mat().create(self.comm)
            matrix.setSizes(sizes)
            matrix.setType("scalapack")
            yield matrix

    def filled(self, matrix: Any) -> tuple[Any, np.ndarray]:
        matrix.setUp()
        whole = numbers(matrix.getSize())
        rows, columns = (indices.getIndices() for indices in matrix.getOwnershipIS())
        matrix.setValues(rows, columns, whole[np.ix_(rows, columns)])
        matrix.assemble()
        if matrix.getType() == "scalapack":
            matrix = matrix.convert("dense", self.petsc.Mat())
        return matrix, whole

    def targets(self) -> Iterator[tuple[Distribution, dict[str, Any]]]:
        from dace_redist.interop.petsc import distribution

        for dm in self.dmdas():
            yield distribution(dm), {"dm": dm}
            if dm.getDof() == 1:
                yield distribution(dm), {}
        size = self.comm.size
        yield Distribution.split((7, 5), 0, size), {"kind": "dense"}
        yield Distribution((5, 9), (size,), block="ceil"), {"kind": "dense"}

    def whole(self, array: Any) -> np.ndarray:
        from dace_redist.interop.petsc import dm_of

        if isinstance(array, self.petsc.Mat):
            whole = np.zeros(array.getSize())
            rows, columns = (indices.getIndices() for indices in array.getOwnershipIS())
            if rows.size and columns.size:
                whole[np.ix_(rows, columns)] = array.getValues(rows, columns)
        else:
            dm = dm_of(array)
            whole, own = np.zeros(self.shape_of(dm)), self.own(dm)
            whole[own] = dm.getVecArray(array)[own]
        return self.comm.allreduce(whole)

    def local(self, array: Any) -> np.ndarray:
        return array.getDenseArray() if hasattr(array, "getDenseArray") else array.getArray(readonly=True)


LIBRARIES = {
    "petsc": Petsc,
    "scalapack": Scalapack,
    "heat": Heat,
    "pylops_mpi": PylopsMpi,
    "mpiarray": Mpiarray,
    "mpi4py_fft": Mpi4pyFft,
    "torch": Torch,
    "jax": Jax,
    "partitioned": WithPartitions,
}

"""Arrays of other libraries are read where they lie, and made of a target, as the libraries themselves have them."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from distributions import some_distribution
from interop_libraries import LIBRARIES, imported, numbers
from mpi4py import MPI
from results import refused
from seeds import seed, some

from dace_redist import DistributedArray, Distribution, einsum, redistribute
from dace_redist.interop.torch import to_torch

#: Libraries that import PyTorch or PyLops, which takes seconds.
SLOW = ("heat", "partitioned", "pylops_mpi", "torch")
EACH = [pytest.param(name, marks=[pytest.mark.libraries] if name in SLOW else []) for name in LIBRARIES]


@pytest.mark.parametrize("library", EACH)
@pytest.mark.mpi(ranks=[4], full=[1, 3], timeout=300)
def test_array_is_read(comm, library):
    for number, (array, whole) in enumerate(LIBRARIES[library](comm).arrays()):
        before = LIBRARIES[library].local(None, array)
        target = some_distribution(whole.shape, comm.size, number)
        result = redistribute(array, target, comm=comm)
        wrong = not np.array_equal(result.local, target.local(whole, comm.rank)) or result.distribution is not target
        wrong |= result.dtype != whole.dtype or not np.array_equal(before, LIBRARIES[library].local(None, array))
        assert not any(comm.allgather(wrong)), f"{array} to {target}"


@pytest.mark.parametrize("library", EACH)
@pytest.mark.mpi(ranks=[4], full=[1, 3], timeout=300)
def test_array_is_made(comm, library):
    own = LIBRARIES[library](comm)
    for number, (target, how) in enumerate(own.targets()):
        source, whole = some_distribution(target.shape, comm.size, number), numbers(target.shape)
        result = redistribute(source.local(whole, comm.rank), source, target, comm=comm)
        array = DistributedArray(result, target, comm).to(library, **how)
        assert np.array_equal(own.whole(array), whole), f"{target} {how}"
        assert library in ("jax", "petsc", "scalapack") or not result.size or np.shares_memory(own.local(array), result)
        back = redistribute(array, source, comm=comm)
        assert np.array_equal(back.local, source.local(whole, comm.rank))


@pytest.mark.fuzz
@pytest.mark.parametrize("library", EACH)
@pytest.mark.mpi(ranks=[4], full=[3], timeout=300)
def test_random_meshes(comm, library):
    """Ranks in any order on meshes or communicators, both ways: as the library itself collects them, or refused."""
    rng, meshes = np.random.default_rng(seed()), library in ("torch", "jax")
    for _ in range(max(1, some(3))):
        order = rng.permutation(comm.size)
        group = comm.Dup() if meshes else comm.Split(0, int(order[comm.rank]))
        own = LIBRARIES[library](group, order) if meshes else LIBRARIES[library](group)
        own.shapes = [tuple((own.unit * rng.integers(4, 9, len(one))).tolist()) for one in type(own).shapes]
        for number, (array, whole) in enumerate(own.arrays()):
            target = some_distribution(whole.shape, comm.size, number)
            result = moved_or_refused(group, redistribute, array, target, comm=group)
            right = result is None or np.array_equal(result.local, target.local(whole, group.rank))
            assert all(group.allgather(right)), f"{array} on {order} to {target}"
        how = next(own.targets())[1] if library == "scalapack" else {}
        for shape in own.shapes * 4:
            parts = rng.permutation([group.size, *[1] * (len(shape) - 1)])
            ranks = order if meshes or rng.random() < 0.5 else None
            target = Distribution(shape, parts.tolist(), block="ceil", ranks=ranks)
            whole = numbers(shape)
            local = target.local(whole, group.rank)
            made = moved_or_refused(group, DistributedArray(local, target, group).to, library, **how)
            assert made is None or np.array_equal(own.whole(made), whole), target
        group.Free()


def moved_or_refused(group, call, *arguments, **how):
    """Return the result of a call; None if every rank refuses it."""
    result = None
    try:
        result = call(*arguments, **how)
    except (ValueError, TypeError) as error:
        assert re.search(r"redistribute\(\)|another mesh|grid must have the ranks", str(error)), error
    assert len({*group.allgather(result is None)}) == 1
    return result


@pytest.mark.parametrize("library", ["jax", "mpiarray", "partitioned"])
@pytest.mark.mpi(ranks=[2])
def test_scalars_and_arrays_on_one_rank(comm, library):
    LIBRARIES[library](comm)
    for where in (Distribution.replicated((), 2), Distribution.on_rank((4, 4), 0)):
        if library == "mpiarray" and where.shape:
            continue
        part = where.local(numbers(where.shape), comm.rank)
        there = DistributedArray(part, where, comm).to(library)
        assert np.array_equal(redistribute(there, where, comm=comm).local, part), where


@pytest.mark.mpi(ranks=[4])
def test_scalapack_descriptor(comm):
    ranks = np.array([[3, 1], [0, 2]])
    where = Distribution.from_scalapack([1, 7, 9, 8, 2, 3, 1, 0, 6], ranks)
    assert where.scalapack_descriptor(4, 7)[1] == -1
    for numbers_, grid, text in (
        ([1, 0, 9, 8, 2, 3, 2, 0, 6], (2, 2), "rsrc must be from 0 to 1"),
        ([502, 0, 9, 8, 2, 3, 0, 0, 6], (2, 2), "dtype must be 1"),
        ([1, 0, 9, 8, 2, 3], (2, 2), "must be the nine integers"),
        ([1, 0, 9, 8, 2, 3, 0, 0, 0], (2, 2), "lld must be at least 1, got 0"),
        ([1, 0, 9, 8, 0, 3, 0, 0, 6], (2, 2), r"block\[0\] must be at least 1"),
        ([1, 0, 9, 8, 2, 3, 0, 0, 6], 4, "grid must be"),
        ([1, 0, 9, 8, 2, 3, 0, 0, 6], (-1, 2), "grid must be"),
        ([1, 0, 9, 8, 2, 3, 0, 0, 6], (2.0, 2.0), "grid must be"),
    ):
        with pytest.raises(ValueError, match=text):
            Distribution.from_scalapack(numbers_, grid)
    for wrong in (
        Distribution((9, 8), (2, 2)),
        Distribution.replicated((9, 8), 4),
        Distribution((9,), (4,)),
        Distribution((8, 8), (2, 2), block=((3, 5), 2)),
        Distribution((2**31, 2), (2, 2)),
    ):
        with pytest.raises(ValueError, match="ScaLAPACK has"):
            wrong.scalapack_descriptor(0)


class Partitioned:
    """An array in two boxes on rank 0, and one on rank 1."""

    def __init__(self, rank: int, place: int = 1) -> None:
        boxes = {(0, 0): ((0, 0), (2, 4), 0), (1, 0): ((2, 0), (2, 3), 0), (1, 1): ((2, 3), (2, 1), place)}
        boxes |= {(2, 0): ((4, 0), (0, 3), 0), (2, 1): ((4, 3), (0, 1), 1)}
        whole = numbers((4, 4))
        self.__partitioned__ = {
            "shape": (4, 4),
            "partition_tiling": (3, 2),
            "partitions": {
                key: {
                    "start": start,
                    "shape": shape,
                    "location": [owner],
                    "dtype": whole.dtype,
                    "data": whole[tuple(map(slice, start, np.add(start, shape)))] if owner == rank else None,
                }
                for key, (start, shape, owner) in boxes.items()
            },
            "get": lambda data: data,
        }


@pytest.mark.mpi(ranks=[2], full=[3])
def test_irregular_partitions(comm):
    target = Distribution.split((4, 4), 1, comm.size)
    result = redistribute(Partitioned(comm.rank), target, comm=comm)
    assert np.array_equal(result.local, target.local(numbers((4, 4)), comm.rank))
    for place in (comm.size, -1):
        with pytest.raises(
            ValueError, match=rf"location of a partition must be ranks of comm, 0 to \d, got \[{place}\]"
        ):
            redistribute(Partitioned(comm.rank, place if comm.rank == 0 else 1), target, comm=comm)


@pytest.mark.libraries
@pytest.mark.mpi(ranks=[2])
def test_wrong_arrays(comm):
    module = LIBRARIES["pylops_mpi"](comm).module
    array = module.DistributedArray.to_dist(numbers((4, 4)), comm)
    target, first = Distribution.split((4, 4), 1, 2), comm.rank == 0
    x = redistribute(array, target)
    for call, kind, text in (
        (lambda: redistribute(array if first else object(), target, comm=comm), TypeError, "heat.DNDarray, .*object"),
        (lambda: redistribute(array if first else x, target, comm=comm), ValueError, "the ranks pass different arrays"),
        (lambda: redistribute(array, target, comm=MPI.COMM_SELF), ValueError, "comm must have the ranks"),
        (lambda: redistribute([array, x][: 1 + first], [target] * 2, comm=comm), ValueError, "different arrays"),
        (lambda: x.to("heat") if first else x.to("jax"), ValueError, "the ranks differ in library"),
        (
            lambda: DistributedArray(x.local.astype("f4") if first else x.local, target, comm).to("pylops-mpi"),
            ValueError,
            r"the ranks differ in element type: dtype\('float32'\) on rank 0",
        ),
    ):
        with pytest.raises(kind, match=text):
            call()
    tiles = DistributedArray(np.zeros((2, 4)), Distribution((4, 4), (2,), block=[1, 4]), comm)
    with pytest.raises(ValueError, match="axis 0 of .* is block-cyclic"):
        tiles.to("pylops-mpi")
    with pytest.raises(ValueError, match=r"splits one axis over ranks 0 to 1.*Distribution.split\(shape, axis, 2\)"):
        DistributedArray(np.zeros((2, 4)), Distribution((4, 4), (2,), ranks=[1, 0]), comm).to("pylops-mpi")
    with_halo, replicated = Distribution((4, 4), (2,), halo=(1, 0)), Distribution.replicated((4, 4), 2)
    for library in ("jax", "mpi4py-fft", "mpiarray", "pylops-mpi"):
        with pytest.raises(ValueError, match="has a halo: redistribute"):
            DistributedArray(np.zeros((4, 4)), with_halo, comm).to(library)
        with pytest.raises(ValueError, match=f"{library} has no partial results, as those of op='sum': redistribute"):
            DistributedArray(np.zeros((4, 4)), replicated, comm, op="sum").to(library)
    with pytest.raises(ValueError, match="mpi4py-fft has balanced blocks, none empty"):
        DistributedArray(np.zeros((1 - comm.rank, 4)), Distribution((1, 4), (2,)), comm).to("mpi4py-fft")
    with pytest.raises(ValueError, match="the ranks differ in rank: 0 on rank 0 and 3 on"):
        DistributedArray(np.zeros((2, 4)), Distribution((4, 4), (2,)), comm).to("mpi4py-fft", rank=3 * comm.rank)


@pytest.mark.libraries
@pytest.mark.mpi(ranks=[1])
def test_elements_of_torch(comm):
    imported("torch")
    values = np.arange(4, dtype=">f4")
    assert to_torch(values).tolist() == to_torch(values[::-1]).tolist()[::-1] == [0, 1, 2, 3]
    with pytest.raises(TypeError, match="PyTorch has no elements of type .*<i4"):
        to_torch(np.zeros(4, "i4,f4"))


@pytest.mark.mpi(ranks=[2])
def test_wrong_arrays_of_petsc(comm):
    petsc = LIBRARIES["petsc"](comm).petsc
    dm = petsc.DMDA().create(sizes=(6, 4), stencil_width=1, boundary_type="periodic", comm=comm)
    sparse = petsc.Mat().createAIJ((6, 4), comm=comm)
    cyclic = petsc.Mat().create(comm)
    cyclic.setSizes((6, 4))
    cyclic.setType("scalapack")
    for matrix in (sparse, cyclic):
        matrix.setUp()
    destroyed = [petsc.Vec().createMPI(24, comm=comm), petsc.Mat().createDense((6, 4), comm=comm), petsc.DMDA()]
    for array in destroyed[:2]:
        array.destroy()
    rows, columns = (Distribution.split((6, 4), axis, 2) for axis in (0, 1))
    turned = Distribution((6, 4), (2,), ranks=[1, 0])
    x, y, z = (DistributedArray(np.zeros(of.local_shape(comm.rank)), of, comm) for of in (rows, columns, turned))
    single = DistributedArray(np.zeros((3, 4), "f4"), rows, comm)
    for call, kind, text in (
        (lambda: redistribute(destroyed[0], rows), ValueError, "Vec of PETSc is not in use: destroyed, or never"),
        (lambda: redistribute(destroyed[1], rows, comm=comm), ValueError, "Mat of PETSc is not in use: destroyed"),
        (lambda: x.to("petsc", dm=destroyed[2]), ValueError, "DMDA of PETSc is not in use: destroyed, or never"),
        (lambda: redistribute(dm.createLocalVec(), rows, comm=comm), ValueError, "must be a global one .* 24 elements"),
        (lambda: redistribute(sparse, rows, comm=comm), ValueError, "Mat must be dense, got mpiaij: pass Mat.convert"),
        (lambda: redistribute(cyclic, rows, comm=comm), ValueError, 'got scalapack: pass Mat.convert."dense"'),
        (lambda: x.to("petsc", kind="aij"), ValueError, "kind must be vec or dense, .* got 'aij'.*Mat.convert"),
        (lambda: single.to("petsc"), TypeError, "elements of this PETSc are float64, got float32"),
        (lambda: y.to("petsc", kind="dense"), ValueError, r"the rows .* redistribute\(\) to Distribution.split"),
        (lambda: z.to("petsc"), ValueError, "PETSc needs Distribution.*got Distribution.*redistribute"),
        (lambda: y.to("petsc", dm=dm), ValueError, r"redistribute\(\) to interop.petsc.distribution\(dm\) first"),
    ):
        with pytest.raises(kind, match=text):
            call()


@pytest.mark.mpi(ranks=[2])
def test_wrong_arrays_of_jax(comm):
    sharding = next(LIBRARIES["jax"](comm).shardings((4, 4)))  # the whole array on each rank
    uneven, columns, empty = Distribution((3, 4), (2,)), Distribution((4, 4), (1, 2)), Distribution((0, 4), (1, 2))
    for where, how, text in (
        (empty, {"sharding": sharding}, r"JAX needs Distribution\(shape=\(0, 4\).*redistribute\(\) to it first"),
        (uneven, {}, "JAX needs parts of one length along each axis, got .* or pad the array"),
        (columns, {"sharding": sharding}, r"JAX needs Distribution\(.*got Distribution.*redistribute\(\) to it first"),
    ):
        x = DistributedArray(np.zeros(where.local_shape(comm.rank)), where, comm)
        refused(comm, ValueError, text, lambda x=x, how=how: x.to("jax", **how))
    out = LIBRARIES["jax"](comm).jax.numpy.zeros((4, 2))
    refused(comm, ValueError, "out is read-only", lambda: redistribute(np.ones((4, 2)), columns, columns, out=out))
    assert not np.any(out)


@pytest.mark.libraries
@pytest.mark.mpi(ranks=[2])
def test_tensors_that_wrap_others(comm):
    library, where = LIBRARIES["torch"](comm), Distribution.replicated((3, 4), 2)
    wrapper = library.tensor.distribute_tensor(library.torch.ones(3, 4), library.line, [library.tensor.Replicate()])
    for call in (
        lambda: redistribute(wrapper, where, where),
        lambda: redistribute(np.ones((3, 4), "f4"), where, where, out=wrapper),
        lambda: einsum("ij->i", DistributedArray(wrapper, where)),
    ):
        refused(comm, TypeError, "is a DTensor, which wraps another tensor: pass that, as from to_local", call)


@pytest.mark.mpi(ranks=[2], alone=True)
def test_library_that_is_missing(comm, monkeypatch):
    x = DistributedArray(np.zeros((2, 4)), Distribution((4, 4), (2,)), comm)
    monkeypatch.setitem(sys.modules, "mpiarray", None)
    with pytest.raises(ImportError, match="mpiarray"):
        x.to("mpiarray")

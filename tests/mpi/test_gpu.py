"""Arrays of CuPy, PyTorch and JAX on a GPU, and programs that DaCe compiles for it: only where there is a GPU."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builds import built, planned
from results import check_gathered

import dace_redist
from dace_redist import Distribution
from dace_redist.strategies import gpu_strategies

pytestmark = pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="no GPU")

MOST = 64 << 20  # bytes, of which writing takes long enough for a copy that does not wait for it to be wrong


class CuPy:
    """Arrays of CuPy on a stream of their own."""

    def __init__(self) -> None:
        import cupy

        self.library, self.stream = cupy, cupy.cuda.Stream(non_blocking=True)
        self.array = cupy.asarray

    def on_stream(self) -> Any:
        return self.stream

    def to_numpy(self, array: Any) -> np.ndarray:
        return self.library.asnumpy(array, stream=self.stream)


class PyTorch:
    """Tensors of PyTorch on a stream of their own."""

    def __init__(self) -> None:
        import torch

        self.array = functools.partial(torch.as_tensor, device="cuda")
        self.on_stream = functools.partial(torch.cuda.stream, torch.cuda.Stream())

    def to_numpy(self, array: Any) -> np.ndarray:
        return array.cpu().numpy()


LIBRARIES = {"cupy": CuPy, "torch": PyTorch}


@pytest.mark.libraries
@pytest.mark.mpi(ranks=[1, 4], timeout=300)
@pytest.mark.parametrize("name", LIBRARIES)
def test_order_on_the_stream_of_a_library(comm, name):
    """The source is written before the call, read after it, and overwritten at once; nothing waits for the GPU."""
    pytest.importorskip(name)
    library = LIBRARIES[name]()
    rows = 1 << 10
    shape = (rows, MOST // 8 // rows // comm.size * comm.size)
    source, target = Distribution(shape, (1, comm.size)), Distribution(shape, (comm.size, 1))
    whole = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    part, wanted = source.local(whole, comm.rank), target.local(whole, comm.rank)
    for strategy in gpu_strategies():
        with library.on_stream():
            A = library.array(np.zeros_like(part))
            for number in range(3):
                for _ in range(20):
                    A[...] = 0
                A += library.array(part)
                B = dace_redist.redistribute(A, source, target, comm=comm, strategy=strategy)
                A[...] = -1
                B += number
                assert type(B) is type(A)
                assert np.array_equal(library.to_numpy(B), wanted + number), (strategy, number)


@pytest.mark.libraries
@pytest.mark.mpi(ranks=[3], timeout=300)
def test_arrays_of_jax(comm, monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU")
    source, target = Distribution((9, 8), (3, 1)), Distribution((9, 8), (1, 3), block=(None, 3))
    whole = np.arange(72, dtype=np.float32).reshape(9, 8)
    result = dace_redist.redistribute(jax.numpy.asarray(source.local(whole, comm.rank)), source, target, comm=comm)
    assert np.array_equal(np.asarray(jax.numpy.asarray(result)), target.local(whole, comm.rank))


@pytest.mark.mpi(ranks=[1])
def test_copies_within_the_gpu(comm):
    from dace_redist.native import device
    from dace_redist.redistribution.arrays.new import DeviceArray

    A, B = DeviceArray.from_numpy(np.arange(1000.0)), DeviceArray(1000)
    device.copy(*(one.__cuda_array_interface__["data"][0] for one in (B, A)), A.nbytes)
    assert np.array_equal(B.to_numpy(), np.arange(1000.0))


def computing() -> Any:
    from sdfgs import computing_on_a_gpu

    from dace_redist.transformations import OverlapRedistribute

    sdfg = computing_on_a_gpu("computing_on_a_gpu")
    assert sdfg.apply_transformations_repeated(OverlapRedistribute) == 2
    return sdfg


@pytest.mark.compile
@pytest.mark.dace
@pytest.mark.mpi(ranks=[4], timeout=400)
def test_nodes_between_kernels(comm):
    """Two redistributions, each of what a kernel has written; the first to the GPU, the second to main memory."""
    from dace_redist.redistribution.arrays.new import DeviceArray

    program = built(comm, "computing_on_a_gpu", computing)
    rows, columns = Distribution((8, 8), (4, 1)), Distribution((8, 8), (1, 4))
    whole = np.arange(64.0).reshape(8, 8)
    for number in range(3):
        A = DeviceArray.from_numpy(rows.local(whole + number, comm.rank))
        B, H = DeviceArray((8, 2)), np.zeros((8, 2))
        program(A=A, B=B, H=H)
        assert np.array_equal(H, columns.local(4 * (whole + number), comm.rank))


@pytest.mark.compile
@pytest.mark.dace
@pytest.mark.mpi(ranks=[3], timeout=500)
@pytest.mark.parametrize("where", ["cpu", "gpu"])
@pytest.mark.parametrize(
    "name", ["mttkrp", "products", "sweeps", "scalars", "in_place", "batched", "nested_loops", "functions", "diagonals"]
)
def test_programs(comm, name, where):
    from programs import PROGRAMS

    one = PROGRAMS[name]
    program = planned(comm, one.program, one.sizes, device="gpu", arguments=where)
    program.compile(comm)
    check_gathered(comm, program, one.arguments(), one.expected(), name)

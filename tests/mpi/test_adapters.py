"""Parts of other libraries that plans do: equal results, and what stays with the library."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import launch

from dace_redist.redistribution.cache import plan_cache

pytest.importorskip("mpi4py_fft", reason="pip install mpi4py-fft")
from dace_redist.adapters.mpi4py_fft import install  # noqa: E402


def subcommunicators(comm: Any, grid: list[int]) -> Any:
    from mpi4py_fft.pencil import Subcomm

    return Subcomm(comm, grid)


def moved(pencil: Any, other: Any, dtype: str, array: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
    """Move there and back: both results, and the transfer."""
    transfer = pencil.transfer(other, np.dtype(dtype))
    there, back = np.zeros(other.subshape, dtype), np.zeros(pencil.subshape, dtype)
    transfer.forward(array, there)
    transfer.backward(there, back)
    return there, back, transfer


@pytest.mark.mpi(ranks=[1, 2, 4], timeout=300)
def test_transfers_equal_those_of_mpi4py_fft(comm):
    from mpi4py_fft.pencil import Pencil, Transfer

    random = np.random.default_rng(comm.rank)
    for grid, shape, dtype in itertools.product(([0, 1, 1], [0, 0, 1]), ((7, 8, 9), (12, 5, 6)), ("f4", "c16")):
        subcomm = subcommunicators(comm, grid)
        pencil = Pencil(subcomm, shape, 2)
        for axis in (0, 1):
            other = pencil.pencil(axis)
            array = random.random(pencil.subshape).astype(dtype)
            there, _, own = moved(pencil, other, dtype, array)
            with install(min_bytes=0, calls=1):
                for _ in range(3):
                    result, back, transfer = moved(pencil, other, dtype, array)
                    assert np.array_equal(result, there) and np.array_equal(back, array)
                    assert isinstance(transfer, Transfer) and type(transfer) is not type(own)
                    transfer.destroy()
            assert len(plan_cache(transfer.comm).plans) >= 2
            own.destroy()
        subcomm.destroy()


@pytest.mark.mpi(ranks=[2])
def test_short_transfers_and_the_first_ones_stay_with_mpi(comm):
    from mpi4py_fft.pencil import Pencil

    pencil = Pencil(subcommunicators(comm, [0, 1]), (64, 64), 1)
    array = np.arange(32.0 * 64).reshape(32, 64) + comm.rank
    with install(min_bytes=1 << 20):
        for _ in range(4):
            _, _, transfer = moved(pencil, pencil.pencil(0), "f8", array)
    assert not plan_cache(transfer.comm).plans
    with install(calls=2):
        for count in (0, 0, 2, 2):
            _, back, _ = moved(pencil, pencil.pencil(0), "f8", array)
            assert np.array_equal(back, array) and len(plan_cache(transfer.comm).plans) == count


@pytest.mark.mpi(ranks=[2])
def test_arrays_that_do_not_fit(comm):
    from mpi4py_fft.pencil import Pencil

    pencil = Pencil(subcommunicators(comm, [0, 1]), (8, 8), 1)
    with install(min_bytes=0, calls=0):
        transfer = pencil.transfer(pencil.pencil(0), np.dtype("f8"))
    with pytest.raises((ValueError, AssertionError)):
        transfer.forward(np.zeros((3, 8)), np.zeros((8, 4)))


def test_program_that_is_not_changed(tmp_path: Path):
    program = tmp_path / "program.py"
    (tmp_path / "beside.py").touch()
    program.write_text(
        "import sys, beside\nimport numpy as np\nfrom mpi4py import MPI\nfrom mpi4py_fft import PFFT, newDistArray\n"
        "fft = PFFT(MPI.COMM_WORLD, (32, 32, 32), dtype='c16')\nx = newDistArray(fft, False)\nx[...] = 3\n"
        "for _ in range(4):\n    assert np.allclose(fft.backward(fft.forward(x)), x)\n"
        "if MPI.COMM_WORLD.rank == 0:\n    print(sys.argv[1:], type(fft.transfer[0]).__bases__)\n"
    )
    code, printed = launch(2, [sys.executable, "-m", "dace_redist.adapters.mpi4py_fft", str(program), "a", "b"], 100)
    assert code == 0 and printed.count("['a', 'b'] (<class 'mpi4py_fft.pencil.Transfer'>,)") == 1, printed

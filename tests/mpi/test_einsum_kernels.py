"""The kernels of the benchmarks, distributed, give what NumPy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builds import planned, quick_builds
from results import by_numpy, check_gathered

from dace_redist import RedistributionError

pytestmark = pytest.mark.compile

#: Of the others :func:`test_other_types` tests some.
ELEMENTS = ["float64", *(pytest.param(name, marks=pytest.mark.full) for name in ("float32", "complex128"))]


@pytest.fixture(autouse=True)
def _quick_builds(monkeypatch):
    monkeypatch.setattr("dace_redist.transformations.distribute.emit.storage.MIN_BYTES", 1)  # tensors are small here
    with quick_builds():
        yield


def operands(program: Any) -> dict[str, Any]:
    """Random operands by name, the same on every rank; elements are positive, so no sum is small by cancellation."""
    rng, made = np.random.default_rng(0), {}
    for name, tensor in program.inputs.items():
        made[name] = (rng.random(tensor.shape) + 0.1).astype(tensor.dtype)
        if tensor.dtype.kind == "c":
            made[name] += 1j * rng.random(tensor.shape)
    return made


def check(comm: Any, name: str) -> tuple[Any, dict[str, Any]]:
    """Scatter, run, gather and compare everything that a program returns or writes; the program and its operands."""
    from all_kernels import PROGRAMS, SIZES, in_python

    arrays = PROGRAMS[name].f.__annotations__.values()
    program = planned(comm, PROGRAMS[name], {str(n): SIZES[str(n)] for array in arrays for n in array.shape})
    given = operands(program)
    if name == "sweeps":  # else the first singular vectors outweigh the others, which are rounding errors then
        given["X"] -= given["X"].mean()
    check_gathered(comm, program, given, by_numpy(in_python(PROGRAMS[name]), given), tolerance=1e-12, single=1e-5)
    return program, given


@pytest.mark.dace
@pytest.mark.mpi(ranks=[8], full=[3], timeout=400)  # each number takes a build of its own
@pytest.mark.parametrize("element", ELEMENTS)
def test_all_kernels(comm, element):
    check(comm, "all_kernels" if element == "float64" else f"all_kernels_{element}")


@pytest.mark.dace
@pytest.mark.mpi(ranks=[4], full=[3], timeout=400)
def test_sweeps(comm):
    check(comm, "sweeps")


@pytest.mark.dace
@pytest.mark.mpi(ranks=[4], timeout=400)
def test_other_types(comm):
    program, given = check(comm, "other_types")
    given["G"][...] = 1  # on the ranks that have columns of the solution: the others get the error, too
    local = program.scatter(**given)
    with pytest.raises(
        RedistributionError, match=r"all_kernels\.py:\d+: .*: (on rank 0: )?the 4 x 4 matrix is singular"
    ):
        program.run(**local)
    given["G"] += np.eye(4, dtype="float32")
    program.run(**program.scatter(**given))

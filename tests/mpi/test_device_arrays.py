"""Arrays on a device: every strategy, all that is computed on the way, against NumPy on the whole tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import OPTIONS
from device_arrays import KINDS, StridedDeviceArray, use_device
from distributions import same_on_all_ranks
from hypothesis import given
from hypothesis import strategies as st
from operation_cases import CALLS, arrays, carry_out, cases, wrong_parts

#: One kind of device is enough for the other MPIs.
MARKED = [(kind, [pytest.mark.mpi_matrix] if kind == "host" else []) for kind in KINDS]
SIDES = [("gpu", "gpu"), ("gpu", "gpu"), ("gpu", "cpu"), ("cpu", "gpu")]


def placed(array: np.ndarray, side: str) -> Any:
    """The array, or its copy on the device."""
    return StridedDeviceArray(array) if side == "gpu" else array


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[1, 2, 5, 12], timeout=300)
@pytest.mark.parametrize("kind", [pytest.param(kind, marks=matrix) for kind, matrix in MARKED])
def test_random_operations(comm, kind, monkeypatch):
    use_device(kind, monkeypatch)

    @same_on_all_ranks(15, comm.size)
    @given(cases(comm.size), st.sampled_from(CALLS), st.sampled_from(SIDES), st.integers(0, 3))
    def check_strategies(case: dict[str, Any], call: str, sides: tuple[str, str], node_ranks: int) -> None:
        case["layouts"] = ["C" if layout == "backwards" else layout for layout in case["layouts"]]
        for strategy in OPTIONS:
            monkeypatch.setenv("DACE_REDIST_NODE_RANKS", "0" if strategy == "Shared" else str(node_ranks))
            array, out, wanted = arrays(comm, case)
            there = [placed(part, side) for part, side in zip((array, out), sides, strict=True)]
            pair = case["source"], case["target"], case["types"]
            how = {"strategy": strategy, **case["how"], **case["options"][strategy]}
            carry_out(call, *there, *pair, comm=comm, device=sides, **how)
            got = there[1].to_numpy() if sides[1] == "gpu" else out
            wrong = wrong_parts(comm, f"{strategy} by {call}, {sides}", [(array, got, wanted)])
            assert not wrong, wrong[0]

    check_strategies()

"""The NumPy program in one process, with which distributed einsums are compared."""

import math

import one_process
import pytest
from einsum_cases import CASES


@pytest.mark.slow
def test_it_runs_as_often_as_asked_and_says_what_it_took():
    sizes = CASES["mttkrp5_0"].sizes("S", 1)
    with one_process.started("mttkrp5_0", "S") as peer:
        assert all(0 < peer.run() < 60 for _ in range(2))
        tensor = 8 * math.prod(sizes[mode] for mode in "IJKLM")
        assert tensor < peer.peak_bytes() < 20 * tensor

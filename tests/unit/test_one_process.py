"""The NumPy program in one process, with which distributed einsums are compared."""

import one_process
import pytest


@pytest.mark.slow
def test_it_runs_as_often_as_asked():
    with one_process.started("mttkrp5_0", "S") as peer:
        assert all(0 < peer.run() < 60 for _ in range(2))

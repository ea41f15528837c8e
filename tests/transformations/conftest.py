"""Fixtures of programs whose ranks are simulated, or pretended to be there."""

from pathlib import Path

import pytest


@pytest.fixture
def small_transients_share_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let transients of any size share memory, as large ones do."""
    from dace_redist.transformations.distribute.emit import storage

    monkeypatch.setattr(storage, "MIN_BYTES", 1)


@pytest.fixture
def four_ranks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pretend to run on 4 ranks, with a record of the test's own."""
    from dace_redist.mpi.topology import Topology
    from dace_redist.tuning import auto

    monkeypatch.setattr(auto, "topology_of", lambda comm: Topology("m", "M", (0, 0, 0, 0)))
    monkeypatch.setenv("DACE_REDIST_RECORD", str(tmp_path / "tuning.json"))

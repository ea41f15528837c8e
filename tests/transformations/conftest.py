"""Fixtures of programs whose ranks are simulated, or pretended to be there."""

import pytest


@pytest.fixture
def small_transients_share_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let transients of any size share memory, as large ones do."""
    from dace_redist.transformations.distribute.emit import storage

    monkeypatch.setattr(storage, "MIN_BYTES", 1)

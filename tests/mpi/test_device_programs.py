"""Calls of generated programs for arrays on a GPU, emulated in main memory."""

from __future__ import annotations

import pytest
from device_arrays import use_device
from mpi_programs import build_with_library, run

from dace_redist.strategies import gpu_strategies

pytestmark = pytest.mark.compile


@pytest.mark.parametrize("device", ["host", "host,apart", pytest.param("host,pooled", marks=pytest.mark.full)])
@pytest.mark.parametrize("strategy", gpu_strategies())
def test_order_with_streams(strategy: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_device(device, monkeypatch)
    run(build_with_library("mpi_device_program"), 2, strategy)

"""Started transfers advance whatever their ranks do meanwhile, and one that fails on one rank fails on all."""

from __future__ import annotations

from pathlib import Path

import pytest
from mpi_programs import build, run

pytestmark = [pytest.mark.compile, pytest.mark.mpi_matrix, pytest.mark.timeout(300)]

STRATEGIES = ["Datatype", "Pack", "Threaded", "Pipelined", "RMA", "Shared", "Hierarchical", "Aggregated"]
ACROSS_NODES = ["Hierarchical", "Aggregated"]
RANKS = [2, 3, 5]


@pytest.fixture
def program() -> Path:
    return build("mpi_progress", "-O2", "-Wl,--wrap=aligned_alloc,--wrap=free")  # as mpi_resources


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("case", ["orders", "blocked"])
def test_ranks_wait_in_any_order(program: Path, strategy: str, case: str) -> None:
    """
    Two transfers are waited for in different orders on different ranks, or a rank is blocked in a receive of MPI
    between start and wait; messages of 4 KiB, 300 KiB and 6 MiB, ordinary and node-shared arrays.
    """
    for ranks in RANKS:
        assert "all transfers are right" in run(program, ranks, case, strategy, timeout=120)


@pytest.mark.parametrize("strategy", ACROSS_NODES)
@pytest.mark.parametrize("node_ranks", [1, 2])
@pytest.mark.parametrize("case", ["orders", "blocked", "failures"])
def test_between_nodes(
    program: Path, strategy: str, node_ranks: int, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DACE_REDIST_NODE_RANKS", str(node_ranks))
    assert "all transfers are right" in run(program, 3, case, strategy, timeout=120)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_failures_are_known_everywhere(program: Path, strategy: str) -> None:
    """A null array, a failing send, missing memory on rank 0: an error on each rank, and new plans work."""
    for ranks in RANKS:
        assert "all transfers are right" in run(program, ranks, "failures", strategy)


@pytest.mark.parametrize("strategy", ["Pack", "Shared", "Aggregated"])
@pytest.mark.parametrize("ranks", [20, 64])
def test_many_ranks_on_a_node(program: Path, strategy: str, ranks: int) -> None:
    """Messages of 128 bytes."""
    assert "all transfers are right" in run(program, ranks, "many", strategy, timeout=240)

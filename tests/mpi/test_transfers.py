"""Started transfers advance whatever their ranks do meanwhile, and one that fails on one rank fails on all."""

from __future__ import annotations

from pathlib import Path

import pytest
from mpi_programs import SANITIZED, build, run

pytestmark = [pytest.mark.compile, pytest.mark.timeout(300)]

STRATEGIES = ["Datatype", "Pack", "Threaded", "Pipelined", "RMA", "Shared", "Hierarchical", "Aggregated"]
FURTHER = [pytest.param(ranks, marks=pytest.mark.full) for ranks in (2, 5)]
CASES = "orders,blocked,failures"


@pytest.fixture
def program() -> Path:
    return build("mpi_progress", *SANITIZED, linked=("-Wl,--wrap=aligned_alloc,--wrap=free",))


@pytest.mark.mpi_matrix
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("ranks", [3, *FURTHER])
def test_ranks_wait_in_any_order_and_failures_are_known_everywhere(program: Path, strategy: str, ranks: int) -> None:
    """
    Two transfers are waited for in different orders on different ranks, or a rank is blocked in a receive of MPI
    between start and wait; messages of 4 KiB, 300 KiB and 3 MiB, ordinary and node-shared arrays. A null array, a
    failing send on the last rank, missing memory on rank 0: an error on each rank, and new plans work.
    """
    assert "all transfers are right" in run(program, ranks, CASES, strategy, timeout=240)


@pytest.mark.mpi_matrix
@pytest.mark.parametrize("strategy", ["Hierarchical", "Aggregated"])
@pytest.mark.parametrize("node_ranks", [2, pytest.param(1, marks=pytest.mark.full)])
def test_between_nodes(program: Path, strategy: str, node_ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DACE_REDIST_NODE_RANKS", str(node_ranks))
    assert "all transfers are right" in run(program, 3, CASES, strategy, timeout=240)


@pytest.mark.parametrize("ranks", [20, pytest.param(64, marks=pytest.mark.full)])
def test_many_ranks_on_a_node(program: Path, ranks: int) -> None:
    """Messages of 128 bytes."""
    assert "all transfers are right" in run(program, ranks, "many", "Pack,Shared,Aggregated", timeout=240)


def test_mpi_ends_where_threads_made_plans_in_any_order() -> None:
    """MPI_Finalize frees their windows, which is collective, in one order on all ranks."""
    assert run(build("mpi_finalize", *SANITIZED), 2).count("MPI ended") == 2

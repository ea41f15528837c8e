"""Plans free their resources, running them allocates nothing, and messages may be longer than 2^31 bytes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from mpi_programs import SOURCES, build, run

from dace_redist import Distribution, plan
from dace_redist.native.toolchain import SOURCE_DIRECTORY
from dace_redist.strategies import STRATEGIES

pytestmark = pytest.mark.compile

STRATEGIES = [*STRATEGIES]
MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
#: More than 2^31 elements, in a minute.
large = [pytest.mark.full, pytest.mark.skipif(MEMORY < 16 << 30, reason="needs 16 GB of memory")]
#: Rows, columns and padding of an array of bytes, and options.
SHAPES = [
    (1, 2_200_000, 0, {"max_message_bytes": 99_991}),
    (11, 200_000, 64, {"max_message_bytes": 99_991}),
    pytest.param(1, 2_200_000_000, 0, {}, marks=large),
    pytest.param(1100, 2_000_000, 64, {}, marks=large),
]


@pytest.fixture
def program() -> Path:
    return build("mpi_resources", "-O0", linked=("-Wl,--wrap=aligned_alloc,--wrap=free",))


@pytest.mark.lint
def test_every_object_of_mpi_is_counted() -> None:
    """The functions of which the runtime takes a handle, ``put()`` of its owner, are those that the program counts."""
    runtime = "".join(path.read_text() for path in SOURCE_DIRECTORY.rglob("*.[ch]pp"))
    makers = set(re.findall(r"(MPI_\w+)\([^;]*?\.put\(\)", runtime)) - {"MPI_Type_commit"}
    counted = set(re.findall(r"COUNT\((MPI_\w+)", (SOURCES / "mpi_resources.cpp").read_text()))
    assert makers and makers <= counted


@pytest.mark.parametrize("strategy", [*STRATEGIES, "joined"])
def test_thousands_of_plans_leave_nothing(program: Path, strategy: str) -> None:
    """
    No memory, MPI objects, requests or files. The program also checks that running allocates nothing, unless ranks wait
    so long that they look for missing ones, and that all plans of a communicator share one duplicate of it. Of fewer
    plans, what MPI's lists grow by now and then is seen.
    """
    assert "heap" in run(program, 2, "plans", strategy, 3000, DACE_REDIST_WAIT_MESSAGE="0")


def test_freed_communicators_leave_nothing(program: Path) -> None:
    printed = run(program, 2, "communicators", ",".join(STRATEGIES), 50)
    assert printed.count("50 communicators were freed") == len(STRATEGIES)


@pytest.mark.parametrize("ranks", [3, pytest.param(8, marks=pytest.mark.full)])
def test_bytes_in_flight_are_limited(program: Path, ranks: int) -> None:
    strategies = [*sorted({*STRATEGIES} - {"RMA"}), "joined"]
    printed = run(program, ranks, "in_flight", ",".join(strategies), 600)
    assert printed.count("bytes in flight") == 3 * len(strategies)


@pytest.mark.mpi(ranks=[2], timeout=400)
@pytest.mark.parametrize("strategy", [*STRATEGIES, "joined"])
@pytest.mark.parametrize(("rows", "columns", "padding", "options"), SHAPES)
def test_long_messages_in_parts(comm, monkeypatch, strategy, rows, columns, padding, options):
    """All of an array of bytes from rank 0 to rank 1; the parts do not divide the message."""
    if strategy == "joined":  # each rank is a node, and what is shorter than a long chunk is joined
        monkeypatch.setenv("DACE_REDIST_NODE_RANKS", "1")
        strategy, options = "Hierarchical", {"chunk_bytes": 4096, "join_bytes": 4096, **options}
    source, target = (Distribution.on_rank((rows, columns), rank) for rank in (0, 1))
    around = np.full((rows, columns + padding), 7, "u1")  # the source on rank 0, the target on rank 1
    here, nothing = around[:, :columns], np.empty((0, 0), "u1")
    period = np.arange(251, dtype="u1")
    if comm.rank == 0:
        for number, row in enumerate(here):
            row[...] = np.resize(np.roll(period, number), columns)
    with plan(source, target, "u1", comm=comm, strategy=strategy, **options) as made:
        made(nothing if comm.rank else here, out=here if comm.rank else nothing)
    wrong = [number for number, row in enumerate(here) if (row != np.resize(np.roll(period, number), columns)).any()]
    assert not any(comm.allgather(wrong)) and (around[:, columns:] == 7).all()

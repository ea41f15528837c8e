"""Plans free their resources, running them allocates nothing, and messages may be longer than 2^31 bytes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from mpi_programs import SOURCES, build, run

from dace_redist.native.toolchain import SOURCE_DIRECTORY

pytestmark = pytest.mark.compile

STRATEGIES = ["Datatype", "Pack", "Threaded", "Pipelined", "RMA", "Shared", "Hierarchical", "Aggregated"]
LARGE = "DACE_REDIST_LARGE"  # 1: also move more than 2^31 elements; takes 10 GB of memory and a minute
LAYOUTS = {"whole": (1, 1100 * 2_000_000, 0), "rows": (1100, 2_000_000, 64)}  # rows, columns and padding, in bytes


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


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_thousands_of_plans_leave_nothing(program: Path, strategy: str) -> None:
    """
    No memory, MPI objects, requests or files. The program also checks that running allocates nothing, and that all
    plans of a communicator share one duplicate of it.
    """
    assert "heap" in run(program, 2, "plans", strategy, 1000)


def test_freed_communicators_leave_nothing(program: Path) -> None:
    printed = run(program, 2, "communicators", ",".join(STRATEGIES), 50)
    assert printed.count("50 communicators were freed") == len(STRATEGIES)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_long_messages_in_parts(program: Path, layout: str) -> None:
    """Messages in parts, a thousand times smaller than in the next test; the parts do not divide the message."""
    rows, columns, padding = LAYOUTS[layout]
    shape = (rows // 100, columns // 10, padding) if rows > 1 else (1, columns // 1000, 0)
    printed = run(program, 2, "move", ",".join(STRATEGIES), *shape, 99_991)
    assert [line.split()[:3] for line in printed.splitlines()] == [[name, "moved", "2200000"] for name in STRATEGIES]


@pytest.mark.skipif(os.environ.get(LARGE) != "1", reason=f"takes 10 GB of memory and a minute; {LARGE}=1 runs it")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_more_elements_than_an_int_holds(program: Path, strategy: str, layout: str) -> None:
    printed = run(program, 2, "move", strategy, *LAYOUTS[layout], 0, timeout=300)
    print(printed)
    assert "moved 2200000000 bytes" in printed

"""``DACE_call_hooks=dace_redist.hook``: programs that do not name this package redistribute by it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from launching import launch

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.compile, pytest.mark.dace]

FUSED = "there_and_on: 2 redistributions: 2 replaced, 1 fused or removed, 1 by Hierarchical"
REPLACED = "with_symbols: 1 redistribution: 1 replaced, 1 by Hierarchical"


def printed(folder: Path, *how: str, **environment: str) -> list[str]:
    variables = {"DACE_call_hooks": "dace_redist.hook"} | environment
    variables |= {"DACE_default_build_folder": ".dacecache"}
    command = [sys.executable, str(ROOT / "tests" / "hooked_programs.py"), *how]
    code, output = launch(4, command, 240, environment=variables, cwd=folder)
    assert code == 0, output
    lines = [line for line in output.splitlines() if line.startswith(("dace-redist: ", "redistributions by MPI"))]
    return [line for line in lines if "building the library" not in line and "waiting for" not in line]


def test_a_program_is_optimized_before_it_is_compiled(tmp_path: Path):
    """If it is compiled without a call, there is no hook: the default strategy's 3 plans on each of 4 ranks."""
    reports, how = [f"dace-redist: {line}" for line in (FUSED, REPLACED)], ["called", "rank 0", "all"]
    lines = printed(tmp_path, *how, "alone")
    assert lines[:-1] == [*reports, "redistributions by MPI: 0 plans: 2"] * len(how)
    assert lines[-1] == "redistributions by MPI: 0 plans: 12"


def test_a_program_that_cannot_be_optimized_runs_as_it_was(tmp_path: Path):
    lines = printed(tmp_path, "rank 0", FAILS="there_and_on")
    assert lines[0] == "dace-redist: there_and_on: not optimized: as told"
    assert lines[1] == "dace-redist: with_symbols: 1 redistribution: 1 replaced, 1 by Hierarchical"
    assert lines[-1] == "redistributions by MPI: 0 plans: 3"


def test_without_the_hook_the_program_is_stock(tmp_path: Path):
    assert printed(tmp_path, "rank 0", DACE_call_hooks="") == ["redistributions by MPI: 3 plans: 0"]

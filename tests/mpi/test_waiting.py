"""A rank that waits for others says for which and where; one whose calls end says nothing."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from launching import launch

PROGRAM = Path(__file__).with_name("late_program.py")


@pytest.mark.mpi_matrix
@pytest.mark.slow
def test_missing_ranks_are_named(tmp_path: Path) -> None:
    argv = [sys.executable, str(PROGRAM), str(tmp_path)]
    code, printed = launch(3, argv, 200, environment={"DACE_REDIST_WAIT_MESSAGE": "0.5"})
    assert code == 0, printed
    form = r"^dace-redist: rank (\d) has waited 0\.5 s in ([\w ]+) \(late_program\.py:\d+\): rank 2 has not called it;"
    said = sorted((name, int(rank)) for rank, name in re.findall(form, printed, re.MULTILINE))
    assert len(said) == printed.count("has waited"), printed
    everyone = ("a transfer", "redistribute", "save")
    assert said == sorted([(name, rank) for name in everyone for rank in (0, 1)] + [("redistribute", 1)]), printed

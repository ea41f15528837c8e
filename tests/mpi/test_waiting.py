"""A rank that waits for others says for which ranks, and where."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from launching import launch, long_waits

from dace_redist.mpi import waiting

PROGRAM = Path(__file__).with_name("late_program.py")


@pytest.mark.mpi_matrix
@pytest.mark.slow
def test_missing_ranks_are_named(tmp_path: Path) -> None:
    argv = [sys.executable, str(PROGRAM), str(tmp_path)]
    code, printed = launch(3, argv, 200, environment={"DACE_REDIST_WAIT_MESSAGE": "0.5"})
    assert code == 0, printed
    waits = [
        (rank, re.sub(r"late_program\.py:\d+", "line", name)) for rank, name, late in long_waits(printed) if 2 in late
    ]
    expected = [(rank, f"{name} (line)") for name in ("a transfer", "redistribute", "save") for rank in (0, 1)]
    assert not Counter([*expected, (1, "redistribute (line)")]) - Counter(waits), printed  # more if the machine is busy


@pytest.mark.compile
@pytest.mark.mpi(ranks=4, alone=True)
def test_missing_ranks_of_a_dace_program_are_named(comm, capfd, monkeypatch) -> None:
    """On busy cores, too, where a rank gets few turns to look for others."""
    from builds import built
    from sdfgs import rows_to_columns

    monkeypatch.setenv("DACE_REDIST_WAIT_MESSAGE", "0.5")
    program = built(comm, "late_move", lambda: rows_to_columns(name="late_move"))
    A, B = np.full((2, 8), comm.rank, float), np.empty((8, 2))
    program(A=A, B=B)
    cores = len(os.sched_getaffinity(0)) if comm.rank == 3 else 0
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3 * cores)]
    try:
        comm.Barrier()
        time.sleep(3 if comm.rank == 3 else 0)
        program(A=A, B=B)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert B[:, 0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    said = [(rank, name) for rank, name, late in long_waits(capfd.readouterr().err) if 3 in late]
    assert said == [(comm.rank, 'a transfer of "move"')] * (comm.rank < 3)


def test_many_short_calls_are_not_one_long_call() -> None:
    """Seen by a thread, as the main thread is in an operation of the package."""
    seen: dict[str, bool] = {}
    end = threading.Event()
    scope = {"__name__": "dace_redist.stand_in"}
    exec("def redistribute(wait, seconds): wait(seconds)", scope)  # noqa: S102

    def look(name: str) -> None:
        while (found := waiting._operation()) is None:
            time.sleep(0.001)
        assert found[0] == "redistribute"
        seen[name] = waiting._stays(found[1])
        end.set()

    for name, seconds in (("long", 60.0), ("short", 0.001)):
        end.clear()
        thread = threading.Thread(target=look, args=(name,))
        thread.start()
        while not end.is_set():
            scope["redistribute"](end.wait, seconds)
        thread.join()
    assert seen == {"long": True, "short": False}

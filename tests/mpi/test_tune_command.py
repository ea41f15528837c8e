"""``dace-redist tune`` on several ranks, and on emulated nodes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from launching import launch

CASE = ["--shape", "24,20", "--from", "2", "--to", "1,2", "--limit-seconds", "0.5"]


def command_line(record: Path, *words: str, strategy: str = "Pack", ranks: int = 2) -> tuple[int, str]:
    argv = [sys.executable, "-m", "dace_redist.cli", "tune", *CASE, "--strategy", strategy, *words]
    return launch(ranks, argv, 120, environment={"DACE_REDIST_RECORD": str(record)})


@pytest.mark.compile
def test_command_line(tmp_path: Path):
    record = tmp_path / "tuning.json"
    code, printed = command_line(record, "--dtype", "int32")
    assert code == 0, printed
    assert re.search(r"^tensor +int32\[24, 20\]", printed, re.MULTILINE)
    assert re.search(r"^winner +Pack$", printed, re.MULTILINE)
    assert re.search(r"^  Pack +[\d.]+ ms \[[\d.]+, [\d.]+\] +1\.00 x +\d+ runs$", printed, re.MULTILINE)
    assert printed.count("recorded in") == 1 and f"recorded in {record}" in printed
    assert "100%" in printed  # how far it is
    options = ["--option", "depth=2", "--option", "growth=1,2.5", "--option", "chunk_bytes=64"]
    code, printed = command_line(record, *options, "--json", "--quiet", "--limit-seconds", "4", strategy="Pipelined")
    assert code == 0, printed
    plain = json.loads(printed[printed.index("{") :])
    tried = [m["options"] for m in plain["problems"][0]["measured"] if m["strategy"] == "Pipelined"]
    first = {"chunk_bytes": 64, "depth": 2}
    assert first in tried and {**first, "growth": 2.5} in tried
    assert len(json.loads(record.read_text())["entries"]) == 2


@pytest.mark.compile
def test_bench_compares_with_alltoallw():
    words = ["--shape", "24x20", "--from", "2", "--to", "1x2", "--axes", "1,0", "--limit-seconds", "0.3"]
    argv = [sys.executable, "-m", "dace_redist.cli", "bench", *words, "--strategy", "Pack", "--memory", "shared-target"]
    code, printed = launch(2, argv, 120)
    assert code == 0, printed
    assert re.search(r"^MPI_Alltoallw +[\d.]+ ms +\[[\d.]+, [\d.]+\] +1\.00 +\d+$", printed, re.MULTILINE)
    assert re.search(r"^Pack is the fastest strategy: [\d.]+ times as fast as MPI_Alltoallw$", printed, re.MULTILINE)

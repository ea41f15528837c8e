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


@pytest.mark.slow
@pytest.mark.parametrize(
    "words, said",
    [
        (["--option", "dept=2"], "none of Pack takes option 'dept'; they take "),
        (["--limit-seconds", "-1"], "-1.0 is not in the range x>0"),
        (["--to", "1,3"], "the communicator has 2 ranks: start with mpiexec -n 3"),
    ],
)
def test_bad_command_line_is_one_line(tmp_path: Path, words: list[str], said: str):
    code, printed = command_line(tmp_path / "tuning.json", *words)
    assert code == 2
    assert [line for line in printed.splitlines() if line.startswith("dace-redist: ") and said in line]
    assert printed.count("dace-redist: ") == 1
    assert "Traceback" not in printed
    assert not (tmp_path / "tuning.json").exists()


# Several nodes ----------------------------------------------------------------------------------------------------


@pytest.mark.compile
@pytest.mark.timeout(300)
def test_choices_are_for_the_placement_of_ranks_on_nodes(tmp_path: Path):
    import cluster

    reason = cluster.why_not()
    if reason:
        pytest.skip(f"this machine cannot emulate nodes: {reason}")
    record = tmp_path / "tuning.json"
    case = ["--shape", "64,64", "--from", "4", "--to", "1,4", "--strategy", "Pack", "--strategy", "Shared"]
    argv = [sys.executable, "-m", "dace_redist.cli", "tune", *case, "--limit-seconds", "1", "--record", str(record)]
    for mapping, other in ("block", 2), ("cyclic", 1):
        code, printed = cluster.run(2, 4, [*argv, "--quiet"], mapping=mapping, timeout=120)
        assert code == 0, printed
        reason = f"strategy Shared moves between ranks of one node, but ranks 0 and {other} are on different nodes"
        assert re.search(f"^  Shared +cannot: {reason}", printed, re.MULTILINE), printed
    entries = json.loads(record.read_text())["entries"]
    assert [(entry["layout"], entry["winner"]["strategy"]) for entry in entries] == [
        ("2x2", "Pack"),
        ("0,1,0,1", "Pack"),
    ]


@pytest.mark.compile
def test_bench_compares_with_alltoallw():
    words = ["--shape", "24x20", "--from", "2", "--to", "1x2", "--axes", "1,0", "--limit-seconds", "0.3"]
    argv = [sys.executable, "-m", "dace_redist.cli", "bench", *words, "--strategy", "Pack", "--memory", "shared-target"]
    code, printed = launch(2, argv, 120)
    assert code == 0, printed
    assert re.search(r"^MPI_Alltoallw +[\d.]+ ms +\[[\d.]+, [\d.]+\] +1\.00 +\d+$", printed, re.MULTILINE)
    assert re.search(r"^Pack is the fastest strategy: [\d.]+ times as fast as MPI_Alltoallw$", printed, re.MULTILINE)
    code, printed = launch(2, [*argv, "--strategy", "Pak"], 120)
    assert code != 0 and "unknown strategy 'Pak' (did you mean Pack?)" in printed

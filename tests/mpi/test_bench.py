"""``benchmarks/bench.py`` on a few ranks: its lines, tables and exit codes; what is wrong is found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from launching import launch
from redistribution import catalogue, methods, peers
from redistribution.arrays import Arrays, is_right

BENCH = str(Path(__file__).parents[2] / "benchmarks" / "bench.py")


@pytest.mark.compile
def test_a_case_with_several_methods(tmp_path, capsys):
    output = tmp_path / "results.jsonl"
    words = ["owners-transposed-96", "seed-k2", "--preset", "tiny", "--strategies", "Auto,Pack", "--json", str(output)]
    words += ["--variants", "ordinary", "--least", "3", "--limit", "2", "--rate", "1gbit"]
    command = [sys.executable, "-m", "mpi4py", BENCH, *words]
    code, printed = launch(4, command, timeout=240)
    assert code == 0, printed
    assert "seed-k2: skipped, it needs 12 ranks; mpiexec -n 12 starts them" in printed
    assert "Times as fast as others" in printed
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    measured = {line["method"]: line for line in lines if "median" in line}
    assert {"stock DaCe", "Auto", "Pack", "Alltoallw", "plain copy"} <= set(measured)
    assert {line["method"] for line in lines} - set(measured) <= {"ScaLAPACK"}
    for line in measured.values():
        assert 0 < line["low"] <= line["median"] <= line["high"]
        assert len(line["seconds"]) >= 3
        assert line["ratio_to_stock"] == pytest.approx(measured["stock DaCe"]["median"] / line["median"])
        assert line["share_of_copy"] == pytest.approx(measured["plain copy"]["median"] / line["median"])
        where = line["environment"]
        assert (where["ranks"], where["nodes"], line["ranks"], line["bytes"]) == (4, 1, 4, 96 * 96 * 8)
        assert {"machine", "processor", "cores", "mpi", "commit", "versions", "date"} <= set(where)
    subprocess.run([sys.executable, BENCH, "--plot", output, tmp_path / "drawn"], check=True)
    assert {p.name for p in (tmp_path / "drawn").iterdir()} == {
        f"ratios-transpose.{ending}" for ending in ("png", "svg")
    }


@pytest.mark.mpi(ranks=4)
def test_alltoallw_moves_all_kinds_of_cases_right(comm):
    kinds = ["block-k2", "2mm-ik-4", "ttmc-deijc-4", "cyclic-other-96", "prime-cyclic", "specfem3d-oc", "nas-mg-x-tiny"]
    kinds += ["tiles-3x2-48", "tiles-displaced-48", "tiles-scatter-48"]
    for case in catalogue.load("tiny").select(kinds):
        part = comm.Split(0 if comm.rank < case.ranks else 1)
        if comm.rank < case.ranks:
            local = Arrays(case, part)
            source, target = local.source(), local.target()
            for kind in (peers.Alltoallw, peers.NestedTypes)[: 1 + peers.NestedTypes.fits(case)]:
                target[...] = -1
                peer = kind(case, part)
                peer.run(source, target)
                peer.free()
                assert is_right(target, case.target, part.rank, case.region), (case.name, kind)
        part.Free()


@pytest.mark.mpi(ranks=2)
def test_a_method_that_does_wrong_is_found_on_every_rank(comm, monkeypatch):
    case = catalogue.load("tiny").select(["block-k2"])[0]

    def forgets(source, target):
        target[...] = 0

    class Wrong:
        run = staticmethod(forgets)

    with pytest.raises(methods.WrongResultError, match=r"block-k2: stock DaCe left wrong elements on rank 0"):
        list(methods.prepare(case, comm, Arrays(case, comm), Wrong(), methods.Wanted(strategies=(), peers=False)))

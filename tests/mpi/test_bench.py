"""``benchmarks/bench.py`` on a few ranks: its lines, tables and exit codes; what is wrong is found."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from device_arrays import stand_in
from launching import launch
from redistribution import catalogue, methods, peers
from redistribution.arrays import Arrays, is_right

from dace_redist.strategies import STRATEGIES

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
BENCH, COMPARE, COPIES = (str(BENCHMARKS / f"{name}.py") for name in ("bench", "compare", "copies"))


@pytest.mark.compile
def test_a_case_with_several_methods(tmp_path):
    output = tmp_path / "results.jsonl"
    words = ["owners-transposed-96", "seed-k2", "--preset", "tiny", "--variants", "ordinary,gpu", "--batch", "2"]
    words += ["--least", "3", "--limit", "0.1", "--rate", "1gbit", "--json", str(output)]
    command = [sys.executable, "-m", "mpi4py", BENCH, *words]
    code, printed = launch(4, command, timeout=240, environment=stand_in())
    assert code == 0, printed
    assert "seed-k2: skipped, it needs 12 ranks; mpiexec -n 12 starts them" in printed
    assert "Times as fast as others" in printed
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    measured = {line["method"]: line for line in lines if "median" in line}
    on_a_device = {f"{name}, gpu" for name in ("Auto", "Hierarchical")}
    assert {"stock DaCe", "Auto", *STRATEGIES, *on_a_device, "Alltoallw", "plain copy"} <= set(measured)
    assert {line["method"] for line in lines} - set(measured) <= {"ScaLAPACK"}
    for line in measured.values():
        assert 0 < line["low"] <= line["median"] <= line["high"]
        assert line["repetitions"] >= 3
        assert line["ratio_to_stock"] == pytest.approx(measured["stock DaCe"]["median"] / line["median"])
        assert line["share_of_copy"] == pytest.approx(measured["plain copy"]["median"] / line["median"])
        where = line["environment"]
        assert (where["ranks"], where["nodes"], line["ranks"], line["bytes"]) == (4, 1, 4, 96 * 96 * 8)
        assert {"machine", "processor", "cores", "mpi", "commit", "versions", "date"} <= set(where)


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
        list(methods.prepare(Arrays(case, comm), Wrong(), {"strategies": (), "variants": (), "peers": "none"}))


MATRICES = ["axes", "reshape", "convert", "several", "reduce", "stacks", "files", "hdf5", "npy", "names", "replicas"]


@pytest.mark.parametrize(
    ("names", "shape", "count", "ranks"),
    [
        (MATRICES, "128x128", 30, 4),
        (["libraries"], "16x16", 4, 2),  # imports take most of the time
        (["halo"], "8x8x8", 4, 4),
        (["cp-als"], "9x8x7", 1, 2),
        (["products"], "128", 3, 2),
        (["boxes"], "9x8x7", 1, 1),
    ],
)
def test_comparisons(names, shape, count, ranks, tmp_path):
    """Each checks its own results."""
    if "libraries" in names and not all(map(importlib.util.find_spec, ("heat", "mpiarray", "pylops_mpi", "torch"))):
        pytest.skip("needs the libraries of `make interop`")
    output = tmp_path / "results.jsonl"
    words = [*names, "--shape", shape, "--limit", "0.1", "--json", str(output)]
    code, printed = launch(ranks, [sys.executable, "-m", "mpi4py", COMPARE, *words], timeout=120)
    assert code == 0, printed
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(lines) == count and {line["comparison"] for line in lines} == set(names)
    least = 1 if names == ["boxes"] else 2  # the other planner of boxes is PyTorch's, if that is installed
    assert all(len(line["seconds"]) >= least for line in lines)


@pytest.mark.parametrize("where", ["cpu", "gpu"])
def test_copies(where):
    """Each checks its own results."""
    options = ["--nbytes", "65536", "--repetitions", "1", "--runs", "96", *(["--gpu"] if where == "gpu" else [])]
    done = subprocess.run(
        [sys.executable, COPIES, *options], capture_output=True, text=True, timeout=200, env=os.environ | stand_in()
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" GB/s") == 17 * (2 if where == "gpu" else 3), done.stdout

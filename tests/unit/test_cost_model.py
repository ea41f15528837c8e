"""The cost model against times worked out by hand, on a machine whose every rate is a round number."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dace_redist import Distribution, TiledDistribution, schedule
from dace_redist.tuning import profile as machine_profile
from dace_redist.tuning import report as cost_figure
from dace_redist.tuning.cost_model import CostModel
from dace_redist.tuning.problem import Problem
from dace_redist.tuning.profile import MachineProfile
from dace_redist.tuning.report import Bound, CostReport

ROWS, COLUMNS = Distribution((64, 64), (4, 1)), Distribution((64, 64), (1, 4))  # float64: 2 KiB messages, 128 B runs
MOVED = schedule(ROWS, COLUMNS)
#: Messages of 32 KiB, too long to be eager, in runs of 512 bytes.
LONG = schedule(Distribution((256, 256), (4, 1)), Distribution((256, 256), (1, 4)))
LONG_SENT = 3 * 64 * 64 * 8


def flat(seconds_per_byte: float) -> dict[str, Any]:
    return {"footprints": [64, 1 << 20], "runs": [8, 1 << 15], "seconds_per_byte": [[seconds_per_byte] * 2] * 2}


def machine(cores: int = 4, ranks: int = 4, **changed: Any) -> MachineProfile:
    """Return a machine on which a byte takes a nanosecond times a factor that identifies its kind."""
    surfaces = {name: flat(n * 1e-9) for name, n in (("datatypes", 50), ("staged", 7), ("push", 2), ("pull", 3))}
    latency = {kind: {"exchange": 1e-6, "message": 1e-7} for kind in ("messages", "datatypes", "puts", "shared")}
    linear = {"nbytes": [1, 1001, 1000001], "seconds": [1e-9, 1e-9 + 1e-5, 1e-9 + 1e-2]}  # 10 ns a byte
    plain = {
        "format": "dace-redist machine profile", "version": 2, "machine": "M", "mpi": "I", "package": "0", "date": "",
        "nodes": 1, "ranks_per_node": ranks, "cores_per_node": cores,
        "copies": {"pack": flat(1e-9), "unpack": flat(1e-9), "permuted": flat(9e-9)},
        "node": {"messages": linear, **surfaces, "latency": latency},
        "network": {"messages": {"nbytes": [1, 1000], "seconds": [1e-5, 1e-4]},
                    "link": {"nbytes": [1], "seconds": [1e-7]}},
    }  # fmt: skip
    return MachineProfile.model_validate(plain | changed)


def terms(strategy: str, memory: str = "ordinary", profile: MachineProfile | None = None, moved=MOVED, node_of=None):
    model = CostModel(Problem(moved, memory), profile or machine(), node_of or [0] * moved.ranks)
    found = model.estimate(strategy)
    return None if found is None else found.terms


SENT = 3 * 16 * 16 * 8  # bytes that each rank sends, and receives
OWN = 16 * 16 * 8


def test_pack_is_latency_transfer_pack_and_unpack():
    found = terms("Pack")
    assert found.latency == pytest.approx(1e-6 + 3e-7)
    assert found.transfer == pytest.approx(SENT * 1e-8, rel=1e-3)
    # what arrives is a block of whole rows of the target: received in place
    assert found.pack == pytest.approx(SENT * 1e-9)
    assert found.unpack == pytest.approx(OWN * 1e-9)
    assert found.wait == 0


def test_datatypes_pay_for_strides():
    found = terms("Datatype")
    assert found.transfer == pytest.approx(SENT * 1e-8, rel=1e-3)
    assert found.pack == pytest.approx(0.5 * SENT * (50e-9 - 1e-8), rel=1e-3)
    contiguous = schedule(Distribution((4, 512), (4,)), Distribution((4, 512), (4,), ranks=[1, 2, 3, 0]))
    assert terms("Datatype", moved=contiguous).pack == 0


def test_chunks_take_what_chunks_take():
    chunked = CostModel(Problem(MOVED), machine(), [0] * 4).estimate("Pipelined", {"chunk_bytes": 256})
    assert chunked is not None
    assert chunked.terms.transfer == pytest.approx(SENT * 1e-8, rel=5e-3)
    assert terms("Pipelined").transfer == pytest.approx(SENT * 1e-8, rel=1e-3)  # messages of one chunk
    assert chunked.options == {"chunk_bytes": 256} and str(chunked) == "Pipelined(chunk_bytes=256)"


@pytest.mark.parametrize(
    "memory, transfer, pack",
    [
        ("ordinary", 0.0, 0.5 * LONG_SENT * 7e-9),
        ("shared-target", LONG_SENT * 2e-9, 0.0),
        ("shared-both", LONG_SENT * 2e-9, 0.0),
        ("shared-source", LONG_SENT * 3e-9, 0.0),
    ],
)
def test_shared_takes_the_protocol_of_the_memory(memory: str, transfer: float, pack: float):
    found = terms("Shared", memory, moved=LONG)
    assert found.transfer == pytest.approx(transfer) and found.pack == pytest.approx(pack)
    assert found == terms("Hierarchical", memory, moved=LONG)


def test_between_nodes_the_link_is_shared():
    nodes = [0, 0, 1, 1]
    crossing = 2 * 2 * 16 * 16 * 8
    assert terms("Shared", node_of=nodes) is None
    whole = terms("Pack", node_of=nodes)
    assert whole.transfer == pytest.approx(crossing * 1e-7 + SENT / 3 * 1e-8, rel=1e-3)
    pieces = CostModel(Problem(MOVED), machine(), nodes).estimate("Pipelined")
    assert pieces is not None and pieces.seconds < whole.total  # copies while the link is at work
    assert pieces.seconds >= crossing * 1e-7


def test_strategies_are_in_order_of_time_and_the_same_wherever_they_are_computed():
    seconds = [one.seconds for one in CostModel(Problem(MOVED), machine(), [0] * 4).estimates()]
    assert seconds == sorted(seconds) and len(seconds) == 8


def test_tensors_of_nothing_and_tiles_have_times():
    nothing = schedule(Distribution((0, 4), (2,)), Distribution((0, 4), (1, 2)))
    assert terms("Pack", moved=nothing).total == 0
    tiles = schedule(Distribution((64,), (2,)), TiledDistribution((64,), (8,), [0, 1, 1, 0, 0, 1, 0, 1]))
    assert terms("Datatype", moved=tiles).total > 0


def test_the_bound_is_formula_5():
    bound = Bound.of(CostModel(Problem(MOVED), machine(), [0] * 4))
    assert (bound.remote, bound.local) == (SENT, OWN)
    rate, memory = bound.rate, bound.memory_rate
    assert bound.bandwidth == pytest.approx(rate * memory / ((2 + 1 / 3) * rate + memory))
    assert bound.share(SENT / bound.bandwidth) == pytest.approx(1.0)
    between = Bound.of(CostModel(Problem(MOVED), machine(), [0, 0, 1, 1]))
    assert (between.remote, between.rate) == (2 * 2 * 16 * 16 * 8, pytest.approx(1e7))
    still = schedule(ROWS, ROWS)
    assert str(Bound.of(CostModel(Problem(still), machine(), [0] * 4))).startswith("none")


def test_report(tmp_path):
    path = tmp_path / "machine.json"
    machine_profile.FILE.replace(path, machine())
    report = CostReport.of(MOVED, "ordinary", path)
    lines = str(report).splitlines()
    assert lines[0].startswith("machine   M, I,") and "4 ranks on 1 node, ordinary arrays" in lines[1]
    assert lines[2].split()[:6] == ["time", "latency", "transfer", "pack", "unpack", "wait"]
    assert len(lines) == 3 + 8 + 2 and lines[-2].startswith("bound")
    assert " is predicted to be the fastest, in " in lines[-1]
    plain = json.loads(json.dumps(report.to_json()))
    first = plain["strategies"][0]
    assert first["seconds"] == pytest.approx(sum(first["terms"].values()))
    assert first["bottleneck"] == max(first["terms"], key=first["terms"].get)


@pytest.mark.slow
def test_command_line(tmp_path, run, monkeypatch):
    monkeypatch.setattr(cost_figure, "_RUNS", (8, 1 << 15))
    path, picture = tmp_path / "machine.json", tmp_path / "model.png"
    machine_profile.FILE.replace(path, machine())
    explain = ("explain", "--shape", "64,64", "--from", "4", "--to", "1,4", "--profile")
    code, out, err = run(*explain, path, "--memory", "shared-target", "--plot-model", picture)
    assert (code, err) == (0, "") and "shared-target arrays" in out and picture.stat().st_size > 10_000
    code, out, _ = run(*explain, path, "--json")
    assert code == 0 and len(json.loads(out)["model"]["strategies"]) == 8
    path.write_text("{")
    for name, said in (("other", "there is no machine profile"), ("machine", f"profile {path} is not valid JSON")):
        code, _, err = run(*explain, tmp_path / f"{name}.json")
        assert code == 2 and said in err and err.count("\n") == 1

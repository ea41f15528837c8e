"""The cost model against times worked out by hand, on a machine whose every rate is a round number."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dace_redist import Distribution, TiledDistribution, cli, schedule
from dace_redist.strategies import gpu_strategies, host_strategies
from dace_redist.tuning import cost_model
from dace_redist.tuning import figure as cost_figure
from dace_redist.tuning import profile as machine_profile
from dace_redist.tuning.cost_model import CostModel
from dace_redist.tuning.problem import GPU_MEMORIES, MAIN_MEMORIES, MEMORIES, Problem
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


def byte_seconds(seconds: float) -> dict[str, Any]:
    """Return times of ``seconds`` per byte with nearly no latency."""
    return {"nbytes": [1, 1001, 1000001], "seconds": [1e-12, 1e-12 + 1000 * seconds, 1e-12 + 1e6 * seconds]}


def gpu_machine(**changed: Any) -> MachineProfile:
    """Return a machine with a GPU."""
    device = {
        "name": "G", "launch": 1e-5,
        "copies": {"pack": flat(0.1e-9), "unpack": flat(0.2e-9), "permuted": flat(0.9e-9)},
        "to_main_memory": byte_seconds(1e-9), "to_gpu": byte_seconds(2e-9),
        "node": {"messages": byte_seconds(3e-9), "push": flat(0.5e-9),
                 "latency": {kind: {"exchange": 2e-6, "message": 2e-7} for kind in ("messages", "shared")}},
        "network": {"messages": {"nbytes": [1, 1000], "seconds": [2e-5, 2e-4]},
                    "link": {"nbytes": [1], "seconds": [2e-7]}},
    }  # fmt: skip
    return machine(device=device | changed)


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


@pytest.mark.parametrize("memory", MAIN_MEMORIES)
def test_eager_messages_are_staged_without_a_handshake(memory: str):
    """2 KiB go through a slot of the ring wherever the arrays lie; 32 KiB take a handshake each."""
    node = machine().node
    assert node is not None
    latency = node.model_dump()["latency"] | {"handshake": {"exchange": 0.0, "message": 1e-5}}
    profile = machine(node=node.model_dump() | {"latency": latency})
    eager, longer = (terms("Shared", memory, profile, moved) for moved in (MOVED, LONG))
    assert eager.latency == pytest.approx(1e-6 + 3e-7) and longer.latency == pytest.approx(1e-6 + 3e-7 + 3e-5)
    assert (eager.transfer, eager.pack) == (0.0, pytest.approx(0.5 * SENT * 7e-9))
    assert eager.unpack == pytest.approx(0.5 * SENT * 7e-9 + OWN * 1e-9)


def test_partial_results_are_pulled_or_staged():
    """The receiver reduces all of an element at once, and so never has them pushed, or read by the kernel."""
    parts = Distribution((256, 512), (4, 1), dims=(None, None))  # four partial results, each of 1 MiB
    summed = schedule(parts, Distribution((256, 512), (4,)), op="sum")
    sent = 3 * 64 * 512 * 8
    for memory in ("ordinary", "shared-target"):
        found = terms("Shared", memory, moved=summed)
        assert (found.transfer, found.pack) == (0.0, pytest.approx(0.5 * sent * 7e-9))
    for memory in ("shared-source", "shared-both"):
        found = terms("Shared", memory, moved=summed)
        assert (found.transfer, found.pack) == (pytest.approx(sent * 3e-9), 0.0)
    assert terms("Pack", moved=summed).latency == pytest.approx(1e-6 + 3e-7)  # all arrive in one exchange


def test_messages_take_no_less_than_nothing():
    """Noise has made a message of one byte the slowest."""
    node = machine().node
    assert node is not None
    noisy = {"nbytes": [1, 1001, 1000001], "seconds": [1e-2, 1e-5, 1e-3]}
    profile = machine(node=node.model_dump() | {"messages": noisy})
    for strategy in ("Pack", "Pipelined", "Datatype"):
        found = terms(strategy, profile=profile)
        assert found.transfer == 0 and found.total > 0


def test_threads_share_copies_where_ranks_leave_cores():
    assert terms("Threaded", profile=machine(cores=16)).pack == pytest.approx(SENT * 1e-9 / 4)
    assert terms("Threaded").pack == pytest.approx(SENT * 1e-9)


def test_ranks_that_share_a_core_wait_for_it():
    """A calibration with two ranks per core has seen seconds that are half waiting."""
    found = terms("Pack", profile=machine(cores=2))
    alone = terms("Pack")
    assert found.pack == pytest.approx(0.5 * alone.pack)
    assert found.wait == pytest.approx(0.5 * alone.total) and found.total == pytest.approx(alone.total)


def test_a_permuted_side_is_transposed():
    permuted = schedule(ROWS, COLUMNS, axes=(1, 0))
    found = terms("Pack", moved=permuted)
    assert found.unpack == pytest.approx(SENT * 9e-9 + OWN * (1e-9 + 8e-9), rel=1e-6)


def test_between_nodes_the_link_is_shared():
    nodes = [0, 0, 1, 1]
    crossing = 2 * 2 * 16 * 16 * 8
    assert terms("Shared", node_of=nodes) is None
    whole = terms("Pack", node_of=nodes)
    assert whole.transfer == pytest.approx(crossing * 1e-7 + SENT / 3 * 1e-8, rel=1e-3)
    pieces = CostModel(Problem(MOVED), machine(), nodes).estimate("Pipelined")
    assert pieces is not None and pieces.seconds < whole.total  # copies while the link is at work
    assert pieces.seconds >= crossing * 1e-7


def test_chunks_between_nodes_are_of_the_fastest_size():
    nodes, crossing = [0, 0, 1, 1], 2 * 2 * 16 * 16 * 8
    usual = CostModel(Problem(MOVED), machine(), nodes).with_best_options("Hierarchical")
    assert usual is not None and not usual.options  # whole messages of 2 KiB, in one chunk each
    network = {"messages": {"nbytes": [1, 1000], "seconds": [1e-5, 1e-4]}, "link": {"nbytes": [1], "seconds": [1e-7]}}
    for nanoseconds, chosen in (((100, 50, 100), 512), ((50, 80, 100), 128), ((98, 97, 100), None)):
        sizes = (128, 512, 2048)
        seconds = [size * each * 1e-9 for size, each in zip(sizes, nanoseconds, strict=True)]
        profile = machine(network=network | {"link": {"nbytes": list(sizes), "seconds": seconds}})
        found = CostModel(Problem(MOVED), profile, nodes).with_best_options("Hierarchical")
        assert found is not None and found.options == ({} if chosen is None else {"chunk_bytes": chosen})
        assert found.seconds >= crossing * 1e-9 * (min(nanoseconds) if chosen else 100)
        assert not CostModel(Problem(MOVED), profile, [0] * 4).with_best_options("Hierarchical").options
        assert not CostModel(Problem(MOVED), profile, nodes).with_best_options("Pack").options


def test_the_first_and_the_last_chunk_are_copied_while_the_link_waits():
    nodes, message = [0, 0, 1, 1], 16 * 16 * 8
    chunks = {"nbytes": [message // 8, message], "seconds": [message // 8 * 1e-7, message * 1e-7]}
    network = {"messages": {"nbytes": [1], "seconds": [1e-9]}, "link": chunks}
    model = CostModel(Problem(MOVED), machine(network=network), nodes)
    whole, small = (model.estimate("Hierarchical", {"chunk_bytes": nbytes}) for nbytes in (message, message // 8))
    none = model.estimate("Hierarchical", {"chunk_bytes": 1 << 20})
    assert small.seconds < whole.seconds == none.seconds
    wire = 2 * 2 * message * 1e-7  # half of what a rank sends goes in the first chunk, or a sixteenth
    assert whole.seconds - wire == pytest.approx(8 * (small.seconds - wire))


def test_joined_messages_cost_a_share_of_one_message():
    nodes = [0, 0, 1, 1]
    apart, joined = (terms(strategy, node_of=nodes) for strategy in ("Hierarchical", "Aggregated"))
    handshake, network = 1e-6 + 1e-7, machine().network.messages.latency
    assert joined.latency - apart.latency == pytest.approx(handshake + network / 2 - 2 * network)  # two messages, one
    model, shorter = CostModel(Problem(MOVED), machine(), nodes), {"chunk_bytes": 1000}
    assert model.estimate("Aggregated", shorter).terms == model.estimate("Hierarchical", shorter).terms


@pytest.mark.slow
def test_of_very_many_messages_some_ranks_are_looked_at():
    """All ranks do the same here, so that the times are those of all."""
    sides = Distribution((256, 256), (256, 1)), Distribution((256, 256), (1, 256))
    for nodes in ([0] * 256, [rank // 64 for rank in range(256)]):
        some = CostModel(Problem(schedule(*sides)), machine(), nodes)
        every = CostModel(Problem(schedule(*sides)), machine(), nodes)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cost_model, "MAX_MODELLED_MESSAGES", 1 << 30)
            assert sum(map(len, every.traffic.values())) == 256
        assert sum(map(len, some.traffic.values())) < 64
        for strategy in ("Pack", "Hierarchical"):
            found, expected = some.estimate(strategy), every.estimate(strategy)
            assert found is not None and expected is not None
            assert found.seconds == pytest.approx(expected.seconds, rel=1e-6)
        assert Bound.of(some).remote == Bound.of(every).remote


def test_strategies_are_in_order_of_time_and_the_same_wherever_they_are_computed():
    seconds = [one.seconds for one in CostModel(Problem(MOVED), machine(), [0] * 4).estimates()]
    assert seconds == sorted(seconds) and len(seconds) == 8


def test_where_mpi_has_no_windows_nothing_is_said_of_puts():
    plain = machine().model_dump()
    del plain["node"]["latency"]["puts"]
    assert terms("RMA", profile=MachineProfile.model_validate(plain)) is None


def test_on_gpus_kernels_run_beside_the_transfers_of_other_messages():
    found = terms("Pack", "gpu", gpu_machine())
    assert found.latency == pytest.approx(2e-6 + 3 * 2e-7 + 1e-5)  # one launch: what arrives is contiguous
    assert found.transfer == pytest.approx(SENT * 3e-9, rel=1e-3)
    assert found.pack == pytest.approx(SENT * 0.1e-9 / 3) and found.unpack == pytest.approx(OWN * 0.1e-9 / 3)
    two = schedule(Distribution((64, 64), (2, 1)), Distribution((64, 64), (1, 2)))
    alone = terms("Pack", "gpu", gpu_machine(), two)
    assert alone.pack == pytest.approx(32 * 32 * 8 * 0.1e-9)  # one message: its kernel runs before it is sent
    slow = gpu_machine(copies={kind: flat(30e-9) for kind in ("pack", "unpack", "permuted")})
    found = terms("Pack", "gpu", slow)
    assert found.pack == pytest.approx(SENT * 30e-9) and found.transfer == pytest.approx(SENT * 1e-9, rel=1e-3)


def test_on_gpus_chunks_are_of_the_default_size_there():
    large = schedule(Distribution((1024, 1024), (2, 1)), Distribution((1024, 1024), (1, 2)))  # messages of 2 MiB
    model = CostModel(Problem(large, "gpu"), gpu_machine(), [0, 0])
    usual, same = model.estimate("Pipelined"), model.estimate("Pipelined", {"chunk_bytes": 1 << 20})
    assert usual.terms == same.terms and usual.options == {}
    assert usual.terms.transfer == pytest.approx((2 << 20) * 3e-9, rel=1e-3)
    assert usual.terms.pack == pytest.approx((2 << 20) * 0.1e-9 / 2)
    smaller = model.estimate("Pipelined", {"chunk_bytes": 1 << 18})
    assert smaller.terms.pack == pytest.approx((2 << 20) * 0.1e-9 / 8)


def test_on_gpus_of_a_node_the_sender_writes_into_the_target():
    found = terms("Shared", "gpu", gpu_machine())
    assert found == terms("Hierarchical", "gpu", gpu_machine())
    assert (found.transfer, found.pack) == (pytest.approx(SENT * 0.5e-9), 0.0)
    assert found.unpack == pytest.approx(OWN * 0.1e-9)


def test_between_a_gpu_and_main_memory_everything_is_staged():
    """Main memory copies all messages, contiguous ones too; what stays on a rank goes the same way."""
    down, moved = terms("Pack", "gpu-source", gpu_machine()), SENT + OWN
    assert down.latency == pytest.approx(1e-6 + 3 * 1e-7 + 1e-5)
    assert down.transfer == pytest.approx(SENT * 1e-8 + moved * 1e-9, rel=1e-3)
    assert down.pack == pytest.approx(moved * 0.1e-9 / 4) and down.unpack == pytest.approx(moved * 1e-9 / 4)
    up = terms("Pack", "gpu-target", gpu_machine())
    assert up.latency == pytest.approx(1e-6 + 3 * 1e-7)  # contiguous on the GPU: no kernel
    assert up.transfer == pytest.approx(SENT * 1e-8 + moved * 2e-9, rel=1e-3)
    assert up.pack == pytest.approx(moved * 1e-9 / 4) and up.unpack == 0
    for memory in ("gpu-source", "gpu-target"):
        assert terms("Shared", memory, gpu_machine()) == terms("Pipelined", memory, gpu_machine())


def test_strategies_of_main_memory_have_no_time_on_gpus():
    for strategy in ("Datatype", "Threaded", "RMA", "Aggregated"):
        for memory in ("gpu", "gpu-source", "gpu-target"):
            assert CostModel(Problem(MOVED, memory), gpu_machine(), [0] * 4).estimate(strategy) is None


def test_between_nodes_gpus_have_figures_of_their_own():
    nodes, crossing = [0, 0, 1, 1], 2 * 2 * 16 * 16 * 8
    assert terms("Shared", "gpu", gpu_machine(), node_of=nodes) is None
    for strategy in ("Pack", "Pipelined", "Hierarchical"):
        assert terms(strategy, "gpu", gpu_machine(), node_of=nodes).total >= crossing * 2e-7
    bound = Bound.of(CostModel(Problem(MOVED, "gpu"), gpu_machine(), nodes))
    assert bound.rate == pytest.approx(5e6)


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
    machine_profile.save(machine(), path)
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


def test_without_a_profile_the_one_that_ships_stands_in(tmp_path, monkeypatch):
    monkeypatch.setenv("DACE_REDIST_MACHINE", str(tmp_path / "none.json"))
    assert "ships with the package" in str(CostReport.of(MOVED, "ordinary"))
    (tmp_path / "none.json").write_text('{"format": "dace-redist machine profile", "version": 7}')
    assert "is ignored: it is a machine profile of version 7" in str(CostReport.of(MOVED, "ordinary"))


@pytest.mark.parametrize(
    "ranks, changed, each, said",
    [
        (4, {"network": None}, 2, "4 ranks take 2 nodes of 2: name more --ranks-per-node, or calibrate on two nodes"),
        (4, {"node": None}, 4, "one rank per node, and has no figures of 4 on a node: use .*--ranks-per-node 1"),
    ],
)
def test_a_profile_that_lacks_what_is_needed(tmp_path, ranks: int, changed: dict[str, Any], each: int, said: str):
    path = tmp_path / "machine.json"
    machine_profile.save(machine(**changed), path)
    with pytest.raises(ValueError, match=said):
        CostReport.of(MOVED, "ordinary", path, each)


def explain(capsys, *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        cli.main(["explain", "--shape", "64,64", "--from", "4", "--to", "1,4", *words])
    return end.value.code or 0, *capsys.readouterr()


def test_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cost_figure, "_RUNS", (8, 1 << 15))
    path, picture = tmp_path / "machine.json", tmp_path / "model.png"
    machine_profile.save(machine(), path)
    code, out, err = explain(capsys, "--profile", str(path), "--memory", "shared-target", "--plot-model", str(picture))
    assert (code, err) == (0, "") and "shared-target arrays" in out and picture.stat().st_size > 10_000
    code, out, _ = explain(capsys, "--profile", str(path), "--json")
    assert code == 0 and len(json.loads(out)["model"]["strategies"]) == 8
    code, _, err = explain(capsys, "--profile", str(tmp_path / "other.json"))
    assert code == 2 and "there is no machine profile" in err and err.count("\n") == 1
    path.write_text("{")
    code, _, err = explain(capsys, "--profile", str(path))
    assert code == 2 and f"machine profile {path} is not valid JSON" in err and err.count("\n") == 1
    for words in (("--plot-model", str(picture)), ("--memory", "shared-both")):
        code, _, err = explain(capsys, *words)
        assert code == 2 and f"{words[0]}: goes with --profile" in err
    for words in (("--profile",), ("--memory-bytes", "100000"), ("--ranks-per-node", "2")):
        code, _, err = explain(capsys, "--rank", "1", *words)
        assert code == 2 and "--rank: goes with none of --memory-bytes, --profile and --ranks-per-node" in err


def test_command_line_of_arrays_on_gpus(tmp_path, capsys):
    path = tmp_path / "machine.json"
    machine_profile.save(gpu_machine(), path)
    for memory in GPU_MEMORIES:
        code, out, err = explain(capsys, "--profile", str(path), "--memory", memory)
        assert (code, err) == (0, "") and f"4 ranks on 1 node, {memory} arrays" in out and "GPU       G\n" in out
        in_main_memory = explain(capsys, "--profile", str(path))[1]
        fewer = len(host_strategies()) - len(gpu_strategies(both_on_gpu=False))
        assert out.count("\n") == in_main_memory.count("\n") + 1 - fewer
    machine_profile.save(machine(), path)
    code, _, err = explain(capsys, "--profile", str(path), "--memory", "gpu")
    assert code == 2 and err.count("\n") == 1
    assert "the machine profile has no figures of a GPU, which memory gpu needs: run dace-redist calibrate" in err
    code, _, err = explain(capsys, "--memory", "gpu")
    assert code == 2 and "goes with --profile" in err


def test_the_figure_shows_the_fastest(monkeypatch):
    monkeypatch.setattr(cost_figure, "_RUNS", (8, 1 << 15))
    figure = cost_figure.draw(machine(), 4, MEMORIES[0])
    where, over_runs = figure.axes
    assert {line.get_label() for line in over_runs.lines} >= {"Pack", "Shared", "Datatype"}
    model = cost_figure.estimates(machine(), 4, MEMORIES[0], 1 << 22, 8)
    shown = {line.get_label(): line.get_ydata()[0] for line in over_runs.lines}
    assert shown["Pack"] == pytest.approx(1e3 * model["Pack"].seconds)
    with pytest.raises(ValueError, match="one rank moves nothing"):
        cost_figure.plot_costs(machine(), 1, MEMORIES[0], "x.png")

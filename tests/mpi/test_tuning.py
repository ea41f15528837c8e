"""The tuner on several ranks: its record, the use of the record by Auto, errors, and the command line."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_arrays import StridedDeviceArray, use_device
from launching import launch
from results import refused

import dace_redist
from dace_redist import Distribution, schedule
from dace_redist.measuring.comparison import Comparison
from dace_redist.measuring.measure import Figure
from dace_redist.measuring.tune import TunedProblem, Tuning
from dace_redist.redistribution.arrays.new import DeviceArray
from dace_redist.strategies import DEFAULT_STRATEGY
from dace_redist.tuning.problem import GPU_MEMORIES, TuningProblem, sides_on_gpu
from dace_redist.tuning.record import Measured, Record, Winner, make_entry

SHAPE = (24, 20)
QUICK: dict[str, Any] = {"limit_seconds": np.float32(0.5), "progress": False}


def pair(ranks: int) -> tuple[Distribution, Distribution]:
    return Distribution(SHAPE, [ranks]), Distribution(SHAPE, [1, ranks])


@pytest.fixture
def record(comm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the record of this test, the same file on every rank."""
    path = comm.bcast(tmp_path / "tuning.json")
    monkeypatch.setenv("DACE_REDIST_RECORD", str(path))
    monkeypatch.setattr(TunedProblem, "decided", True)  # however busy the machine is
    return path


def placed(array: np.ndarray, on_gpu: bool) -> Any:
    return DeviceArray.from_numpy(array) if on_gpu else array


def strided(array: np.ndarray, on_gpu: bool) -> Any:
    """Return the array as every other column of another one."""
    around = np.zeros((array.shape[0], 2 * array.shape[1]))
    around[:, ::2] = array
    return StridedDeviceArray(around[:, ::2]) if on_gpu else around[:, ::2]


def moved_by(
    comm: Any, dtype: str = "float64", memory: str = "ordinary", wrapped: Any = placed
) -> tuple[str, dict[str, Any]]:
    """Redistribute with strategy Auto, check the result, and return the strategy used."""
    from dace_redist.redistribution.cache import plans_in_use

    source, target = pair(comm.size)
    whole = np.arange(480, dtype=dtype).reshape(SHAPE)
    array, wanted = source.local(whole, comm.rank), target.local(whole, comm.rank)
    there = [wrapped(part, on_gpu) for part, on_gpu in zip((array, wanted * 0), sides_on_gpu(memory), strict=True)]
    out = dace_redist.redistribute(
        there[0], source, target, comm=comm, out=there[1] if memory in GPU_MEMORIES else None
    )
    assert np.array_equal(out if isinstance(out, np.ndarray) else out.to_numpy(), wanted)
    return plans_in_use(comm)[-1]


@pytest.mark.dace
@pytest.mark.mpi(ranks=[3], timeout=400)
def test_tune_records_what_auto_takes(comm, record: Path):
    source, target = pair(comm.size)
    assert moved_by(comm) == (DEFAULT_STRATEGY, {})
    options = {"chunk_bytes": [64, 256], "depth": [1, 2], "growth": [1.0]}
    found = dace_redist.tune(
        schedule(source, target), comm=comm, strategies=["Pipelined", "Pack"], options=options, **QUICK
    )
    assert set(comm.allgather(str(found))) == {str(found)}
    (case,) = found.problems
    rounds = {name: [m for m in case.measured if m.round == name] for name in (m.round for m in case.measured)}
    first = rounds["all strategies"]
    assert sorted(map(str, first)) == ["Pack", "Pipelined(chunk_bytes=64, depth=1)"]
    for entries in rounds.values():
        medians = [m.median_seconds for m in entries]
        assert medians == sorted(medians) and all(m.repetitions >= 1 for m in entries)
    last = list(rounds.values())[-1] if "the best of each" in rounds else first
    assert str(last[0]) == str(case.winner)

    chosen = dace_redist.chosen_strategy(source, target, "float64", comm)
    assert (chosen.strategy, chosen.options, chosen.recorded) == (case.winner.strategy, case.winner.options, True)
    assert moved_by(comm) == (case.winner.strategy, case.winner.options)  # the plan made before was dropped
    assert moved_by(comm, "float32") == (DEFAULT_STRATEGY, {})  # was not tuned
    if comm.rank == 0:
        (entry,) = json.loads(record.read_text())["entries"]
        assert entry["winner"] == {"strategy": case.winner.strategy, "options": case.winner.options}
        assert (entry["dtype"], entry["layout"], len(entry["measured"])) == ("float64", "3", len(case.measured))


@pytest.mark.mpi(ranks=[2], timeout=240)
def test_auto_reads_the_record_on_one_rank_when_it_plans(comm, record: Path, monkeypatch: pytest.MonkeyPatch):
    from dace_redist.mpi.topology import topology_of
    from dace_redist.redistribution.cache import forget_choices, plans_in_use

    source, target = pair(comm.size)
    topology, reads = topology_of(comm), []
    find = Record.find
    monkeypatch.setattr(Record, "find", lambda *given: reads.append(1) or find(*given))
    for memory, options in (
        ("ordinary", {"chunk_bytes": 24, "depth": 1}),
        ("ordinary", {"chunk_bytes": 100, "depth": 3, "growth": 1.5}),
        ("shared-target", {"chunk_bytes": 16, "depth": 2}),  # of a result that redistribute() makes it comes first
    ):
        if comm.rank == 0:
            winner = Winner(strategy="Pipelined", options=options)
            Record(record).add(make_entry(TuningProblem(schedule(source, target), memory), topology, winner, []))
        comm.Barrier()
        forget_choices(comm)
        for _ in range(3):
            assert moved_by(comm) == ("Pipelined", options)
    assert comm.allgather(len(reads)) == [6, 0]
    array, part = np.zeros(source.local_shape(comm.rank)), target.local_shape(comm.rank)
    shared, ordinary = dace_redist.shared_empty(part, "float64"), np.empty(part)
    first = {"chunk_bytes": 100, "depth": 3, "growth": 1.5, "max_message_bytes": 64}
    for out, expected in ((shared, {**options, "max_message_bytes": 64}), (ordinary, first)):
        dace_redist.redistribute(array, source, target, comm=comm, out=out, max_message_bytes=64)
        assert plans_in_use(comm)[-1] == ("Pipelined", expected)
    out = ordinary if comm.rank else None  # not all ranks say where the result is to be: they must agree all the same
    dace_redist.redistribute(array, source, target, comm=comm, out=out, max_message_bytes=64)
    assert plans_in_use(comm)[-1] == ("Pipelined", first)
    # what was measured is for arrays in C order: on any rank another one is moved by the default strategy
    padded = np.zeros((part[0], part[1] + 1))[:, :-1] if comm.rank else ordinary
    dace_redist.redistribute(array, source, target, comm=comm, out=padded)
    assert plans_in_use(comm)[-1] == (DEFAULT_STRATEGY, {})

    if comm.rank == 0:
        record.write_text(record.read_text()[:99])
    comm.Barrier()
    forget_choices(comm)
    refused(comm, ValueError, r"tuning\.json is not valid JSON .*half-written", lambda: moved_by(comm))
    if comm.rank == 0:
        record.unlink()
        record.mkdir()
    comm.Barrier()
    forget_choices(comm)
    refused(comm, OSError, r"tuning\.json cannot be read: .*DACE_REDIST_RECORD", lambda: moved_by(comm))


@pytest.mark.dace
@pytest.mark.mpi(ranks=[2], timeout=240)
def test_each_redistribution_of_an_sdfg_is_tuned(comm, record: Path):
    import dace
    from sdfgs import add_move, with_arrays

    from dace_redist.library_nodes import Redistribute

    rows = dace.symbol("rows", dace.int64)
    there = [Distribution((2 * rows, 6), [2]), Distribution((2 * rows, 6), [1, 2])]
    sdfg = with_arrays("three_moves", dtype=dace.float32, A=(rows, 6), B=(2 * rows, 3))
    state = sdfg.add_state()
    nodes = [add_move(state, Redistribute("there", *there), "A", "B")]
    nodes.append(add_move(sdfg.add_state_after(state), Redistribute("back", *reversed(there)), "B", "A"))
    again = sdfg.add_state_after(sdfg.add_state_after(state))
    nodes.append(add_move(again, Redistribute("there_again", *there), "A", "B"))
    before = sdfg.to_json()

    symbols = {"rows": 5}
    with pytest.raises(ValueError, match='Redistribute "there": rows has no value: give symbols='):
        dace_redist.tune(sdfg, comm=comm, **QUICK)
    for where, strategy in (("there*", "Pack"), ("back", "Pipelined")):
        dace_redist.tune(sdfg, comm=comm, symbols=symbols, where=where, strategies=[strategy], **QUICK)
    found = dace_redist.tune(sdfg, comm=comm, symbols=symbols, strategies=["Pack"], record=f"{record}.2", **QUICK)
    assert [case.labels for case in found.problems] == [("there", "there_again"), ("back",)]
    assert str(found).count("node      ") == 2 and f"recorded in {record}.2" in str(found)
    assert sdfg.to_json()["nodes"] == before["nodes"]

    choices = dace_redist.transformations.choose_strategies(sdfg, comm=comm, symbols=symbols)
    assert [node.strategy for node in nodes] == ["Pack", "Pipelined", "Pack"]
    assert all(choices[node].recorded for node in nodes)


@pytest.mark.mpi(ranks=[3], timeout=240)
@pytest.mark.parametrize("memory", GPU_MEMORIES)
def test_measurements_of_arrays_on_a_gpu(comm, record: Path, monkeypatch, caplog, memory: str):
    """The GPU is emulated in main memory."""
    from dace_redist.measuring.tune import tune_problems
    from dace_redist.redistribution.cache import forget_choices
    from dace_redist.tuning import auto as selection

    use_device("host", monkeypatch)
    usual = {"chunk_bytes": 1 << 20}  # on a GPU the chunks of the default strategy are longer
    stand_in = "main memory in the place of a GPU"
    source, target = pair(comm.size)
    assert moved_by(comm, memory=memory) == (DEFAULT_STRATEGY, usual)
    options = {"chunk_bytes": [64, 256], "depth": [2]}
    problem = TuningProblem(schedule(source, target), memory)
    found = tune_problems({(): problem}, comm=comm, strategies=["Pipelined", "Pack"], options=options, **QUICK)
    assert set(comm.allgather(str(found))) == {str(found)}
    winner = found.problems[0].winner
    assert {m.strategy for m in found.problems[0].measured} == {"Pipelined", "Pack"}

    expected = (winner.strategy, winner.options)
    assert moved_by(comm, memory=memory) == expected  # the plan made before was dropped
    devices = tuple("gpu" if on_gpu else "cpu" for on_gpu in sides_on_gpu(memory))
    with dace_redist.plan(source, target, "float64", comm=comm, device=devices) as plan:
        assert ((plan.strategy, plan.options), plan.recorded) == (expected, True)
    assert dace_redist.chosen_strategy(source, target, comm=comm, memory=memory).recorded
    others = {other: moved_by(comm, memory=other) for other in GPU_MEMORIES if other != memory}
    assert set(map(str, others.values())) == {str((DEFAULT_STRATEGY, usual))}
    assert not dace_redist.chosen_strategy(source, target, comm=comm).recorded
    assert moved_by(comm, memory=memory, wrapped=strided) == (DEFAULT_STRATEGY, usual)  # what is measured is in C order
    if comm.rank == 0:
        (entry,) = json.loads(record.read_text())["entries"]
        assert (entry["memory"], entry["gpu"]) == (memory, stand_in)

    monkeypatch.setattr(selection, "device_name", lambda: "NVIDIA H200")
    forget_choices(comm)
    assert moved_by(comm, memory=memory) == (DEFAULT_STRATEGY, usual)
    if comm.rank == 0:
        assert f"it is of another GPU ({stand_in}, here NVIDIA H200); tune again here" in caplog.text


@pytest.mark.dace
@pytest.mark.mpi(ranks=[2])
def test_bad_input(comm, record: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source, target = pair(comm.size)
    the_schedule, last = schedule(source, target), comm.rank == comm.size - 1

    def call(**words: Any) -> Any:
        return lambda: dace_redist.tune(**{"source": the_schedule, "comm": comm, **QUICK, **words})

    too_many = schedule(Distribution(SHAPE, [3]), target)
    for words, kind, text in (
        ({"strategies": ["Pipelind"]}, ValueError, r"unknown strategy 'Pipelind' \(did you mean Pipelined"),
        ({"options": {"chunk_byte": [8]}}, ValueError, "takes option 'chunk_byte'; they take chunk_bytes, "),
        ({"options": 3}, TypeError, "options must be a dict of the values to try by option, got 3"),
        ({"strategies": "Pack"}, TypeError, "strategies must be a list of names, got the string 'Pack'"),
        ({"limit_seconds": 0}, ValueError, "limit_seconds must be positive, got 0"),
        ({"symbols": {"N": 3}}, TypeError, "tune does not take symbols with a redistribution"),
        ({"axes": (0, 1)}, TypeError, "tune does not take axes with a schedule"),
        (
            {"source": source},
            TypeError,
            "target must be a Distribution, TiledDistribution or BoxDistribution, got None",
        ),
        ({"source": too_many}, ValueError, "ranks up to 2, but .* has 2 ranks; start the program with mpiexec -n 3"),
        ({"memory": "shared"}, ValueError, "memory must be one of ordinary, shared-source, .*, got 'shared'"),
    ):
        refused(comm, kind, text, call(**words))
        if "comm" not in words:  # on one rank only
            refused(comm, kind, text, call(**(words if last else {})))
    with monkeypatch.context() as patch:
        patch.setenv("OMPI_COMM_WORLD_SIZE", "3")
        text = "the launcher started 3 ranks, but MPI .* sees 2: mpiexec is of another MPI"
        refused(comm, RuntimeError, text, call(source=too_many))
    refused(
        comm,
        ValueError,
        r"the ranks differ in limit_seconds: 0\.5 on rank 0 and 1\.5 on rank 1",
        call(limit_seconds=0.5 + comm.rank),
    )
    refused(
        comm,
        ValueError,
        "the ranks differ in what they tune: ",
        call(source=schedule(source, source) if last else the_schedule),
    )
    refused(
        comm,
        ValueError,
        "the ranks differ in the redistribution",
        lambda: dace_redist.chosen_strategy(source, source if last else target, comm=comm),
    )
    foreign = tmp_path / "notes.json"
    if comm.rank == 0:
        foreign.write_text('{"notes": []}')
    foreign = comm.bcast(foreign)
    refused(comm, ValueError, r"notes\.json is not a tuning record of dace-redist", call(record=foreign))
    text = r"tuning record .*below cannot be written: .*notes\.json.*; name another file with DACE_REDIST_RECORD"
    refused(comm, OSError, text, call(record=foreign / "below"))


@pytest.mark.mpi(ranks=[2])
@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        ("RECORD", "/" + 5000 * "x", OSError, "File name too long"),
    ],
)
def test_variables_of_the_first_rank_are_refused_on_every_rank(comm, monkeypatch, name, value, error, text):
    """A record that cannot be looked for."""
    source, target = pair(comm.size)
    if comm.rank == 0:  # the others may have another environment
        monkeypatch.setenv(f"DACE_REDIST_{name}", value)
    refused(comm, error, text, lambda: dace_redist.plan(source, target, "int32", comm=comm))
    monkeypatch.undo()
    dace_redist.plan(source, target, "int32", comm=comm).free()


CASE = ["--shape", "24,20", "--from", "2", "--to", "1,2", "--limit-seconds", "0.5"]


def command_line(record: Path, *words: str, strategy: str = "Pack", ranks: int = 2) -> tuple[int, str]:
    argv = [sys.executable, "-m", "dace_redist.cli", "tune", *CASE, "--strategy", strategy, *words]
    return launch(ranks, argv, 120, environment={"DACE_REDIST_RECORD": str(record)})


def test_command_line(tmp_path: Path):
    record = tmp_path / "tuning.json"
    code, printed = command_line(record, "--dtype", "int32")
    assert code == 0, printed
    assert re.search(r"^tensor +int32\[24, 20\]", printed, re.MULTILINE)
    assert re.search(r"^winner +Pack$", printed, re.MULTILINE)
    assert re.search(r"^  Pack +[\d.]+ ms +\[[\d.]+, [\d.]+\] +1\.00 x +\d+$", printed, re.MULTILINE)
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


def test_bench_compares_with_alltoallw():
    words = ["--shape", "24x20", "--from", "2", "--to", "1x2", "--axes", "1,0", "--limit-seconds", "0.3"]
    argv = [sys.executable, "-m", "dace_redist.cli", "bench", *words, "--strategy", "Pack", "--memory", "shared-target"]
    code, printed = launch(2, argv, 120)
    assert code == 0, printed
    assert re.search(r"^MPI_Alltoallw +[\d.]+ ms +\[[\d.]+, [\d.]+\] +1\.00 +\d+$", printed, re.MULTILINE)
    assert re.search(
        r"^(Pack is the fastest strategy: [\d.]+ times as|not decided.* Pack and MPI_Alltoallw)", printed, re.M
    )


ONE = TuningProblem(schedule(*pair(2)))


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [
        (
            {"Pack": 1, "Shared": 3, "MPI_Alltoallw": 4},
            "Pack is the fastest strategy: 4.00 times as fast as MPI_Alltoallw",
        ),
        (
            {"Pack": 1, "Shared": 1.4, "MPI_Alltoallw": 4},
            "of Pack and Shared overlap; Pack is 4.00 times as fast as MPI_",
        ),
        ({"Pack": 1, "Shared": 3, "MPI_Alltoallw": 1.1}, "not decided (machine busy?): the intervals of Pack and MPI_"),
        ({"Pack": 1, "Shared": 3}, "Pack is the fastest strategy"),
    ],
)
def test_verdict_of_a_comparison(seconds: dict[str, float], verdict: str):
    figures = {name: Figure((each,), each, 0.8 * each, 1.3 * each) for name, each in seconds.items()}
    assert verdict in str(Comparison(ONE, figures)).splitlines()[-1]


@pytest.mark.parametrize(
    ("candidates", "decided", "verdict"),
    [
        ([("Pack", 0, 1), ("RMA", 0, 1.1), ("Shared", 0, 2)], True, "Pack, 2.00 times as fast as Shared (default)"),
        ([("Pack", 0, 1), ("Shared", 0, 1.2)], False, "the intervals of Pack and Shared (default) overlap"),
        ([("Shared", 4, 1), ("Shared", 0, 1.2), ("RMA", 0, 9)], False, "Shared(depth=4) and Shared (default) overlap"),
        ([("Shared", 0, 1), ("Pack", 0, 2)], True, "Shared, 2.00 times as fast as Pack"),
        ([("Pack", 0, 1)], True, "winner    Pack"),
    ],
)
def test_verdict_of_the_tuner(candidates: list[tuple[str, int, float]], decided: bool, verdict: str):
    measured = tuple(
        Measured(
            **{"strategy": name, "options": {"depth": depth} if depth else {}, "round": "the best of each"},
            **{"median_seconds": each, "low_seconds": 0.8 * each, "high_seconds": 1.3 * each},
        )
        for name, depth, each in candidates
    )
    winner = Winner(strategy=measured[0].strategy, options=measured[0].options)
    tuned = TunedProblem((), ONE, winner, measured, "Shared")
    assert tuned.decided == decided and verdict in str(tuned).splitlines()[-1]
    assert ("nothing recorded" in str(Tuning((tuned,), Path("tuning.json")))) == (not decided)

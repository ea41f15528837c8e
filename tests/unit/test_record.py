"""The tuning record: kept, merged, shared by processes, and refused where it is no record."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import filelock
import pytest

from dace_redist import Distribution, schedule
from dace_redist.mpi.topology import Topology
from dace_redist.native import variants
from dace_redist.tuning import auto as choosing
from dace_redist.tuning import record
from dace_redist.tuning.problem import TuningProblem
from dace_redist.tuning.record import Measured, Record, Winner, make_entry

HERE = Topology("Fast Processor, 2 cores", "Open MPI v5.0.11", (0, 0, 0, 0))
SCHEDULE = schedule(Distribution((12, 10), [4]), Distribution((12, 10), [1, 4]), dtype="int32")
CASE = TuningProblem(SCHEDULE)
WINNER = Winner(strategy="Pipelined", options={"chunk_bytes": 1024, "growth": 2.0})
MEASURED = [
    Measured(**WINNER.model_dump(), round="all strategies", median_seconds=2e-3, low_seconds=1e-3, high_seconds=3e-3),
    Measured(strategy="Shared", options={}, round="all strategies", note="not on one node"),
]


def entry(case=CASE, topology=HERE, winner=WINNER) -> record.Entry:
    return make_entry(case, topology, winner, MEASURED)


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    monkeypatch.setattr(record, "processor_flags", str)  # of a processor without a level
    return Record(tmp_path / "new" / "tuning.json")


def test_round_trip(book: Record):
    assert book.find(CASE, HERE) == (None, "")
    book.add(entry())
    assert book.find(CASE, HERE) == (WINNER, "")
    stored = json.loads(book.path.read_text())
    assert (stored["format"], stored["version"]) == ("dace-redist tuning record", 1)
    (found,) = map(record.Entry.model_validate, stored["entries"])
    assert found == entry().model_copy(update={"date": found.date})
    assert sorted(p.name for p in book.path.parent.iterdir()) == ["tuning.json", "tuning.json.lock"]


def test_new_measurement_replaces_the_old_one_of_its_case_only(book: Record):
    other = TuningProblem(schedule(SCHEDULE.target, SCHEDULE.source, dtype="int32"))
    book.add(entry())
    book.add(entry(other))
    again = Winner(strategy="Pack", options={})
    book.add(entry(winner=again))
    assert book.find(CASE, HERE) == (again, "")
    assert book.find(other, HERE) == (WINNER, "")
    assert len(json.loads(book.path.read_text())["entries"]) == 2


@pytest.mark.parametrize(
    "case, topology",
    [
        (TuningProblem(schedule(SCHEDULE.source, SCHEDULE.target, dtype="float32")), HERE),
        (TuningProblem(schedule(SCHEDULE.target, SCHEDULE.source, dtype="int32")), HERE),
        (CASE, dataclasses.replace(HERE, node_of=(0, 0, 1, 1))),
        (CASE, dataclasses.replace(HERE, node_of=(0, 1, 0, 1))),
    ],
)
def test_other_cases_are_not_found(book: Record, case, topology):
    book.add(entry())
    assert book.find(case, topology) == (None, "")


@pytest.mark.parametrize(
    "topology, why",
    [
        (dataclasses.replace(HERE, machine="Slow"), "of another machine (Fast Processor, 2 cores, here Slow)"),
        (dataclasses.replace(HERE, mpi="MPICH 5"), "of another MPI (Open MPI v5.0.11, here MPICH 5)"),
        (dataclasses.replace(HERE, mpi="MPICH 5", machine="Slow"), "and another machine"),
    ],
)
def test_entry_of_another_machine_or_mpi_is_ignored_with_one_line(book: Record, topology: Topology, why: str):
    book.add(entry())
    winner, line = book.find(CASE, topology)
    assert winner is None
    elsewhere = Winner(strategy="Pack", options={})
    book.add(entry(topology=topology, winner=elsewhere))  # beside the other one
    assert (book.find(CASE, HERE), book.find(CASE, topology)) == ((WINNER, ""), (elsewhere, ""))
    assert line.startswith(f"the choice for int32[12 x 10] in {book.path} is ignored: it is of another ")
    assert why in line and "\n" not in line


def test_processors_of_one_name_differ_by_level(book: Record, monkeypatch: pytest.MonkeyPatch):
    book.add(entry())
    monkeypatch.setattr(record, "processor_flags", lambda: variants.LEVELS["x86-64-v2"])
    assert book.find(CASE, HERE)[0] is None
    assert (
        "another machine (Fast Processor, 2 cores, here Fast Processor, 2 cores, x86-64-v2)" in book.find(CASE, HERE)[1]
    )


def half(text: str) -> str:
    return text[: len(text) // 2]


def with_change(change):
    def changed(text: str) -> str:
        plain = json.loads(text)
        change(plain, plain["entries"][0])
        return json.dumps(plain)

    return changed


@pytest.mark.parametrize(
    "damage, said",
    [
        (half, "is not valid JSON .*half-written"),
        (lambda text: "{}", "is not a tuning record of dace-redist, but another file"),
        (lambda text: "[]", "is not a tuning record of dace-redist, but another file"),
        (with_change(lambda file, first: file.pop("version")), "is damaged: version: Field required"),
        (with_change(lambda file, first: first.pop("layout")), r"is damaged: entries\.0\.layout: Field required"),
        (with_change(lambda file, first: first["winner"].update(strategy=None)), r"entries\.0\.winner\.strategy: "),
        (with_change(lambda file, first: first["winner"].update(strategy="Fastest")), "damaged: unknown strategy"),
        (with_change(lambda file, first: first["winner"]["options"].update(speed=4)), "does not take option 'speed'"),
    ],
)
def test_what_is_no_record_is_an_error_that_names_the_file(book: Record, damage, said: str):
    book.add(entry())
    book.path.write_text(damage(book.path.read_text()))
    with pytest.raises(ValueError, match=said) as error:
        book.find(CASE, HERE)
    assert str(book.path) in str(error.value)
    assert "name another file with DACE_REDIST_RECORD" in str(error.value)
    assert "\n" not in str(error.value)


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
import test_record as test
from dace_redist import Distribution, schedule
from dace_redist.tuning.problem import TuningProblem
from dace_redist.tuning.record import Record

book, number = Record(Path(sys.argv[1])), int(sys.argv[2])
for i in range(10):
    shape = (100 * number + i + 4, 10)
    case = TuningProblem(schedule(Distribution(shape, [4]), Distribution(shape, [1, 4])))
    book.add(test.entry(case))
    assert book.find(case, test.HERE)[0] == test.WINNER
"""


@pytest.mark.slow
def test_processes_that_write_at_once_lose_nothing(book: Record):
    words = [sys.executable, "-c", WRITER, str(book.path)]
    writers = [subprocess.Popen([*words, str(number), str(Path(__file__).parent)]) for number in range(3)]
    while any(writer.poll() is None for writer in writers):
        book.find(CASE, HERE)  # never sees a part of the file
    assert [writer.returncode for writer in writers] == [0] * 3
    assert len(json.loads(book.path.read_text())["entries"]) == 30


def test_lock_that_is_never_let_go(book: Record, monkeypatch):
    monkeypatch.setattr(record, "_LOCK_SECONDS", 0.05)
    book.path.parent.mkdir()
    with filelock.FileLock(f"{book.path}.lock"), pytest.raises(OSError, match="another process has held") as error:
        book.add(entry())
    assert f"{book.path}.lock" in str(error.value)
    book.add(entry())


# What is chosen --------------------------------------------------------------------------------------------------


def test_choice(book: Record, caplog: pytest.LogCaptureFixture):
    unmeasured = choosing._choose(CASE, HERE, book.path)
    assert unmeasured.strategy == "Hierarchical" and not unmeasured.recorded
    book.add(entry())
    chosen = choosing._choose(CASE, HERE, book.path)
    assert (chosen.strategy, chosen.options, chosen.recorded) == ("Pipelined", WINNER.options, True)
    assert str(chosen) == f"Pipelined(chunk_bytes=1024, growth=2.0): measured, in {book.path}"
    assert caplog.text == ""
    elsewhere = dataclasses.replace(HERE, mpi="MPICH 5")
    for _ in range(2):
        choice = choosing._choose(CASE, elsewhere, book.path)
        assert choice.strategy == unmeasured.strategy and "of another MPI" in choice.reason
    assert [r.getMessage() for r in caplog.records] == [choice.reason]  # said once


def test_record_of_another_version_is_ignored_but_not_written_over(book: Record):
    book.path.parent.mkdir()
    later = json.dumps({"format": "dace-redist tuning record", "version": record.VERSION + 1, "choices": {}})
    book.path.write_text(later)
    winner, line = book.find(CASE, HERE)
    assert winner is None
    assert (
        line == f"{book.path} is ignored: it is a tuning record of version 2, this package reads and writes version 1"
    )
    for write in (book.check_writable, lambda: book.add(entry())):
        with pytest.raises(ValueError, match="a tuning record of version 2, .*name another file") as error:
            write()
        assert str(book.path) in str(error.value)
    assert book.path.read_text() == later

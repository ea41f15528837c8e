"""Distributed programs on disk: a later call of distribute takes them from there, unless something has changed."""

import tempfile
import threading

import dace
import numpy as np
import pytest
from distributed_simulation import SimulatedRanks

import dace_redist.transformations.distribute as module
from dace_redist import distribute
from dace_redist.transformations.distribute import choice
from dace_redist.transformations.distribute.kept import VARIABLE

factor, array = 2.0, np.ones(6)
N = dace.symbol("N", dace.int64)


@dace.program
def scaled(a: dace.float64[N]):
    return factor * a + 1.0


@dace.program
def with_array(a: dace.float64[6]):
    return a + array


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """Names of the programs that are planned, with a folder of their own."""
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("DACE_REDIST_CACHE", str(tmp_path))
    names, plan = [], module._distributed

    def counted(program, *more):
        names.append(program.f.__name__)
        return plan(program, *more)

    monkeypatch.setattr(module, "_distributed", counted)
    return names


def result(program, sizes):
    given = np.arange(6.0)
    (found,) = SimulatedRanks(distribute(program, 2, sizes)).run(a=given).values()
    return found.tolist()


def test_a_kept_program_is_not_planned_again(planned, monkeypatch):
    first, again = distribute(scaled, 2, {"N": 6}), distribute(scaled, 2, {"N": 6})
    assert planned == ["scaled"]
    assert str(again) == str(first) and again.identity == first.identity
    assert result(scaled, {"N": 6}) == [2.0 * n + 1.0 for n in range(6)]
    monkeypatch.setitem(globals(), "factor", 3.0)
    with pytest.raises(ValueError, match="factor is 3.0, but was 2.0"):
        again.recipe.captured.check()
    assert result(scaled, {"N": 6}) == [3.0 * n + 1.0 for n in range(6)]
    assert planned == ["scaled"] * 2


def test_other_sizes_ranks_and_options_are_planned(planned, monkeypatch):
    for ranks, size in ((2, 6), (3, 6), (2, 7)):
        distribute(scaled, ranks, {"N": size})
    monkeypatch.setenv(choice.VARIABLE, "4e-6")
    distribute(scaled, 2, {"N": 6})
    assert len(planned) == 4


def test_programs_of_arrays_from_outside_are_not_kept(planned, tmp_path):
    for _ in range(2):
        assert result(with_array, {}) == [n + 1.0 for n in range(6)]
    assert len(planned) == 2 and not [*tmp_path.rglob("*.plan")]


@pytest.mark.parametrize("damaged", [lambda data: data[:100], lambda data: data[:-50] + b"?" + data[-49:]])
def test_a_damaged_file_is_replaced(planned, tmp_path, damaged):
    distribute(scaled, 2, {"N": 6})
    (path,) = tmp_path.rglob("*.plan")
    path.write_bytes(damaged(path.read_bytes()))
    for _ in range(2):
        distribute(scaled, 2, {"N": 6})
    assert len(planned) == 2


def test_one_of_several_processes_plans(planned, monkeypatch):
    plan, begun, go = module._distributed, threading.Event(), threading.Event()

    def slow(*given):
        begun.set()
        assert go.wait(60)
        return plan(*given)

    monkeypatch.setattr(module, "_distributed", slow)
    threads = [threading.Thread(target=distribute, args=(scaled, 2, {"N": 6})) for _ in range(3)]
    threads[0].start()
    assert begun.wait(60)
    for thread in threads[1:]:
        thread.start()
    go.set()
    for thread in threads:
        thread.join(60)
    assert planned == ["scaled"]


def test_each_process_plans_if_the_first_fails(planned, monkeypatch):
    monkeypatch.setattr(module, "_distributed", lambda program, *more: planned.append("failed") or 1 / 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            distribute(scaled, 2, {"N": 6})
    assert len(planned) == 2


def test_programs_are_planned_without_a_folder_for_locks(planned, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    distribute(scaled, 2, {"N": 6})
    assert planned == ["scaled"]


def test_nothing_is_kept_where_the_environment_says_so(planned, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "0")
    for _ in range(2):
        distribute(scaled, 2, {"N": 6})
    assert len(planned) == 2 and not [*tmp_path.rglob("*.plan")]

"""Programs that were changed, or are built otherwise, are compiled again; those no longer used are freed."""

from __future__ import annotations

import ast
import importlib
from typing import Any

import dace
import numpy as np
import pytest
from dace.frontend.python.newast import ProgramVisitor
from dace.properties import CodeBlock
from dace.sdfg.state import LoopRegion
from packaging.version import Version

from dace_redist import distribute
from dace_redist.native import program as programs
from dace_redist.transformations import lower_all

N = dace.symbol("N", dace.int64)


@dace.program
def repeated(A: dace.float64[N, N], x: dace.float64[N]):
    steps = 0
    for _ in range(3):
        x[:] = A @ x + 1.0
        steps = steps + 1
    return x[1:] * steps


def set_condition(sdfg: dace.SDFG) -> None:
    (loop,) = (block for block in sdfg.all_control_flow_regions() if isinstance(block, LoopRegion))
    loop.loop_condition = CodeBlock(f"{loop.loop_variable} < 5")


def set_condition_in_place(sdfg: dace.SDFG) -> None:
    (loop,) = (block for block in sdfg.all_control_flow_regions() if isinstance(block, LoopRegion))
    loop.loop_condition.code = CodeBlock(f"{loop.loop_variable} < 5").code


def set_range_in_place(sdfg: dace.SDFG) -> None:
    entry = next(node for node, _ in sdfg.all_nodes_recursive() if isinstance(node, dace.nodes.MapEntry))
    begin, end, step = entry.map.range.ranges[0]
    entry.map.range.ranges[0] = (begin, end - 1, step)


def set_assignment(sdfg: dace.SDFG) -> None:
    next(iter(sdfg.all_interstate_edges())).data.assignments["other"] = "7"


CHANGES = {
    "condition": set_condition,
    "condition in place": set_condition_in_place,
    "range in place": set_range_in_place,
    "assignment": set_assignment,
}


def test_an_sdfg_is_compared_only_after_each_use(monkeypatch: pytest.MonkeyPatch):
    program = distribute(repeated, 1, {"N": 4})
    sdfg, name = program.sdfg, program.identity
    with monkeypatch.context() as patch:
        patch.delattr("dace_redist.transformations.distribute.runtime.facts.pickle")  # it takes longer than a short run
        assert program.identity == program.identity == name
    set_condition(sdfg)
    lower_all(sdfg)
    assert program.identity != name


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_program_has_another_name(change):
    program = distribute(repeated, 1, {"N": 4})
    before = program.identity
    assert program.identity == before
    change(program.sdfg)
    assert program.identity[0] != before[0]


def test_another_configuration_of_dace_is_another_library(monkeypatch: pytest.MonkeyPatch):
    before = programs.named_path("program")
    assert programs.named_path("program") == before
    with dace.config.set_temporary("compiler", "cpu", "args", value="-O0 -g"):
        assert programs.named_path("program") != before
    assert programs.named_path("program") == before
    monkeypatch.setenv("DACE_optimizer_autospecialize", "1")
    assert programs.named_path("program") != before


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module that caches programs, without compilation, on a communicator of this rank."""
    from dace_redist.transformations.distribute.runtime import loaded

    class Recorded:
        stopped: list[int] = []

        def __init__(self, program: Any, comm: Any) -> None:
            self.number = program.sizes["N"]

        def stop(self) -> None:
            self.stopped.append(self.number)

    monkeypatch.setattr(loaded, "Loaded", Recorded)
    return loaded


def test_programs_that_were_not_used_for_long_are_freed(loaded):
    from mpi4py import MPI

    comm, program = MPI.COMM_SELF.Dup(), distribute(repeated, 1, {"N": 3})
    first = loaded.load(program, comm)
    for size in range(4, 4 + loaded.MAX_LOADED):
        loaded.load(program.with_sizes(N=size), comm)
        assert loaded.load(program, comm) is first  # it is in use
    assert loaded.Loaded.stopped == [4]
    comm.Free()
    assert sorted(loaded.Loaded.stopped) == list(range(3, 4 + loaded.MAX_LOADED))


@pytest.mark.compile
def test_a_changed_loop_runs_as_it_is_now():
    program, A, x = distribute(repeated, 1, {"N": 4}), np.full((4, 4), 0.1), np.arange(4.0)
    for rounds in (3, 5):
        given, wanted = x.copy(), x.copy()
        for _ in range(rounds):
            wanted = A @ wanted + 1.0
        result = program(A, x=given)
        np.testing.assert_allclose(result, wanted[1:] * rounds)
        np.testing.assert_allclose(given, wanted)  # it is written in place
        set_condition(program.sdfg)
    with pytest.raises(ValueError, match="writes x in place: .* of float64 on rank 0, got a read-only or other object"):
        program(A, np.broadcast_to(1.0, 4))


def test_every_stand_in_is_listed_and_needed():
    """Its function is in this version of DaCe, which has not repaired it."""
    from dace_redist.transformations.distribute.read import frontend
    from dace_redist.transformations.distribute.read.dace_repairs.replaced import REPLACED, digest_of

    assert frontend.PATCHES.keys() | {(dace.sdfg.utils, "distributed_compile")} == {
        (one.of, one.name) for one in REPLACED
    }
    for one in REPLACED:
        assert hasattr(one.of, one.name), f"DaCe {dace.__version__} has no {one.name}: {one.fault}"
        assert digest_of(getattr(one.of, one.name)) == one.digest, f"DaCe {dace.__version__} has another {one.name}"
        repaired = one.repaired_in is not None and Version(one.repaired_in) <= Version(dace.__version__)
        assert not repaired, f"DaCe {dace.__version__} has {one.name} repaired: drop its stand-in"


def test_other_versions_of_dace_are_named_when_a_program_is_read(monkeypatch: pytest.MonkeyPatch):
    from dace_redist.transformations.distribute.read.dace_repairs import statements

    for other, words in ((None, "no '_visit_test'"), (ast.walk, "another '_visit_test' than the one that is replaced")):
        with monkeypatch.context() as patch:
            patch.setattr(ProgramVisitor, "_visit_test", other) if other else patch.delattr(
                ProgramVisitor, "_visit_test"
            )
            with pytest.raises(ImportError, match=f"DaCe .* ProgramVisitor has {words}: install dace==2.0.0b1"):
                importlib.reload(statements)
    importlib.reload(statements)

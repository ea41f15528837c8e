"""Redistributions that are joined with their neighbours or removed: the graph before and after, and equal results."""

from __future__ import annotations

import copy

import dace
import numpy as np
import pytest
from dace.libraries.linalg import Transpose
from dace.properties import CodeBlock
from dace.sdfg.state import ConditionalBlock, ControlFlowRegion
from program_calls import HALVES, SIDES, TURNED, WANTED, columns_of_the_transpose, there_already, transposed_before
from sdfgs import add_move, count, redistributions, with_arrays

from dace_redist import Distribution
from dace_redist.library_nodes import Redistribute
from dace_redist.transformations import FuseRedistributes, FuseTranspose, OverlapRedistribute, RemoveRedistribute
from dace_redist.transformations.fuse import transposed


def fused(program) -> tuple[dace.SDFG, dace.SDFG]:
    """Return the SDFG before and after all possible fusions."""
    before, after = program.to_sdfg(simplify=True), program.to_sdfg(simplify=True)
    after.name = f"{before.name}_fused"
    after.apply_transformations_repeated([FuseTranspose, FuseRedistributes, RemoveRedistribute])
    after.validate()
    return before, after


@pytest.mark.parametrize(
    ("program", "before", "after", "sides", "alpha"),
    [
        (columns_of_the_transpose, [2, 1], [1, 0], (HALVES, WANTED), 6),
        (transposed_before, [1, 1], [1, 0], (transposed(WANTED), TURNED), 1),
        (there_already, [1, 0], [0, 0], None, None),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_programs(program, before, after, sides, alpha):
    sdfgs = fused(program)
    assert [count(sdfg, Redistribute, Transpose) for sdfg in sdfgs] == [before, after]
    for node in redistributions(sdfgs[1]):
        assert (node.distributions(), node.index_map.axes, node.alpha) == (sides, (1, 0), alpha)


@pytest.mark.parametrize("target", ["B", "__return"])
@pytest.mark.parametrize(
    ("distribution", "removed"),
    [(Distribution((8, 8), (4, 1)), True), (Distribution((8, 8), (4, 1), halo=(1, 0)), False)],
)
def test_only_what_moves_nothing_into_a_new_array_is_removed(target, distribution, removed):
    """A rank keeps what it does not own of an argument, and gets its halo from others."""
    sdfg = with_arrays("unmoved", **dict.fromkeys(("A", target), (4, 8)))
    add_move(sdfg.add_state(), Redistribute("move", distribution, distribution), "A", target)
    assert copy.deepcopy(sdfg).apply_transformations(RemoveRedistribute, permissive=True) == removed
    assert sdfg.apply_transformations(RemoveRedistribute) == (removed and target == "__return")


def test_a_started_redistribution_stays():
    sdfg = there_already.to_sdfg(simplify=True)
    assert sdfg.apply_transformations(OverlapRedistribute) == 1
    assert sdfg.apply_transformations(RemoveRedistribute) == 0


def test_transposed_local_arrays():
    for one in (HALVES, SIDES, Distribution((7, 9), (3, 2), dims=(1, 0), block=(2, "balanced"), ranks=range(6)[::-1])):
        for rank in range(one.ranks_needed):
            whole = np.arange(one.shape[0] * one.shape[1]).reshape(one.shape)
            np.testing.assert_array_equal(transposed(one).local(whole.T, rank), one.local(whole, rank).T)


def chain(first: Redistribute, second: Redistribute, between=dace.float64, transient=True) -> dace.SDFG:
    sdfg = dace.SDFG("chain")
    sdfg.add_array("A", (4, 6), dace.float64)
    sdfg.add_array("B", (8, 3), between, transient=transient)
    sdfg.add_array("C", (4, 6), dace.float64)
    state = sdfg.add_state()
    add_move(state, first, "A", "B")
    add_move(state, second, "B", "C")
    return sdfg


def ordered() -> dace.SDFG:
    """Return a chain whose first redistribution follows a copy, without data from it."""
    sdfg = chain(Redistribute("a", HALVES, SIDES), Redistribute("b", SIDES, HALVES))
    state = sdfg.start_block
    (first,) = (node for node in state.nodes() if node.label == "a")
    state.add_nedge(state.add_tasklet("before", {}, {}, "pass", side_effects=True), first, dace.Memlet())
    return sdfg


def from_the_gpu(dtype=dace.float64) -> dace.SDFG:
    """Return a chain of which only the last array lies on the GPU."""
    sdfg = chain(Redistribute("a", HALVES, SIDES), Redistribute("b", SIDES, HALVES))
    sdfg.arrays["A"].dtype = dtype
    sdfg.arrays["C"].storage = dace.StorageType.GPU_Global
    return sdfg


def large_factors() -> dace.SDFG:
    """Return a chain whose factor no element can hold."""
    sdfg = chain(Redistribute("a", HALVES, SIDES, alpha=100), Redistribute("b", SIDES, HALVES, alpha=100))
    for array in sdfg.arrays.values():
        array.dtype = dace.int8
    return sdfg


def read_by_a_condition() -> dace.SDFG:
    sdfg = chain(Redistribute("a", HALVES, SIDES), Redistribute("b", SIDES, HALVES))
    branch, body = ConditionalBlock("branch"), ControlFlowRegion("body", sdfg=sdfg)
    sdfg.add_edge(sdfg.start_block, branch, dace.InterstateEdge())
    body.add_state(is_start_block=True)
    branch.add_branch(CodeBlock("B[0, 0] > 0"), body)
    return sdfg


@pytest.mark.parametrize(
    ("sdfg", "possible"),
    [
        (lambda: chain(Redistribute("a", HALVES, SIDES), Redistribute("b", SIDES, HALVES)), True),
        (lambda: chain(Redistribute("a", HALVES, SIDES), Redistribute("b", SIDES, HALVES, beta=2)), True),
        (lambda: chain(Redistribute("a", HALVES, SIDES, beta=1), Redistribute("b", SIDES, HALVES)), False),
        (lambda: chain(Redistribute("a", HALVES, SIDES), Redistribute("b", SIDES, HALVES), transient=False), False),
        (lambda: chain(Redistribute("a", HALVES, SIDES), Redistribute("b", SIDES, HALVES), dace.float32), False),
        (lambda: chain(Redistribute("a", HALVES, SIDES), Redistribute("b", SIDES, HALVES, op="sum")), False),
        (lambda: chain(Redistribute("a", HALVES, SIDES, wire="float32"), Redistribute("b", SIDES, HALVES)), False),
        (read_by_a_condition, False),
        (ordered, False),
        (from_the_gpu, True),
        (lambda: from_the_gpu(dace.float32), True),
        (lambda: from_the_gpu(dace.int32), False),
        (large_factors, False),
    ],
)
def test_redistributions_are_joined_only_where_nothing_is_lost(sdfg, possible):
    made = sdfg()
    made.validate()
    rounds = made.name == "chain" and made.arrays["B"].dtype == dace.float32
    assert copy.deepcopy(made).apply_transformations(FuseRedistributes, permissive=True) == (possible or rounds)
    assert made.apply_transformations(FuseRedistributes) == possible
    assert count(made, Redistribute) == [1 if possible else 2]


@pytest.mark.parametrize(("first", "second"), [(False, False), (False, True), (True, False), (True, True)])
def test_factors_and_conjugations_are_composed(first, second):
    move = Redistribute("a", HALVES, SIDES, alpha=2, conj=first)
    sdfg = chain(move, Redistribute("b", SIDES, HALVES, alpha=-3, conj=second), dace.complex128)
    for array in sdfg.arrays.values():
        array.dtype = dace.complex128
    assert sdfg.apply_transformations(FuseRedistributes) == 1
    (node,) = redistributions(sdfg)
    assert (node.alpha, node.conj) == (-6, first != second)


@pytest.mark.parametrize(
    ("options", "turned", "possible"), [({}, "float64", 1), ({"beta": 1}, "float64", 0), ({}, "float32", 0)]
)
def test_transpositions_that_convert_or_follow_a_sum_stay(options, turned, possible):
    sdfg = dace.SDFG("turned")
    for name, shape, dtype in (("A", (4, 6), "float64"), ("B", (8, 3), "float64"), ("C", (3, 8), turned)):
        sdfg.add_array(name, shape, getattr(dace, dtype), transient=name == "B")
    state = sdfg.add_state()
    add_move(state, Redistribute("move", HALVES, SIDES, **options), "A", "B")
    add_move(state, Transpose("turn"), "B", "C", ("_inp", "_out"))
    assert sdfg.apply_transformations(FuseTranspose, validate=False) == possible

"""Steps that become properties of redistributions: the graph before and after, equal results."""

from __future__ import annotations

import copy
import dataclasses
import functools

import dace
import fused_programs as programs
import numpy as np
import pytest
from dace.libraries.comm.nodes import Bcast, Reduce
from dace.libraries.comm.schedule import overlap_communication
from dace.sdfg import nodes
from dace.sdfg.analysis.schedule_tree import treenodes
from sdfgs import add_move, connected, count, redistributions, with_arrays

import dace_redist
from dace_redist import Distribution
from dace_redist.library_nodes import JointRedistribute, Redistribute, RedistributeWait
from dace_redist.strategies import OPTIONS
from dace_redist.transformations import FuseConversion, FuseReduceBcast, JoinRedistributes, OverlapRedistribute


def rewritten(make, transformation) -> tuple[dace.SDFG, dace.SDFG]:
    """Return the SDFG before and after all possible rewrites."""

    def made() -> dace.SDFG:
        sdfg = make.to_sdfg(simplify=True) if hasattr(make, "to_sdfg") else make()
        dace_redist.transformations.lower_all(sdfg)
        return sdfg

    before, after = made(), made()
    after.name = f"{before.name}_rewritten"
    after.apply_transformations_repeated(transformation)
    after.validate()
    return before, after


@pytest.mark.parametrize(
    ("program", "maps", "alpha", "conj"),
    [
        (programs.converted, (3, 0), 6, False),
        (programs.conjugated, (3, 0), -0.5, True),
        (programs.scaled_in_parts, (2, 1), 1, False),  # 3 is no power of two: only the cast
        (programs.scaled_in_place, (1, 1), 1, False),  # no node reads and writes one array
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_conversions(program, maps, alpha, conj):
    before, after = rewritten(program, FuseConversion)
    assert (count(before, nodes.MapEntry)[0], count(after, nodes.MapEntry)[0]) == maps
    (node,) = redistributions(after)
    assert (node.alpha, node.conj) == (alpha, conj)


@pytest.mark.parametrize(
    ("expression", "element_type", "moved_type", "alpha", "fused"),
    [
        ("__out = __inp + 1", dace.float64, dace.float64, "i", 0),
        ("__out = __inp / 3", dace.float64, dace.float64, "i", 0),
        ("__out = 0.1 * __inp", dace.float32, dace.float32, "i", 0),
        ("__out = __inp * __inp", dace.float64, dace.float64, "i", 0),
        ("__out = i * __inp", dace.float64, dace.float64, "i", 0),  # the index of the map, not the symbol of the node
        ("__out = 2 * __inp", dace.int8, dace.float32, 1, 0),  # wraps before the conversion
        ("__out = 2 * __inp", dace.int8, dace.int8, 1, 1),
        ("__out = __inp", dace.int8, dace.float32, 2, 1),
        ("__out = 2 * __inp", dace.float32, dace.float64, 1, 1),
        ("__out = -__inp", dace.uint32, dace.int64, 1, 0),  # wraps before the conversion
        ("__out = 1.0 * __inp", dace.int64, dace.int64, 1, 0),  # not all integers have a value of type double
        ("__out = 0.1 * __inp", dace.complex64, dace.complex64, 1, 0),
        ("__out = 2 * __inp", dace.float32, dace.float32, "s", 1),
        ("__out = 2 * __inp", dace.int8, dace.int8, "s", 0),  # 2 s may be no int8
        ("__out = t * __inp", dace.float32, dace.float32, "t", 0),  # a product of type double
    ],
)
def test_which_maps_a_redistribution_can_compute(expression, element_type, moved_type, alpha, fused):
    sdfg = dace.SDFG("computed")
    for symbol, dtype in (("i", dace.int64), ("s", dace.int64), ("t", dace.float64)):
        sdfg.add_symbol(symbol, dtype)
    computed = moved_type if "-" in expression else element_type
    for name, shape, dtype in (("A", (4, 6), element_type), ("B", (4, 6), computed), ("C", (8, 3), moved_type)):
        sdfg.add_array(name, shape, dtype, transient=name == "B")
    state = sdfg.add_state()
    state.add_mapped_tasklet(
        "compute",
        {"i": "0:4", "j": "0:6"},
        {"__inp": dace.Memlet("A[i, j]")},
        expression,
        {"__out": dace.Memlet("B[i, j]")},
        external_edges=True,
    )
    alpha = dace.symbol(alpha) if isinstance(alpha, str) else alpha
    add_move(state, Redistribute("move", programs.HALVES, programs.SIDES, alpha=alpha), "B", "C")
    rounds = element_type in (dace.float32, dace.complex64) and "0.1" in expression
    assert copy.deepcopy(sdfg).apply_transformations_repeated(FuseConversion, permissive=True) == (fused or rounds)
    assert sdfg.apply_transformations_repeated(FuseConversion) == fused


def test_a_sum_of_replicas():
    before, after = rewritten(programs.summed_then_moved, FuseReduceBcast)
    assert count(before, Redistribute) == [2] and count(after, Redistribute) == [1]
    (node,) = redistributions(after)
    assert (node.distributions(), node.op) == ((programs.PARTIAL, programs.WANTED), "sum")
    assert "B" not in after.arrays
    converted = programs.summed_then_moved()
    converted.arrays["C"].dtype = dace.float32
    assert converted.apply_transformations(FuseReduceBcast) == 0  # it would add numbers of less precision


def test_a_reduction_to_a_corner_and_a_broadcast_from_one():
    before, after = rewritten(programs.reduced_moved_broadcast, FuseReduceBcast)
    assert count(before, Redistribute, Reduce, Bcast) == [1, 1, 1]
    assert count(after, Redistribute, Reduce, Bcast) == [1, 0, 0]
    (node,) = redistributions(after)
    assert [side.core.replicas for side in node.distributions()] == [2, 2] and node.op == "sum"
    assert not [name for name in after.arrays if "grid" in name or name in ("reduce", "bcast")]
    assert "MPI_Cart_create" not in after.init_code["frame"].as_string


@pytest.mark.parametrize("change", ["nonblocking", "pinned elsewhere"])
def test_broadcasts_that_are_not_fused(change):
    sdfg = rewritten(programs.reduced_moved_broadcast, [])[0]
    (move,), (bcast,) = redistributions(sdfg), (n for n, _ in sdfg.all_nodes_recursive() if isinstance(n, Bcast))
    if change == "nonblocking":
        bcast.nonblocking = True
    else:
        target = move.distributions()[1]
        move.target = dataclasses.replace(target, pins=[None if pin is None else 1 for pin in target.pins])
    sdfg.apply_transformations_repeated(FuseReduceBcast, validate=False)
    assert count(sdfg, Bcast) == [1]


@pytest.mark.parametrize("written", [None, "with the sum", "between", "with the redistribution"])
def test_sums_of_what_is_written_again_stay(written):
    sdfg = with_arrays("written_again", "B", A=(4, 8), B=(4, 4), C=(8, 4))
    states = {"with the sum": sdfg.add_state(is_start_block=True)}
    states["between"] = sdfg.add_state_after(states["with the sum"])
    states["with the redistribution"] = sdfg.add_state_after(states["between"])
    add_move(states["with the redistribution"], Redistribute("move", programs.SUMS, programs.WANTED), "B", "C")
    add_move(states["with the sum"], Redistribute("add", programs.PARTIAL, programs.SUMS, op="sum"), "A", "B")
    if written is not None:
        zero = states[written].add_tasklet("zero", {}, {"a"}, "a = 0")
        states[written].add_edge(zero, "a", states[written].add_write("A"), None, dace.Memlet("A[0, 0]"))
    assert sdfg.apply_transformations(FuseReduceBcast) == (written is None)


@pytest.mark.parametrize(("second", "joined"), [("CD", 1), ("AD", 1), ("CA", 0), ("BD", 0), ("CB", 0)])
def test_only_independent_redistributions_are_joined(second, joined):
    sdfg = with_arrays("two", **dict.fromkeys("ABCD", (2, 8)))
    state = sdfg.add_state()
    turned = Distribution((8, 8), (4, 1), ranks=(1, 2, 3, 0))
    for name in ("AB", second):
        add_move(state, Redistribute(name, programs.ROWS, turned), *name)
    assert sdfg.apply_transformations(JoinRedistributes, validate=False) == joined


def test_a_redistribution_of_what_is_written_later_is_not_started():
    sdfg, state = connected(Redistribute("move", programs.ROWS, Distribution((8, 8), (1, 4))))
    sdfg.add_array("C", (2, 8), dace.float64)
    assert copy.deepcopy(sdfg).apply_transformations(OverlapRedistribute) == 1
    state.add_nedge(state.add_read("C"), state.add_write("A"), dace.Memlet("C[0:2, 0:8]"))
    assert sdfg.apply_transformations(OverlapRedistribute, validate=False) == 0


def test_joined_redistributions_keep_their_order_and_unused_results():
    sdfg = with_arrays("two", "D", A=(2, 8), B=(8, 2), C=(2, 8), D=(8, 2))
    state = sdfg.add_state()
    columns = Distribution((8, 8), (1, 4))
    first, _ = (add_move(state, Redistribute(n, programs.ROWS, columns), *n) for n in ("AB", "CD"))
    before = state.add_tasklet("before", {}, {}, "pass", side_effects=True)
    state.add_nedge(before, first, dace.Memlet())
    assert sdfg.apply_transformations(JoinRedistributes) == 1
    (joint,) = (node for node in state.nodes() if isinstance(node, JointRedistribute))
    assert before in state.predecessors(joint)
    sdfg.simplify()
    assert len(joint.out_connectors) == 2


def test_a_result_in_a_view_is_not_waited_for():
    sdfg = with_arrays("view", A=(4, 6), C=(24,))
    sdfg.add_view("V", (8, 3), dace.float64)
    state = sdfg.add_state()
    add_move(state, Redistribute("move", programs.HALVES, programs.SIDES), "A", "V")
    (view,) = state.sink_nodes()
    state.add_edge(view, "views", state.add_write("C"), None, sdfg.make_array_memlet("C"))
    assert sdfg.apply_transformations(OverlapRedistribute) == 0


def test_two_redistributions_in_one_exchange():
    before, after = rewritten(programs.two_at_once, JoinRedistributes)
    assert count(before, Redistribute, JointRedistribute) == [2, 0]
    assert count(after, Redistribute, JointRedistribute) == [0, 1]
    (joint,) = (node for node, _ in after.all_nodes_recursive() if isinstance(node, JointRedistribute))
    assert {tensor.distributions() for tensor in joint.tensors} == {
        (programs.HALVES, programs.SIDES),
        (programs.ROWS, programs.BACKWARDS),
    }
    dace_redist.set_strategy(after, "Pipelined", depth=3)
    loaded = dace.SDFG.from_json(after.to_json())
    assert count(loaded, JointRedistribute) == [1]
    loaded.expand_library_nodes()
    (call,) = (n for n, _ in loaded.all_nodes_recursive() if isinstance(n, dace.nodes.Tasklet) and n.state_fields)
    assert call.code_init.as_string.count(f"{{{OPTIONS['chunk_bytes'].default}, 3, ") == 2  # chunk_bytes and depth
    _, chained = rewritten(programs.computed_elsewhere, JoinRedistributes)
    assert count(chained, Redistribute) == [2]  # the second one needs the first one's result


def overlapped() -> dace.SDFG:
    before, after = rewritten(programs.while_it_moves, OverlapRedistribute)
    assert count(before, RedistributeWait) == [0] and count(after, RedistributeWait) == [1]
    tree = after.as_schedule_tree()
    overlap_communication(tree)
    return tree.as_sdfg()


def test_compute_moves_between_start_and_wait():
    names = [
        type(node.node).__name__ if isinstance(node, treenodes.LibraryCall) else type(node).__name__
        for node in overlapped().as_schedule_tree().preorder_traversal()
    ]
    start, wait = names.index("Redistribute"), names.index("RedistributeWait")
    maps = [at for at, name in enumerate(names) if name == "MapScope"]
    assert [start < at < wait for at in maps] == [True, False]  # the exponentials; what the result needs


def test_wrong_non_blocking_nodes():
    _, sdfg = rewritten(programs.while_it_moves, OverlapRedistribute)
    redistributions(sdfg)[0].nonblocking = False
    with pytest.raises(dace.sdfg.InvalidSDFGError, match="nonblocking and the connector _request go together"):
        sdfg.validate()


@pytest.mark.compile
@pytest.mark.dace
@pytest.mark.mpi(ranks=[4], timeout=600)
def test_a_reduction_and_a_broadcast_give_equal_results(comm):
    """Random SDFGs have none of these nodes of DaCe."""
    from builds import built
    from mpi4py import MPI

    sdfg = functools.partial(programs.reduced_moved_broadcast.to_sdfg, simplify=True)
    program = built(comm, "all_that_pays", lambda: dace_redist.optimize(sdfg(), comm=MPI.COMM_SELF))
    sums = np.random.default_rng(7).standard_normal((4, 8, 8))
    P = programs.PARTIAL.local(sums[comm.rank % 2], comm.rank)  # ranks 2 i and 2 i + 1 hold partial sums of half i
    column = comm.rank // 2  # of the grid 1 x 2 x 2, whose last axis holds replicas
    wanted = (sums[0] + sums[1] + 2)[:, 4 * column : 4 * column + 4]
    for _ in range(2):
        np.testing.assert_allclose(program(A=P.copy()), 2 * wanted, rtol=1e-13, atol=1e-13)

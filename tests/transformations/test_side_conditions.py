"""Fusions that aliases, conflict resolution, types of connectors or assignments of symbols forbid."""

from __future__ import annotations

import dace
import pytest
from dace.libraries.linalg import Transpose
from program_calls import HALVES, SIDES
from sdfgs import add_move, with_arrays

from dace_redist import Distribution
from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.environment import MEMORY_PIECE, allocate_at_start
from dace_redist.transformations import FuseConversion, FuseRedistributes, FuseReduceBcast, FuseTranspose

ADDED = "lambda old, new: old + new"
TURNED = Distribution((8, 6), (2, 1), ranks=(1, 0))
PARTIAL, SUMS = Distribution((8, 6), (1, 2), dims=(0, None)), Distribution((8, 6), (1, 2), dims=(0, 1))


def moved(**shapes: tuple[int, ...]) -> tuple[dace.SDFG, dace.SDFGState]:
    """Return an SDFG with further arrays that moves A to B, and its state."""
    sdfg = with_arrays("moved", "B", A=(4, 6), B=(8, 3), C=(4, 6), **shapes)
    state = sdfg.add_state()
    add_move(state, Redistribute("first", HALVES, SIDES), "A", "B")
    return sdfg, state


def viewed(of: str) -> dace.SDFG:
    """Return a chain whose last array is a view of a view of an array."""
    sdfg, state = moved()
    sdfg.add_view("V", (24,), dace.float64)
    sdfg.add_view("W", (4, 6), dace.float64)
    add_move(state, Redistribute("second", SIDES, TURNED), "B", "W")
    (W,), V = (one for one in state.data_nodes() if one.data == "W"), state.add_access("V")
    state.add_edge(W, "views", V, None, dace.Memlet("V[0:24]"))
    state.add_edge(V, "views", state.add_write(of), None, dace.Memlet(f"{of}[0:4, 0:6]"))
    return sdfg


def transposed(wcr: str | None) -> dace.SDFG:
    sdfg, state = moved(D=(3, 8))
    node = add_move(state, Transpose("turn", dace.float64), "B", "D", ("_inp", "_out"))
    state.out_edges(node)[0].data.wcr = wcr
    return sdfg


def converted(kind: dace.typeclass | None, dynamic: bool = False) -> dace.SDFG:
    sdfg, state = moved(D=(8, 3))
    (B,) = (one for one in state.data_nodes() if one.data == "B")
    memlets = {"a": dace.Memlet("B[i, j]")}, "out = 2 * a", {"out": dace.Memlet("D[i, j]", dynamic=dynamic)}
    tasklet, *_ = state.add_mapped_tasklet(
        "double", {"i": "0:8", "j": "0:3"}, *memlets, external_edges=True, input_nodes={"B": B}
    )
    tasklet.out_connectors["out"] = kind
    return sdfg


def named(symbol: str) -> dace.SDFG:
    """Return a chain, and a nested SDFG whose symbol is an element in between, or another array."""
    sdfg = with_arrays("named", "B", A=(1,), B=(1,), C=(1,), D=(1,))
    state, ends = sdfg.add_state(), [Distribution((1,), (1,), ranks=(rank,)) for rank in (0, 1, 0)]
    add_move(state, Redistribute("first", *ends[:2]), "A", "B")
    add_move(state, Redistribute("second", *ends[1:]), "B", "C")
    inner = dace.SDFG("inner")
    inner.add_symbol("n", dace.int64)
    inner.add_state()
    sdfg.add_state_after(state).add_nested_sdfg(inner, {}, {}, symbol_mapping={"n": symbol})
    return sdfg


def summed(assigned: str, piece: int = 1, op: str | None = None) -> dace.SDFG:
    """
    Return the sum of slice i of partial results in one state, and its move in the next, after an assignment.

    :param piece: Piece of memory of an array that is written before the move; 0 is that of the partial results.
    :param op: Reduction of the move.
    """
    sdfg = with_arrays("summed", "PTX", P=(3, 8, 6), T=(8, 3), C=(4, 6), X=(144,))
    for name, number in (("P", 0), ("X", piece)):
        allocate_at_start(sdfg.arrays[name], {MEMORY_PIECE: number})
    sdfg.add_symbol("i", dace.int64)
    first, second = sdfg.add_state(is_start_block=True), sdfg.add_state()
    sdfg.add_edge(first, second, dace.InterstateEdge(assignments={assigned: f"{assigned} + 1"}))
    add_move(first, Redistribute("add", PARTIAL, SUMS, op="sum"), dace.Memlet("P[i, 0:8, 0:6]"), "T")
    add_move(second, Redistribute("move", SUMS, HALVES, op=op), "T", "C")
    zero = second.add_tasklet("zero", {}, {"x"}, "x = 0")
    second.add_edge(zero, "x", second.add_write("X"), None, dace.Memlet("X[0]"))
    return sdfg


@pytest.mark.parametrize(
    ("fusion", "made", "possible"),
    [
        (FuseRedistributes, lambda: viewed("C"), True),
        (FuseRedistributes, lambda: viewed("A"), False),
        (FuseTranspose, lambda: transposed(None), True),
        (FuseTranspose, lambda: transposed(ADDED), False),
        (FuseConversion, lambda: converted(None), True),
        (FuseConversion, lambda: converted(dace.float64), True),
        (FuseConversion, lambda: converted(dace.int32), False),
        (FuseConversion, lambda: converted(None, dynamic=True), False),
        (FuseRedistributes, lambda: named("D"), True),
        (FuseRedistributes, lambda: named("B"), False),
        (FuseReduceBcast, lambda: summed("k"), True),
        (FuseReduceBcast, lambda: summed("i"), False),
        (FuseReduceBcast, lambda: summed("k", piece=0), False),
        (FuseReduceBcast, lambda: summed("k", op="max"), False),
    ],
)
def test_fusions(fusion, made, possible):
    sdfg = made()
    sdfg.symbols["k"] = dace.int64
    sdfg.validate()
    assert sdfg.apply_transformations(fusion) == possible
    sdfg.validate()


@pytest.mark.parametrize("rows", ["4:8", "2:6"])
def test_views_that_overlap(rows):
    sdfg = with_arrays("overlapping", A=(8, 6))
    state = sdfg.add_state()
    for name in "VW":
        sdfg.add_view(name, (4, 6), dace.float64)
    state.add_edge(state.add_read("A"), None, state.add_access("V"), "views", dace.Memlet("A[0:4, 0:6]"))
    node = add_move(state, Redistribute("move", HALVES, TURNED), "V", "W")
    W = state.out_edges(node)[0].dst
    state.add_edge(W, "views", state.add_write("A"), None, dace.Memlet(f"A[{rows}, 0:6]"))
    if rows == "4:8":
        sdfg.validate()
    else:
        with pytest.raises(dace.sdfg.InvalidSDFGError, match="input V.* and output W.* overlap in A"):
            sdfg.validate()

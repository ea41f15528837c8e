"""Nodes of the SDFG API on several ranks: distributions, arrays and control flow."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
from builds import built
from cases import DTYPES
from results import put, raise_anywhere

from dace_redist import BoxDistribution, Distribution, RedistributionError
from dace_redist.strategies import STRATEGIES

pytestmark = [pytest.mark.compile, pytest.mark.dace]

SHAPE = (7, 10)
ROWS, COLUMNS = Distribution(SHAPE, (3,)), Distribution(SHAPE, (1, 3))


class Move(NamedTuple):
    """A node over 3 ranks, of what random SDFGs lack: types, boxes of which a rank has several, strides."""

    name: str
    source: Any = ROWS
    target: Any = COLUMNS
    dtype: str = "float64"
    wider: tuple[Any, Any] = (None, None)  #: Shapes of arrays that are larger than any part.
    cuts: tuple[Any, Any] = ((...,), (...,))  #: Subsets of the arrays.
    order: Literal["C", "F"] = "C"

    def shapes(self) -> list[tuple[int, ...]]:
        return [shape or largest(side) for shape, side in zip(self.wider, (self.source, self.target), strict=True)]


MOVES = [
    Move(
        "lists_of_boxes",  # rank 0 has one box, rank 1 two of each
        BoxDistribution(SHAPE, [((0, 0), (7, 4)), ((0, 4), (4, 6)), ((2, 3), (5, 7))], [0, 1, 1]),
        BoxDistribution(SHAPE, [((0, 0), (7, 7)), ((0, 7), (7, 3)), ((1, 1), (5, 2))], [1, 0, 1]),
    ),
    *(Move(dtype, dtype=dtype) for dtype in DTYPES),
    Move("fortran", order="F"),
    Move("part", wider=((6, 12), (15, 8)), cuts=(np.s_[2:5, 1:11], np.s_[0:14:2, 3:7])),
]


def largest(distribution: Any) -> tuple[int, ...]:
    """Shape that holds what any rank owns."""
    shapes = [shape for shape in map(distribution.local_shape, range(3)) if math.prod(shape)]  # without boxes: (0,)
    if len(set(map(len, shapes))) > 1:  # of boxes, also arrays of one dimension
        return (max(map(math.prod, shapes)),)
    return tuple(np.max(shapes, axis=0).tolist())


def layouts_sdfg() -> Any:
    """All moves, with the strategies in turn."""
    import dace
    from sdfgs import add_move

    from dace_redist.library_nodes import Redistribute

    sdfg = dace.SDFG("node_layouts")
    state = sdfg.add_state(is_start_block=True)
    for move, strategy in zip(MOVES, [*STRATEGIES] * 10, strict=False):
        memlets, element = [], dace.dtypes.dtype_to_typeclass(np.dtype(move.dtype).type)
        for end, shape, cut in zip(("from", "to"), move.shapes(), move.cuts, strict=True):
            array = f"{move.name}_{end}"
            sdfg.add_array(array, shape, element, strides=(1, shape[0]) if move.order == "F" else None)
            subset = ", ".join(f"{one.start}:{one.stop}:{one.step or 1}" for one in cut if one is not ...)
            memlets.append(dace.Memlet(f"{array}[{subset}]") if subset else array)
        add_move(state, Redistribute(move.name, move.source, move.target, strategy), *memlets)
    return sdfg


def whole(dtype: str = "float64") -> np.ndarray:
    index = np.arange(math.prod(SHAPE)).reshape(SHAPE)
    return index % 3 == 0 if dtype == "bool" else index.astype(dtype)


@pytest.mark.mpi(ranks=[4], full=[3], timeout=150)
def test_types_and_layouts(comm):
    program = built(comm, "node_layouts", layouts_sdfg)
    arguments, expected = {}, {}
    for move in MOVES:
        for number, (end, side) in enumerate((("from", move.source), ("to", move.target))):
            array = np.full(move.shapes()[number], 99, move.dtype, order=move.order)
            arguments[f"{move.name}_{end}"] = array.copy(order=move.order)
            owned = side.local(whole(move.dtype), comm.rank)
            put(array[move.cuts[number]], owned.ravel() if array.ndim == 1 else owned)
            (arguments if end == "from" else expected)[f"{move.name}_{end}"] = array
    wrong = []
    for _ in range(2):
        given = {name: array.copy(order="K") for name, array in arguments.items()}
        program(**given)
        wrong += [
            f"{name}, rank {comm.rank}: got {given[name].tolist()}, expected {want.tolist()}"
            for name, want in expected.items()
            if not np.array_equal(given[name], want)
        ]
    raise_anywhere(comm, wrong)


# Control flow ----------------------------------------------------------------------------------------------------


def control_flow_sdfg() -> Any:
    """Nodes in a for loop with sizes of its variable, in a while loop, and in an SDFG nested twice with symbols."""
    import dace
    from dace.sdfg.state import LoopRegion
    from sdfgs import add_move, with_arrays

    from dace_redist.library_nodes import Redistribute

    N, i = dace.symbol("N"), dace.symbol("i")
    half = dace.symbolic.int_ceil
    sdfg = with_arrays("node_control_flow", **dict.fromkeys("ABCD", (N,)))
    loop = LoopRegion("sizes", "i <= N", "i", "i = 1", "i = i + 1")
    sdfg.add_node(loop, is_start_block=True)
    node = Redistribute("growing", Distribution((i,), (2,)), Distribution((i,), (1,)), "Pack")
    body = loop.add_state("body", is_start_block=True)
    add_move(body, node, dace.Memlet(f"A[0:{half(i, 2)}]"), dace.Memlet("B[0:i]"))
    again = LoopRegion("again", "k > 0")
    sdfg.add_node(again)
    sdfg.add_edge(loop, again, dace.InterstateEdge(assignments={"k": "3"}))
    sdfg.add_symbol("k", dace.int64)
    repeat = Redistribute("repeated", Distribution((N,), (1,)), Distribution((N,), (2,)), "RMA")
    first, last = again.add_state("move", is_start_block=True), again.add_state("count")
    add_move(first, repeat, "B", dace.Memlet(f"C[0:{half(N, 2)}]"))
    again.add_edge(first, last, dace.InterstateEdge(assignments={"k": "k - 1"}))
    M = dace.symbol("M")
    inner, middle = (with_arrays(name, X=(M,), Y=(M,)) for name in ("inner", "middle"))
    nested = Redistribute(
        "nested", Distribution((M,), (2,)), Distribution((M,), (1,), ranks=[1]), "Pipelined", chunk_bytes=8 * M
    )
    add_move(inner.add_state(), nested, "X", "Y")
    for around, state, ends, size in (
        (inner, middle.add_state(), ("X", "Y"), M),
        (middle, sdfg.add_state_after(again, "call"), ("C", "D"), N),
    ):
        box = state.add_nested_sdfg(around, {"X"}, {"Y"}, {"M": size})
        state.add_edge(state.add_read(ends[0]), None, box, "X", dace.Memlet(f"{ends[0]}[0:{size}]"))
        state.add_edge(box, "Y", state.add_write(ends[1]), None, dace.Memlet(f"{ends[1]}[0:{size}]"))
    return sdfg


@pytest.mark.mpi(ranks=[3], full=[2], timeout=120)
def test_control_flow(comm):
    """B ends as the last, longest pass of the loop left it; calls with other sizes give other answers."""
    program = built(comm, "node_control_flow", control_flow_sdfg)
    wrong = []
    for N in (8, 5, 9, 8):
        A = np.arange(N) + 100.0 * comm.rank
        half = math.ceil(N / 2)
        B, C, D = (np.full(N, -1.0) for _ in range(3))
        program(A=A, B=B, C=C, D=D, N=N)
        vector = np.concatenate([np.arange(half), np.arange(N - half) + 100.0])
        want = {name: np.full(N, -1.0) for name in "BCD"}
        if comm.rank == 0:
            want["B"][:] = vector
        if comm.rank < 2:
            part = vector[half * comm.rank :][:half]
            want["C"][: part.size] = part
        if comm.rank == 1:
            want["D"][:] = vector
        for name, got in (("B", B), ("C", C), ("D", D)):
            if not np.array_equal(got, want[name]):
                wrong.append(f"{name}, N = {N}, rank {comm.rank}: {got.tolist()}, expected {want[name].tolist()}")
    raise_anywhere(comm, wrong)


@pytest.mark.mpi(ranks=[1], timeout=60)
def test_one_error_for_all_that_follow(comm):
    """Several nodes fail in one call: the first error is raised, and no other in its handler or later."""
    program = built(comm, "node_control_flow", control_flow_sdfg)
    arrays = {name: np.zeros(8) for name in "ABCD"}
    caught = []
    try:
        try:
            program(**arrays, N=8)
        except RedistributionError as error:
            caught.append(str(error))
            caught += [name for name in arrays if name == "none of them"]
    except RedistributionError as error:
        caught.append(f"in the handler: {error}")
    assert len(caught) == 1
    assert (
        caught[0].startswith('Redistribute "') and "names ranks up to 1, but the communicator has 1 ranks" in caught[0]
    )


@pytest.mark.mpi(ranks=[3], timeout=150)
def test_calls_in_a_program(comm):
    """``dace_redist.redistribute`` in a program: what it returns, and what it writes."""
    from program_calls import redistribute_calls

    program = built(comm, "redistribute_calls", redistribute_calls.to_sdfg)
    given = whole()
    A, B = np.zeros((3, 10)), np.full((9, 9), 5.0)
    put(A, ROWS.local(given, comm.rank))
    turned = program(A=A, B=B, N=7, M=3)
    wanted = Distribution((10, 7), (1, 3)).local(given.T.astype("f4"), comm.rank)
    assert turned.dtype == np.float32
    np.testing.assert_array_equal(turned[:, : wanted.shape[1]], wanted)
    after = np.full((9, 9), 5.0)
    if comm.rank == 2:
        after[0:5, 3:9] += given[1:6, 2:8]
    np.testing.assert_array_equal(B, after)


@pytest.mark.mpi(ranks=[3], timeout=150)
def test_reshapes_in_a_program(comm):
    """Rows to a third dimension, and from there to columns of the transpose; sizes are symbols."""
    from program_calls import reshape_calls

    program = built(comm, "reshape_calls", reshape_calls.to_sdfg)
    A = np.zeros((3, 10))
    put(A, ROWS.local(whole(), comm.rank))
    turned = program(A=A, N=7, M=3)
    wanted = Distribution((10, 7), (1, 3)).local(2 * whole().T, comm.rank)
    np.testing.assert_array_equal(turned[:, : wanted.shape[1]], wanted)

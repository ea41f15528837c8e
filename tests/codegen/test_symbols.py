"""Symbols in generated code: where they are declared, and whether the plan is made at the start of the program."""

from __future__ import annotations

import re

import dace
import pytest
from generated_code import M, N, P, generated, lines_with, made_at_start, symbolic_sdfg
from sdfgs import OURS, add_move, redistributions, rows_to_columns

from dace_redist import Distribution, Redistribute


@pytest.mark.parametrize("strategy", OURS)
def test_symbols_are_declared_where_the_plan_is_made(strategy: str):
    signature, start, _, _ = generated(symbolic_sdfg(strategy))
    declared = set(re.findall(r"(\w+)(?:,|$)", signature))
    used = set(re.findall(r"int64_t\((\w+)\)", "".join(lines_with("->make(", start))))
    assert used == {"N", "M", "P"} <= declared


def test_symbols_are_widened_before_they_are_multiplied():
    sdfg = dace.SDFG("products")
    sdfg.add_array("A", [N * M], dace.int8, strides=[P * P])
    sdfg.add_array("B", [N * M], dace.int8)
    whole = Distribution((N * M * P,), (P,), block=[N * M])
    add_move(sdfg.add_state(), Redistribute("move", whole, whole, "Pipelined", chunk_bytes=N * M), "A", "B")
    _, start, run, _ = generated(sdfg)
    for line in lines_with("__redist_0,", run) + lines_with("->make(", start):
        bare = re.sub(r"std::int64_t\([NMP]\)", "", line)
        assert not re.search(r"\b[NMP]\b", bare), line


def test_made_at_start_with_a_grid():
    sdfg = rows_to_columns()
    grid = sdfg.add_pgrid([4, 1], name="grid")
    (node,), state = redistributions(sdfg), sdfg.start_block
    node.add_in_connector("_grid")
    state.add_edge(state.add_read(grid), None, node, "_grid", dace.Memlet(grid))
    _, start, run, _ = generated(sdfg)
    (make,) = lines_with("->make(", start)
    assert "({__state->grid, " in make
    assert start.index("MPI_Cart_create(") < start.index("->make(")
    assert "{_grid, " in run


def in_a_loop(size) -> dace.SDFG:
    """A redistribution of i * 4 elements for i = 1 .. N - 1."""
    sdfg = dace.SDFG("in_a_loop")
    for name in "AB":
        sdfg.add_array(name, [N], dace.float64)
    i = dace.symbol("i")
    loop = dace.sdfg.state.LoopRegion("loop", "i < N", "i", "i = 1", "i = i + 1")
    sdfg.add_node(loop, is_start_block=True)
    whole = Distribution((size(i),), (2,))
    part = f"0:{size(i) // 2}"
    node = Redistribute("move", whole, whole)
    add_move(loop.add_state("body", is_start_block=True), node, dace.Memlet(f"A[{part}]"), dace.Memlet(f"B[{part}]"))
    return sdfg


def test_not_made_at_start_with_the_variable_of_a_loop():
    assert not made_at_start(in_a_loop(lambda i: 4 * i))
    assert made_at_start(in_a_loop(lambda i: 4))


def test_not_made_at_start_with_an_assigned_symbol():
    sdfg = symbolic_sdfg()
    before = sdfg.add_state("before", is_start_block=True)
    sdfg.add_edge(
        before, next(s for s in sdfg.states() if s is not before), dace.InterstateEdge(assignments={"N": "M"})
    )
    assert not made_at_start(sdfg)


def test_not_made_at_start_with_the_parameter_of_a_map():
    i = dace.symbol("i")
    sdfg = dace.SDFG("in_a_map")
    for name in "AB":
        sdfg.add_array(name, [N], dace.float64)
    state = sdfg.add_state()
    entry, leave = state.add_map("sequential", {"i": "1:N"}, schedule=dace.ScheduleType.Sequential)
    whole = Distribution((i,), (1,))
    node = Redistribute("move", whole, whole)
    state.add_memlet_path(state.add_read("A"), entry, node, dst_conn="_inp_buffer", memlet=dace.Memlet("A[0:i]"))
    state.add_memlet_path(node, leave, state.add_write("B"), src_conn="_out_buffer", memlet=dace.Memlet("B[0:i]"))
    sdfg.validate()
    assert not made_at_start(sdfg)

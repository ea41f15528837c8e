"""Symbols in generated code: their width, and what is passed to each run."""

from __future__ import annotations

import re

import dace
from sdfgs import add_move, redistributions, with_arrays

from dace_redist import Distribution
from dace_redist.library_nodes import Redistribute

N, M, P = (dace.symbol(name) for name in "NMP")
MAKE = "->make("


def lines_with(word: str, sdfg: dace.SDFG) -> list[str]:
    """Return the generated lines with a word: of the function that starts the program, then of the one that runs it."""
    code = sdfg.generate_code()[0].clean_code
    bodies = [
        re.search(name + r"\w+\(.*?\)\n\{(.*?)\n\}", code, re.S)[1] for name in ("__dace_init_", "void __program_")
    ]
    return [line for body in bodies for line in body.splitlines() if word in line]


def test_symbols_are_widened_before_they_are_multiplied():
    sdfg = dace.SDFG("products")
    sdfg.add_array("A", [N * M], dace.int8, strides=[P * P])
    sdfg.add_array("B", [N * M], dace.int8)
    whole = Distribution((N * M * P,), (P,), block=[N * M])
    add_move(sdfg.add_state(), Redistribute("move", whole, whole, "Pipelined", chunk_bytes=N * M), "A", "B")
    lines = lines_with("__redist_0", sdfg)
    assert len([line for line in lines if "N" in line]) == 1
    for line in lines:
        bare = re.sub(r"std::int64_t\([NMP]\)", "", line)
        assert not re.search(r"\b[NMP]\b", bare), line


def in_a_loop(size) -> dace.SDFG:
    """A redistribution of i * 4 elements for i = 1 .. N - 1."""
    sdfg = with_arrays("in_a_loop", A=(N,), B=(N,))
    i = dace.symbol("i")
    loop = dace.sdfg.state.LoopRegion("loop", "i < N", "i", "i = 1", "i = i + 1")
    sdfg.add_node(loop, is_start_block=True)
    whole = Distribution((size(i),), (2,))
    part = f"0:{size(i) // 2}"
    node = Redistribute("move", whole, whole)
    add_move(loop.add_state("body", is_start_block=True), node, dace.Memlet(f"A[{part}]"), dace.Memlet(f"B[{part}]"))
    return sdfg


def test_only_symbols_are_passed_to_each_run():
    """What is constant is passed once: the plan is made when the program starts."""
    for size, made in ((lambda i: 4 * i, 0), (lambda i: 4, 1)):
        sdfg = in_a_loop(size)
        (run,) = lines_with("->run(", sdfg)
        assert (len(lines_with(MAKE, sdfg)), "/*source*/" in run, "MPI_COMM_WORLD, {}, " in run) == (
            made,
            not made,
            made,
        )
    (node,) = redistributions(sdfg)
    node.add_in_connector("_comm")  # known to the first run only
    sdfg.add_scalar("comm", dace.int64)
    (state,) = sdfg.states()
    state.add_edge(state.add_read("comm"), None, node, "_comm", dace.Memlet("comm[0]"))
    assert "->make(MPI_COMM_NULL, " in lines_with(MAKE, sdfg)[0]

"""The code that DaCe generates for programs with redistributions, taken apart."""

from __future__ import annotations

import re

import dace
from dace.sdfg import nodes
from sdfgs import add_move

from dace_redist import Distribution
from dace_redist.library_nodes import Redistribute

N, M, P = (dace.symbol(name) for name in "NMP")
CEIL = dace.symbolic.int_ceil


def symbolic_node(strategy: str = "Auto", label: str = "move", **options) -> Redistribute:
    return Redistribute(label, Distribution((N, M), (P, 1)), Distribution((N, M), (1, P)), strategy, **options)


def symbolic_sdfg(strategy: str = "Auto", **options) -> dace.SDFG:
    """(N, M) from P rows to P columns."""
    sdfg = dace.SDFG("symbolic")
    sdfg.add_array("A", [CEIL(N, P), M], dace.float64)
    sdfg.add_array("B", [N, CEIL(M, P)], dace.float64)
    add_move(sdfg.add_state(), symbolic_node(strategy, **options), "A", "B")
    return sdfg


def expanded(sdfg: dace.SDFG) -> list[nodes.Tasklet]:
    sdfg.expand_library_nodes()
    return [node for node, _ in sdfg.all_nodes_recursive() if isinstance(node, nodes.Tasklet)]


def generated(sdfg: dace.SDFG) -> tuple[str, str, str, str]:
    """Return signature and body of the function that starts the program, and the bodies that run and end it."""
    code = sdfg.generate_code()[0].clean_code
    run = re.search(r"void __program_\w+_internal\(.*?\)\n\{(.*?)\n\}", code, re.S)
    start = re.search(r"__dace_init_\w+\((.*?)\)\n\{(.*?)\n\}", code, re.S)
    end = re.search(r"__dace_exit_\w+\(.*?\)\n\{(.*?)\n\}", code, re.S)
    assert run and start and end
    return start[1], start[2], run[1], end[1]


def lines_with(word: str, text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if word in line]


def made_at_start(sdfg: dace.SDFG) -> bool:
    _, start, _, _ = generated(sdfg)
    return "->make({" in start

"""Strategies chosen by hand: for all nodes, by label, by a function, and as a transformation."""

from __future__ import annotations

import dace
import numpy as np
import pytest
from dace.libraries.comm.nodes.redistribute import Redistribute as StockRedistribute
from sdfgs import COLUMNS, ROWS, add_move, redistributions, with_arrays
from stock_programs import parse

import dace_redist
from dace_redist.library_nodes import Redistribute
from dace_redist.strategies import DEFAULT_STRATEGY, OPTIONS, STRATEGIES


@dace.program
def product(A: dace.float64[6, 5], B: dace.float64[5, 4]):
    return A @ B


@dace.program
def exponentials(A: dace.float64[1 << 22]):
    return np.exp(A) + 1  # its tasklets have an environment


def three() -> dace.SDFG:
    """Nodes there_A, back_B and there_C, the last in a nested SDFG."""
    sdfg, inner = (with_arrays(name, A=(2, 8), B=(8, 2)) for name in ("three", "inner"))
    state = sdfg.add_state()
    add_move(state, Redistribute("there_A", ROWS, COLUMNS), "A", "B")
    second = sdfg.add_state_after(state)
    add_move(second, Redistribute("back_B", COLUMNS, ROWS), "B", "A")
    add_move(inner.add_state(), Redistribute("there_C", ROWS, COLUMNS), "A", "B")
    third = sdfg.add_state_after(second)
    nested = third.add_nested_sdfg(inner, {"A"}, {"B"})
    third.add_edge(third.add_read("A"), None, nested, "A", dace.Memlet("A[0:2, 0:8]"))
    third.add_edge(nested, "B", third.add_write("B"), None, dace.Memlet("B[0:8, 0:2]"))
    sdfg.validate()
    return sdfg


def strategies(sdfg: dace.SDFG) -> dict[str, str]:
    return {node.label: node.strategy for node in redistributions(sdfg)}


def stock_labels(sdfg: dace.SDFG) -> set[str]:
    return {node.redistr for node, _ in sdfg.all_nodes_recursive() if isinstance(node, StockRedistribute)}


@pytest.mark.parametrize("name", STRATEGIES)
def test_all(name: str):
    sdfg = three()
    assert dace_redist.set_strategy(sdfg, name) is sdfg
    assert strategies(sdfg) == dict.fromkeys(["there_A", "back_B", "there_C"], name)
    sdfg.validate()


def test_auto_goes_back_to_the_default():
    sdfg = dace_redist.set_strategy(three(), "Pipelined", chunk_bytes=5)
    dace_redist.set_strategy(sdfg, "Auto")
    assert set(strategies(sdfg).values()) == {DEFAULT_STRATEGY}
    assert all(node.implementation is None for node in redistributions(sdfg))
    dace_redist.set_strategy(sdfg, "Pipelined")
    assert all(node.options["chunk_bytes"] == OPTIONS["chunk_bytes"].default for node in redistributions(sdfg))


@pytest.mark.parametrize(
    ("where", "labels"),
    [
        ("there_*", {"there_A", "there_C"}),
        ("back_B", {"back_B"}),
        ("*_[BC]", {"back_B", "there_C"}),
        ("*", {"there_A", "back_B", "there_C"}),
        (lambda node, state: node.label.endswith("A"), {"there_A"}),
        (lambda node, state: state.sdfg.name == "inner", {"there_C"}),
    ],
)
def test_some(where, labels: set[str]):
    sdfg = dace_redist.set_strategy(three(), "RMA", where)
    assert {label for label, strategy in strategies(sdfg).items() if strategy == "RMA"} == labels


@pytest.mark.parametrize("where", ["there", "THERE_A", lambda node, state: False])
def test_no_match(where):
    sdfg = three()
    shown = r"'\w+'" if isinstance(where, str) else "<function.*>"
    with pytest.raises(
        ValueError, match=f"^no redistribution of three matches {shown}; it has back_B, there_A, there_C$"
    ):
        dace_redist.set_strategy(sdfg, "RMA", where)
    assert "RMA" not in strategies(sdfg).values()


def test_nothing_to_set():
    expanded, remedy = three(), "set or tune strategies before DaCe expands library nodes"
    expanded.expand_library_nodes()
    for change in (lambda: dace_redist.set_strategy(expanded, "Pack"), lambda: dace_redist.tune(expanded)):
        with pytest.raises(ValueError, match=f"{expanded.name} has no redistribution, or no longer: {remedy}"):
            change()
    for sdfg in (dace.SDFG("empty"), *(dace_redist.distribute(program, 2).sdfg for program in (product, exponentials))):
        assert dace_redist.set_strategy(sdfg, "Pack") is sdfg and dace_redist.tune(sdfg) == []


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("Quick", {}, ValueError, "unknown strategy 'Quick'; choose from Auto, Datatype, Pack, "),
        ("rma", {}, ValueError, r"unknown strategy 'rma' \(did you mean RMA\?\); choose from "),
        ("Pack", {"chunk_bytes": 1}, ValueError, "strategy Pack does not take option 'chunk_bytes'; it takes "),
        ("Pipelined", {"chunk_bytes": 0}, ValueError, "option chunk_bytes must be "),
    ],
)
@pytest.mark.parametrize("program", ["plain", "three"])
def test_wrong(program: str, name: str, options, error, message: str):
    sdfg = three() if program == "three" else parse(program)
    before = sdfg.to_json()
    with pytest.raises(error, match=message):
        dace_redist.set_strategy(sdfg, name, **options)
    assert sdfg.to_json()["nodes"] == before["nodes"]


# Stock nodes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("simplify", [True, False])
def test_stock_nodes_are_replaced(simplify: bool):
    sdfg = dace_redist.set_strategy(parse("there_and_back", simplify), "Pipelined", depth=2)
    assert strategies(sdfg) == {"there": "Pipelined", "back": "Pipelined"}
    assert stock_labels(sdfg) == set()
    sdfg.validate()

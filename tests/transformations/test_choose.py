"""Strategies chosen from a record for the nodes of an SDFG, and the schedules that are tuned for it."""

from __future__ import annotations

import warnings
from pathlib import Path

import dace
import pytest
from dace.libraries.comm.nodes.redistribute import Redistribute as StockRedistribute
from sdfgs import add_move, redistributions, with_arrays
from stock_programs import PROGRAMS

import dace_redist
from dace_redist import Distribution, schedule
from dace_redist.library_nodes import Redistribute
from dace_redist.mpi.topology import Topology
from dace_redist.strategies import DEFAULT_STRATEGY
from dace_redist.transformations.strategy import problems_of
from dace_redist.tuning import record_path
from dace_redist.tuning.problem import TuningProblem
from dace_redist.tuning.record import Record, Winner, make_entry

HERE = Topology("m", "M", (0, 0, 0, 0))
ROWS, COLUMNS = Distribution((8, 8), (4, 1)), Distribution((8, 8), (1, 4))
SQUARE = Distribution((8, 8), (2, 2))
N = dace.symbol("N", dace.int64)


pytestmark = pytest.mark.usefixtures("four_ranks")


def remember(source, target, strategy: str, path: Path | None = None, memory="ordinary", **options) -> None:
    winner = Winner(strategy=strategy, options=options)
    book = Record(path or record_path())
    book.add(make_entry(TuningProblem(schedule(source, target), memory), HERE, winner, []))


def there_and_back(*strategies: str) -> dace.SDFG:
    """Return an SDFG with nodes there and back, with the same arrays."""
    sdfg = with_arrays("there_and_back", A=(2, 8), B=(8, 2))
    first, second = strategies or ("Auto", "Auto")
    state = sdfg.add_state()
    add_move(state, Redistribute("there", ROWS, COLUMNS, first), "A", "B")
    add_move(sdfg.add_state_after(state), Redistribute("back", COLUMNS, ROWS, second), "B", "A")
    return sdfg


def symbolic() -> dace.SDFG:
    """A node of 4 * N rows in the outer SDFG, and one of 8 * M in a nested one in which M is N + 1."""
    M = dace.symbol("M", dace.int64)
    sdfg = with_arrays("symbolic", A=(N, 8), B=(4 * N, 2), C=(2 * N + 2, 8), D=(8 * N + 8, 2))
    inner = with_arrays("inner", A=(2 * M, 8), B=(8 * M, 2))
    for each, rows in ((sdfg, N), (inner, 2 * M)):
        pair = [Distribution((4 * rows, 8), grid) for grid in ((4, 1), (1, 4))]
        add_move(each.add_state(), Redistribute(f"of_{each.name}", *pair), "A", "B")
    state = sdfg.add_state_after(sdfg.start_block)
    nested = state.add_nested_sdfg(inner, {"A"}, {"B"}, symbol_mapping={"M": N + 1})
    state.add_edge(state.add_read("C"), None, nested, "A", dace.Memlet.from_array("C", sdfg.arrays["C"]))
    state.add_edge(nested, "B", state.add_write("D"), None, dace.Memlet.from_array("D", sdfg.arrays["D"]))
    sdfg.validate()
    return sdfg


def strategies(sdfg: dace.SDFG) -> dict[str, str]:
    return {node.label: node.strategy for node in redistributions(sdfg)}


def test_recorded_winner_is_taken_node_by_node():
    sdfg = there_and_back()
    remember(COLUMNS, ROWS, "Pipelined", chunk_bytes=4096)
    choices = dace_redist.transformations.choose_strategies(sdfg)
    assert strategies(sdfg) == {"there": DEFAULT_STRATEGY, "back": "Pipelined"}
    there, back = redistributions(sdfg)
    assert there.implementation is None  # still Auto
    assert back.options["chunk_bytes"] == 4096
    assert choices[back].recorded and not choices[there].recorded
    sdfg.validate()


def test_only_automatic_nodes_unless_told(tmp_path: Path):
    record = tmp_path / "other.json"
    for source, target in ((ROWS, COLUMNS), (COLUMNS, ROWS)):
        remember(source, target, "Pack", record)
    sdfg = there_and_back("Auto", "RMA")
    assert len(dace_redist.transformations.choose_strategies(sdfg, record)) == 1
    assert strategies(sdfg) == {"there": "Pack", "back": "RMA"}
    assert len(dace_redist.transformations.choose_strategies(sdfg, record, every=True)) == 2
    assert strategies(sdfg) == {"there": "Pack", "back": "Pack"}


def test_by_label():
    remember(ROWS, COLUMNS, "Pack")
    remember(COLUMNS, ROWS, "Pack")
    sdfg = there_and_back()
    dace_redist.transformations.choose_strategies(sdfg, where="b*")
    assert strategies(sdfg) == {"there": DEFAULT_STRATEGY, "back": "Pack"}
    with pytest.raises(ValueError, match="^no redistribution of there_and_back matches 'x'; it has back, there$"):
        dace_redist.transformations.choose_strategies(sdfg, where="x")


def test_choices_are_for_the_memory_of_the_arrays():
    remember(ROWS, COLUMNS, "Pack")
    remember(ROWS, COLUMNS, "Shared", memory="shared-target")
    sdfg = there_and_back("Shared", "Shared")
    sdfg.arrays["B"].transient = True
    dace_redist.transformations.place_in_shared_memory(sdfg)
    assert [case.memory for _, case in problems_of(sdfg)] == ["shared-target", "shared-source"]
    dace_redist.set_strategy(sdfg, "Auto")
    dace_redist.transformations.choose_strategies(sdfg)
    assert strategies(sdfg) == {"there": "Shared", "back": DEFAULT_STRATEGY}
    dace_redist.transformations.choose_strategies(sdfg, memory="ordinary", every=True)
    assert strategies(sdfg)["there"] == "Pack"
    with pytest.raises(ValueError, match="memory must be one of ordinary, shared-source, .*, got 'shared'"):
        dace_redist.transformations.choose_strategies(sdfg, memory="shared")


def test_stock_nodes_take_part():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sdfg = PROGRAMS["there_and_back"][0].to_sdfg()
    rows = Distribution((8, 8), (4, 1))
    remember(SQUARE, rows, "Threaded", threads=2)
    assert [label for label, _ in problems_of(sdfg)] == ["there", "back"]
    assert len([n for n, _ in sdfg.all_nodes_recursive() if isinstance(n, StockRedistribute)]) == 2
    dace_redist.transformations.choose_strategies(sdfg)
    assert strategies(sdfg) == {"there": "Threaded", "back": DEFAULT_STRATEGY}
    sdfg.validate()


def test_symbolic_nodes_are_chosen_for_given_values():
    remember(ROWS, COLUMNS, "Pack")
    sdfg = symbolic()
    choices = dace_redist.transformations.choose_strategies(sdfg)
    assert strategies(sdfg) == {"of_symbolic": DEFAULT_STRATEGY, "of_inner": DEFAULT_STRATEGY}
    assert all("has no value: give symbols=" in choice.reason for choice in choices.values())
    dace_redist.transformations.choose_strategies(sdfg, symbols={"N": 2})
    assert strategies(sdfg) == {"of_symbolic": "Pack", "of_inner": DEFAULT_STRATEGY}

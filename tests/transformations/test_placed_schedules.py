"""What ``tune`` measures for an SDFG: schedules of its nodes, stock ones and those of nested SDFGs included."""

from __future__ import annotations

import warnings

import dace
import pytest
from sdfgs import add_move, with_arrays
from stock_programs import PROGRAMS

import dace_redist
from dace_redist import Distribution, Schedule, schedule
from dace_redist.library_nodes import Redistribute
from dace_redist.transformations.strategy import placed_schedules

ROWS, COLUMNS = Distribution((8, 8), (4, 1)), Distribution((8, 8), (1, 4))
N = dace.symbol("N", dace.int64)


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


def found(sdfg: dace.SDFG, **how) -> dict[str, tuple[Schedule, str]]:
    return {node.label: (one.schedule, one.memory) for node, one in placed_schedules(sdfg, **how).items()}


def test_by_label():
    sdfg = there_and_back()
    assert found(sdfg, where="b*") == {"back": (schedule(COLUMNS, ROWS), "ordinary")}
    with pytest.raises(ValueError, match="^no redistribution of there_and_back matches 'x'; it has back, there$"):
        found(sdfg, where="x")
    assert found(with_arrays("with_nothing", A=(2, 8))) == {}


def test_memory_is_that_of_the_arrays():
    sdfg = there_and_back("Hierarchical", "Hierarchical")
    sdfg.arrays["B"].transient = True
    dace_redist.transformations.place_in_shared_memory(sdfg)
    assert [memory for _, memory in found(sdfg).values()] == ["shared-target", "shared-source"]
    assert [memory for _, memory in found(sdfg, memory="ordinary").values()] == ["ordinary", "ordinary"]


def test_arrays_in_another_order_are_left_out():
    sdfg = there_and_back()
    sdfg.arrays["B"] = dace.data.Array(dace.float64, (8, 2), strides=(1, 8))
    with pytest.raises(ValueError, match="no redistribution to tune"):
        found(sdfg)


def test_operations_are_measured_with_it():
    partial = Distribution((8, 8), (4,), dims=(None, None))
    sdfg = with_arrays("summed", A=(8, 8), B=(2, 8))
    add_move(sdfg.add_state(), Redistribute("sum", partial, ROWS, op="sum", alpha=3), "A", "B")
    assert found(sdfg)["sum"][0] == schedule(partial, ROWS, op="sum", alpha=3)


def test_stock_nodes_take_part():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sdfg = PROGRAMS["there_and_back"][0].to_sdfg()
    grids = {label: (moved.source.grid, moved.target.grid) for label, (moved, _) in found(sdfg).items()}
    assert grids == {"there": ((2, 2), (4, 1)), "back": ((4, 1), (2, 2))}


def test_symbols_of_nested_sdfgs_have_the_values_of_the_outer_ones():
    with pytest.raises(ValueError, match="has no value: give symbols="):
        found(symbolic())
    rows = {label: moved.shape[0] for label, (moved, _) in found(symbolic(), symbols={"N": 2}).items()}
    assert rows == {"of_symbolic": 8, "of_inner": 24}

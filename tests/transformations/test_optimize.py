"""One call applies to a program what pays; for its results see test_rewrites."""

import json

import dace
import fused_programs as programs
import numpy as np
import pytest
from dace.sdfg import nodes
from dace.transformation.pass_pipeline import Pass, Pipeline
from sdfgs import add_move, count, redistributions, with_arrays
from stock_programs import parse

import dace_redist
from dace_redist import Distribution
from dace_redist.library_nodes import JointRedistribute, Redistribute, RedistributeWait
from dace_redist.transformations import OptimizeRedistributions


def parsed(program) -> dace.SDFG:
    return program.to_sdfg(simplify=True)


def test_steps_become_properties():
    sdfg = parsed(programs.converted)
    assert dace_redist.optimize(sdfg) is sdfg
    assert count(sdfg, Redistribute, nodes.MapEntry) == [1, 0]
    sdfg = programs.summed_then_moved()
    assert count(dace_redist.optimize(sdfg), Redistribute) == [1]


def test_stock_nodes_are_replaced_and_fused():
    sdfg = dace_redist.optimize(parse("there_and_back"))
    assert count(sdfg, Redistribute)[0] <= 2 and not sdfg.rdistrarrays


def test_short_messages_are_joined_and_long_ones_not():
    assert count(dace_redist.optimize(parsed(programs.two_at_once)), JointRedistribute) == [1]

    N = dace.symbol("N")
    rows, columns = Distribution((4 * N, 4), (4, 1)), Distribution((4 * N, 4), (1, 4))

    @dace.program
    def two(A: dace.float64[N, 4], B: dace.float64[N, 4]):
        return dace_redist.redistribute(A, rows, columns), dace_redist.redistribute(B, rows, columns)

    assert count(dace_redist.optimize(parsed(two)), JointRedistribute) == [0]  # of unknown size
    assert count(dace_redist.optimize(parsed(two), symbols={"N": 10_000}), JointRedistribute) == [0]
    assert count(dace_redist.optimize(parsed(two), symbols={"N": 10}), JointRedistribute) == [1]


def test_what_does_not_depend_on_it_is_computed_meanwhile():
    sdfg = dace_redist.optimize(parsed(programs.while_it_moves))
    ((wait, state),) = [(n, s) for n, s in sdfg.all_nodes_recursive() if isinstance(n, RedistributeWait)]
    order = list(dace.sdfg.utils.dfs_topological_sort(state, state.source_nodes()))
    (start,) = [n for n in order if isinstance(n, Redistribute)]
    between = order[order.index(start) : order.index(wait)]
    assert any(isinstance(node, nodes.MapEntry) for node in between)
    assert count(dace_redist.optimize(parsed(programs.computed_elsewhere)), RedistributeWait) == [0]


def test_nodes_of_dace_beside_redistributions():
    """They count the edges into them."""
    N = dace.symbol("N")
    rows, columns = Distribution((4 * N, 4), (4, 1)), Distribution((4 * N, 4), (1, 4))

    @dace.program
    def beside(A: dace.float64[N, 4], F: dace.float64[64], G: dace.float64[64, 64]):
        first = dace_redist.redistribute(A, rows, columns)
        second = dace_redist.redistribute(A, rows, columns, alpha=2)
        return first, second, np.sum(F), np.transpose(G), F @ F

    sdfg = dace_redist.optimize(parsed(beside))
    assert count(sdfg, RedistributeWait) == [2]
    sdfg.expand_library_nodes()
    sdfg.validate()


def test_a_result_in_a_view_beside_a_redistribution():
    """DaCe counts the edges out of a view."""
    sdfg = with_arrays("beside", A=(4, 6), B=(8, 3), X=(4, 6), Y=(24,))
    state = sdfg.add_state()
    add_move(state, Redistribute("move", programs.HALVES, programs.SIDES), "A", "B")
    first, last = (sdfg.add_view(name, shape, dace.float64)[0] for name, shape in (("V", (4, 6)), ("W", (24,))))
    views = [state.add_access(name) for name in (first, last, "Y")]
    for view, viewed in zip(views, views[1:], strict=False):
        state.add_edge(view, "views", viewed, None, sdfg.make_array_memlet(viewed.data))
    memlets = {"x": dace.Memlet("X[i, j]")}, "y = x + 1", {"y": dace.Memlet("V[i, j]")}
    ranges = {"i": "0:4", "j": "0:6"}
    state.add_mapped_tasklet("add", ranges, *memlets, external_edges=True, output_nodes={"V": views[0]})
    assert count(dace_redist.optimize(sdfg), RedistributeWait) == [1]


def test_an_array_with_two_writers_of_which_one_needs_the_result():
    @dace.program
    def two_writers(A: dace.float64[4, 6], X: dace.float64[4, 3], C: dace.float64[12, 3]):
        moved = dace_redist.redistribute(A, programs.HALVES, programs.SIDES)
        C[:8] = moved * moved
        C[8:] = X + 2

    assert count(dace_redist.optimize(parsed(two_writers)), RedistributeWait) == [1]


def test_strategies_of_the_program_are_kept():
    sdfg = dace_redist.set_strategy(parsed(programs.two_at_once), "Pack", threads=2)
    found = redistributions(dace_redist.optimize(sdfg))
    assert [(node.strategy, node.options["threads"]) for node in found] == [("Pack", 2)] * 2


def test_both_names_are_one_function():
    assert dace_redist.optimize is dace_redist.transformations.optimize


def test_the_pass_is_saved_with_its_properties():
    made = OptimizeRedistributions(symbols={"N": 4}, permissive=True)
    saved = json.loads(json.dumps(made.to_json()))
    read = Pass.from_json(saved)
    assert type(read) is OptimizeRedistributions
    assert (read.symbols, read.permissive) == ({"N": 4}, True)
    sdfg = parsed(programs.converted)
    results = Pipeline([OptimizeRedistributions()]).apply_pass(sdfg, {})
    assert results == {"OptimizeRedistributions": 1} and count(sdfg, nodes.MapEntry) == [0]


def test_wrong_arguments():
    with pytest.raises(TypeError, match="optimize takes an SDFG, got DaceProgram: pass its SDFG"):
        dace_redist.optimize(programs.converted)
    with pytest.raises(ValueError, match="'M' is not a symbol"):
        dace_redist.optimize(parsed(programs.converted), symbols={"M": 3})

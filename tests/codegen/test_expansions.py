"""Generated code of each implementation: one call, one line of set-up at the start and one of clean-up at the end."""

from __future__ import annotations

import re

import dace
import pytest
from generated_code import expanded, symbolic_sdfg
from sdfgs import OURS, add_move, rows_to_columns

import dace_redist
from dace_redist import Distribution
from dace_redist.library_nodes import Redistribute
from dace_redist.strategies import STRATEGIES


def test_one_node_class():
    assert Redistribute.__module__ == "dace_redist.library_nodes.redistribute"
    assert dace_redist.library_nodes.Redistribute is dace_redist.library_nodes.Redistribute


def test_one_implementation_per_strategy():
    assert set(Redistribute.implementations) == set(STRATEGIES)
    assert Redistribute.default_implementation in STRATEGIES


@pytest.mark.parametrize("strategy", OURS)
def test_tasklet(strategy: str):
    (tasklet,) = expanded(symbolic_sdfg(strategy))
    plan = "dace_redist::program::Plan"
    code = tasklet.code.as_string
    assert re.fullmatch(r"dace_redist::program::redistribute\(\*__state->__redist_0, [^;]*\);", code)
    assert code.endswith(", _inp_buffer, _out_buffer);")
    assert not re.search(r"\b(for|while|if|MPI_\w+\()", code)
    assert tasklet.state_fields == [f"{plan} *__redist_0;"]
    new, make = tasklet.code_init.as_string.strip().splitlines()
    assert new == f'__state->__redist_0 = new {plan}("move", "{strategy}");'
    assert make.startswith("__state->__redist_0->make({{MPI_COMM_WORLD, ") and make.count(";") == 1
    assert tasklet.code_exit.as_string.strip() == "delete __state->__redist_0;"
    assert tasklet.side_effects


# Several nodes ---------------------------------------------------------------------------------------------------


def nested_sdfg() -> dace.SDFG:
    """Two nodes in a row, and two more in nested SDFGs, one of them two levels down."""
    sdfg = rows_to_columns("Pack", name="outer")
    sdfg.add_array("C", [2, 8], dace.float64)
    back = Redistribute("back", Distribution((8, 8), (1, 4)), Distribution((8, 8), (4, 1)), "RMA")
    second = sdfg.add_state_after(sdfg.start_block, "second")
    add_move(second, back, "B", "C")
    inner, middle = rows_to_columns("Pipelined", name="inner"), rows_to_columns("Datatype", name="middle")
    place(middle, inner, "A", "B")
    place(sdfg, middle, "C", "B")
    return sdfg


def place(sdfg: dace.SDFG, nested: dace.SDFG, source: str, target: str) -> None:
    last = [block for block in sdfg.nodes() if sdfg.out_degree(block) == 0][-1]
    state = sdfg.add_state_after(last, f"call_{nested.name}")
    node = state.add_nested_sdfg(nested, {"A"}, {"B"})
    state.add_edge(state.add_read(source), None, node, "A", dace.Memlet.from_array(source, sdfg.arrays[source]))
    state.add_edge(node, "B", state.add_write(target), None, dace.Memlet.from_array(target, sdfg.arrays[target]))


def test_fields_have_different_names():
    sdfg = nested_sdfg()
    sdfg.validate()
    tasklets = expanded(sdfg)
    fields = [field.split("*")[1] for tasklet in tasklets for field in tasklet.state_fields]
    assert sorted(fields) == [f"__redist_{i};" for i in range(4)]
    for tasklet in tasklets:
        (field,) = tasklet.state_fields
        own = f"__state->{field.split('*')[1].rstrip(';')}"
        code = tasklet.code.as_string + tasklet.code_init.as_string + tasklet.code_exit.as_string
        assert set(re.findall(r"__state->__redist_\d+", code)) == {own}
    code = sdfg.generate_code()[0].clean_code
    assert code.count("= new dace_redist::program::Plan(") == code.count("delete __state->__redist_") == 4


# Arrays ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", OURS)
def test_expansion_by_name_whatever_the_node_says(strategy: str):
    """``node.expand(state, "Pack")`` gives Pack, also where the node's strategy is "Auto"."""
    sdfg = rows_to_columns("Auto")
    ((node, state),) = [(n, s) for n, s in sdfg.all_nodes_recursive() if isinstance(n, Redistribute)]
    node.expand(state, strategy)
    (tasklet,) = [n for n, _ in sdfg.all_nodes_recursive() if isinstance(n, dace.nodes.Tasklet)]
    assert f'Plan("Redistribute", "{node.label}", "{strategy}")' in tasklet.code_init.as_string

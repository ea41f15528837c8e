"""Generated code of each implementation: one call, one line of set-up at the start and one of clean-up at the end."""

from __future__ import annotations

import re

import dace
import pytest
from generated_code import expanded, generated, lines_with, symbolic_sdfg
from sdfgs import OURS, add_move, rows_to_columns

import dace_redist
from dace_redist import Distribution, Redistribute, TiledDistribution
from dace_redist.native.toolchain import SOURCE_DIRECTORY
from dace_redist.strategies import STRATEGIES


def test_one_node_class():
    assert Redistribute.__module__ == "dace_redist.library_nodes.redistribute"
    assert dace_redist.Redistribute is dace_redist.library_nodes.Redistribute


def test_one_implementation_per_strategy():
    assert set(Redistribute.implementations) == set(STRATEGIES)
    assert Redistribute.default_implementation in STRATEGIES


@pytest.mark.parametrize("name", STRATEGIES)
def test_one_name_everywhere(name: str):
    sources = [SOURCE_DIRECTORY / "plan" / "strategies.cpp", SOURCE_DIRECTORY / "device" / "device_transport.cpp"]
    assert Redistribute.implementations[name].__name__ == f"ExpandRedistribute{name}"
    assert any(f'{{"{name}",' in source.read_text() for source in sources)


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


@pytest.mark.parametrize("strategy", OURS)
def test_program(strategy: str):
    _, start, run, end = generated(rows_to_columns(strategy))
    assert len(lines_with("dace_redist::", run)) == len(lines_with("::redistribute(", run)) == 1
    assert len(lines_with("__redist_", start)) == 2
    assert len(lines_with("__redist_", end)) == 1


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


def test_fields_differ_where_nodes_are_expanded_one_by_one():
    sdfg = nested_sdfg()
    for node, state in [(n, s) for n, s in sdfg.all_nodes_recursive() if isinstance(n, Redistribute)]:
        node.expand(state)
    fields = [field for tasklet in expanded(sdfg) for field in tasklet.state_fields]
    assert len(set(fields)) == 4


def test_long_lists_are_constants():
    sdfg = dace.SDFG("long_lists")
    sdfg.add_array("A", [500], dace.float64)
    sdfg.add_array("B", [500], dace.float64)
    tiles = TiledDistribution((500,), (1,), [0] * 500)
    add_move(sdfg.add_state(), Redistribute("move", tiles, Distribution((500,), (1,))), "A", "B")
    (tasklet,) = expanded(sdfg)
    constant = tasklet.code_global.as_string
    assert constant.startswith("static const std::int64_t __redist_0_0_source[] = {1, 1, 500, 1, 0,")
    assert "{__redist_0_0_source}" in tasklet.code.as_string and len(tasklet.code.as_string) < 400


# Arrays ----------------------------------------------------------------------------------------------------------


def call_of(sdfg: dace.SDFG) -> str:
    (tasklet,) = expanded(sdfg)
    return tasklet.code.as_string


@pytest.mark.parametrize(
    ("memlet", "numbers"),
    [
        ("A[0:2, 0:8, 3]", "2, 8, 100, 10"),
        ("A[1, 0:2, 0:8]", "2, 8, 10, 1"),
        ("A[0:4:2, 1:9, 2]", "2, 8, 200, 10"),
        ("A[1:3, 2:10, 5]", "2, 8, 100, 10"),
    ],
)
def test_parts_of_larger_arrays(memlet: str, numbers: str):
    sdfg = dace.SDFG("parts")
    sdfg.add_array("A", [4, 10, 10], dace.float64)
    sdfg.add_array("B", [8, 2], dace.float64, strides=[1, 8])
    node = Redistribute("move", Distribution((8, 8), (4, 1)), Distribution((8, 8), (1, 4)))
    add_move(sdfg.add_state(), node, dace.Memlet(memlet), "B")
    code = call_of(sdfg)
    assert f"{{{{{numbers}}}}}" in code
    assert "{{8, 2, 1, 8}}" in code


@pytest.mark.parametrize("strategy", OURS)
def test_expansion_by_name_whatever_the_node_says(strategy: str):
    """``node.expand(state, "Pack")`` gives Pack, also where the node's strategy is "Auto"."""
    sdfg = rows_to_columns("Auto")
    ((node, state),) = [(n, s) for n, s in sdfg.all_nodes_recursive() if isinstance(n, Redistribute)]
    node.expand(state, strategy)
    (tasklet,) = [n for n, _ in sdfg.all_nodes_recursive() if isinstance(n, dace.nodes.Tasklet)]
    assert f'Plan("{node.label}", "{strategy}")' in tasklet.code_init.as_string

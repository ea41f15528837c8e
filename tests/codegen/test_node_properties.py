"""Properties of the node: symbols, copies, JSON."""

from __future__ import annotations

import copy

import dace
import pytest
from sdfgs import COLUMNS, ROWS, add_move, connected, redistributions, reread, rows_to_columns, with_arrays

from dace_redist import BoxDistribution, Distribution, TiledDistribution
from dace_redist.library_nodes import JointRedistribute, Redistribute
from dace_redist.library_nodes.node import INPUT, OUTPUT
from dace_redist.library_nodes.tasklets import string_literal
from dace_redist.strategies import OPTIONS, STRATEGIES

N, P, S = (dace.symbol(name) for name in "NPS")
EVERY_OPTION = {name: option.default + type(option.default)(1) for name, option in OPTIONS.items()}


def options_of(strategy: str) -> dict[str, float]:
    return {name: EVERY_OPTION[name] for name in STRATEGIES[strategy].options}


def test_one_node_class_with_an_implementation_per_strategy():
    assert Redistribute.__module__ == "dace_redist.library_nodes.redistribute"
    assert set(Redistribute.implementations) == set(STRATEGIES)
    assert Redistribute.default_implementation in STRATEGIES


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_expansion_by_name_whatever_the_node_says(strategy: str):
    """``node.expand(state, "Pack")`` gives Pack, also where the node's strategy is "Auto"."""
    single = Redistribute("move", ROWS, COLUMNS)
    joint = JointRedistribute("move", [single])
    for node, connectors in ((single, (INPUT, OUTPUT)), (joint, (f"{INPUT}_0", f"{OUTPUT}_0"))):
        sdfg = with_arrays("expanded", A=(2, 8), B=(8, 2))
        state = sdfg.add_state()
        add_move(state, node, "A", "B", connectors)
        node.expand(state, strategy)
        (tasklet,) = [n for n, _ in sdfg.all_nodes_recursive() if isinstance(n, dace.nodes.Tasklet)]
        assert f'Plan("{type(node).__name__}", "move", "{strategy}")' in tasklet.code_init.as_string


def test_expansion_by_a_strategy_that_cannot_move_the_arrays():
    sdfg = with_arrays("refused", A=(2, 8), B=(8, 2))
    for array in sdfg.arrays.values():
        array.storage = dace.StorageType.GPU_Global
    state, node = sdfg.add_state(), Redistribute("move", ROWS, COLUMNS)
    add_move(state, node, "A", "B")
    with pytest.raises(ValueError, match="strategy Pack moves arrays in main memory only"):
        node.expand(state, "Pack")


@pytest.mark.parametrize("label", ['a "b" \\ c', "gr\u00f6\u00dfe", "\N{GRINNING FACE}"])
def test_labels_are_literals_of_cpp(label: str):
    """C++ refuses the pairs of escapes that JSON has for characters of more than 16 bits."""
    escaped = label.replace("\\", "\\\\").replace('"', '\\"')
    assert string_literal(label) == f'"{escaped}"'


@pytest.mark.parametrize("strategy", ["Auto", *STRATEGIES])
def test_json(strategy: str):
    options = {} if strategy == "Auto" else options_of(strategy)
    sdfg = rows_to_columns(strategy, **options)
    (before,), (after,) = redistributions(sdfg), redistributions(reread(sdfg))
    assert type(after) is Redistribute
    assert (after.label, after.implementation, after.strategy) == (before.label, before.implementation, before.strategy)
    assert after.distributions() == before.distributions() == (ROWS, COLUMNS)
    assert after.options == before.options
    assert after.options == options or strategy == "Auto"
    assert [type(v) for v in after.options.values()] == [type(OPTIONS[name].default) for name in after.options]


@pytest.mark.parametrize(
    "distribution",
    [
        Distribution((N, 7, 2), (P, 2), dims=[0, 1, None], block=["ceil", (3, 4), "balanced"], pins=[None, 1]),
        Distribution((8, 6), (2,), ranks=[1, 0], halo=1, periodic=[True, False]),
        TiledDistribution((4, 5), (2, 5), [[1], [0]]),
        BoxDistribution((8, 6), [((0, 0), (5, 6)), ((4, 0), (4, 6))], [0, 1], halo=(1, 0)),
    ],
)
def test_json_of_distributions(distribution):
    node = Redistribute("move", distribution, distribution)
    sdfg, _ = connected(node)
    sdfg.replace("M", "Q")
    assert node.source is copy.deepcopy(node).source is distribution
    (saved,) = (one["attributes"]["source"] for one in sdfg.to_json()["nodes"][0]["nodes"] if "move" in one["label"])
    assert (saved["kind"], saved["halo"]) == (type(distribution).__name__, list(distribution.halo))
    assert redistributions(reread(sdfg))[0].source.encoded == distribution.encoded


def test_json_with_symbols_ranks_and_pins():
    source = Distribution((N, N), (P, 2), dims=[0, None], pins=[None, 1], block=[3, None])
    target = Distribution((N, N), (4, 1), ranks=[3, 1, 2, 0], block=["balanced", 2])
    node = Redistribute("move", source, target, "Pipelined", chunk_bytes=8 * S)
    sdfg, _ = connected(node, (N, N), (N, N))
    sdfg.add_symbol("S", dace.int64)
    sdfg.add_symbol("P", dace.int64)
    (after,) = redistributions(reread(sdfg))
    assert list(map(str, after.distributions())) == list(map(str, node.distributions()))
    assert str(after.options["chunk_bytes"]) == "8*S"
    assert after.free_symbols == {"N", "P", "S"}


def test_deepcopy():
    sdfg = rows_to_columns("Pipelined", chunk_bytes=100, growth=2.0)
    (copied,) = redistributions(copy.deepcopy(sdfg))
    (node,) = redistributions(sdfg)
    node.set_strategy("Pack", max_message_bytes=7)
    node.source = Distribution((4, 4), (4, 1))
    assert copied is not node
    assert (copied.strategy, copied.options["chunk_bytes"], copied.options["growth"]) == ("Pipelined", 100, 2.0)
    assert copied.distributions() == (ROWS, COLUMNS)


def with_symbols() -> tuple[dace.SDFG, Redistribute]:
    node = Redistribute(
        "move", Distribution((N, N), (P, 1)), Distribution((N, N), (1, P)), "Pipelined", chunk_bytes=8 * N
    )
    sdfg, _ = connected(node, (dace.symbolic.int_ceil(N, P), N), (N, dace.symbolic.int_ceil(N, P)))
    return sdfg, node


def test_replace_reaches_the_properties():
    sdfg, node = with_symbols()
    sdfg.replace("N", "Q")
    assert node.free_symbols == {"P", "Q"} and sdfg.free_symbols == {"P", "Q"}
    sdfg.replace_dict({"Q": "32", "P": "4"})
    assert node.distributions() == (Distribution((32, 32), (4, 1)), Distribution((32, 32), (1, 4)))
    assert node.options["chunk_bytes"] == 256
    assert not node.free_symbols
    sdfg.validate()


def test_a_value_of_a_symbol_that_makes_no_distribution():
    """It is an error of the node when it is used: one that never runs may have it. The program can be saved."""
    sdfg, node = with_symbols()
    sdfg.replace_dict({"N": "8", "P": "0"})
    sdfg.to_json()
    for one in (node, *redistributions(copy.deepcopy(sdfg))):
        with pytest.raises(ValueError, match='^Redistribute "move": source: .*0'):
            one.distributions()


def test_symbols_of_a_nested_sdfg_are_mapped():
    inner, node = with_symbols()
    outer = with_arrays("outer", A=(4, 16), B=(16, 4))
    state = outer.add_state()
    nested = state.add_nested_sdfg(inner, {"A"}, {"B"}, {"N": 16, "P": 4})
    state.add_edge(state.add_read("A"), None, nested, "A", dace.Memlet("A[0:4, 0:16]"))
    state.add_edge(nested, "B", state.add_write("B"), None, dace.Memlet("B[0:16, 0:4]"))
    outer.validate()
    outer.simplify()
    (node,) = redistributions(outer)
    assert node.distributions() == (Distribution((16, 16), (4, 1)), Distribution((16, 16), (1, 4)))
    assert node.options["chunk_bytes"] == 128


def test_a_joint_node():
    sides = Distribution((N, N), (P, 1)), Distribution((N, N), (1, P))
    node = JointRedistribute("both", [Redistribute("move", *sides, alpha=S, strategy="Pack")] * 2)
    sdfg = dace.SDFG("joint")
    sdfg.add_state().add_node(node)
    (copied,), (read,) = (list(one.start_state.nodes()) for one in (copy.deepcopy(sdfg), reread(sdfg)))
    sdfg.replace_dict({"N": "8", "P": "4", "S": "2"})
    for tensor in node.tensors:
        assert (tensor.distributions(), tensor.alpha) == ((ROWS, COLUMNS), 2)
    for other in (copied, read):
        assert other.free_symbols == {"N", "P", "S"} and other.tensors[1]._joint is other
        assert list(map(str, other.tensors[1].distributions())) == list(map(str, sides))


HALO = Distribution((8, 6), (2,), halo=1)
OVERLAPPING = BoxDistribution((8, 6), [((0, 0), (5, 6)), ((4, 0), (4, 6))], [0, 1])


@pytest.mark.parametrize(
    ("target", "how", "text"),
    [
        (HALO, {}, "gradients in a halo are not added .*Plan.adjoint"),
        (OVERLAPPING, {}, "boxes must hold every element once"),
        (ROWS, {"beta": 1}, "only a blocking node with beta=0"),
    ],
)
def test_nodes_that_have_no_adjoint(target, how, text):
    from dace.autodiff import AutoDiffException

    from dace_redist.library_nodes.autodiff import adjoint_node

    source = Distribution(target.shape, (2,))
    for sides in ((source, target), (target, source)):
        with pytest.raises(AutoDiffException, match=text):
            adjoint_node(Redistribute("moved", *sides, **how))

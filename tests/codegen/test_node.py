"""Errors of the node."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import dace
import pytest
from dace.sdfg.validation import InvalidSDFGNodeError
from sdfgs import COLUMNS, ROWS, add_move, connected, redistributions

from dace_redist import Distribution, Redistribute, TiledDistribution

N, P, S = (dace.symbol(name) for name in "NPS")


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Change the working folder, in which DaCe saves invalid SDFGs."""
    monkeypatch.chdir(tmp_path)


def on_a_gpu(made):
    """Move the source to a GPU."""
    made[0].arrays["A"].storage = dace.StorageType.GPU_Global
    return made


def refused(node: Redistribute, sdfg: dace.SDFG, state: dace.SDFGState, message: str) -> None:
    """Check that the node, the SDFG and code generation raise the same error, in one line."""
    for check in (lambda: node.validate(sdfg, state), lambda: copy.deepcopy(sdfg).expand_library_nodes()):
        with pytest.raises((ValueError, TypeError), match=re.escape(message)) as caught:
            check()
        text = str(caught.value)
        assert text.startswith(f'Redistribute "{node.label}": ') and "\n" not in text
    with pytest.raises(InvalidSDFGNodeError, match=re.escape(message)):
        sdfg.validate()


WRONG = {
    "global shape": (
        lambda: connected(Redistribute("wrong", ROWS, Distribution((8, 9), (1, 4))), (2, 8), (8, 3)),
        "source and target need one global shape, got (8, 8) and (8, 9)",
    ),
    "number of dimensions": (
        lambda: connected(Redistribute("wrong", ROWS, Distribution((64,), (4,))), (2, 8), (16,)),
        "source and target need one global shape, got (8, 8) and (64,)",
    ),
    "element types": (
        lambda: connected(Redistribute("wrong", ROWS, COLUMNS), target_dtype=dace.int32),
        "cannot convert elements of float64 to int32",
    ),
    "memory": (
        lambda: on_a_gpu(connected(Redistribute("wrong", ROWS, COLUMNS, "RMA"))),
        "strategy RMA moves arrays in main memory only, but ",
    ),
    "structure": (
        lambda: connected(
            Redistribute("wrong", ROWS, COLUMNS), dtype=dace.dtypes.struct("pair", a=dace.int32, b=dace.int32)
        ),
        "cannot move elements of pair; possible: bool, ",
    ),
    "vectors": (
        lambda: connected(Redistribute("wrong", ROWS, COLUMNS), dtype=dace.vector(dace.float64, 2)),
        "cannot move elements of dace::vec<double, 2>; possible: ",
    ),
    "input too small": (
        lambda: connected(Redistribute("wrong", ROWS, COLUMNS), (1, 8)),
        "the local input has shape (1, 8), but rank 0 owns (2, 8) of it",
    ),
    "output too small": (
        lambda: connected(Redistribute("wrong", ROWS, COLUMNS), (2, 8), (8, 1)),
        "the local output has shape (8, 1), but rank 0 owns (8, 2) of it",
    ),
    "dimensions of a local array": (
        lambda: connected(Redistribute("wrong", ROWS, COLUMNS), (16,)),
        "the input of a distribution of 2 dimensions needs a local array of 2, got shape (16,)",
    ),
    "tiles": (
        lambda: connected(Redistribute("wrong", TiledDistribution((8, 8), (8, 8), [[0]]), COLUMNS), (8, 8)),
        "the input of a distribution of 2 dimensions needs a local array of 1, got shape (8, 8)",
    ),
    "undeclared symbols": (
        lambda: connected(Redistribute("wrong", Distribution((N, N), (P, 1)), Distribution((N, N), (1, P)))),
        "the program does not know N, P, which its properties name; declare symbols with sdfg.add_symbol",
    ),
    "undeclared symbol of an option": (
        lambda: connected(Redistribute("wrong", ROWS, COLUMNS, "Pipelined", chunk_bytes=8 * S)),
        "the program does not know S, ",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_refused(case: str):
    make, message = WRONG[case]
    sdfg, state = make()
    refused(redistributions(sdfg)[0], sdfg, state, message)


PROPERTIES = {
    "chunk_bytes": (0, "option chunk_bytes must be "),
    "depth": (-1, "option depth must be "),
    "growth": (0.5, "option growth must be "),
    "max_message_bytes": (1.5, "option max_message_bytes must be an integer "),
    "implementation": ("Pipelind", "unknown strategy 'Pipelind' (did you mean Pipelined?); there are Auto, Datatype, "),
    "source": ((0, 2, 2, 8, 8, 4), "source: "),
    "target": ((7, 2, 2), "target: not an encoded distribution"),
}


@pytest.mark.parametrize("name", PROPERTIES)
def test_properties_set_later_are_checked(name: str):
    value, message = PROPERTIES[name]
    node = Redistribute("wrong", ROWS, COLUMNS, "Pipelined")
    sdfg, state = connected(node)
    setattr(node, name, value)
    if name == "implementation":  # expansion itself looks for the implementation first
        with pytest.raises(ValueError, match=re.escape(message)):
            node.validate(sdfg, state)
        return
    refused(node, sdfg, state, message)


@pytest.mark.parametrize(
    ("strategy", "options", "error", "message"),
    [
        ("pack", {}, ValueError, "unknown strategy 'pack' (did you mean Pack?); there are Auto, Datatype, Pack, "),
        ("Pack", {"depth": 2}, ValueError, "strategy Pack does not take option 'depth'; it takes max_message_bytes"),
        ("Pipelined", {"chunk_bytes": 0}, ValueError, "option chunk_bytes must be "),
        ("Pipelined", {"chunk_bytes": "8 MB"}, TypeError, "option chunk_bytes must be an integer "),
    ],
)
def test_wrong_strategies_and_options(strategy, options, error, message):
    expected = f'^{re.escape(f"""Redistribute "wrong": {message}""")}'
    with pytest.raises(error, match=expected):
        Redistribute("wrong", ROWS, COLUMNS, strategy, **options)
    node = Redistribute("wrong", ROWS, COLUMNS, "Pipelined", depth=2)
    with pytest.raises(error, match=expected):
        node.set_strategy(strategy, **options)
    assert (node.strategy, node.options["depth"]) == ("Pipelined", 2)


@pytest.mark.parametrize("given", [(ROWS, None), (None, COLUMNS)])
def test_one_distribution_only(given):
    with pytest.raises(ValueError, match='^Redistribute "wrong": source and target are both given, or both at run'):
        Redistribute("wrong", *given)


@pytest.mark.parametrize("connector", ["_inp_buffer", "_out_buffer"])
@pytest.mark.parametrize("count", [0, 2])
def test_number_of_edges(connector: str, count: int):
    node = Redistribute("wrong", ROWS, COLUMNS)
    sdfg, state = connected(node)
    incoming = connector == "_inp_buffer"
    (edge,) = state.in_edges(node) if incoming else state.out_edges(node)
    if count == 0:
        state.remove_edge(edge)
    elif incoming:
        state.add_edge(state.add_read("A"), None, node, connector, copy.deepcopy(edge.data))
    else:
        state.add_edge(node, connector, state.add_write("B"), None, copy.deepcopy(edge.data))
    message = f'Redistribute "wrong": connector {connector} needs exactly one edge, got {count}'
    with pytest.raises(ValueError, match=re.escape(message)):
        node.validate(sdfg, state)
    with pytest.raises(dace.sdfg.validation.InvalidSDFGError):
        sdfg.validate()


@pytest.mark.parametrize(
    ("connector", "dtype", "message"),
    [
        ("_comm", dace.float64, "_comm must be an integer that holds an MPI_Comm, got numbers_comm of double"),
        ("_source", dace.int32, "_source must hold 64-bit integers, got numbers_source of int"),
        ("_target_local", dace.float64, "_target_local must hold 64-bit integers, got numbers_target_local of double"),
    ],
)
def test_type_of_a_connector(connector: str, dtype, message: str):
    node = Redistribute("wrong", ROWS, COLUMNS) if connector == "_comm" else Redistribute("wrong")
    sdfg, state = connected(node)
    node.add_in_connector("_comm")
    for name in sorted(node.in_connectors.keys() - {"_inp_buffer"}):
        wanted = dtype if name == connector else dace.int64
        sdfg.add_array(f"numbers{name}", [20], wanted)
        memlet = dace.Memlet(f"numbers{name}[0]" if name == "_comm" else f"numbers{name}[0:20]")
        state.add_edge(state.add_read(f"numbers{name}"), None, node, name, memlet)
    refused(node, sdfg, state, message)


@pytest.mark.parametrize("connector", ["_comm", "_grid", "_source"])
def test_connector_without_an_edge(connector: str):
    node = Redistribute("wrong") if connector == "_source" else Redistribute("wrong", ROWS, COLUMNS)
    node.add_in_connector(connector)
    sdfg, state = connected(node)
    refused(node, sdfg, state, f"connector {connector} needs exactly one edge, got 0")


def test_grid_must_be_a_process_grid():
    node = Redistribute("wrong", ROWS, COLUMNS)
    sdfg, state = connected(node)
    sdfg.add_scalar("grid", dace.int64)
    node.add_in_connector("_grid")
    state.add_edge(state.add_read("grid"), None, node, "_grid", dace.Memlet("grid[0]"))
    refused(node, sdfg, state, "_grid must be a process grid, got grid, of type Scalar")


@pytest.mark.parametrize(("source", "target"), [("A[0:2, 0:8]", "A[1:9, 0:2]"), ("A[0:2, 0:8]", "A[0:8, 7:9]")])
def test_overlap(source: str, target: str):
    sdfg = dace.SDFG("overlap")
    sdfg.add_array("A", [9, 9], dace.float64)
    state = sdfg.add_state()
    node = add_move(state, Redistribute("wrong", ROWS, COLUMNS), dace.Memlet(source), dace.Memlet(target))
    refused(node, sdfg, state, f"input {source} and output {target} overlap")


def test_parts_of_one_array_that_do_not_overlap():
    sdfg = dace.SDFG("no_overlap")
    sdfg.add_array("A", [10, 9], dace.float64)
    add_move(
        sdfg.add_state(), Redistribute("right", ROWS, COLUMNS), dace.Memlet("A[0:2, 0:8]"), dace.Memlet("A[2:10, 0:2]")
    )
    sdfg.validate()


@pytest.mark.parametrize(
    ("source_shape", "target_shape"), [((2, 8), (8, 2)), ((3, 9), (10, 2)), ((N, 8), (8, P)), ((N + 2, 8), (8, 2))]
)
def test_accepted(source_shape, target_shape):
    """Padding, and sizes that may turn out right."""
    sdfg, _ = connected(Redistribute("right", ROWS, COLUMNS), source_shape, target_shape)
    sdfg.validate()


def test_symbols_of_loops_and_of_constants_are_known():
    node = Redistribute("right", Distribution((N, 8), (P, 1)), Distribution((N, 8), (1, P)), "Pipelined", depth=S)
    sdfg, _ = connected(node, (N, 8), (8, P))
    sdfg.add_constant("S", 3)
    sdfg.validate()

"""Errors of the node."""

import copy
import re
from pathlib import Path

import dace
import pytest
import sympy
from dace.sdfg.validation import InvalidSDFGNodeError
from dace.transformation.interstate import LoopToMap
from sdfgs import COLUMNS, ROWS, add_move, connected, redistributions, with_arrays

import dace_redist
from dace_redist import Distribution, TiledDistribution
from dace_redist.library_nodes import JointRedistribute, Redistribute

N, P, S = (dace.symbol(name) for name in "NPS")


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Change the working folder, in which DaCe saves invalid SDFGs."""
    monkeypatch.chdir(tmp_path)


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
    "element types": (
        lambda: connected(Redistribute("wrong", ROWS, COLUMNS), target_dtype=dace.int32),
        "cannot convert elements of float64 to int32",
    ),
    "structure": (
        lambda: connected(
            Redistribute("wrong", ROWS, COLUMNS), dtype=dace.dtypes.struct("pair", a=dace.int32, b=dace.int32)
        ),
        "cannot move elements of pair; possible: bool, ",
    ),
    "input too small": (
        lambda: connected(Redistribute("wrong", ROWS, COLUMNS), (1, 8)),
        "the local input has shape (1, 8), but the largest part of a rank is (2, 8)",
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
}


@pytest.mark.parametrize("case", WRONG)
def test_refused(case: str):
    make, message = WRONG[case]
    sdfg, state = make()
    refused(redistributions(sdfg)[0], sdfg, state, message)


PROPERTIES = {
    "chunk_bytes": (0, "option chunk_bytes must be "),
    "max_message_bytes": (1.5, "option max_message_bytes must be an integer "),
    "implementation": (
        "Pipelind",
        "unknown strategy 'Pipelind' (did you mean Pipelined?); choose from Auto, Datatype, ",
    ),
    "source": ((0, 2, 2, 8, 8, 4), "source: "),
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


@dace.program
def in_a_map(A: dace.float64[4, 2, 8], B: dace.float64[4, 8, 2]):
    for k in dace.map[0:4]:
        dace_redist.redistribute(A[k], ROWS, COLUMNS, out=B[k])


@dace.program
def in_a_loop(A: dace.float64[4, 2, 8], B: dace.float64[4, 8, 2]):
    for k in range(4):
        dace_redist.redistribute(A[k], ROWS, COLUMNS, out=B[k])


@pytest.mark.parametrize("program", [in_a_map, in_a_loop])
def test_one_thread_runs_the_iterations_of_maps(program):
    sdfg = program.to_sdfg()
    sdfg.apply_transformations_repeated(LoopToMap)
    (entry,) = (node for node, _ in sdfg.all_nodes_recursive() if isinstance(node, dace.nodes.MapEntry))
    sdfg.expand_library_nodes()
    assert entry.schedule == dace.ScheduleType.Sequential
    assert "omp parallel" not in sdfg.generate_code()[0].code


def test_ends_that_are_no_distributions():
    for ends, side in (((None, ROWS), "source"), ((ROWS, (8, 8)), "target")):
        with pytest.raises(TypeError, match=f'^Redistribute "wrong": {side} must be a Distribution, Tiled'):
            Redistribute("wrong", *ends)


def test_arguments_that_are_refused_at_once():
    for how in ({"op": "average"}, {"reshape": (9, 9)}):
        with pytest.raises(ValueError, match='^Redistribute "wrong": '):
            Redistribute("wrong", ROWS, COLUMNS, **how)
    for factor in (2j, sympy.I):
        with pytest.raises(TypeError, match='^Redistribute "wrong": beta must be real'):
            Redistribute("wrong", ROWS, COLUMNS, beta=factor)
    with pytest.raises(TypeError, match="expected Redistribute nodes, got str"):
        JointRedistribute("wrong", ["sum"])


def test_edges_without_an_array_or_with_a_reduction():
    node = Redistribute("wrong", ROWS, COLUMNS)
    sdfg, state = connected(node)
    (out,) = state.out_edges(node)
    out.data.wcr = "lambda a, b: a + b"
    refused(node, sdfg, state, "the wcr of B[0:8, 0:2] (CR: Sum) would be ignored")
    node.beta = 1  # as of a gradient
    sdfg.validate()
    out.data = dace.Memlet()
    refused(node, sdfg, state, "connector _out_buffer needs exactly one edge of an array, got an empty memlet")


def test_overlap():
    source, target = "A[0:2, 0:8]", "A[1:9, 0:2]"
    sdfg = with_arrays("overlap", A=(9, 9))
    state = sdfg.add_state()
    node = add_move(state, Redistribute("wrong", ROWS, COLUMNS), dace.Memlet(source), dace.Memlet(target))
    refused(node, sdfg, state, f"input {source} and output {target} overlap")


@pytest.mark.parametrize(("sources", "targets", "again"), [("AD", "BB", "B"), ("AD", "CA", "A"), ("AB", "BC", "B")])
def test_outputs_of_a_joint_node_are_arrays_of_their_own(sources, targets, again):
    node = JointRedistribute("wrong", [Redistribute(name, ROWS, COLUMNS) for name in "ab"])
    sdfg = with_arrays("joint", **dict.fromkeys("ABCD", (8, 8)))
    state = sdfg.add_state()
    for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
        ends = dace.Memlet(f"{source}[0:2, 0:8]"), dace.Memlet(f"{target}[0:8, 0:2]")
        add_move(state, node, *ends, (f"_inp_buffer_{number}", f"_out_buffer_{number}"))
    with pytest.raises(ValueError, match=f"every output must be an array of its own, got {again} again"):
        node.validate(sdfg, state)


@pytest.mark.parametrize(("source_shape", "target_shape"), [((3, 9), (10, 2)), ((N + 2, 8), (8, 2))])
def test_accepted(source_shape, target_shape):
    """Padding, and sizes that may turn out right."""
    sdfg, _ = connected(Redistribute("right", ROWS, COLUMNS), source_shape, target_shape)
    sdfg.validate()

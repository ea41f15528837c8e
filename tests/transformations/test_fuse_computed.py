"""Steps that become properties of redistributions, and ranks renumbered: the graph before and after, equal results."""

from __future__ import annotations

import dace
import fused_programs as programs
import numpy as np
import pytest
from dace.libraries.comm.nodes import Bcast, Reduce
from dace.sdfg import nodes

import dace_redist
from dace_redist import FuseConversion, FuseReduceBcast, Redistribute, RelabelGrid
from dace_redist.library_nodes import SumReplicas


def count(sdfg: dace.SDFG, *kinds: type) -> list[int]:
    found = [node for node, _ in sdfg.all_nodes_recursive()]
    return [sum(isinstance(node, kind) for node in found) for kind in kinds]


def only_node(sdfg: dace.SDFG) -> Redistribute:
    (node,) = [node for node, _ in sdfg.all_nodes_recursive() if isinstance(node, Redistribute)]
    return node


def rewritten(make, transformation) -> tuple[dace.SDFG, dace.SDFG]:
    """The SDFG as it is, and with all that can be rewritten."""

    def made() -> dace.SDFG:
        sdfg = make.to_sdfg(simplify=True) if hasattr(make, "to_sdfg") else make()
        dace_redist.lower_all(sdfg)
        return sdfg

    before, after = made(), made()
    after.name = f"{before.name}_rewritten"
    after.apply_transformations_repeated(transformation)
    after.validate()
    return before, after


@pytest.mark.parametrize(
    ("program", "maps", "alpha", "conj"),
    [
        (programs.converted, (3, 0), 6, False),
        (programs.conjugated, (3, 0), -0.5, True),
        (programs.scaled_in_parts, (2, 1), 1, False),  # 3 is no power of two: only the cast
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_conversions(program, maps, alpha, conj):
    before, after = rewritten(program, FuseConversion)
    assert (count(before, nodes.MapEntry)[0], count(after, nodes.MapEntry)[0]) == maps
    node = only_node(after)
    assert (node.alpha, node.conj) == (alpha, conj)


@pytest.mark.parametrize(
    ("expression", "element_type"),
    [
        ("__out = __inp + 1", dace.float64),
        ("__out = __inp / 3", dace.float64),
        ("__out = dace.float32(__inp)", dace.float64),  # loses digits on its way
        ("__out = 0.1 * __inp", dace.float32),  # a product of doubles
        ("__out = __inp * __inp", dace.float64),
        ("__out = 1j * __inp", dace.complex128),
    ],
)
def test_what_a_redistribution_cannot_compute(expression, element_type):
    sdfg = dace.SDFG("computed")
    for name, shape in (("A", (4, 6)), ("B", (4, 6)), ("C", (8, 3))):
        sdfg.add_array(name, shape, element_type, transient=name == "B")
    state = sdfg.add_state()
    _, _, leave = state.add_mapped_tasklet(
        "compute",
        {"i": "0:4", "j": "0:6"},
        {"__inp": dace.Memlet("A[i, j]")},
        expression,
        {"__out": dace.Memlet("B[i, j]")},
        external_edges=True,
    )
    node = Redistribute("move", programs.HALVES, programs.SIDES)
    state.add_edge(state.out_edges(leave)[0].dst, None, node, "_inp_buffer", sdfg.make_array_memlet("B"))
    state.add_edge(node, "_out_buffer", state.add_write("C"), None, sdfg.make_array_memlet("C"))
    assert sdfg.apply_transformations_repeated(FuseConversion) == 0


def test_a_sum_of_replicas():
    before, after = rewritten(programs.summed_then_moved, FuseReduceBcast)
    assert count(before, Redistribute, SumReplicas) == [1, 1] and count(after, Redistribute, SumReplicas) == [1, 0]
    node = only_node(after)
    assert (node.distributions(), node.op) == ((programs.PARTIAL, programs.WANTED), "sum")
    assert "B" not in after.arrays


def test_a_reduction_to_a_corner_and_a_broadcast_from_one():
    before, after = rewritten(programs.reduced_moved_broadcast, FuseReduceBcast)
    assert count(before, Redistribute, Reduce, Bcast) == [1, 1, 1]
    assert count(after, Redistribute, Reduce, Bcast) == [1, 0, 0]
    node = only_node(after)
    assert [side.core.replicas for side in node.distributions()] == [2, 2] and node.op == "sum"


def test_a_reduction_whose_result_is_used_otherwise():
    sdfg = programs.summed_then_moved()
    sdfg.arrays["B"].transient = False
    assert sdfg.apply_transformations(FuseReduceBcast) == 0


def test_renumbered_ranks():
    before, after = rewritten(programs.computed_elsewhere, RelabelGrid)

    def moved(sdfg):
        found = [n.distributions() for n, _ in sdfg.all_nodes_recursive() if isinstance(n, Redistribute)]
        return sum(dace_redist.schedule(*ends).bytes_moved() for ends in found)

    assert moved(after) < moved(before)
    first, second = (n for n, _ in after.all_nodes_recursive() if isinstance(n, Redistribute))
    assert {first.target, second.target} & {first.source, second.source}
    assert after.apply_transformations(RelabelGrid) == 0


@pytest.mark.compile
@pytest.mark.mpi(ranks=[2], timeout=200)
def test_conversions_give_equal_results(comm):
    from builds import built

    A = programs.HALVES.local(np.random.default_rng(5).standard_normal((8, 6)), comm.rank)
    for program in (programs.converted, programs.conjugated):
        results = []
        for number in range(2):
            name = f"{program.name}_{number}"
            made = built(comm, name, lambda program=program, number=number: rewritten(program, FuseConversion)[number])
            results.append(np.array(made(A=A.copy())))
        np.testing.assert_array_equal(*results)
        assert np.abs(results[0]).max() > 0


@pytest.mark.compile
@pytest.mark.mpi(ranks=[4], timeout=300)
def test_sums_and_renumbered_ranks_give_equal_results(comm):
    from builds import built

    generator = np.random.default_rng(comm.rank)
    for make, transformation, shape in (
        (programs.summed_then_moved, FuseReduceBcast, (4, 8)),
        (programs.reduced_moved_broadcast, FuseReduceBcast, (4, 8)),
        (programs.computed_elsewhere, RelabelGrid, (2, 8)),
    ):
        A, results = generator.standard_normal(shape), []
        for number in range(2):
            name = f"{getattr(make, 'name', 'summed_then_moved')}_{number}"
            made = built(comm, name, lambda how=(make, transformation), number=number: rewritten(*how)[number])
            out = {"C": np.zeros((8, 4))} if make is programs.summed_then_moved else {}
            returned = made(A=A.copy(), **out)
            results.append(out["C"] if out else np.array(returned))
        np.testing.assert_allclose(*results, rtol=1e-13)
        assert np.abs(results[0]).max() > 0

"""One call applies to a program what pays; its results stay."""

import dace
import fused_programs as programs
import numpy as np
import pytest
from dace.sdfg import nodes
from sdfgs import count
from stock_programs import parse

import dace_redist
from dace_redist import Distribution
from dace_redist.library_nodes import JointRedistribute, Redistribute, RedistributeWait, SumReplicas
from dace_redist.mpi.topology import Topology
from dace_redist.tuning import auto as choosing


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    """Pretend to run on 4 ranks, without a record."""
    monkeypatch.setattr(choosing, "topology_of", lambda comm: Topology("m", "M", (0, 0, 0, 0)))
    monkeypatch.setenv("DACE_REDIST_RECORD", str(tmp_path / "tuning.json"))


def parsed(program) -> dace.SDFG:
    return program.to_sdfg(simplify=True)


def test_steps_become_properties():
    sdfg = parsed(programs.converted)
    assert dace_redist.optimize(sdfg) is sdfg
    assert count(sdfg, Redistribute, nodes.MapEntry) == [1, 0]
    sdfg = programs.summed_then_moved()
    assert count(dace_redist.optimize(sdfg), Redistribute, SumReplicas) == [1, 0]


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


def test_wrong_arguments():
    with pytest.raises(TypeError, match="optimize takes an SDFG, got DaceProgram: pass its SDFG"):
        dace_redist.optimize(programs.converted)
    with pytest.raises(ValueError, match="'M' is not a symbol"):
        dace_redist.optimize(parsed(programs.converted), symbols={"M": 3})


@dace.program
def several(A: dace.float64[4, 6], P: dace.float64[4, 8], E: dace.float64[4, 6], F: dace.float64[4, 6]):
    converted_array = programs.converted(A)
    reduced = programs.reduced_moved_broadcast(P)
    moved = programs.while_it_moves(E, F)
    return converted_array, reduced, moved


@pytest.mark.compile
@pytest.mark.dace
@pytest.mark.mpi(ranks=[4], timeout=600)
def test_equal_results(comm):
    from builds import built
    from mpi4py import MPI

    program = built(comm, "all_that_pays", lambda: dace_redist.optimize(parsed(several), comm=MPI.COMM_SELF))
    generator = np.random.default_rng(7)
    whole, sums = generator.standard_normal((8, 6)), generator.standard_normal((2, 8, 8))
    rank = comm.rank
    A, E, F = np.zeros((4, 6)), np.zeros((4, 6)), np.zeros((4, 6))
    if rank < 2:
        A[:], E[:] = programs.HALVES.local(whole, rank), programs.HALVES.local(whole + 1, rank)
    P = programs.PARTIAL.local(sums[rank % 2], rank)
    converted, reduced, moved = (np.array(result) for result in program(A=A, P=P.copy(), E=E, F=F))
    if rank < 2:
        side = programs.SIDES.local(whole, rank)
        np.testing.assert_array_equal(converted, 3 * (2 * side).astype(np.float32))
        np.testing.assert_array_equal(moved, programs.SIDES.local(whole + 1, rank) - 1)
    np.testing.assert_allclose(F, np.exp(E), rtol=1e-13)
    column = rank // 2  # of the grid 1 x 2 x 2, whose last axis holds replicas
    wanted = (sums[0] + sums[1] + 2)[:, 4 * column : 4 * column + 4]
    np.testing.assert_allclose(reduced, 2 * wanted, rtol=1e-13, atol=1e-13)

"""``optimize`` where the programs of ranks differ, and on one rank alone."""

from __future__ import annotations

import dace
import pytest
from dace.sdfg import nodes
from results import refused
from sdfgs import COLUMNS, ROWS, add_move, count, with_arrays

import dace_redist
from dace_redist import Distribution
from dace_redist.library_nodes import Redistribute

SQUARES = Distribution((8, 8), (2, 2))

pytestmark = [pytest.mark.dace, pytest.mark.mpi(ranks=[4], timeout=120)]


def scaled(factor: int, uses: int = 1) -> dace.SDFG:
    """Return a chain of two redistributions and a map with a literal; with two uses, others use the arrays, too."""
    sdfg = with_arrays("scaled", "BC", A=(2, 8), B=(8, 2), C=(4, 4), D=(4, 4), E=(8, 2))
    state = sdfg.add_state()
    add_move(state, Redistribute("there", ROWS, COLUMNS), "A", "B")
    add_move(state, Redistribute("on", COLUMNS, SQUARES), "B", "C")
    for source, target, extents in [("C", "D", (4, 4)), ("B", "E", (8, 2))][:uses]:
        (access,) = [one for one in state.data_nodes() if one.data == source]
        memlets = {"a": dace.Memlet(f"{source}[i, j]")}, f"out = {factor} * a", {"out": dace.Memlet(f"{target}[i, j]")}
        ranges = dict(zip("ij", (f"0:{n}" for n in extents), strict=True))
        state.add_mapped_tasklet(target, ranges, *memlets, external_edges=True, input_nodes={source: access})
    return sdfg


@pytest.mark.parametrize(
    ("factor", "uses", "left"),
    [
        (lambda rank: 2, lambda rank: 1, [1, 0]),
        (lambda rank: 2 + rank, lambda rank: 1, [1, 1]),  # the literal stays in the map
        (lambda rank: 2, lambda rank: 1 + rank % 2, [2, None]),  # else the ranks would redistribute differently often
    ],
)
def test_programs_of_ranks(comm, factor, uses, left):
    sdfg = dace_redist.optimize(scaled(factor(comm.rank), uses(comm.rank)), comm=comm)
    found = count(sdfg, Redistribute, nodes.MapEntry)
    assert found == [left[0], uses(comm.rank) if left[1] is None else left[1]]


def test_one_rank_alone(comm):
    from mpi4py import MPI

    if comm.rank == 0:
        assert count(dace_redist.optimize(scaled(2), comm=MPI.COMM_SELF), Redistribute, nodes.MapEntry) == [1, 0]


def test_an_argument_of_one_rank_that_is_wrong_is_an_error_on_all(comm):
    for wrong, text in (
        ({"symbols": 3}, "symbols must be a dict of values by name, got 3"),
        ({"symbols": {"N": 4}}, "symbols: 'N' is not a symbol of scaled"),
    ):
        how = wrong if comm.rank == comm.size - 1 else {}
        refused(comm, (TypeError, ValueError), text, lambda how=how: dace_redist.optimize(scaled(2), comm=comm, **how))

"""Memory shared by transients of a distributed program; simulations show that none is overwritten too early."""

from typing import Any

import dace
import numpy as np
import pytest

from dace_redist import distribute
from dace_redist.library_nodes.environment import MEMORY_PIECE, NODE_SHARED

N = dace.symbol("N", dace.int64)
Matrix = dace.float64[N, N]


@dace.program
def chain(A: Matrix, B: Matrix):
    C = A @ B
    D = C @ B
    E = D @ B
    F = E @ B
    return F @ B


@dace.program
def in_a_loop(A: Matrix, B: Matrix):
    kept = A @ B
    for _ in range(3):
        inner = kept @ A
        inner2 = inner @ A
        B[:] = inner2 @ A
    return B @ A


@dace.program
def over_a_loop(A: Matrix, B: Matrix):
    carried = A @ B
    for _ in range(3):
        inner = carried @ A
        carried[:] = inner @ A
    after = carried @ B
    return after @ B


@dace.program
def product(A: Matrix, B: Matrix, C: Matrix):
    return np.einsum("ij,jk,kl->il", A, B, C)


def pieces(program: Any, ranks: int = 1, n: int = 128) -> dict[str, int]:
    """Return the number of the piece of memory by transient."""
    arrays = distribute(program, ranks, {"N": n}).sdfg.arrays.items()
    return {name: int(array.location[MEMORY_PIECE]) for name, array in arrays if MEMORY_PIECE in array.location}


def test_a_chain_needs_two_pieces_in_turn():
    found = pieces(chain)
    assert [found[name] for name in "CDEF"] == [0, 1, 0, 1]


def test_what_a_loop_reads_is_kept_all_through_it():
    found = pieces(in_a_loop)
    assert len({found["kept"], found["inner"], found["inner2"]}) == 3


def test_what_a_loop_makes_for_itself_is_free_after_it():
    found = pieces(over_a_loop)
    assert found["inner"] != found["carried"]
    assert found["after"] == found["inner"]


@pytest.mark.parametrize("ranks", [4, 8])
def test_what_is_exchanged_lies_in_node_shared_memory(ranks):
    sdfg = distribute(product, ranks, {"N": 512}).sdfg
    exchanged = {
        edge.data.data
        for state in sdfg.states()
        for node in state.nodes()
        if type(node).__name__ == "Redistribute"
        for edge in state.in_edges(node)
        if sdfg.arrays[edge.data.data].transient
    }
    assert exchanged
    assert all(NODE_SHARED in sdfg.arrays[name].location for name in exchanged)


def test_with_a_memory_limit_nothing_is_kept():
    sdfg = distribute(chain, 1, {"N": 128}, memory_bytes=1 << 30).sdfg
    transients = [array for array in sdfg.arrays.values() if array.transient]
    assert transients
    assert all(array.lifetime == dace.AllocationLifetime.Scope for array in transients)

"""DaCe's own tests of redistribution give the same answers under every strategy; one build serves all ranks."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from builds import built
from results import raise_anywhere

from dace_redist.strategies import STRATEGIES

pytestmark = [pytest.mark.compile, pytest.mark.dace]

RAGGED = "ragged"  # hangs stock DaCe


def sdfg_of(name: str) -> Any:
    """Return the program with one stock node per strategy, all but the first replaced; they fill B and B_<strategy>."""
    import dace
    from dace.libraries.comm.nodes.redistribute import Redistribute as StockRedistribute
    from redistribute_test_programs import PROGRAMS

    import dace_redist

    sdfg = PROGRAMS[name].to_sdfg()
    ((stock, state),) = ((n, s) for n, s in sdfg.all_nodes_recursive() if isinstance(n, StockRedistribute))
    for strategy in STRATEGIES:
        output = f"B_{strategy}"
        sdfg.add_datadesc(output, copy.deepcopy(sdfg.arrays["B"]))
        node = StockRedistribute(stock.name, stock.redistr)
        node.in_connectors = dict(stock.in_connectors)
        for edge in state.in_edges(stock):
            state.add_edge(edge.src, edge.src_conn, node, edge.dst_conn, copy.deepcopy(edge.data))
        memlet = dace.Memlet.from_array(output, sdfg.arrays[output])
        state.add_edge(node, "_out_buffer", state.add_write(output), None, memlet)
        dace_redist.set_strategy(sdfg, strategy, where=lambda n, _, node=node: n is node)
    if name == RAGGED:
        dace_redist.transformations.lower_all(sdfg)
    return sdfg


def block(whole: np.ndarray, grid: Sequence[int], rank: int, axes: Sequence[int] = (0, 1)) -> np.ndarray | None:
    """Return the block of a rank when axis i is split over grid axis ``axes[i]``; None outside the grid."""
    if rank >= math.prod(grid):
        return None
    at = np.unravel_index(rank, grid)
    sizes = [math.ceil(n / grid[axis]) for n, axis in zip(whole.shape, axes, strict=False)]
    return whole[tuple(slice(at[axis] * n, (at[axis] + 1) * n) for n, axis in zip(sizes, axes, strict=False))]


def matrices(rank: int, P: int) -> dict[str, tuple[np.ndarray | None, np.ndarray | None]]:
    """Input and expected output of this rank in the programs that move a matrix."""
    whole = np.arange(64 * P * P, dtype=np.int32).reshape(8 * P, 8 * P)
    first = block(whole, (2, P // 2), rank)
    return {
        "columns_to_rows_of_blocks": (first, block(whole, (P // 2, 2), rank)),
        "blocks_to_rows": (first, block(whole, (P, 1), rank)),
        "transposed_grid": (first, block(whole, (P // 2, 2), rank, axes=(1, 0))),
    }


def wrong(comm: Any, name: str, A: np.ndarray | None, expected: np.ndarray | None, like: np.ndarray, **symbols: int):
    """Run a program twice; return the strategies with wrong results. A rank outside (None) must get nothing."""
    program = built(comm, f"stock_{name}", lambda: sdfg_of(name))
    A = np.zeros(1, np.int32) if A is None else A.copy()  # DaCe takes no views
    found = []
    for _ in range(2):
        outputs = {name: like.copy() for name in ("B", *(f"B_{strategy}" for strategy in STRATEGIES))}
        program(A=A, **outputs, **symbols)
        for output, got in outputs.items():
            want = like if expected is None else expected
            if not np.array_equal(got, want):
                found.append(f"{name}, {output}, rank {comm.rank}: got {got.tolist()}, expected {want.tolist()}")
    return found


@pytest.mark.mpi(ranks=[3, 8], full=[2, 4, 7], timeout=90)
def test_stock_programs(comm):
    P = comm.size // 2 * 2
    outside = comm.rank >= P
    found = []
    for name, (A, expected) in matrices(0 if outside else comm.rank, P).items():
        ends = (None, None) if outside else (A, expected)
        found += wrong(comm, name, *ends, like=np.full_like(expected, -1), P=P)
    whole = np.arange(8 * P, dtype=np.int32)
    row, column = divmod(comm.rank, 2)
    ends = (None, None) if outside else (whole, whole[16 * row : 16 * row + 16] if column == 0 else None)
    found += wrong(comm, "scattered_vector", *ends, like=np.zeros(16, np.int32), P=P)
    raise_anywhere(comm, found)


@pytest.mark.mpi(ranks=[3, 7], full=[4], timeout=120)
def test_sizes_that_do_not_divide(comm):
    """Stock DaCe hangs on 10 elements from 2 to 4 blocks: it waits for a rank that does not exist."""
    found = []
    for N, F, G in [(10, 2, min(4, comm.size)), (10, comm.size, 2), (7, 3, comm.size), (5, comm.size, 1)]:
        whole, sizes = np.arange(N, dtype=np.int32), {"S": math.ceil(N / F), "T": math.ceil(N / G)}
        A, expected = (padded(block(whole, (p,), comm.rank), n) for p, n in zip((F, G), sizes.values(), strict=True))
        found += wrong(comm, RAGGED, A, expected, like=padded(None, sizes["T"]), N=N, F=F, G=G, **sizes)
    raise_anywhere(comm, found)


def padded(part: np.ndarray | None, size: int) -> np.ndarray:
    part = np.zeros(0, np.int32) if part is None else part
    return np.concatenate([part, np.full(size - part.size, -1, np.int32)])

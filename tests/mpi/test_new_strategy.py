"""A new strategy takes one C++ source file, one expansion and one entry in the table, here outside of the package."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from extra_libraries import compiled_by_one

from dace_redist import Distribution, TiledDistribution, redistribute, schedule

SHAPE = (7, 10)

pytestmark = pytest.mark.compile


def declare_toy(comm: Any) -> None:
    """Loads and declares the strategy on every rank. Collective."""
    os.environ["TOY_LIBRARY"] = str(compiled_by_one(comm, "toy_strategy"))
    import toy_strategy  # noqa: F401 (declares itself)


def distributions(ranks: int) -> list[Any]:
    """Rows, columns, block-cyclic, replicas, and tiles with an owner each."""
    return [
        Distribution(SHAPE, (ranks, 1)),
        Distribution(SHAPE, (1, ranks)),
        Distribution(SHAPE, (ranks,), block=[2, None]),
        Distribution(SHAPE, (ranks,), dims=[None, None]),
        TiledDistribution(SHAPE, (3, 4), np.arange(9).reshape(3, 3) * 3 % ranks),
    ]


@pytest.mark.dace
@pytest.mark.mpi(ranks=[2, 4], timeout=240)
def test_redistribute_by_a_new_strategy(comm):
    declare_toy(comm)
    whole = np.arange(70.0).reshape(SHAPE)
    for source in distributions(comm.size):
        for target in distributions(comm.size):
            found = redistribute(source.local(whole, comm.rank), source, target, comm=comm, strategy="Toy")
            np.testing.assert_array_equal(found, target.local(whole, comm.rank), f"{source} to {target}")


@pytest.mark.dace
@pytest.mark.mpi(ranks=[2, 4], timeout=240)
def test_the_table_knows_a_new_strategy(comm):
    declare_toy(comm)
    rows, columns, *_ = distributions(comm.size)
    with pytest.raises(ValueError, match="Toy does not take option 'depth'; it takes max_message_bytes"):
        redistribute(rows.local(np.zeros(SHAPE), comm.rank), rows, columns, comm=comm, strategy="Toy", depth=2)
    moved = schedule(rows, columns)
    sent, received = moved.totals.sent, moved.totals.received
    assert f", Toy {int(max(sent + received)) * 8} B" in str(moved)


def toy_sdfg(ranks: int) -> Any:
    """Rows to columns with strategy Toy, and from there back to rows with the default."""
    import dace
    from sdfgs import add_move

    from dace_redist import Redistribute

    rows, columns, *_ = distributions(ranks)
    sdfg = dace.SDFG(f"toy_{ranks}")
    for name, distribution in (("A", rows), ("B", columns), ("C", rows)):
        sdfg.add_array(name, distribution.local_shape(0), dace.float64)
    there = Redistribute("there", rows, columns, "Toy")
    assert there.strategy == "Toy"
    add_move(sdfg.add_state("there", is_start_block=True), there, "A", "B")
    add_move(sdfg.add_state_after(sdfg.start_block, "back"), Redistribute("back", columns, rows), "B", "C")
    return sdfg


@pytest.mark.dace
@pytest.mark.mpi(ranks=[2, 4], timeout=240)
def test_a_node_expanded_to_a_new_strategy(comm):
    from builds import built

    declare_toy(comm)
    program, whole = built(comm, f"toy_{comm.size}", lambda: toy_sdfg(comm.size)), np.arange(70.0).reshape(SHAPE)
    rows, columns, *_ = distributions(comm.size)
    given = {name: np.full(side.local_shape(0), -1.0) for name, side in (("A", rows), ("B", columns), ("C", rows))}

    def part(name: str, distribution: Distribution) -> np.ndarray:
        return given[name][tuple(map(slice, distribution.local_shape(comm.rank)))]

    part("A", rows)[:] = rows.local(whole, comm.rank)
    program(**given)
    np.testing.assert_array_equal(part("B", columns), columns.local(whole, comm.rank))
    np.testing.assert_array_equal(part("C", rows), rows.local(whole, comm.rank))

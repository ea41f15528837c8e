"""``measure`` on several ranks: one answer for all, whatever a method does."""

from __future__ import annotations

import pytest

from dace_redist.measuring.measure import measure
from dace_redist.mpi.topology import topology_of


class Clock:
    """A clock that goes on only while a method works."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float):
        def method() -> None:
            self.now += seconds

        return method


@pytest.mark.mpi(ranks=[3], full=[1])
def test_all_ranks_get_the_same_figures_and_turns(comm):
    turns, seen, clock = [], [], Clock()

    def method(name, seconds):
        def run():
            turns.append(name)
            clock.now += seconds

        return run

    methods = {name: method(name, seconds) for name, seconds in (("a", 0.002), ("b", 0.004), ("hopeless", 0.05))}
    figures = measure(
        methods,
        comm,
        warmup=1,
        least=7,
        most=8,
        precision=1e-9,
        drop_slower_than=4,
        progress=seen.append,
        clock=clock,
    )
    assert comm.allgather(figures) == [figures] * comm.size
    assert comm.allgather(turns) == [turns] * comm.size
    assert list(figures) == list(methods)
    assert [len(figure.seconds) for figure in figures.values()] == [7, 7, 3]
    assert turns[:3] == ["a", "b", "hopeless"]  # the warm-up
    orders = {tuple(turns[3 + 3 * r : 6 + 3 * r]) for r in range(3)} | {
        tuple(turns[12 + 2 * r : 14 + 2 * r]) for r in range(4)
    }
    assert len(orders) > 2
    assert seen == ([] if comm.rank else turns[3:])
    assert figures["a"].median == pytest.approx(0.002) and figures["hopeless"].median == pytest.approx(0.05)


@pytest.mark.mpi(ranks=2)
def test_a_repetition_lasts_from_the_first_start_to_the_last_end(comm):
    assert topology_of(comm).node_count == 1
    clock = Clock()
    clock.now = 1.0 * comm.rank  # rank 1 starts a second later
    late = measure({"m": clock.work(0.25)}, comm, warmup=0, least=1, most=1, clock=clock)
    assert late["m"].median == pytest.approx(1.25)


@pytest.mark.mpi(ranks=2)
def test_a_failure_on_one_rank_is_an_error_on_all(comm):
    def fails():
        if comm.rank == 1:
            raise OSError("no more of it")

    with pytest.raises(RuntimeError, match=r"'bad' failed on rank 1: OSError: no more of it"):
        measure({"good": Clock().work(0), "bad": fails}, comm)
    assert comm.allreduce(1) == 2


@pytest.mark.mpi(ranks=2)
def test_ranks_that_differ_are_told(comm):
    with pytest.raises(ValueError, match=r"the ranks differ in the methods: \['m0'\] on rank 0 and \['m1'\] on rank 1"):
        measure({f"m{comm.rank}": Clock().work(0)}, comm)
    ranges = "measure: need most >= least >= 1, got least=0, most=200"
    with pytest.raises(ValueError, match=ranges):
        measure({"m": Clock().work(0)}, comm, least=1 - comm.rank)
    with pytest.raises(ValueError, match="drop_slower_than must be at least 1"):
        measure({"m": Clock().work(0)}, comm, drop_slower_than=0.5)

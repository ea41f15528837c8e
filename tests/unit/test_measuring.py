"""The statistics of ``measure`` and what it decides; no MPI."""

from __future__ import annotations

import random
from contextlib import nullcontext
from math import comb

import pytest

from dace_redist.timing.measure import Figure, _Judge


@pytest.mark.parametrize("count", [6, 7, 20, 101])
def test_interval_is_the_narrowest_pair_of_order_statistics_that_is_certain_enough(count):
    seconds = random.Random(count).sample(range(1, 1000), count)
    figure = Figure.of(seconds)
    ordered = sorted(seconds)
    low, high = ordered.index(figure.low), ordered.index(figure.high)
    assert low == count - 1 - high

    def certainty(below):  # that the true median is between ordered[below] and its mirror image
        return 1 - 2 * sum(comb(count, k) for k in range(below + 1)) / 2**count

    assert certainty(low) >= 0.95 > certainty(low + 1)
    assert figure.low <= figure.median <= figure.high
    assert figure.seconds == tuple(seconds)


def test_few_repetitions_have_their_range():
    assert Figure.of([3.0, 1.0, 2.0]) == Figure((3.0, 1.0, 2.0), 2.0, 1.0, 3.0)
    assert Figure.of([2.0]) == Figure((2.0,), 2.0, 2.0, 2.0)


def test_uncertainty_is_the_longer_half_of_the_interval():
    assert Figure((), 2.0, 1.9, 2.5).uncertainty == pytest.approx(0.25)
    assert Figure((), 2.0, 1.0, 2.1).uncertainty == pytest.approx(0.5)


def judge(**changed):
    numbers = {"precision": 0.05, "least": 7, "most": 200, "limit_seconds": 60.0, "drop_slower_than": None}
    return _Judge(["fast", "slow"], **(numbers | changed))


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({"least": 1, "most": 1}, ""),
        ({"least": 0}, "most >= least >= 1, got least=0"),
        ({"least": 201}, "most >= least >= 1, got least=201"),
        ({"precision": 0.0}, "precision > 0"),
        ({"limit_seconds": 0.0}, "limit_seconds > 0"),
        ({"drop_slower_than": 1.0}, ""),
        ({"drop_slower_than": 0.9}, "drop_slower_than must be at least 1 or None, got 0.9"),
    ],
)
def test_numbers_that_are_too_small(changed, refused):
    with pytest.raises(ValueError, match=refused) if refused else nullcontext():
        judge(**changed)


def final(referee):
    """Return the figures of all methods."""
    return {name: Figure.of(seconds) for name, seconds in referee.seconds.items()}


def rounds(referee, seconds, limit=1000):
    """Rounds until it is decided to stop, with times that ``seconds`` makes of a name; what ran in each round."""
    active, ran = ["fast", "slow"], []
    while active and len(ran) < limit:
        for name in active:
            referee.seconds[name].append(seconds(name))
        ran.append(active)
        active = referee.decide(active)
    return ran


def test_steady_times_stop_at_the_least_number_of_rounds():
    assert len(rounds(judge(), lambda name: 1.0)) == 7


def test_noisy_times_go_on_until_the_interval_is_narrow():
    noise = random.Random(1)
    referee = judge(most=10_000)
    count = len(rounds(referee, lambda name: noise.uniform(0.5, 1.5), limit=10_000))
    assert 20 < count < 10_000
    assert all(figure.uncertainty <= 0.05 for figure in final(referee).values())
    assert {len(figure.seconds) for figure in final(referee).values()} == {count}


def test_limit_of_time():
    clock = iter(range(0, 1000, 10))
    referee = judge(limit_seconds=25, clock=lambda: next(clock))
    assert len(rounds(referee, lambda name: 1.0)) == 3
    assert final(referee)["fast"].median == 1.0


def test_a_hopeless_method_is_dropped_early_and_kept_in_the_answer():
    referee = judge(drop_slower_than=3.0)
    ran = rounds(referee, lambda name: 3.5 if name == "slow" else 1.0)
    assert ran == [["fast", "slow"]] * 3 + [["fast"]] * 4
    figures = final(referee)
    assert list(figures) == ["fast", "slow"]
    assert figures["slow"] == Figure((3.5,) * 3, 3.5, 3.5, 3.5)


def test_a_method_apart_is_neither_dropped_nor_the_best():
    for apart, counts in ((["fast"], [7, 7]), (["slow"], [7, 7]), ([], [7, 3])):
        referee = judge(drop_slower_than=3.0, apart=apart)
        rounds(referee, lambda name: 3.5 if name == "slow" else 1.0)
        assert [len(figure.seconds) for figure in final(referee).values()] == counts

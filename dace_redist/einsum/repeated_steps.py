"""Repeated groups of a plan, which a picture draws once. Start reading at: folded."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dace_redist.einsum.plan import EinsumPlan

#: Minimum number of groups that folding a sequence must leave out.
LEAST_LEFT_OUT = 3


def folded(plan: EinsumPlan) -> list[tuple[range, int]]:
    """
    Return the groups in order, with consecutive repetitions of a sequence folded into one.

    Groups are equal if their computation, shapes, grids and traffic are equal; the names of their tensors do not
    matter.

    :param plan: The plan.
    :return: Numbers of groups, and the number of repetitions; of a repeated sequence the last occurrence.
    """
    steps = [_facts(plan, number) for number in range(len(plan.groups))]
    found: list[tuple[range, int]] = []
    first = 0
    while first < len(steps):
        length, times = _longest(steps, first)
        end = first + length * times
        found.append((range(end - length, end), times))
        first = end
    return found


def _longest(steps: Sequence[Hashable], first: int) -> tuple[int, int]:
    """Return length and count of the repetition from a step on that leaves out most; (1, 1) without one."""
    best = (1, 1)
    for length in range(1, (len(steps) - first) // 2 + 1):
        times = 1
        while steps[first : first + length] == steps[first + times * length : first + (times + 1) * length]:
            times += 1
        left_out = length * (times - 1)
        if left_out >= LEAST_LEFT_OUT and left_out > best[0] * (best[1] - 1):
            best = (length, times)
    return best


def _facts(plan: EinsumPlan, number: int) -> Hashable:
    group, cost = plan.groups[number], plan.costs[number]
    shapes = tuple(plan.sizes[name] for name in (*group.operands, group.result))
    moved = tuple(move.bytes_per_rank for move in plan.moves if move.group == number)
    computed = (group.einsum, group.elementwise, group.solves, group.grid, group.replicas, group.reduction)
    return (*computed, shapes, moved, cost.fetched, plan.repeats(number), group.result in plan.outputs)

"""Which groups of a plan repeat those before them, so that a picture need not draw them. Start reading at: folded."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dace_redist.einsum.plan import EinsumPlan

#: Sequences are folded if that leaves out at least so many groups.
LEAST_LEFT_OUT = 3


def folded(plan: EinsumPlan) -> list[tuple[range, int]]:
    """
    The groups in order, with sequences that are repeated one after another only once.

    Groups are the same if they compute the same with the same shapes and grids, and move as much; which tensors they
    read and write does not count.

    :param plan: The plan.
    :return: Numbers of groups, and how often they run in a row: of a repeated sequence these are its last groups.
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
    """Length and number of the repeated sequences from a step on that leave out most; (1, 1) if it is not repeated."""
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

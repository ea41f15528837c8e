"""
Choice of what each rank computes as a whole, because exchanges would take longer than they save. Start: choose.

Rates and times are assumed, not measured: two plans are compared, and the predicted times of both err alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dace.sdfg.state import LoopRegion

from dace_redist.einsum.placement import Placement, is_everywhere
from dace_redist.einsum.plan import EinsumPlan
from dace_redist.einsum.program import Group
from dace_redist.einsum.rates import (
    BYTES_PER_SECOND,
    CACHE_BYTES_PER_SECOND,
    FLOPS_PER_SECOND,
    MEMORY_BYTES_PER_SECOND,
)
from dace_redist.einsum.statement import Loop, repeats_in
from dace_redist.integers import environment_seconds
from dace_redist.report.units import count
from dace_redist.transformations.distribute.ir import Block, Body, Move, Operation, Slice, operations

#: Environment variable: seconds of a collective step of small messages.
VARIABLE = "DACE_REDIST_EXCHANGE_SECONDS"
#: Its default: two ranks of a node take 3 to 6 us from call to call.
DEFAULT_SECONDS = 5e-6
#: Bytes of the second-level cache.
CACHE_BYTES = 1 << 20
#: Maximum bytes of the tensors that each rank holds as a whole.
MAX_BYTES = 128 << 20
#: Share of exchanges in the predicted time below which they are not looked at.
NEGLIGIBLE = 0.1
#: Factor by which a plan must be faster to be chosen instead of one with fewer exchanges.
FASTER = 1.1
#: Maximum number of plans that are compared.
MAX_PLANS = 10

#: Numbers of the operations that each rank computes as a whole.
Whole: TypeAlias = frozenset[int]


@dataclass(frozen=True)
class Prediction:
    """
    Predicted time of a plan.

    :param exchanges: Number of exchanges in a run, each a collective step of all ranks.
    :param exchanged: Seconds of exchanges, without their bytes.
    """

    seconds: float
    exchanges: int
    exchanged: float


def exchange_seconds() -> float:
    """Return the assumed time of an exchange; 0 if each statement is distributed."""
    return environment_seconds(VARIABLE, DEFAULT_SECONDS)


def predicted(plan: EinsumPlan, body: Body, shapes: Mapping[str, tuple[int, ...]]) -> Prediction:
    """Return the predicted time of a run, of inputs in their homes."""
    steps = list(_steps(plan, body, shapes))
    exchanges = sum(repeats for repeats, exchanges, _ in steps if exchanges)
    exchanged = exchanges * exchange_seconds() * max(math.log2(plan.ranks), 1)
    return Prediction(exchanged + sum(repeats * seconds for repeats, _, seconds in steps), exchanges, exchanged)


def _steps(plan: EinsumPlan, body: Body, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[int, bool, float]]:
    """Yield for each step how often it runs, whether it is an exchange, and its seconds without the exchange itself."""
    moves = {number for number, operation in enumerate(operations(body)) if isinstance(operation, Move)}
    for number, group in enumerate(plan.groups):
        if group.statement not in moves:
            yield plan.repeats(number), False, _seconds_of(group, plan.itemsize)
            if group.reduction is not None:
                yield plan.repeats(number), True, plan.costs[number].reduced / BYTES_PER_SECOND
    for move in plan.moves:
        yield move.repeats, move.bytes_total > 0, move.bytes_per_rank / BYTES_PER_SECOND
    last, changed = None, set[str]()  # loops of the last exchange of boxes, and tensors written since: see joined.py
    for operation in operations(body):
        if isinstance(operation, Move):
            nbytes, loops = _moved(operation, plan, shapes) * plan.itemsize, _loops(operation)
            joined = bool(loops) and loops == last and operation.source not in changed
            yield repeats_in(_loops(operation)), nbytes > 0 and not joined, nbytes / BYTES_PER_SECOND
            if nbytes > 0 and not joined:
                last, changed = loops, set()
        changed.add(operation.result)


def _moved(move: Move, plan: EinsumPlan, shapes: Mapping[str, tuple[int, ...]]) -> float:
    """Return the elements that a move of a box, or a reshape, exchanges."""
    if is_everywhere(plan.homes[move.source], plan.ranks):
        both = isinstance(move, Slice) and move.written and not is_everywhere(plan.homes[move.result], plan.ranks)
        return math.prod(shapes[move.source]) if both else 0
    if not isinstance(move, Slice):
        return math.prod(shapes[move.source])
    whole, part, extents = plan.homes[move.whole], plan.homes[move.part], move.extents(shapes)
    assert isinstance(whole, Placement) and isinstance(part, Placement)
    alike = part.parts == tuple(whole.parts[axis] for axis in move.box.kept) and whole.ranks == part.ranks
    spans = (
        n / max(extent, 1)
        for n, extent, split in zip(extents, shapes[move.whole], whole.parts, strict=True)
        if split > 1
    )
    return math.prod(extents) * (1 - math.prod(spans) if alike else 1)


def _loops(operation: Operation) -> tuple[Loop, ...]:
    return tuple(operation.place["loops"])


def _seconds_of(group: Group, itemsize: int) -> float:
    """Return the time of a group on the busiest rank, from its operations or from its bytes."""
    blocks = group.blocks
    terms = (*group.einsum.operands, group.einsum.result)
    nbytes = sum(math.prod(blocks[index] for index in term) for term in terms) * itemsize
    rate = CACHE_BYTES_PER_SECOND if nbytes <= CACHE_BYTES else MEMORY_BYTES_PER_SECOND
    return max(group.flops / FLOPS_PER_SECOND, nbytes / rate)


def choose(
    body: Body,
    shapes: Mapping[str, tuple[int, ...]],
    made: Callable[[Whole], EinsumPlan],
    free: bool = True,
) -> EinsumPlan:
    """
    Return the plan with the least predicted time: of a distributed program, or one whose loops run on each rank alone.

    :param made: Makes the plan in which each rank computes some operations as a whole.
    :param free: False if each statement must be distributed.
    :raises MemoryError: If not even the distributed program fits the memory.
    """
    plan = made(frozenset())
    if not free or plan.ranks == 1 or not exchange_seconds():
        return plan
    search = _Search(body, shapes, made, plan, predicted(plan, body, shapes))
    if search.cost.exchanged > NEGLIGIBLE * search.cost.seconds:
        search.try_all()
        if search.cost.seconds > FASTER * search.least:
            search.try_blocks(body)
    return search.plan


class _Search:
    """The best plan so far."""

    def __init__(
        self,
        body: Body,
        shapes: Mapping[str, tuple[int, ...]],
        made: Callable[[Whole], EinsumPlan],
        plan: EinsumPlan,
        cost: Prediction,
    ) -> None:
        self._facts, self._made, self.plan, self.cost = (body, shapes), made, plan, cost
        self._numbers = {id(operation): number for number, operation in enumerate(operations(body))}
        self._whole: Whole = frozenset()  # with the blocks chosen so far
        self._blocks_cost = self._distributed = cost
        self.least = cost.seconds - cost.exchanged
        self._left = MAX_PLANS

    def _tried(self, added: Sequence[Operation]) -> tuple[Whole, EinsumPlan, Prediction] | None:
        """Return a plan in which further operations are computed as a whole; None if that takes too much memory."""
        _, shapes = self._facts
        whole = self._whole | {self._numbers[id(operation)] for operation in added}
        names = {
            name
            for operation in operations(self._facts[0])
            if self._numbers[id(operation)] in whole
            for name in operation.names
        }
        if self._left == 0 or sum(math.prod(shapes[name]) for name in names) * self.plan.itemsize > MAX_BYTES:
            return None
        self._left -= 1
        try:
            plan = self._made(whole)
        except MemoryError:
            return None
        return whole, plan, predicted(plan, *self._facts)

    def try_all(self) -> None:
        """Compare with a program that each rank runs alone."""
        tried = self._tried(list(operations(self._facts[0])))
        if tried is not None and tried[2].seconds < FASTER * self.cost.seconds:
            self._take(tried[1], tried[2], "the program")

    def try_blocks(self, body: Body) -> None:
        """Compare with programs of which each rank runs some loops alone: outer loops first, then those in them."""
        for block in body:
            if not isinstance(block, Block):
                continue
            inside = list(operations([block]))
            tried = self._tried(inside) if inside else None
            if tried is not None and tried[2].seconds * FASTER < self._blocks_cost.seconds:
                self._whole, plan, self._blocks_cost = tried
                if self._blocks_cost.seconds * FASTER < self.cost.seconds:
                    label = inside[0].label
                    kind = "the loop" if isinstance(block.region, LoopRegion) else "the branch"
                    self._take(plan, self._blocks_cost, f"{kind} of {label}")
            else:
                for inner in block.bodies:
                    self.try_blocks(inner)

    def _take(self, plan: EinsumPlan, cost: Prediction, what: str) -> None:
        saved = count(self._distributed.exchanges - cost.exchanges, "exchange")
        self.plan, self.cost = replace(plan, remark=f"{what}: {saved} in a run would take longer"), cost

"""Placements of tensors through a program, the moves between them, and their costs. Start reading at: planned."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from functools import cached_property

from dace_redist.einsum.groupings import EinsumStep
from dace_redist.einsum.nodes import bytes_between_nodes
from dace_redist.einsum.placement import Home, busiest, busiest_of_sum, traffic
from dace_redist.einsum.plan import EinsumPlan
from dace_redist.einsum.problem import EinsumProblem
from dace_redist.einsum.program import Group, GroupCost, Move
from dace_redist.einsum.statement import Statement
from dace_redist.relabelling import MAX_REPORTED_RANKS

#: Group and number of the operand (None: the result) at which a tensor has a placement; group None: the user's.
End = tuple[int | None, int | None]


@dataclasses.dataclass(frozen=True)
class EinsumProgram:
    """Groups of a program in execution order, with readers and writers of each tensor."""

    problem: EinsumProblem
    steps: tuple[EinsumStep, ...]

    @cached_property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor."""
        return self.problem.sizes | {step.result: step.shape for step in self.steps}

    def statement(self, step: int) -> Statement:
        """Return the statement of a group."""
        return self.problem.statements[self.steps[step].statement]

    @cached_property
    def writers(self) -> dict[str, list[int]]:
        """Groups that write each tensor."""
        found: dict[str, list[int]] = {name: [] for step in self.steps for name in (*step.operands, step.result)}
        for number, step in enumerate(self.steps):
            found[step.result].append(number)
        return found

    @cached_property
    def readers(self) -> dict[str, list[tuple[int, int]]]:
        """Groups that read each tensor, with the number of the operand."""
        found: dict[str, list[tuple[int, int]]] = {name: [] for name in self.writers}
        for number, step in enumerate(self.steps):
            for operand, name in enumerate(step.operands):
                found[name].append((number, operand))
        return found

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Tensors read before they are written, in the order of their first reads."""
        first = {name: min(writers, default=len(self.steps)) for name, writers in self.writers.items()}
        return tuple(name for name, reads in self.readers.items() if reads and reads[0][0] <= first[name])

    def owner(self, tensor: str) -> End:
        """Return the end that determines the home of a tensor: its first writer, else its first reader."""
        if tensor in self.problem.homes:
            return None, None
        writers = self.writers[tensor]
        return (writers[0], None) if writers else self.readers[tensor][0]

    def placement(self, end: End, tensor: str, groups: Mapping[int, Group]) -> Home:
        """Return the placement of a tensor at an end, given the groups by number."""
        number, operand = end
        if number is None:
            return self.problem.homes[tensor]
        return groups[number].result_placement if operand is None else groups[number].operand_placements[operand]

    @cached_property
    def lifetimes(self) -> dict[str, tuple[int, int]]:
        """First and last group at which each tensor is live."""
        return {name: self._lifetime(name) for name in self.writers}

    def _lifetime(self, tensor: str) -> tuple[int, int]:
        writers = self.writers[tensor]
        last = max([n for n, _ in self.readers[tensor]] + writers)
        if tensor in self.problem.wanted or tensor in self.inputs:
            return 0, len(self.steps)
        for loop in self.statement(last).loops:  # a loop may read it again
            last = max(last, max(n for n in range(len(self.steps)) if loop in self.statement(n).loops))
        return writers[0], last

    def bytes_there(self, step: int) -> int:
        """Return the bytes, on all ranks together, of all tensors that are live while a group runs."""
        there = [name for name, (first, last) in self.lifetimes.items() if first <= step <= last]
        return sum(math.prod(self.sizes[name]) for name in there) * self.problem.itemsize


def planned(program: EinsumProgram, groups: Sequence[Group], node_size: int | None = None) -> EinsumPlan:
    """
    Return the plan of a program: placements of its tensors, the moves between them, and their costs.

    A tensor has one home: its placement after each write. If a group needs another placement, the tensor is moved
    there from its home or from an earlier copy, whichever costs least. The copy is kept until the next write. Partial
    results are reduced at the home in one step unless a reduction on ranks that have some, and then a move, send or
    receive less on the busiest ranks. The home of a sum with one use is where it is used.
    """
    flow, problem = _Dataflow(program, groups), program.problem
    plan = EinsumPlan(
        problem.statements,
        program.sizes,
        problem.itemsize,
        problem.ranks,
        tuple(flow.groups),
        tuple(flow.moves),
        flow.homes,
        program.inputs,
        problem.wanted,
        tuple(map(flow.cost, range(len(groups)))),
        node_size,
        given=frozenset(problem.homes),
    )
    if node_size is None:
        return plan
    between = bytes_between_nodes(plan, node_size)
    return dataclasses.replace(plan, internode_bytes=(between, between))


class _Dataflow:
    def __init__(self, program: EinsumProgram, groups: Sequence[Group]) -> None:
        self.program, self.groups = program, list(groups)
        names, by_number = program.writers, dict(enumerate(groups))
        self.homes = {name: program.placement(program.owner(name), name, by_number) for name in names}
        self.homes |= {name: home for name in names if (home := self._only_use(name)) is not None}
        self.moves: list[Move] = []
        #: Moves that made copies of each tensor since its last write, and the last reader of every copy, by number.
        self._copies: dict[str, list[int]] = {name: [] for name in names}
        self._last_use: dict[int, int] = {}
        for number, group in enumerate(groups):
            for operand in range(len(group.operands)):
                self._read(number, operand)
            self._write(number)

    def _only_use(self, name: str) -> Home | None:
        """Return where the only use of a sum needs it, if it is reduced there in one step; else None."""
        program, readers, writers = self.program, self.program.readers[name], self.program.writers[name]
        if name in program.problem.homes or name in program.problem.wanted or len(readers) != 1 or len(writers) != 1:
            return None
        ((reader, operand),), (writer,) = readers, writers
        if reader <= writer or program.statement(reader).loops != program.statement(writer).loops:
            return None
        wanted = self.groups[reader].operand_placements[operand]
        return wanted if self._sums_directly(self.groups[writer], wanted) else None

    def _sums_directly(self, group: Group, target: Home) -> bool:
        """Return True if a reduction in one step moves no more than one on ranks that have parts, and a move."""
        if group.reduction is None or len(group.ranks) > MAX_REPORTED_RANKS:
            return False
        beside = group.least_placement
        apart = self._summed(group, beside) + busiest(beside, target, self.program.sizes[group.result])
        return self._summed(group, target) <= apart

    def _summed(self, group: Group, target: Home) -> int:
        """Return the elements that the busiest rank sends or receives in a reduction."""
        return busiest_of_sum(group.partial_placement, target, self.program.sizes[group.result], self._itemsize)

    @property
    def _itemsize(self) -> int:
        return self.program.problem.itemsize

    def _read(self, number: int, operand: int) -> None:
        name = self.groups[number].operands[operand]
        wanted, shape = self.groups[number].operand_placements[operand], self.program.sizes[name]
        if self.homes[name].is_equivalent_to(wanted, shape):
            return
        usable = [copy for copy in self._copies[name] if self._is_current(self.moves[copy], number)]
        for copy in usable:
            if self.moves[copy].target.is_equivalent_to(wanted, shape):
                self._last_use[copy] = number
                return
        sources = [self.homes[name], *(self.moves[copy].target for copy in usable)]
        source = min(sources, key=lambda source: busiest(source, wanted, shape))
        self._copies[name].append(len(self.moves))
        self._last_use[len(self.moves)] = number
        self._move(number, number, name, source, wanted)

    def _is_current(self, copy: Move, reader: int) -> bool:
        """True if an earlier copy is up to date: no loop entered since then writes the tensor."""
        made, now = (self.program.statement(group).loops for group in (copy.group, reader))
        writers = map(self.program.statement, self.program.writers[copy.tensor])
        written = {loop for writer in writers for loop in writer.loops}
        return now[: len(made)] == made and not written.intersection(now[len(made) :])

    def _write(self, number: int) -> None:
        group = self.groups[number]
        name, made = group.result, group.result_placement
        self._copies[name] = []
        if made.is_equivalent_to(self.homes[name], self.program.sizes[name]):
            return
        if self._sums_directly(group, self.homes[name]):
            self.groups[number] = dataclasses.replace(group, sums_at=self.homes[name])
        else:
            self._move(number + 1, number, name, made, self.homes[name])

    def _move(self, before: int, group: int, name: str, source: Home, target: Home) -> None:
        sent, received, _ = traffic(source, target, self.program.sizes[name])
        nbytes = (int(elements) * self._itemsize for elements in (sent.max(), received.max(), received.sum()))
        self.moves.append(Move(before, group, name, source, target, *nbytes))

    def cost(self, number: int) -> GroupCost:
        """Return the cost of a group."""
        group = self.groups[number]
        fetched = 0.0
        for operand, name in enumerate(group.operands):
            if self.program.owner(name) == (number, operand):
                wanted = group.operand_placements[operand]
                fetched += self._bytes(name, wanted) * (wanted.replicas - 1) / wanted.replicas
        reduced = 0.0
        if group.sums_at is not None:
            reduced = float(self._summed(group, group.sums_at) * self._itemsize)
        elif group.reduction is not None:
            reduced = self._bytes(group.result, group.partial_placement) * group.reduction.sent_share
        return GroupCost(fetched, reduced, self._memory(number))

    def _bytes(self, name: str, placement: Home) -> int:
        return placement.block_bytes(self.program.sizes[name], self._itemsize)

    def _memory(self, number: int) -> int:
        """Return the bytes of a rank while a group runs: homes, copies, the partial and the reduced result."""
        total = 0
        for name, home in self.homes.items():
            first, last = self.program.lifetimes[name]
            if first <= number <= last:
                total += self._bytes(name, home)
        for copy, last in self._last_use.items():
            if self.moves[copy].group <= number <= last:
                total += self._bytes(self.moves[copy].tensor, self.moves[copy].target)
        group = self.groups[number]
        moved = any(move.before_group == number + 1 and move.tensor == group.result for move in self.moves)
        total += self._bytes(group.result, group.partial_placement) if group.reduction else 0
        return total + (self._bytes(group.result, group.result_placement) if moved else 0)

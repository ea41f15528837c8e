"""Placements of tensors through a program, the moves between them, and their costs. Start reading at: planned."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from dace_redist.einsum.groupings import EinsumStep
from dace_redist.einsum.nodes import bytes_between_nodes
from dace_redist.einsum.placement import Home, busiest, busiest_of_sum, traffic
from dace_redist.einsum.plan import EinsumPlan
from dace_redist.einsum.problem import EinsumProblem
from dace_redist.einsum.program import Group, GroupCost, Move
from dace_redist.einsum.statement import Loop, Statement, repeats_in
from dace_redist.relabelling import MAX_REPORTED_RANKS

#: Group and number of the operand (None: the result) at which a tensor has a placement; group None: the user's.
End = tuple[int | None, int | None]


def operands_read(statement: Statement, step: EinsumStep) -> tuple[str, ...]:
    """Return the operands that a step reads: the first ones."""
    return step.operands[: len(statement.read)] if statement.elementwise else step.operands


def written_in(statements: Sequence[Statement], steps: Sequence[EinsumStep]) -> dict[str, set[Loop]]:
    """Return the loops in which each tensor is written."""
    found: dict[str, set[Loop]] = {name: set() for step in steps for name in (*step.operands, step.result)}
    for step in steps:
        found[step.result].update(statements[step.statement].loops)
    return found


def depth_of_move(loops: Sequence[Loop], written: Collection[Loop]) -> int:
    """
    Return in how many of the loops around its reader a tensor is moved: it leaves those in which nothing writes it.

    A move does not leave one of several branches, only all of them.

    :param written: Loops in which the tensor is written.
    """
    depth = max((number for number, loop in enumerate(loops, 1) if loop in written), default=0)
    return depth + (depth < len(loops) and loops[depth].is_branch)


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
        found |= {name: [] for statement in self.problem.statements for name in statement.at_home if name not in found}
        for number, step in enumerate(self.steps):
            found[step.result].append(number)
        return found

    @cached_property
    def readers(self) -> dict[str, list[tuple[int, int]]]:
        """Groups that read each tensor, with the number of the operand."""
        found: dict[str, list[tuple[int, int]]] = {name: [] for name in self.writers}
        for number, step in enumerate(self.steps):
            for operand, name in enumerate(operands_read(self.statement(number), step)):
                found[name].append((number, operand))
        return found

    def repeats_of_move(self, step: int, operand: str) -> int:
        """Return how often an operand of a group is moved, if it has to be."""
        loops = self.statement(step).loops
        return repeats_in(loops[: depth_of_move(loops, self._written[operand])])

    @cached_property
    def _written(self) -> dict[str, set[Loop]]:
        return written_in(self.problem.statements, self.steps)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Tensors read before they are written."""
        first = {name: min(writers, default=len(self.steps)) for name, writers in self.writers.items()}
        return tuple(name for name, uses in self._uses.items() if min(uses, default=len(self.steps)) <= first[name])

    @cached_property
    def _uses(self) -> dict[str, list[int]]:
        """Groups that read each tensor, also at home."""
        found = {name: [number for number, _ in readers] for name, readers in self.readers.items()}
        for number in range(len(self.steps)):
            for name in self.statement(number).at_home:
                found[name].append(number)
        return found

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
        last = max(self._uses[tensor] + writers)
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
    there, see :class:`Moves`. Partial results are reduced at the home in one step unless a reduction on ranks that have
    some, and then a move, send or receive less on the busiest ranks. The home of a sum with one use is where it is
    used.
    """
    placed, problem = _Homes(program, groups), program.problem
    made = Moves(problem.statements, placed.groups, placed.homes, program.sizes, problem.itemsize)
    plan = EinsumPlan(
        problem.statements,
        program.sizes,
        problem.itemsize,
        problem.ranks,
        tuple(placed.groups),
        tuple(made.moves),
        placed.homes,
        program.inputs,
        problem.wanted,
        tuple(placed.cost(number, made.copies) for number in range(len(groups))),
        node_size,
        given=frozenset(problem.homes),
    )
    if node_size is None:
        return plan
    between = bytes_between_nodes(plan, node_size)
    return dataclasses.replace(plan, internode_bytes=(between, between))


@dataclasses.dataclass
class Copy:
    """
    Copy of a tensor away from its home.

    :param loops: Loops in which it is made.
    :param first: First group at which it is live; ``last``: the last one.
    """

    tensor: str
    placement: Home
    loops: tuple[Loop, ...]
    first: int
    last: int


class Moves:
    """
    Redistributions between groups on given grids, for given sizes.

    An operand is moved from its home or from an earlier copy, whichever costs least, before the outermost loop that
    does not write it. The copy is of use until the next write; one made before a loop that writes the tensor is out of
    date in its second iteration. A result is moved to its home at once.

    :param homes: Placement of each tensor at the start, or after each write.
    :param sizes: Shape of each tensor.
    :ivar moves: In the order of the program.
    :ivar copies: Those made by moves, and results before they are moved to their homes.
    """

    def __init__(
        self,
        statements: Sequence[Statement],
        groups: Sequence[Group],
        homes: Mapping[str, Home],
        sizes: Mapping[str, tuple[int, ...]],
        itemsize: int,
    ) -> None:
        self._statements, self._groups, self._homes = statements, groups, homes
        self._sizes, self._itemsize = sizes, itemsize
        self._written = written_in(statements, groups)
        self._within: dict[Loop, list[int]] = {}  # groups
        for number in range(len(groups)):
            for loop in self._loops(number):
                self._within.setdefault(loop, []).append(number)
        self._current: dict[str, list[Copy]] = {}  # since the last write
        self.moves: list[Move] = []
        self.copies: list[Copy] = []
        for number in range(len(groups)):
            self._enter(number)
            self._read(number, number, len(self._loops(number)))
            self._write(number)

    def _loops(self, number: int) -> tuple[Loop, ...]:
        return self._statements[self._groups[number].statement].loops

    def _enter(self, number: int) -> None:
        """Move what the loops that begin with a group do not write."""
        loops, before = self._loops(number), self._loops(number - 1) if number else ()
        entered = next((n for n, (a, b) in enumerate(zip(loops, before, strict=False)) if a != b), len(before))
        for depth in range(entered, len(loops)):
            for reader in self._within[loops[depth]]:
                self._read(reader, number, depth)

    def _read(self, reader: int, before: int, depth: int) -> None:
        """Move the operands of a group that are moved before another one, in so many loops."""
        group, loops = self._groups[reader], self._loops(reader)
        statement = self._statements[group.statement]
        for name, wanted in zip(operands_read(statement, group), group.operand_placements, strict=False):
            shape, home = self._sizes[name], self._homes[name]
            if depth != depth_of_move(loops, self._written[name]) or home.is_equivalent_to(wanted, shape):
                continue
            usable = [copy for copy in self._current.get(name, ()) if self._is_current(copy, loops)]
            there = next((copy for copy in usable if copy.placement.is_equivalent_to(wanted, shape)), None)
            if there is None:
                sources = [home, *(copy.placement for copy in usable)]
                source = min(sources, key=lambda source: busiest(source, wanted, shape))
                there = self._copy(name, wanted, loops[:depth], before)
                self._move(before, reader, name, source, wanted, loops[:depth])
            again = [max(self._within[loop]) for loop in loops[len(there.loops) :]]  # in the next iteration
            there.last = max(there.last, reader, *again)

    def _is_current(self, copy: Copy, loops: tuple[Loop, ...]) -> bool:
        inside = loops[len(copy.loops) :]
        return loops[: len(copy.loops)] == copy.loops and self._written[copy.tensor].isdisjoint(inside)

    def _write(self, number: int) -> None:
        group, loops = self._groups[number], self._loops(number)
        name, made = group.result, group.result_placement
        self._current[name] = []
        is_home = made.is_equivalent_to(self._homes[name], self._sizes[name])
        if not is_home and not self._statements[group.statement].at_home:
            self._copy(name, made, loops, number)
            self._move(number + 1, number, name, made, self._homes[name], loops)

    def _copy(self, name: str, placement: Home, loops: tuple[Loop, ...], number: int) -> Copy:
        made = Copy(name, placement, loops, number, number)
        self._current.setdefault(name, []).append(made)
        self.copies.append(made)
        return made

    def _move(self, before: int, group: int, name: str, source: Home, target: Home, loops: tuple[Loop, ...]) -> None:
        sent, received, _ = traffic(source, target, self._sizes[name])
        nbytes = (int(elements) * self._itemsize for elements in (sent.max(), received.max(), received.sum()))
        self.moves.append(Move(before, group, name, source, target, loops, *nbytes))


class _Homes:
    """Home of each tensor, and the groups with the placements of their sums."""

    def __init__(self, program: EinsumProgram, groups: Sequence[Group]) -> None:
        self.program, self.groups = program, list(groups)
        names, by_number = program.writers, dict(enumerate(groups))
        self.homes = {name: program.placement(program.owner(name), name, by_number) for name in names}
        self.homes |= {name: home for name in names if (home := self._only_use(name)) is not None}
        for number, group in enumerate(groups):
            home, shape = self.homes[group.result], program.sizes[group.result]
            if not group.result_placement.is_equivalent_to(home, shape) and self._sums_directly(group, home):
                self.groups[number] = dataclasses.replace(group, sums_at=home)

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

    def cost(self, number: int, copies: Sequence[Copy]) -> GroupCost:
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
        return GroupCost(fetched, reduced, self._memory(number, copies))

    def _bytes(self, name: str, placement: Home) -> int:
        return placement.block_bytes(self.program.sizes[name], self._itemsize)

    def _memory(self, number: int, copies: Sequence[Copy]) -> int:
        """Return the bytes of a rank while a group runs: homes, copies, partial results."""
        total = 0
        for name, home in self.homes.items():
            first, last = self.program.lifetimes[name]
            if first <= number <= last:
                total += self._bytes(name, home)
        total += sum(self._bytes(one.tensor, one.placement) for one in copies if one.first <= number <= one.last)
        group = self.groups[number]
        return total + (self._bytes(group.result, group.partial_placement) if group.reduction else 0)

"""Planner of a program of einsums on many ranks. Start reading at: plan_einsums."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

from dace_redist.einsum.grids import LOAD_TOLERANCE, Candidates, candidates, given_grid, replicas_of
from dace_redist.einsum.joint import choose_grids, labelled, on_nodes
from dace_redist.einsum.model import TIE_BREAK, Model
from dace_redist.einsum.order import Part, contraction_tree, groupings, linear_system, passes_unhidden
from dace_redist.einsum.placement import Placement
from dace_redist.einsum.plan import EinsumPlan
from dace_redist.einsum.program import EinsumProgram, EinsumStep, Walk
from dace_redist.einsum.rates import BYTES_PER_SECOND, MEMORY_BYTES_PER_SECOND
from dace_redist.einsum.requests import Requests
from dace_redist.einsum.shared_steps import SharedSteps
from dace_redist.einsum.statement import Statement

#: Relative difference in cost below which the solution with more groups is chosen; so is a difference of one byte.
_AS_GOOD = 1e-6
#: Factor by which the memory share of a group is lowered when a plan needs too much memory.
_TIGHTER = 0.85
#: Costs of a byte of memory relative to a byte moved, tried in turn until a plan fits the memory.
_THRIFTS = (TIE_BREAK, 0.3, 10.0)


def plan_einsums(
    statements: Sequence[Statement],
    shapes: Mapping[str, tuple[int, ...]],
    ranks: int,
    *,
    itemsize: int = 8,
    memory_bytes: int | None = None,
    node_size: int | None = None,
    placements: Mapping[str, Placement] | None = None,
    outputs: Sequence[str] | None = None,
    overrides: Mapping[str | int, Mapping[str, int]] | None = None,
) -> EinsumPlan:
    """
    Plan a program of einsums: contraction order, process grids, and redistributions between them.

    The contraction order comes from opt_einsum. Contractions are computed together, as a group on one grid, if an
    intermediate would take longer to write and read than to compute. Candidates for a group's grid are those with
    nearly the minimum work on the busiest rank. The grids of all groups are chosen together, for the least predicted
    time of computing, fetching operands, adding partial results, and moving tensors between grids. Finally the ranks
    are renumbered to maximise self copies.

    :param statements: The program, in the order in which it runs.
    :param shapes: Shape of every tensor that is read before it is written, by name; others are checked.
    :param ranks: Number of ranks; a program with fewer elements uses fewer.
    :param itemsize: Bytes of an element.
    :param memory_bytes: Maximum bytes of all tensors on a rank at any time.
    :param node_size: Ranks per node, if ranks are numbered node by node.
    :param placements: Placement, by name, of an input at the start, or of another tensor whenever it was written.
    :param outputs: Names of the tensors needed at the end. Default: those that no later statement reads.
    :param overrides: Process grids, by name of the tensor written or by number of the statement: number of parts by
        index, 1 where left out.
    :raises ValueError: If an argument is invalid; names the statement or the tensor.
    :raises MemoryError: If no grid fits the memory; names the step and its bytes.
    """
    requests = Requests(
        tuple(statements), shapes, ranks, itemsize, memory_bytes, node_size, placements or {}, outputs, overrides or {}
    )
    return Planner(requests).plan()


@dataclasses.dataclass(frozen=True)
class _Way:
    """
    A way to divide a statement's contractions into groups.

    :param steps: The groups.
    :param cost: Cost of :meth:`Model.total` plus the memory traffic of memory-bound intermediates.
    :param costly: Numbers of the intermediates that are reduced or moved.
    :param solution: The model, and the number of the chosen candidate of each group.
    """

    steps: tuple[EinsumStep, ...]
    cost: float = math.inf
    costly: frozenset[int] = frozenset()
    solution: tuple[Model, list[int]] | None = None


class Planner:
    """Implementation of :func:`plan_einsums`, for checked requests."""

    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        self.sizes = dict(requests.sizes)
        self.share = 1.0  # of the memory, for a group's own tensors
        self._only: _Way | None = None
        self._names: dict[tuple[int, int], str] = {}
        self._found: dict[tuple[Part, tuple[tuple[str, int], ...], float], Candidates] = {}
        total = requests.memory_bytes and requests.memory_bytes * requests.ranks // requests.itemsize
        self._trees = [
            () if statement.solves else contraction_tree(statement, extents, total)
            for statement, extents in zip(requests.statements, requests.extents, strict=True)
        ]
        self._shared = SharedSteps(requests.statements, self._trees)

    def plan(self) -> EinsumPlan:
        """Return the plan, see :func:`plan_einsums`."""
        every = [step for number in range(len(self.requests.statements)) for step in self.grouped(number)]
        steps = self._shared.once(every)
        self._only = self._only if len(steps) == len(every) else None
        self.requests.check_overrides(steps)
        limit = self.requests.memory_bytes or math.inf
        self._check_total(steps)
        least: Walk | None = None
        while least is None or self._fits(steps):
            for thrift in _THRIFTS:
                walk, unaware = self._solved(steps, thrift)
                if walk.memory_bytes <= limit:
                    return self._plan(walk, unaware)
                least = min(least or walk, walk, key=lambda one: one.memory_bytes)
            self.share *= _TIGHTER
            self._found.clear()
        costs = least.costs
        worst = max(range(len(steps)), key=lambda number: costs[number].memory_bytes)
        raise self._out_of_memory(steps[worst], costs[worst].memory_bytes)

    def _plan(self, walk: Walk, unaware: Walk) -> EinsumPlan:
        asked = self.requests
        sizes = {name: self.sizes[name] for name in dict.fromkeys((*asked.sizes, *walk.homes))}
        return EinsumPlan(
            asked.statements,
            sizes,
            asked.itemsize,
            asked.ranks,
            walk.groups,
            tuple(walk.moves),
            walk.homes,
            walk.program.inputs,
            asked.wanted,
            walk.costs,
            asked.node_size,
            *walk.bytes_on_nodes(unaware),
        )

    def _program(self, statements: tuple[Statement, ...], steps: tuple[EinsumStep, ...]) -> EinsumProgram:
        asked = self.requests
        names = {name for step in steps for name in (*step.operands, step.result)}
        placements = {name: place for name, place in asked.placements.items() if name in names}
        outputs = tuple(name for name in asked.wanted if name in names)
        return EinsumProgram(statements, steps, self.sizes, outputs, placements, asked.itemsize, asked.ranks)

    def _solved(self, steps: tuple[EinsumStep, ...], thrift: float) -> tuple[Walk, Walk]:
        size, program = self.requests.node_size, self._program(self.requests.statements, steps)
        if self._only is not None and self._only.solution and (thrift, self.share) == (_THRIFTS[0], 1.0):
            model, choice = self._only.solution  # found by grouped()
        else:
            model = Model(program, [self._candidates(step) for step in steps], thrift)
            choice = choose_grids(model)
        best, unaware = labelled(model, choice, size)
        if size is None or size == 1:
            return best, unaware
        model = Model(program, [self._candidates(step) for step in steps], thrift, size)
        return on_nodes(model, best, unaware, self.requests.memory_bytes or math.inf), unaware

    def _candidates(self, step: EinsumStep) -> Candidates:
        part, override = step.part, self.requests.override(step)
        if override is not None:
            replicas = replicas_of(part.einsum, part.whole, self.requests.ranks)
            return given_grid(part.einsum, step.extents, part.steps, override, replicas)
        found = self._searched(part, step.extents)
        if not len(found):
            raise self._out_of_memory(step, self._least_bytes(step))
        return found

    def _searched(self, part: Part, extents: Mapping[str, int], load: float = math.inf) -> Candidates:
        if len(part.steps) == 1:  # nothing is recomputed
            load = math.inf
        key = (part, tuple(extents.items()), load)
        if key not in self._found:
            self._found[key] = candidates(
                part.einsum,
                extents,
                part.steps,
                self.requests.ranks,
                whole=part.whole,
                footprint=self._elements,
                load=load,
            )
        return self._found[key]

    @property
    def _elements(self) -> float | None:
        limit = self.requests.memory_bytes
        return None if limit is None else limit * self.share / self.requests.itemsize

    # Division of a statement into groups

    def grouped(self, number: int) -> tuple[EinsumStep, ...]:
        """Return the steps of a statement: its contractions in the best grouping."""
        statement, extents = self.requests.statements[number], self.requests.extents[number]
        if statement.solves:
            return self._steps(number, (linear_system(statement.einsum),))
        tree = self._trees[number]
        passes = passes_unhidden(tree, len(statement.operands), extents)
        passes = {n: elements for n, elements in passes.items() if elements or n not in self._shared.numbers[number]}
        ways = [self._steps(number, parts) for parts in groupings(tree, statement.einsum, passes)]
        if len(ways) == 1:
            return ways[0]
        load = sum(self._least_load(step) for step in ways[0]) * (1 + LOAD_TOLERANCE)
        best = _Way(ways[0])
        worth = frozenset(step.part.number for step in ways[0])  # merging an intermediate without traffic cannot help
        unhidden = [sum(passes.get(step.part.number, 0) for step in way) for way in ways]
        for elements, way in sorted(zip(unhidden, ways, strict=True), key=lambda pair: pair[0]):
            whole = {step.part.number for step in way}
            if not {step.part.number for step in best.steps} - whole <= worth:
                continue
            better = self._better(best, elements, way, load)
            if better is not best:
                best, worth = better, better.costly
        if math.isinf(best.cost):
            worst = [max(way, key=self._least_bytes) for way in ways]
            step = min(worst, key=self._least_bytes)
            raise self._out_of_memory(step, self._least_bytes(step))
        self._only = best if len(self.requests.statements) == 1 and not self.requests.overrides else None
        return best.steps

    def _least_load(self, step: EinsumStep) -> float:
        found = self._searched(step.part, step.extents)
        return float(found.load.min()) if len(found) else math.inf

    def _better(self, best: _Way, unhidden: int, steps: tuple[EinsumStep, ...], load: float) -> _Way:
        """Return the better one of the best way so far and another one."""
        per_second = BYTES_PER_SECOND / MEMORY_BYTES_PER_SECOND
        passes = unhidden * self.requests.itemsize / self.requests.ranks * per_second
        if passes >= best.cost:
            return best
        found = [self._searched(step.part, step.extents, load) for step in steps]
        if not all(map(len, found)):
            return best
        alone = tuple(dataclasses.replace(step, statement=0) for step in steps)
        model = Model(self._program((self.requests.statements[steps[0].statement],), alone), found)
        enough = best.cost * (1 - _AS_GOOD) - 1
        if passes + sum(float(costs.min()) for costs in model.unary) >= enough:
            return best
        choice = choose_grids(model, best.cost - passes)
        cost = passes + model.total(choice)
        if cost >= enough:
            return best
        costly = {step.part.number for n, step in enumerate(steps) if model.result_cost(n, choice)}
        return _Way(steps, cost, frozenset(costly), (model, choice))

    def _steps(self, number: int, parts: tuple[Part, ...]) -> tuple[EinsumStep, ...]:
        statement, extents = self.requests.statements[number], self.requests.extents[number]
        names = dict(enumerate(statement.operands))
        steps = []
        for part in parts:
            name = statement.result if part is parts[-1] else self._intermediate(number, part)
            names[part.number] = name
            self.sizes[name] = tuple(extents[index] for index in part.einsum.result)
            own = {index: extents[index] for index in part.einsum.indices}
            steps.append(EinsumStep(part, tuple(names[c] for c in part.operands), name, number, own))
        return tuple(steps)

    def _intermediate(self, number: int, part: Part) -> str:
        """Return the name of an intermediate of a statement, after its indices: unique, and equal in every grouping."""
        if (number, part.number) not in self._names:
            indices = part.einsum.result
            base = f"{self.requests.statements[number].result}_{indices}" if indices else f"scalar_{number}"
            taken = {*self.requests.sizes, *self._names.values()}
            spare = (f"{base}_{count}" for count in itertools.count(2))
            self._names[number, part.number] = base if base not in taken else next(n for n in spare if n not in taken)
        return self._names[number, part.number]

    # Insufficient memory

    def _fits(self, steps: tuple[EinsumStep, ...]) -> bool:
        """True if the planner chooses some grids, and each of these steps has one within the share of memory."""
        free = [step for step in steps if self.requests.override(step) is None]
        return bool(free) and all(len(self._searched(step.part, step.extents)) for step in free)

    def _least_bytes(self, step: EinsumStep) -> float:
        """Return the minimum bytes of a step per rank over all candidates."""
        part, ranks = step.part, self.requests.ranks
        found = candidates(part.einsum, step.extents, part.steps, ranks, whole=part.whole)
        return float(found.footprint.min()) * self.requests.itemsize

    def _check_total(self, steps: tuple[EinsumStep, ...]) -> None:
        """Check that all live tensors of each step fit the memory of all ranks together."""
        program = self._program(self.requests.statements, steps)
        for number, step in enumerate(steps):
            needed = program.bytes_there(number) / self.requests.ranks
            if needed > (self.requests.memory_bytes or math.inf):
                raise self._out_of_memory(step, needed)

    def _out_of_memory(self, step: EinsumStep, needed: float) -> MemoryError:
        statement, limit = self.requests.statements[step.statement], self.requests.memory_bytes or 0
        return MemoryError(
            f"{statement.label}: '{step.part.einsum}' needs {needed / 2**20:.3g} MiB per rank on "
            f"{self.requests.ranks} ranks, but memory_bytes is {limit} ({limit / 2**20:.3g} MiB): "
            "take more ranks or more memory"
        )

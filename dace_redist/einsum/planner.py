"""Planner of a program of einsums on many ranks. Start reading at: plan_einsums."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dace_redist.distribution import AnyDistribution
from dace_redist.einsum.dataflow import EinsumProgram
from dace_redist.einsum.grids import LOAD_TOLERANCE, Candidates, candidates, given_grid
from dace_redist.einsum.groupings import ContractionTree, EinsumStep, contraction_trees
from dace_redist.einsum.model import TIE_BREAK, Model
from dace_redist.einsum.nodes import bytes_between_nodes
from dace_redist.einsum.placement import Home
from dace_redist.einsum.plan import EinsumPlan
from dace_redist.einsum.problem import EinsumProblem
from dace_redist.einsum.rates import BYTES_PER_SECOND, MEMORY_BYTES_PER_SECOND
from dace_redist.einsum.search import assign_ranks, choose_grids, preference
from dace_redist.einsum.statement import Statement
from dace_redist.integers import AnyBytes, checked_memory_bytes
from dace_redist.report.units import count

#: Relative difference in cost below which the solution with more groups is chosen; so is a difference of one byte.
_AS_GOOD = 1e-6
#: Factor by which the memory share of a group is lowered when a plan needs too much memory.
_TIGHTER = 0.85
#: Costs of a byte of memory relative to a byte moved, tried in turn until a plan fits the memory.
_MEMORY_WEIGHTS = (TIE_BREAK, 0.3, 10.0)


def plan_einsums(
    statements: Sequence[Statement],
    shapes: Mapping[str, tuple[int, ...]],
    ranks: int,
    *,
    itemsize: int = 8,
    memory_bytes: AnyBytes | None = None,
    node_size: int | None = None,
    placements: Mapping[str, Home | AnyDistribution] | None = None,
    outputs: Sequence[str] | None = None,
    overrides: Mapping[str | int, Mapping[str, int]] | None = None,
    optimize: Any = "auto",
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
    :param memory_bytes: Maximum bytes of all tensors on a rank at any time, also as ``"4GiB"``.
    :param node_size: Ranks per node, if ranks are numbered node by node.
    :param placements: Distribution, by name, of an input at the start, or of another tensor whenever it was written.
        One that no grid has, such as a block-cyclic one, costs a move.
    :param outputs: Names of the tensors needed at the end. Default: those that no later statement reads.
    :param overrides: Process grids, by name of the tensor written or by number of the statement: number of parts by
        index, 1 where left out.
    :param optimize: Contraction order of each statement, as of opt_einsum: ``"auto"`` or another name, or a path.
    :raises ValueError: If an argument is invalid; names the statement or the tensor.
    :raises TypeError: If ``memory_bytes`` is neither an integer nor a text.
    :raises MemoryError: If no grid fits the memory; names the step and its bytes.
    """
    problem = EinsumProblem(
        *(tuple(statements), shapes, ranks, itemsize, checked_memory_bytes(memory_bytes), node_size),
        *(placements or {}, outputs, overrides or {}, optimize),
    )
    return Planner(problem).plan()


@dataclasses.dataclass(frozen=True)
class _Way:
    """
    A way to divide a statement's contractions into groups.

    :param cost: Cost of :meth:`Model.total` plus the memory traffic of memory-bound intermediates.
    :param costly: Numbers of the intermediates that are reduced or moved.
    :param solution: The model, and the number of the chosen candidate of each group.
    """

    steps: tuple[EinsumStep, ...]
    cost: float = math.inf
    costly: frozenset[int] = frozenset()
    solution: tuple[Model, list[int]] | None = None


class Planner:
    """Implementation of :func:`plan_einsums`, for a checked problem."""

    def __init__(self, problem: EinsumProblem) -> None:
        self.problem = problem
        self.limit = problem.memory_bytes or math.inf
        self.share = 1.0  # of the memory, for a group's own tensors
        self._way: _Way | None = None  # of the last statement
        self._found: dict[tuple[EinsumStep, float], Candidates] = {}
        total = problem.memory_bytes and problem.memory_bytes * problem.ranks // problem.itemsize
        self.trees = contraction_trees(problem.statements, problem.extents, problem.sizes, total, problem.optimize)
        counts = Counter(name for tree in self.trees for name in tree.names[len(tree.statement.operands) : -1])
        self._shared = {name for name, count in counts.items() if count > 1}

    def plan(self) -> EinsumPlan:
        """Return the plan, see :func:`plan_einsums`."""
        steps = self.steps()
        self.problem.check_overrides(steps)
        self._check_total(steps)
        least: EinsumPlan | None = None
        while least is None or self._fits(steps):
            for weight in _MEMORY_WEIGHTS:
                plan = self._solved(steps, weight)
                if plan.memory_bytes <= self.limit:
                    return plan
                least = min(least or plan, plan, key=lambda one: one.memory_bytes)
            self.share *= _TIGHTER
            self._found.clear()
        worst = max(range(len(steps)), key=lambda number: least.costs[number].memory_bytes)
        raise self._out_of_memory(steps[worst], least.costs[worst].memory_bytes)

    def _solved(self, steps: tuple[EinsumStep, ...], memory_weight: float) -> EinsumPlan:
        size, program = self.problem.node_size, EinsumProgram(self.problem, steps)
        way = self._way
        if way and way.steps == steps and way.solution and (memory_weight, self.share) == (_MEMORY_WEIGHTS[0], 1.0):
            model, choice = way.solution  # of the only statement
        else:
            model = Model(program, list(map(self._candidates, steps)), memory_weight)
            choice = choose_grids(model)
        best, unaware = assign_ranks(model, choice, size)
        if size is None:
            return best
        if size > 1:
            model = Model(program, list(map(self._candidates, steps)), memory_weight, size)
            aware, _ = assign_ranks(model, choose_grids(model), size)
            tried = (best, aware, unaware)
            best = min(tried, key=lambda plan: (plan.memory_bytes > self.limit, *preference(plan, unaware)))
        between, others = (plan.internode_bytes[0] for plan in (best, unaware) if plan.internode_bytes)
        within = bytes_between_nodes(best, 1) - between
        return dataclasses.replace(best, internode_bytes=(between, others), intranode_bytes=within)

    def _candidates(self, step: EinsumStep) -> Candidates:
        override = self.problem.override(step)
        if override is not None:
            return given_grid(step, override, self.problem.ranks)
        found = self._searched(step)
        if not len(found):
            raise self._out_of_memory(step, self._least_bytes(step))
        return found

    def _searched(self, step: EinsumStep, load: float = math.inf) -> Candidates:
        if len(step.steps) == 1:  # nothing is recomputed
            load = math.inf
        key = (dataclasses.replace(step, operands=(), result="", statement=0, number=0), load)
        if key not in self._found:
            footprint = self.limit * self.share / self.problem.itemsize
            self._found[key] = candidates(step, self.problem.ranks, footprint=footprint, load=load)
        return dataclasses.replace(self._found[key], step=step)

    # Division of statements into groups

    def steps(self) -> tuple[EinsumStep, ...]:
        """Return the groups of the program; of equal intermediates stored by groups, only the first is computed."""
        written: set[str] = set()
        kept: list[EinsumStep] = []
        for step in [step for tree in self.trees for step in self._grouped(tree)]:
            if step.result not in written:
                kept.append(step)
            written |= {step.result} & self._shared
        last = {step.statement: step.result for step in kept}
        read: set[str] = set()
        for step in reversed(list(kept)):
            if step.result in read or step.result == last[step.statement]:
                read |= set(step.operands)
            else:  # only groups that were dropped read it
                kept.remove(step)
        return tuple(kept)

    def _grouped(self, tree: ContractionTree) -> tuple[EinsumStep, ...]:
        """Return the steps of a statement: its contractions in the best grouping."""
        ways, bound = list(tree.groupings(self._shared)), tree.memory_bound()
        if len(ways) == 1:
            return ways[0]
        least = (float(self._searched(step).load.min(initial=math.inf)) for step in ways[0])
        load = sum(least) * (1 + LOAD_TOLERANCE)
        best = _Way(ways[0])
        worth = frozenset(step.number for step in ways[0])  # merging an intermediate without traffic cannot help
        unhidden = [sum(bound.get(step.number, 0) for step in way) for way in ways]
        for elements, way in sorted(zip(unhidden, ways, strict=True), key=lambda pair: pair[0]):
            whole = {step.number for step in way}
            if not {step.number for step in best.steps} - whole <= worth:
                continue
            better = self._better(best, elements, way, load)
            if better is not best:
                best, worth = better, better.costly
        if math.isinf(best.cost):
            worst = [max(way, key=self._least_bytes) for way in ways]
            step = min(worst, key=self._least_bytes)
            raise self._out_of_memory(step, self._least_bytes(step))
        self._way = best if not self.problem.overrides else None
        return best.steps

    def _better(self, best: _Way, unhidden: int, steps: tuple[EinsumStep, ...], load: float) -> _Way:
        """Return the better one of the best way so far and another one."""
        per_second = BYTES_PER_SECOND / MEMORY_BYTES_PER_SECOND
        passes = unhidden * self.problem.itemsize / self.problem.ranks * per_second
        if passes >= best.cost:
            return best
        found = [self._searched(step, load) for step in steps]
        if not all(map(len, found)):
            return best
        model = Model(EinsumProgram(self.problem, steps), found)
        enough = best.cost * (1 - _AS_GOOD) - 1
        if passes + sum(float(costs.min()) for costs in model.unary) >= enough:
            return best
        choice = choose_grids(model, best.cost - passes)
        cost = passes + model.total(choice)
        if cost >= enough:
            return best
        costly = {step.number for n, step in enumerate(steps) if model.moves_result(n, choice)}
        return _Way(steps, cost, frozenset(costly), (model, choice))

    # Insufficient memory

    def _fits(self, steps: tuple[EinsumStep, ...]) -> bool:
        """True if the planner chooses some grids, and each of these steps has one within the share of memory."""
        free = [step for step in steps if self.problem.override(step) is None]
        return bool(free) and all(len(self._searched(step)) for step in free)

    def _least_bytes(self, step: EinsumStep) -> float:
        """Return the minimum bytes of a step per rank over all candidates."""
        return float(candidates(step, self.problem.ranks).footprint.min()) * self.problem.itemsize

    def _check_total(self, steps: tuple[EinsumStep, ...]) -> None:
        """Check that all live tensors of each step fit the memory of all ranks together."""
        program = EinsumProgram(self.problem, steps)
        for number, step in enumerate(steps):
            needed = program.bytes_there(number) / self.problem.ranks
            if needed > self.limit:
                raise self._out_of_memory(step, needed)

    def _out_of_memory(self, step: EinsumStep, needed: float) -> MemoryError:
        statement, limit = self.problem.statements[step.statement], self.problem.memory_bytes or 0
        return MemoryError(
            f"{statement.label}: '{step.einsum}' needs {needed / 2**20:.3g} MiB per rank on "
            f"{count(self.problem.ranks, 'rank')}, but memory_bytes is {limit} ({limit / 2**20:.3g} MiB): "
            "take more ranks or more memory"
        )

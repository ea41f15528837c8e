"""Plans a program of einsums on many ranks. Start reading at: plan_einsums."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from dace_redist.einsum.grids import LOAD_TOLERANCE, Candidates, candidates, given_grid, least_footprint
from dace_redist.einsum.joint import Labelled, choose_grids, labelled
from dace_redist.einsum.model import Model
from dace_redist.einsum.order import Part, contraction_tree, groupings, passes_unhidden
from dace_redist.einsum.placement import Placement
from dace_redist.einsum.plan import BYTES_PER_SECOND, MEMORY_BYTES_PER_SECOND, Plan
from dace_redist.einsum.program import Program, Step, Walk
from dace_redist.einsum.requests import Requests
from dace_redist.einsum.statement import Statement

#: Solutions that cost more by less than this share, or by a byte, are as good: those with more groups are taken then.
_AS_GOOD = 1e-6
#: If a plan needs too much memory, the share of its memory that a group may use is lowered by this factor.
_TIGHTER = 0.85


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
) -> Plan:
    """
    Decide in which order and on which grids a program of einsums runs, and what is moved between them.

    The order of contractions comes from opt_einsum. Contractions are computed together where an intermediate would
    cost more to write and read than to compute. A group's grid is one of all grids of at most so many ranks with
    nearly the least work for the busiest rank; the grids of all groups are chosen together so that the predicted time
    for work and for what is fetched, reduced and moved is least. Then ranks are relabelled so that most stays where
    it is.

    :param statements: The program, in the order in which it runs.
    :param shapes: Shape of every tensor that is read before it is written, by name; others are checked.
    :param ranks: Ranks at hand; a program with fewer elements uses fewer.
    :param itemsize: Bytes of an element.
    :param memory_bytes: What all tensors on a rank may take together at any time.
    :param node_size: Ranks per node, if ranks are numbered node by node.
    :param placements: Where inputs are at the start, or other tensors are wanted each time after they were written.
    :param outputs: Tensors wanted at the end. Default: those that no later statement reads.
    :param overrides: Grids of the user's: parts by index (1 where left out), by name of the tensor written or by
        number of the statement.
    :raises ValueError: If something does not fit; names the statement or the tensor, and what there is.
    :raises MemoryError: If no grid fits the memory; says which step needs how much.
    """
    requests = Requests(
        tuple(statements), shapes, ranks, itemsize, memory_bytes, node_size, placements or {}, outputs, overrides or {}
    )
    return _Planner(requests).plan()


class _Planner:
    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        self.sizes = dict(requests.sizes)
        self.share = 1.0  # of the memory, which a group's own tensors may take
        self._found: dict[tuple[Part, float], Candidates] = {}

    def plan(self) -> Plan:
        steps = tuple(step for number in range(len(self.requests.statements)) for step in self._grouped(number))
        self.requests.check_overrides(steps)
        while True:
            program, found = self._solved(steps)
            limit = self.requests.memory_bytes
            if limit is None or found.walk.memory_bytes <= limit:
                return self._plan(program, found)
            self.share *= _TIGHTER
            self._found.clear()
            self._check_share(found.walk, steps, limit)

    def _plan(self, program: Program, found: Labelled) -> Plan:
        asked, walk = self.requests, found.walk
        sizes = {name: self.sizes[name] for name in dict.fromkeys((*asked.sizes, *walk.homes))}
        between_nodes = (found.internode_bytes, found.internode_bytes_unaware) if asked.node_size else None
        return Plan(
            asked.statements,
            sizes,
            asked.itemsize,
            asked.ranks,
            found.groups,
            walk.moves,
            walk.homes,
            program.inputs,
            asked.outputs,
            walk.costs,
            asked.node_size,
            between_nodes,
        )

    def _program(self, statements: tuple[Statement, ...], steps: tuple[Step, ...]) -> Program:
        asked = self.requests
        names = {name for step in steps for name in (*step.operands, step.result)}
        placements = {name: place for name, place in asked.placements.items() if name in names}
        outputs = tuple(name for name in asked.outputs if name in names)
        return Program(statements, steps, self.sizes, outputs, placements, asked.itemsize, asked.ranks)

    def _solved(self, steps: tuple[Step, ...]) -> tuple[Program, Labelled]:
        program = self._program(self.requests.statements, steps)
        model = Model(program, [self._candidates(step) for step in steps])
        return program, labelled(model, choose_grids(model), self.requests.node_size)

    def _candidates(self, step: Step) -> Candidates:
        part, override = step.part, self.requests.override(step)
        if override is not None:
            return given_grid(part.einsum, step.extents, part.steps, override)
        found = self._searched(part, step.extents)
        if not len(found):
            self._out_of_memory(step)
        return found

    def _searched(self, part: Part, extents: Mapping[str, int], load: float = math.inf) -> Candidates:
        if len(part.steps) == 1:  # recomputes nothing
            load = math.inf
        if (part, load) not in self._found:
            limit = self._elements
            self._found[part, load] = candidates(
                part.einsum, extents, part.steps, self.requests.ranks, footprint=limit, load=load
            )
        return self._found[part, load]

    @property
    def _elements(self) -> float | None:
        limit = self.requests.memory_bytes
        return None if limit is None else limit * self.share / self.requests.itemsize

    # How a statement is cut into groups --------------------------------------------------------------------------

    def _grouped(self, number: int) -> tuple[Step, ...]:
        """The steps of a statement: its contractions, those together that are better computed together."""
        statement, extents = self.requests.statements[number], self.requests.extents[number]
        limit = self.requests.memory_bytes
        total = None if limit is None else limit * self.requests.ranks // self.requests.itemsize
        tree = contraction_tree(statement, extents, total)
        passes = passes_unhidden(tree, len(statement.operands), extents)
        ways = [(sum(passes.get(part.number, 0) for part in parts), parts) for parts in groupings(tree, statement.einsum, passes)]
        if len(ways) == 1:
            return self._steps(number, ways[0][1])
        least = sum(self._least_load(part, extents) for part in ways[0][1])
        best: tuple[float, tuple[Step, ...]] = (math.inf, self._steps(number, ways[0][1]))
        for unhidden, parts in sorted(ways, key=lambda way: way[0]):
            best = self._better(best, unhidden, self._steps(number, parts), least * (1 + LOAD_TOLERANCE))
        return best[1]

    def _least_load(self, part: Part, extents: Mapping[str, int]) -> float:
        found = self._searched(part, {i: extents[i] for i in part.einsum.indices})
        return float(found.load.min()) if len(found) else math.inf

    def _better(
        self, best: tuple[float, tuple[Step, ...]], unhidden: int, steps: tuple[Step, ...], load: float
    ) -> tuple[float, tuple[Step, ...]]:
        """The better one of the best grouping so far and another one."""
        per_second = BYTES_PER_SECOND / MEMORY_BYTES_PER_SECOND
        passes = unhidden * self.requests.itemsize / self.requests.ranks * per_second
        if passes >= best[0]:
            return best
        found = [self._searched(step.part, step.extents, load) for step in steps]
        if not all(map(len, found)):
            return best
        alone = tuple(dataclasses.replace(step, statement=0) for step in steps)
        model = Model(self._program((self.requests.statements[steps[0].statement],), alone), found)
        enough = best[0] * (1 - _AS_GOOD) - 1
        if passes + sum(float(costs.min()) for costs in model.unary) >= enough:
            return best
        cost = passes + model.total(choose_grids(model, best[0] - passes))
        return (cost, steps) if cost < enough else best

    def _steps(self, number: int, parts: tuple[Part, ...]) -> tuple[Step, ...]:
        statement, extents = self.requests.statements[number], self.requests.extents[number]
        names = dict(enumerate(statement.operands))
        steps = []
        for part in parts:
            step = part.number - len(statement.operands)  # the same intermediate has one name in every grouping
            name = statement.result if part is parts[-1] else f"{statement.result}__{number}_{step}"
            names[part.number] = name
            self.sizes[name] = tuple(extents[index] for index in part.einsum.result)
            own = {index: extents[index] for index in part.einsum.indices}
            steps.append(Step(part, tuple(names[c] for c in part.operands), name, number, own))
        return tuple(steps)

    # Too little memory -------------------------------------------------------------------------------------------

    def _check_share(self, found: Walk, steps: tuple[Step, ...], limit: int) -> None:
        """Give up where no step can use less than it did."""
        for step in steps:
            if self.requests.override(step) is None and not len(self._searched(step.part, step.extents)):
                worst = max(range(len(steps)), key=lambda number: found.costs[number].memory_bytes)
                self._fail(steps[worst], found.costs[worst].memory_bytes, limit)

    def _out_of_memory(self, step: Step) -> None:
        part = step.part
        needed = least_footprint(part.einsum, step.extents, part.steps, self.requests.ranks) * self.requests.itemsize
        self._fail(step, needed, self.requests.memory_bytes or 0)

    def _fail(self, step: Step, needed: float, limit: int) -> None:
        statement = self.requests.statements[step.statement]
        raise MemoryError(
            f"{statement.label}: '{step.part.einsum}' needs {needed / 2**20:.3g} MiB per rank on "
            f"{self.requests.ranks} ranks, but memory_bytes is {limit} ({limit / 2**20:.3g} MiB): "
            "take more ranks or more memory"
        )

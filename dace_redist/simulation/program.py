"""Predicts a program of einsums on a machine, step by step, and its scaling. Start reading at: simulate_plan."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dace_redist.distribution import Distribution
from dace_redist.einsum.placement import Placement
from dace_redist.einsum.plan import EinsumPlan, Group
from dace_redist.einsum.report import operation_text
from dace_redist.report.canvas import save
from dace_redist.report.units import format_bytes, milliseconds, table
from dace_redist.schedule import Schedule, schedule
from dace_redist.simulation.figures import KIND_COLOURS, LinkUse, busiest, draw_bars, draw_scaling
from dace_redist.simulation.machine import Job, Machine
from dace_redist.simulation.redistribution import Operation, RankOperations, SimulatedRedistribution, simulate_on
from dace_redist.strategies import find_strategy


@dataclasses.dataclass(frozen=True)
class SimulatedStep:
    """
    A step of a program on a machine: its kind, a key of :data:`KIND_COLOURS`, its tensor or operation, and its time.

    :param work: Seconds of one run in which each rank computes or adds.
    :param exchange: None in a contraction.
    """

    kind: str
    name: str
    seconds: float
    repeats: int
    work: float
    exchange: SimulatedRedistribution | None = None

    @property
    def link(self) -> LinkUse:
        """The busiest link."""
        return LinkUse() if self.exchange is None else self.exchange.link

    @property
    def nbytes(self) -> int:
        """Bytes that go from one rank to another in one run."""
        return 0 if self.exchange is None else self.exchange.nbytes


@dataclasses.dataclass(frozen=True)
class SimulatedProgram:
    """Times of a program of einsums on a machine, its tensors moved by a strategy; printed, it is a table."""

    plan: EinsumPlan
    job: Job
    strategy: str

    @cached_property
    def steps(self) -> tuple[SimulatedStep, ...]:
        """Its steps in the order in which they run."""
        plan, steps, exchanged = self.plan, list[SimulatedStep](), functools.cache(self._exchanged)
        for number in range(len(plan.groups) + 1):
            for move in plan.moves:
                if move.before_group == number:
                    exchange = exchanged(move.source, move.target, plan.sizes[move.tensor])
                    seconds, repeats = exchange.estimate(self.strategy).seconds, plan.repeats(move.group)
                    steps.append(SimulatedStep("redistribute", move.tensor, seconds, repeats, 0.0, exchange))
            if number < len(plan.groups):
                steps.append(self._contracted(number, plan.groups[number]))
                if plan.groups[number].reduction is not None:
                    steps.append(self._reduced(number, plan.groups[number]))
        return tuple(steps)

    def _exchanged(self, source: Placement, target: Placement, shape: tuple[int, ...]) -> SimulatedRedistribution:
        return simulate_on(self.job, schedule(source.distribution(shape), target.distribution(shape), self._dtype))

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(f"V{self.plan.itemsize}")

    def _contracted(self, number: int, group: Group) -> SimulatedStep:
        """As long as its operations take, or as reading its operands and writing its result once does."""
        named = [*zip(group.operand_placements, group.operands, strict=True), (group.partial_placement, group.result)]
        nbytes = sum(placement.block_bytes(self.plan.sizes[name], self.plan.itemsize) for placement, name in named)
        seconds = self._work(group.flops, nbytes)
        name = f"{group.result} = {operation_text(group)}"
        return SimulatedStep("contract", name, seconds, self.plan.repeats(number), seconds)

    def _work(self, flops: float, nbytes: float) -> float:
        """Seconds of operations or of memory traffic of a rank, whichever takes longer."""
        machine = self.job.machine
        return self.job.busy_ranks_per_node * max(flops / (machine.cores * machine.flops), nbytes / machine.memory)

    def _reduced(self, number: int, group: Group) -> SimulatedStep:
        """
        Every rank sends what it has of the partial sums of others to the next one of those that hold them: n - 1 of n
        parts, or all of them where one rank wants all; ceil(log2 n) messages follow one another.
        """
        assert group.reduction is not None
        several, scattered = group.reduction.ranks, group.reduction.axis is not None
        block = group.partial_placement.block_bytes(self.plan.sizes[group.result], 1)
        sent = -(-block * (several - 1) // several) if scattered else block
        exchange = simulate_on(self.job, _to_the_next(group.partial_placement, sent, scattered, self._dtype))
        work = self._work(0.0, 3 * sent * self.plan.itemsize)  # two are read, one is written
        messages = math.ceil(math.log2(several))
        seconds = exchange.estimate(self.strategy).seconds + work + (messages - 1) * self._latency
        return SimulatedStep("reduce", group.result, seconds, self.plan.repeats(number), work, exchange)

    @property
    def _latency(self) -> float:
        network, rates = self.job.machine.network, self.job.machine.profile.node
        if self.job.nodes > 1 and network is not None:
            return network.latency
        return rates.messages.latency if rates is not None else 0.0

    @property
    def seconds(self) -> float:
        """The time of all steps, which follow one another."""
        return sum(step.repeats * step.seconds for step in self.steps)

    @property
    def by_kind(self) -> dict[str, float]:
        """Seconds of the steps of each kind."""
        found = dict.fromkeys(KIND_COLOURS, 0.0)
        for step in self.steps:
            found[step.kind] += step.repeats * step.seconds
        return found

    @property
    def busiest_link(self) -> LinkUse:
        """The link that takes longest in one step."""
        return busiest(step.link for step in self.steps)

    def __str__(self) -> str:
        """The machine, a line for each step, the times by kind, and the busiest link."""
        lines = [
            f"machine   {self.job.machine}",
            f"program   {self.job}, tensors moved by {self.strategy}; milliseconds",
        ]
        rows = [("", "", "time", "times", "moved", "busiest link")]
        rows += [
            (s.kind, s.name, milliseconds(s.seconds), f"{s.repeats}", format_bytes(s.nbytes), s.link.name or "-")
            for s in self.steps
        ]
        lines += table(rows, left=2)
        kinds = ", ".join(f"{kind} {milliseconds(seconds)}" for kind, seconds in self.by_kind.items())
        return "\n".join([*lines, f"total     {milliseconds(self.seconds)}: {kinds}", f"link      {self.busiest_link}"])

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, lists and dictionaries; times in seconds."""
        steps = [
            {
                **{name: getattr(step, name) for name in ("kind", "name", "seconds", "repeats")},
                "bytes_moved": step.nbytes,
                "busiest_link": dataclasses.asdict(step.link),
            }
            for step in self.steps
        ]
        return {
            "machine": str(self.job.machine),
            "ranks": self.job.ranks,
            "nodes": self.job.nodes,
            "strategy": self.strategy,
            "seconds": self.seconds,
            "seconds_by_kind": self.by_kind,
            "busiest_link": dataclasses.asdict(self.busiest_link),
            "steps": steps,
        }

    def operations(self) -> RankOperations:
        """Yield the operations of each rank in one run of every step, for a simulator of messages."""
        done: dict[int, list[Operation]] = defaultdict(list)
        for step in self.steps:
            for rank, operations in () if step.exchange is None else step.exchange.operations(self.strategy):
                done[rank] += operations
            if step.work > 0:
                for rank in range(self.job.ranks):
                    done[rank].append(Operation("compute", step.work))
        yield from sorted(done.items())

    def plot(self, path: str | Path) -> None:
        """Draw the time of each step, and of the busiest links, to a .png, .svg or .pdf file."""
        parts = [{step.kind: step.repeats * step.seconds} for step in self.steps]
        rows = {
            f"{number + 1}  {step.name}": part
            for number, (step, part) in enumerate(zip(self.steps, parts, strict=True))
        }
        links = [link for step in self.steps if step.exchange is not None for link in step.exchange.links]
        save(lambda: draw_bars("steps", f"{self.job}; {self.job.machine}", rows, links), path)


def simulate_plan(
    plan: EinsumPlan,
    machine: str | os.PathLike[str] | Machine,
    *,
    ranks_per_node: int | None = None,
    scattered: bool = False,
    strategy: str = "Auto",
) -> SimulatedProgram:
    """
    Predict a program of einsums on a machine that is described: one run, of inputs that lie where the plan wants them.

    :param machine: Path of a machine file, or name of a machine that ships with the package.
    :param ranks_per_node: Ranks on each node; default: those that it was planned for, else one per core.
    :param scattered: True if the nodes lie anywhere in the machine, not side by side.
    :param strategy: Moves its tensors; ``"Auto"`` is the default one.
    :raises ValueError: If the machine file is wrong (names the line), the machine is too small, ``ranks_per_node`` is
        less than 1, or the strategy is unknown or cannot leave a node.
    :raises FileNotFoundError: If there is no such machine.
    """
    each = plan.node_size if ranks_per_node is None else ranks_per_node
    job = Job.of(Machine.load(machine), plan.ranks, each, scattered)
    simulated = SimulatedProgram(plan, job, find_strategy(strategy).name)
    _ = simulated.steps  # an error where the strategy cannot leave a node
    return simulated


def _to_the_next(partial: Placement, elements: int, around: bool, dtype: np.dtype[Any]) -> Schedule:
    """Every rank that holds partial sums sends so many elements to the next one that holds some of the same block."""
    blocks = dict[tuple[int, ...], list[int]]()
    for rank, *block in zip(partial.ranks, *partial.coordinates.tolist(), strict=True):
        blocks.setdefault(tuple(block), []).append(rank)
    pairs = [
        pair
        for members in blocks.values()
        for pair in zip(members, [*members[1:], members[0]] if around else members[1:], strict=False)
    ]
    shape, count = (len(pairs), elements), len(pairs)
    source, target = (Distribution(shape, (count,), dims=(0, None), ranks=ranks) for ranks in zip(*pairs, strict=True))
    return schedule(source, target, dtype)


@dataclasses.dataclass(frozen=True)
class Scaling:
    """A program on several ascending numbers of ranks, with which its size may grow; printed, it is a table."""

    programs: Sequence[SimulatedProgram]
    weak: bool

    @property
    def efficiencies(self) -> list[float]:
        """Operations per second and rank, to those of the fewest ranks; 1 if nothing is computed."""
        rates = [_all_flops(one) / one.seconds / one.job.ranks if one.seconds else 0.0 for one in self.programs]
        return [rate / rates[0] if rates[0] else 1.0 for rate in rates]

    def __str__(self) -> str:
        """The machine, and a line for each number of ranks."""
        first = self.programs[0]
        sizes = "sizes grow with the ranks" if self.weak else "the same sizes"
        lines = [
            f"machine   {first.job.machine}",
            f"program   {sizes}, tensors moved by {first.strategy}; milliseconds",
        ]
        rows = [("ranks", "nodes", "time", *first.by_kind, "efficiency", "busiest link")]
        for one, efficiency in zip(self.programs, self.efficiencies, strict=True):
            times = map(milliseconds, (one.seconds, *one.by_kind.values()))
            where = (f"{one.job.ranks:,}", f"{one.job.nodes:,}")
            rows.append((*where, *times, f"{100 * efficiency:.0f} %", one.busiest_link.name or "-"))
        lines += table(rows)
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, lists and dictionaries; times in seconds."""
        runs = [
            one.to_json() | {"efficiency": efficiency}
            for one, efficiency in zip(self.programs, self.efficiencies, strict=True)
        ]
        return {"scaling": "weak" if self.weak else "strong", "runs": runs}

    def plot(self, path: str | Path) -> None:
        """Draw time by kind of step, efficiency and time of the busiest link, to a .png, .svg or .pdf file."""
        title = f"{'weak' if self.weak else 'strong'} scaling; {self.programs[0].job.machine}"
        rows = {f"{one.job.ranks:,}": one.by_kind for one in self.programs}
        links = [one.busiest_link for one in self.programs]
        save(lambda: draw_scaling(title, rows, self.efficiencies, links), path)


def _all_flops(program: SimulatedProgram) -> float:
    plan = program.plan
    return sum(plan.repeats(n) * group.flops * len(group.ranks) for n, group in enumerate(plan.groups))

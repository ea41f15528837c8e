"""Times of strategies, and machine profiles, as text and JSON. Start reading at: CostReport."""

from __future__ import annotations

import dataclasses
import os
import textwrap
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dace_redist.distribution import Distribution
from dace_redist.report.canvas import new_figure, save
from dace_redist.report.units import count, format_bytes, format_seconds, milliseconds, table
from dace_redist.schedule import Schedule, schedule
from dace_redist.tuning import profile as machine_profile
from dace_redist.tuning.cost_model import CostModel, Estimate
from dace_redist.tuning.files import profile_path
from dace_redist.tuning.problem import Problem
from dace_redist.tuning.profile import Copies, Curve, MachineProfile, NetworkRates, NodeRates, Strict, Surface
from dace_redist.tuning.rank_costs import Terms

_SIZES = tuple(1 << power for power in range(12, 27))  # bytes that a rank moves
_RUNS = tuple(1 << power for power in range(3, 17))
_SHOWN = 4 << 20  # the size of the right panel
_ITEM = 8


def estimates(profile: MachineProfile, ranks: int, memory: str, nbytes: int, run: int) -> dict[str, Estimate]:
    """Return the times of all strategies if each rank moves about ``nbytes`` in runs of ``run`` bytes."""
    shape = (max(1, nbytes // (run * ranks)) * ranks, ranks * run // _ITEM)
    moved = schedule(Distribution(shape, (ranks, 1)), Distribution(shape, (1, ranks)))
    found = CostModel(Problem(moved, memory), profile, [0] * ranks).estimates()
    return {one.strategy: one for one in found if one.strategy not in ("Hierarchical", "Aggregated")}


def draw(profile: MachineProfile, ranks: int, memory: str) -> Any:
    """
    Return the figure of the fastest strategy by size and run length, and of the times of all by run length.

    The redistribution is that of a matrix from blocks of rows to blocks of columns on one node: contiguous at the
    receiver, in runs at the sender. ``Hierarchical`` and ``Aggregated``, which are ``Shared`` there, are left out.
    """
    from matplotlib import colormaps
    from matplotlib.patches import Patch

    times = [[estimates(profile, ranks, memory, nbytes, run) for nbytes in _SIZES] for run in _RUNS]
    colours = {name: colormaps["tab10"](number) for number, name in enumerate(sorted(times[0][0]))}
    figure = new_figure(11, 4.6, layout="constrained")
    where, over_runs = figure.subplots(1, 2)
    figure.suptitle(f"{profile.machine}, {profile.mpi}: {ranks} ranks of a node, rows to columns, {memory} arrays")
    fastest = [[min(cell, key=lambda name: cell[name].seconds) for cell in row] for row in times]
    edges = (np.array([*(size / 2**0.5 for size in sizes), sizes[-1] * 2**0.5]) for sizes in (_SIZES, _RUNS))
    where.pcolormesh(*edges, np.array([[colours[name] for name in row] for row in fastest]))
    where.set(xscale="log", yscale="log", xlabel="bytes that a rank moves", ylabel="run length in bytes")
    where.set_title("Predicted to be the fastest", fontsize=9)
    present = sorted({name for row in fastest for name in row})
    where.legend(handles=[Patch(color=colours[name], label=name) for name in present])
    for name, colour in colours.items():
        seconds = [1e3 * row[_SIZES.index(_SHOWN)][name].seconds for row in times]
        over_runs.plot(_RUNS, seconds, color=colour, marker=".", label=name)
    over_runs.set(xscale="log", yscale="log", xlabel="run length in bytes", ylabel="predicted time in ms")
    over_runs.set_title(f"{format_bytes(_SHOWN)} on each rank", fontsize=9)
    over_runs.legend()
    return figure


@dataclasses.dataclass(frozen=True)
class Bound:
    """
    Highest bandwidth that formula 3 of Cao et al. can come to: formula 5 without its extra time (*Evaluating Data
    Redistribution in PaRSEC*, section 7.2). The paper's process is a rank where all are on one node, else a node.

    :param remote: M_remote: largest traffic into or out of a process, in bytes.
    :param local: M_local: largest self copy of a process, in bytes.
    :param rate: B_net, in bytes per second: of messages between ranks of a node, or of a node's link.
    :param memory_rate: B_memory, in bytes per second: copies of one rank, or of as many as a node has cores.
    """

    remote: int
    local: int
    rate: float
    memory_rate: float

    @classmethod
    def of(cls, model: CostModel) -> Bound:
        """Return the bound of a redistribution on a machine."""
        profile, rates = model.profile, model.costs.rates
        copies = model.costs.copies(sent=True).pack
        memory_rate = 1 / copies.seconds_per_byte[-1][-1]
        processes = [(1.0, [rank]) for ranks in model.traffic.values() for rank in ranks]
        rate = memory_rate if rates.node is None else rates.node.messages.rate
        network = rates.network if len(set(model.node_of)) > 1 else None
        if network is not None:
            processes = [(model.share(node), ranks) for node, ranks in model.traffic.items()]
            memory_rate *= min(profile.cores_per_node, profile.ranks_per_node) * profile.oversubscription
            rate = network.link.rate
        remote, local = 0.0, 0.0
        for share, ranks in processes:
            sent, received = (
                sum(m.total_bytes for rank in ranks for m in rank.side(side) if network is None or not m.within)
                for side in (True, False)
            )
            remote = max(remote, max(sent, received) / share)
            local = max(local, (sum(rank.footprint(True) for rank in ranks) - sent) / share)
        return cls(round(remote), round(local), rate, memory_rate)

    @property
    def bandwidth(self) -> float:
        """Formula 5, in bytes per second; 0 if nothing moves between processes."""
        if not self.remote:
            return 0.0
        return self.rate * self.memory_rate / ((2 + self.local / self.remote) * self.rate + self.memory_rate)

    def share(self, seconds: float) -> float:
        """Return the part of the bound that is reached in so many seconds: formula 3 to formula 5."""
        return self.remote / seconds / self.bandwidth

    def __str__(self) -> str:
        if not self.remote:
            return "none: nothing moves between processes"
        return (
            f"{format_seconds(self.remote / self.bandwidth)} if {format_bytes(self.remote)} are copied twice, and sent "
            f"at {1e-9 * self.rate:.3g} GB/s"
        )


def profile_in_use(given: str | os.PathLike[str] | None) -> tuple[MachineProfile, str]:
    """
    Return a machine profile, and its origin in one line.

    :param given: Path of the file; None: that of this user, else the profile that ships with the package.
    """
    path = profile_path(given)
    reason = "no machine profile was made here (dace-redist calibrate)"
    if given or path.exists():
        try:
            profile, reason = machine_profile.load(path)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"there is no machine profile {path}: make one with dace-redist calibrate --output {path}"
            ) from None
        if profile is not None:
            return profile, f"{profile.machine}, {profile.mpi}, {profile.date}, {path}"
    default = machine_profile.default_profile()
    return default, f"the profile that ships with the package ({default.machine}): {reason}"


@dataclasses.dataclass(frozen=True)
class CostReport:
    """The times of strategies, all by default, with the origin of the machine profile; printed, they are a table."""

    model: CostModel
    origin: str
    strategies: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        memory: str,
        machine: str | os.PathLike[str] | None = None,
        ranks_per_node: int | None = None,
    ) -> CostReport:
        """
        Report on ranks that fill one node after another.

        :param memory: Where the arrays lie, one of :data:`dace_redist.tuning.problem.MEMORIES`.
        :param machine: File of the machine profile; default: see :func:`profile_in_use`.
        :param ranks_per_node: Default: those of the profile; all ranks on one node with the package's profile.
        :raises ValueError: If the profile has no figures for so many nodes, or so many ranks on one, or of a GPU.
        """
        profile, origin = profile_in_use(machine)
        own = profile is not machine_profile.default_profile()
        each = ranks_per_node or (profile.ranks_per_node if own else max(1, schedule.ranks))
        node_of = [rank // each for rank in range(schedule.ranks)]
        if node_of and node_of[-1] and profile.network is None:
            raise ValueError(
                f"the machine profile was made on one node, but {schedule.ranks} ranks take {node_of[-1] + 1} nodes of "
                f"{each}: name more --ranks-per-node, or calibrate on two nodes"
            )
        problem = Problem(schedule, memory)
        if problem.on_gpu and profile.device is None:
            raise ValueError(
                f"the machine profile has no figures of a GPU, which memory {memory} needs: run dace-redist calibrate "
                f"where each rank has one (DACE_REDIST_DEVICE=cuda has it say what is missing); the profile is {origin}"
            )
        return cls(CostModel(problem, profile, node_of), origin)

    @cached_property
    def estimates(self) -> list[Estimate]:
        """The strategies' times, the fastest first."""
        return self.model.estimates(self.strategies)

    @cached_property
    def bound(self) -> Bound:
        """The bound of the redistribution."""
        return Bound.of(self.model)

    def lines(self) -> list[str]:
        """Return lines of the machine, of each strategy with its terms in milliseconds, and of the bound."""
        model, bound = self.model, self.bound
        where = f"{count(len(model.node_of), 'rank')} on {count(len(set(model.node_of)), 'node')}"
        machine = textwrap.wrap(self.origin, 90, break_long_words=False, break_on_hyphens=False)
        lines = [f"{'' if i else 'machine':<10}{line}" for i, line in enumerate(machine)]
        if model.problem.on_gpu and model.profile.device is not None:
            lines.append(f"GPU       {model.profile.device.name}")
        lines.append(f"model     {where}, {model.problem.memory} arrays; milliseconds")
        rows = [("", "time", *Terms().by_name, "bottleneck", "of bound")]
        for one in self.estimates:
            reached = f"{100 * bound.share(one.seconds):.0f} %" if bound.remote else "-"
            times = map(milliseconds, (one.seconds, *one.terms.by_name.values()))
            rows.append((str(one), *times, one.bottleneck, reached))
        return [*lines, *table(rows), f"bound     {bound}"]

    @property
    def verdict(self) -> str:
        """The fastest strategy, as a sentence."""
        best = self.estimates[0]
        return f"{best} is predicted to be the fastest, in {format_seconds(best.seconds)}"

    def __str__(self) -> str:
        return "\n".join([*self.lines(), self.verdict])

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, lists and dictionaries; times in seconds, rates in bytes per second."""
        bound = self.bound
        strategies = [
            {
                "strategy": estimate.strategy,
                "options": dict(estimate.options),
                "seconds": estimate.seconds,
                "terms": estimate.terms.by_name,
                "bottleneck": estimate.bottleneck,
                "share_of_bound": bound.share(estimate.seconds) if bound.remote else None,
            }
            for estimate in self.estimates
        ]
        return {"machine": self.origin, "strategies": strategies, "bound": dataclasses.asdict(bound)}

    def plot(self, path: str | Path) -> None:
        """
        Draw which strategy is the fastest by size and run length on as many ranks of a node of this machine.

        :param path: File to write; its ending says the format: .png, .svg or .pdf.
        :raises ValueError: If a node has one rank, or the format is unknown.
        """
        ranks = max(Counter(self.model.node_of).values())
        if ranks < 2:
            raise ValueError("plot: one rank moves nothing; the model is drawn for two ranks or more")
        save(lambda: draw(self.model.profile, ranks, self.model.problem.memory), path)


def profile_text(profile: MachineProfile) -> str:
    """Return the machine of a profile, and the rates of the smallest and of the largest sizes that were measured."""
    nodes = f"{count(profile.nodes, 'node')} of {count(profile.ranks_per_node, 'rank')}"
    lines = [f"machine   {profile.machine}, {profile.mpi}, {nodes}", *_rows("", profile)]
    if (device := profile.device) is not None:
        launch = f"{format_seconds(device.launch)} for a kernel"
        lines += [f"{'GPU':<20}{device.name}; {launch}", *_rows("GPU ", device)]
    return "\n".join(lines)


def _rows(prefix: str, part: Strict) -> list[str]:
    """Lines of all that was measured of a part of a profile."""
    rows = []
    for name, value in part:
        if isinstance(value, Curve):
            rates = f"{format_seconds(value.latency)}, {1e-9 * value.rate:.3g} GB/s"
            rows.append(f"{prefix + name.replace('_', ' '):<20}{rates}")
        elif isinstance(value, Surface):
            first, last = ([1e-9 / row[end] for end in (0, -1)] for row in (value.seconds_per_byte[i] for i in (0, -1)))
            rates = f"{first[0]:.3g} to {first[1]:.3g} GB/s in the cache, {last[0]:.3g} to {last[1]:.3g} GB/s beyond"
            runs = f"runs of {value.runs[0]:,} to {value.runs[-1]:,} B"
            rows.append(f"{prefix + name.replace('_', ' '):<20}{runs}: {rates}")
        elif isinstance(value, Copies | NodeRates | NetworkRates):
            rows += _rows(f"{prefix}network " if isinstance(value, NetworkRates) else prefix, value)
    return rows

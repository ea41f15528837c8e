"""The candidates of the tuner: every strategy, and values of its options around the best so far. Start at: space."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from dace_redist.mpi.topology import Topology
from dace_redist.schedule import Schedule
from dace_redist.strategies import (
    OPTIONS,
    STRATEGIES,
    check_options,
    default_options,
    find_strategy,
    gpu_strategies,
    host_strategies,
)
from dace_redist.tuning.problem import MAIN_MEMORIES, sides_on_gpu
from dace_redist.tuning.record import Winner


def measurable(memory: str = MAIN_MEMORIES[0]) -> tuple[str, ...]:
    """Return the strategies that can be measured by themselves; stock DaCe's code exists in DaCe programs only."""
    on_gpu = sides_on_gpu(memory)
    return gpu_strategies(all(on_gpu)) if any(on_gpu) else host_strategies()


@dataclasses.dataclass(frozen=True)
class Space:
    """
    The candidates for tuning; made by :func:`space`.

    :param values: Values to try for each option, the default among them where that is to be tried.
    :param on_gpu: Whether an array lies on a GPU.
    """

    strategies: tuple[str, ...]
    values: Mapping[str, tuple[int | float, ...]]
    on_gpu: bool = False

    def first(self, topology: Topology) -> list[Winner]:
        """
        Return every strategy with its default options; with the first value where the default is not to be tried.

        On one node ``Hierarchical`` and ``Aggregated`` do what ``Shared`` does, and one is enough. On GPUs that holds
        for ``Hierarchical`` only, which has more options there.
        """
        kept, alike = ("Hierarchical", {"Shared"}) if self.on_gpu else ("Shared", {"Hierarchical", "Aggregated"})
        redundant = alike if topology.node_count == 1 and kept in self.strategies else set()
        defaults, first = default_options(self.on_gpu), []
        for name in self.strategies:
            tried = {o: self.values[o] for o in find_strategy(name).options if self.values.get(o)}
            options = {option: values[0] for option, values in tried.items() if defaults[option] not in values}
            first += [] if name in redundant else [Winner(strategy=name, options=options)]
        return first

    def varied(self, best: Winner, option: str, schedule: Schedule, topology: Topology) -> list[Winner]:
        """Return the best candidate so far with every other sensible value of one option of its strategy."""
        defaults = default_options(self.on_gpu)
        values = sensible(option, self.values.get(option, ()), schedule, topology, defaults[option])
        if option == "threads" and best.strategy != "Threaded":  # one is the default, and a GPU copies without
            values = () if self.on_gpu else tuple(value for value in values if value != 1)
        current = best.options.get(option, defaults[option])
        varied = ({**best.options, option: value} for value in values if value != current)
        return [
            Winner(strategy=best.strategy, options={k: v for k, v in options.items() if v != defaults[k]})
            for options in varied
        ]


def sensible(
    option: str, values: Sequence[int | float], schedule: Schedule, topology: Topology, usual: float | None = None
) -> tuple[int | float, ...]:
    """
    Return the values of an option that can make a difference.

    Of pieces larger than the largest message, which are equivalent, one remains. More threads than there are cores for
    them only take turns; as many as OpenMP has anyway are the default.

    :param usual: The value if none is given; default: that in main memory.
    """
    usual = OPTIONS[option].default if usual is None else usual
    if option.endswith("_bytes"):
        largest = max(schedule.totals.sizes, default=0) * schedule.itemsize
        whole = [value for value in values if value >= largest]
        alike = usual if usual in whole else min(whole, default=0)
        return tuple(value for value in values if value < largest or value == alike)
    if option == "threads":
        cores = os.cpu_count() or 1
        most, threads = max(1, cores // topology.ranks_per_node), os.environ.get("OMP_NUM_THREADS")
        return tuple(value for value in values if value <= most and str(value) != threads)
    return tuple(values)


def space(
    strategies: Sequence[str] | None, options: Mapping[str, Sequence[Any]] | None, memory: str = MAIN_MEMORIES[0]
) -> Space:
    """
    Return the candidates.

    :param strategies: Names of strategies; default: all that can be measured.
    :param options: Values to try for some options, instead of those that :data:`dace_redist.strategies.OPTIONS` names.
    :param memory: Where the arrays lie, one of :data:`dace_redist.tuning.problem.MEMORIES`.
    :raises ValueError: If a strategy or an option is unknown, or a value out of range.
    :raises TypeError: If something is of the wrong type.
    """
    if isinstance(strategies, str):
        raise TypeError(f"strategies must be a list of names, got the string {strategies!r}")
    known, on_gpu = measurable(memory), any(sides_on_gpu(memory))
    names = tuple(known if strategies is None else dict.fromkeys(strategies))
    for name in names:
        if name == "Auto" or find_strategy(name).name not in known:
            raise ValueError(f"strategy {name} cannot be tuned with {memory} arrays; choose from {', '.join(known)}")
    if not names:
        raise ValueError(f"strategies is empty; choose from {', '.join(known)}")
    taken = [option for option in OPTIONS if any(option in STRATEGIES[name].options for name in names)]
    usual = default_options(on_gpu)
    values = {option: (usual[option], *OPTIONS[option].tuning) for option in taken if OPTIONS[option].tuning}
    for option, tried in (options or {}).items():
        if option not in taken:
            takers = f"none of {', '.join(names)} takes option {option!r}"
            raise ValueError(f"{takers}; they take {', '.join(taken) or 'none'}")
        if isinstance(tried, str) or not isinstance(tried, Sequence) or not tried:
            raise TypeError(f"options: {option} needs a list of values to try, got {tried!r}")
        of = next(STRATEGIES[name] for name in names if option in STRATEGIES[name].options)
        values[option] = tuple(dict.fromkeys(check_options(of, {option: value})[option] for value in tried))
    return Space(names, values, on_gpu)

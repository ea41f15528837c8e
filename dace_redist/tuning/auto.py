"""Resolves strategy "Auto": the recorded winner, else the default. Start: choose_all."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from dace_redist.distribution import AnyDistribution
from dace_redist.mpi.collective import check_same, checked_communicator, found_by_first, together
from dace_redist.mpi.launch import check_both_ranks
from dace_redist.mpi.topology import Topology, topology_of
from dace_redist.native.device import device_name
from dace_redist.report.text import header
from dace_redist.schedule import schedule
from dace_redist.strategies import DEFAULT_STRATEGY, with_options
from dace_redist.tuning import record_path
from dace_redist.tuning.problem import TuningProblem, check_memory

_log = logging.getLogger("dace_redist")

#: Why nothing measured is used for some arrays.
NOT_IN_C_ORDER = "the arrays are not in C order, as those that are measured"


@dataclasses.dataclass(frozen=True)
class Choice:
    """
    A strategy for one redistribution, and why: measured, or the default.

    :param options: Options that are not at their defaults.
    :param recorded: Whether it was measured.
    :param reason: Its origin, in one line.
    """

    strategy: str
    options: Mapping[str, int | float]
    recorded: bool
    reason: str

    def __str__(self) -> str:
        return f"{with_options(self.strategy, self.options)}: {self.reason}"


def chosen_strategy(
    source: AnyDistribution,
    target: AnyDistribution,
    dtype: npt.DTypeLike = "float64",
    comm: Any = None,
    *,
    axes: Sequence[int] | None = None,
    region: Sequence[Sequence[int]] | None = None,
    memory: str = "ordinary",
    record: str | os.PathLike[str] | None = None,
) -> Choice:
    """
    Return the strategy that ``"Auto"`` takes for a redistribution, and the reason. Collective over ``comm``.

    That is what :func:`dace_redist.tune` recorded, else the default. For arrays in C order, as those that are measured;
    with others it is the default strategy. Parameters that are not listed here are those of
    :func:`dace_redist.plan` and :func:`dace_redist.tune`.

    :param source, target, dtype: See :func:`dace_redist.plan`.
    :param comm: mpi4py communicator; default: the world.
    :return: The choice, equal on every rank.
    :raises ValueError: On every rank, if an argument is invalid on one of them, or the record is damaged.
    :raises TypeError: On every rank, if something is of the wrong type.
    :raises OSError: On every rank, if the record cannot be read.
    :raises BuildError: On every rank, if arrays lie on GPUs and the library for them cannot be built.
    :raises RedistributionError: On every rank, if arrays lie on GPUs and a rank has none.
    """
    comm = checked_communicator(comm)
    with together(comm):
        problem = TuningProblem(schedule(source, target, dtype=dtype, axes=axes, region=region), check_memory(memory))
        check_both_ranks(problem.schedule, comm.size)
    check_same(comm, {"the redistribution": [*header(problem.schedule), problem.identity]})
    return choose_all([problem], comm, record)[0]


def choose_all(
    problems: Sequence[TuningProblem], comm: Any, record: str | os.PathLike[str] | None = None
) -> list[Choice]:
    """
    Choose a strategy for each redistribution, on one rank for all. Collective.

    :param record: File of the tuning record, of which only rank 0's counts; errors as of :func:`chosen_strategy`.
    """
    topology = topology_for(problems, comm)
    return found_by_first(comm, lambda: [_choose(problem, topology, record) for problem in problems])


def topology_for(problems: Iterable[TuningProblem], comm: Any) -> Topology:
    """Return the topology of a communicator, with the model of the GPUs if an array lies on one. Collective."""
    topology = topology_of(comm)
    if not any(problem.on_gpu for problem in problems):
        return topology
    return dataclasses.replace(topology, gpu=gpus_of(comm))


def gpus_of(comm: Any) -> str:
    """Return the model of the GPUs of a communicator's ranks. Collective; an error if one has none."""
    with together(comm):
        name = device_name()
    return " and ".join(sorted(set(comm.allgather(name))))


def _choose(problem: TuningProblem, topology: Topology, path: str | os.PathLike[str] | None) -> Choice:
    reason = "nothing was measured"
    if problem.schedule.ranks > len(topology.node_of):
        return Choice(DEFAULT_STRATEGY, {}, False, "the communicator does not hold its ranks")
    if record_path(path).exists():
        from dace_redist.tuning.record import Record  # loads pydantic, which takes as long as NumPy

        record = Record(path)
        winner, ignored = record.find(problem, topology)
        if winner is not None:
            return Choice(winner.strategy, dict(winner.options), True, f"measured, in {record.path}")
        if ignored:
            _warn_once(ignored)
            reason = ignored
    return Choice(DEFAULT_STRATEGY, {}, False, reason)


@functools.cache
def _warn_once(line: str) -> None:
    _log.warning(line)

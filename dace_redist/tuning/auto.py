"""Resolves strategy "Auto": the recorded winner, else the predicted one, else the default. Start: choose_all."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from dace_redist.distribution import AnyDistribution
from dace_redist.errors import RedistributionError
from dace_redist.mpi.collective import check_same, checked_communicator, together
from dace_redist.mpi.topology import Topology, topology_of
from dace_redist.native.device import DEVICE_VARIABLE, device_name
from dace_redist.report.text import header
from dace_redist.report.units import count, format_seconds
from dace_redist.schedule import Schedule, schedule
from dace_redist.strategies import DEFAULT_STRATEGY, with_options
from dace_redist.tuning.files import profile_path, record_path
from dace_redist.tuning.problem import Problem, check_memory

if TYPE_CHECKING:
    from dace_redist.tuning.cost_model import CostModel

_log = logging.getLogger("dace_redist")

#: A strategy replaces the default one if it is predicted to take less than this part of its time. Most predictions are
#: right to a quarter, but on virtual machines the rate between processors changes by a factor of two within hours.
CLEARLY_FASTER = 0.5
#: Why nothing measured is used for some arrays.
NOT_IN_C_ORDER = "the arrays are not in C order, as those that are measured"


@dataclasses.dataclass(frozen=True)
class Choice:
    """
    A strategy for one redistribution, and why: measured, predicted by the cost model, or the default.

    :param options: Options that are not at their defaults.
    :param recorded: Whether it was measured.
    :param reason: Its origin, in one line.
    :param predicted: Whether the cost model chose it.
    """

    strategy: str
    options: Mapping[str, int | float]
    recorded: bool
    reason: str
    predicted: bool = False

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

    That is what was measured; else, where there is a machine profile (``dace-redist calibrate``), what the cost model
    predicts to be clearly faster than the default; else the default. For arrays in C order, as those that are measured;
    with others it is the default strategy. Parameters that are not listed here are those of
    :func:`dace_redist.plan` and :func:`dace_redist.tune`.

    :param source: See :func:`dace_redist.plan`.
    :param target: See :func:`dace_redist.plan`.
    :param dtype: See :func:`dace_redist.plan`.
    :param comm: mpi4py communicator; default: the world.
    :return: The choice, equal on every rank.
    :raises ValueError: On every rank, if an argument is invalid on one of them, or the record or the machine profile is
        damaged.
    :raises TypeError: On every rank, if something is of the wrong type.
    :raises OSError: On every rank, if the record cannot be read.
    :raises BuildError: On every rank, if arrays lie on GPUs and the library for them cannot be built.
    :raises RedistributionError: On every rank, if arrays lie on GPUs and a rank has none.
    """
    comm = checked_communicator(comm)
    with together(comm):
        problem = Problem(schedule(source, target, dtype=dtype, axes=axes, region=region), check_memory(memory))
        check_ranks(problem.schedule, comm.size)
    check_same(comm, {"the redistribution": [*header(problem.schedule), problem.identity]})
    return choose_all([problem], comm, record)[0]


def check_ranks(schedule: Schedule, size: int) -> None:
    """Check that a communicator of ``size`` ranks holds every rank of a redistribution, else raise a ValueError."""
    if schedule.ranks > size:
        raise ValueError(
            f"the distributions name ranks up to {schedule.ranks - 1}, but the communicator has {count(size, 'rank')}: "
            f"start with mpiexec -n {schedule.ranks}"
        )


def choose_all(problems: Sequence[Problem], comm: Any, record: str | os.PathLike[str] | None = None) -> list[Choice]:
    """
    Choose a strategy for each redistribution, on one rank for all. Collective.

    :param record: File of the tuning record, of which only rank 0's counts; errors as of :func:`chosen_strategy`.
    """
    topology = topology_for(problems, comm)
    choices: list[Choice] | Exception = []
    if comm.rank == 0:
        try:
            choices = [_choose(problem, topology, record) for problem in problems]
        except Exception as error:
            choices = error
    choices = comm.bcast(choices)  # one collective call, which counts in the first call of a redistribution
    if isinstance(choices, Exception):
        raise choices
    return choices


def topology_for(problems: Iterable[Problem], comm: Any) -> Topology:
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


def usable_gpu(comm: Any) -> str:
    """Return :func:`gpus_of`; ``""`` if a rank has none, unless ``DACE_REDIST_DEVICE`` asks for one. Collective."""
    wanted = bool(os.environ.get(DEVICE_VARIABLE))
    try:
        return gpus_of(comm)
    except (RuntimeError, RedistributionError, OSError):  # a BuildError is a RuntimeError
        if any(comm.allgather(wanted)):
            raise
        return ""


def _choose(problem: Problem, topology: Topology, path: str | os.PathLike[str] | None) -> Choice:
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
    model = _model_of(problem, topology)
    if model is None:
        return Choice(DEFAULT_STRATEGY, {}, False, reason)
    seconds = {one.strategy: one.seconds for one in model.estimates()}
    name = min(seconds, key=seconds.__getitem__)
    if seconds[name] >= CLEARLY_FASTER * seconds[DEFAULT_STRATEGY]:
        name = DEFAULT_STRATEGY
    chosen = model.with_best_options(name)
    assert chosen is not None
    reason = f"predicted to take {format_seconds(chosen.seconds)} by the cost model"
    if seconds[name] > min(seconds.values()):
        reason += ", and none to be clearly faster"
    return Choice(name, dict(chosen.options), False, reason, True)


def predicted_seconds(problem: Problem, topology: Topology) -> dict[str, float]:
    """Return the predicted time of each strategy with default options; nothing without a profile of this machine."""
    model = _model_of(problem, topology)
    return {} if model is None else {one.strategy: one.seconds for one in model.estimates()}


def _model_of(problem: Problem, topology: Topology) -> CostModel | None:
    """The cost model for a problem, by this user's machine profile."""
    path = profile_path()
    if not path.exists():
        return None
    from dace_redist.tuning.cost_model import CostModel
    from dace_redist.tuning.profile import for_topology

    profile, ignored = for_topology(path, topology, problem.on_gpu)
    if profile is None:
        _warn_once(ignored)
        return None
    return CostModel(problem, profile, topology.node_of)


@functools.cache
def _warn_once(line: str) -> None:
    _log.warning(line)

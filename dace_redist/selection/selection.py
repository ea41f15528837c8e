"""Chooses a strategy by itself: the recorded winner, else a rule. Start reading at: rule."""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy.typing as npt

from dace_redist.distribution import AnyDistribution
from dace_redist.mpi.collective_errors import check_same, together
from dace_redist.mpi.topology import Place, place_of
from dace_redist.report.run_lengths import Quantiles
from dace_redist.report.text import header, measured_ranks
from dace_redist.schedule import Schedule, schedule
from dace_redist.selection.problem_key import Case, check_memory
from dace_redist.strategies import DEFAULT_STRATEGY

_log = logging.getLogger("dace_redist")


@dataclasses.dataclass(frozen=True)
class Traits:
    """
    What the rule looks at; each is found out when it is asked for.

    :param case: The redistribution, and where its arrays lie.
    :param place: Where it will run.
    """

    case: Case
    place: Place

    @property
    def moves(self) -> Schedule:
        """Its schedule."""
        return self.case.moves

    @cached_property
    def one_node(self) -> bool:
        """Whether all ranks, up to the last that takes part, are on one node."""
        return len(set(self.place.node_of[: self.moves.ranks])) == 1

    @cached_property
    def run_bytes(self) -> int:
        """Median length of the contiguous pieces that messages are copied from, in bytes; 0 if nothing is sent."""
        return self.moves.run_lengths(measured_ranks(self.moves)).sender.median * self.moves.itemsize

    @cached_property
    def message_bytes(self) -> int:
        """Median size of the messages between ranks, in bytes; 0 if there are none."""
        return Quantiles.of(self.moves.totals.sizes).median * self.moves.itemsize


def rule(traits: Traits) -> str:
    """
    The strategy for a redistribution that was never measured: ``Hierarchical``, whatever runs, messages and nodes are.

    It chooses itself for each pair of ranks: on one node straight into (push) or out of (pull) the array that is
    node-shared, by the longer stretches; through a ring where none is; between nodes in chunks over MPI.

    :param traits: What is known of the redistribution.
    :return: Name of the strategy, to be used with its default options.
    """
    return DEFAULT_STRATEGY


@dataclasses.dataclass(frozen=True)
class Choice:
    """
    A strategy for one redistribution, and why.

    :param strategy: Its name.
    :param options: Options that are not at their defaults.
    :param recorded: Whether it was measured; otherwise it is by the rule.
    :param reason: Where it is from, in one line.
    """

    strategy: str
    options: Mapping[str, int | float]
    recorded: bool
    reason: str

    def __str__(self) -> str:
        """The strategy with its options, and why."""
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.strategy}{f'({options})' if options else ''}: {self.reason}"


#: Why nothing measured is taken for some arrays.
NOT_IN_C_ORDER = "by the rule: the arrays are not in C order, as those that are measured"


def choice_by_rule(case: Case, comm: Any, reason: str) -> Choice:
    """
    The rule's choice, whatever was measured. Collective.

    :param case: The redistribution.
    :param comm: mpi4py communicator it runs on.
    :param reason: Why the record is not asked.
    """
    return Choice(rule(Traits(case, place_of(comm))), {}, False, reason)


def chosen_strategy(
    source: AnyDistribution,
    target: AnyDistribution,
    dtype: npt.DTypeLike = "float64",
    comm: Any = None,
    *,
    memory: str = "ordinary",
    record: str | os.PathLike[str] | None = None,
) -> Choice:
    """
    What strategy ``"Auto"`` does with a redistribution. Collective over ``comm``.

    That is for arrays in C order, as those that are measured; with others it goes by its rule.

    :param source: Distribution before; all its sizes numbers.
    :param target: Distribution after, of the same shape.
    :param dtype: Type of the elements.
    :param comm: mpi4py communicator; default: the world.
    :param memory: Where the arrays lie: ``"ordinary"``, or which of them :func:`dace_redist.empty` made,
        ``"shared-source"``, ``"shared-target"`` or ``"shared-both"``.
    :param record: File of the tuning record; default: ``DACE_REDIST_RECORD``, else the user's one.
    :return: The choice, the same on every rank.
    :raises ValueError: On every rank, if ranks ask for different things, if the distributions do not fit each other or
        the communicator, or if the record is damaged.
    :raises TypeError: On every rank, if something is of the wrong type.
    :raises OSError: On every rank, if the record cannot be read.
    """
    comm = world() if comm is None else comm
    with together(comm):
        case = Case(schedule(source, target, dtype=dtype), check_memory(memory))
        check_ranks(case.moves, comm.size)
    check_same(comm, "the redistribution", [*header(case.moves), case.identity])
    return choose_all([case], comm, record)[0]


def world() -> Any:
    """mpi4py's communicator of all ranks."""
    from mpi4py import MPI

    return MPI.COMM_WORLD


def check_ranks(moves: Schedule, size: int) -> None:
    """
    Makes sure that a communicator holds every rank of a redistribution.

    :param size: Ranks in the communicator.
    :raises ValueError: If it is too small; says how to start more.
    """
    if moves.ranks > size:
        raise ValueError(
            f"the distributions name ranks up to {moves.ranks - 1}, but the communicator has {size} "
            f"{'rank' if size == 1 else 'ranks'}: start with mpiexec -n {moves.ranks}"
        )


def choose_all(cases: Sequence[Case], comm: Any, record: str | os.PathLike[str] | None = None) -> list[Choice]:
    """
    The choice for each redistribution: one rank looks them up for all. Collective.

    :param cases: The redistributions; the same on every rank.
    :param comm: mpi4py communicator they run on.
    :param record: File of the tuning record, of which only rank 0's counts; default as in :func:`chosen_strategy`.
    :return: One choice per case, the same on every rank.
    :raises ValueError: On every rank, if the record is damaged.
    :raises OSError: On every rank, if it cannot be read.
    """
    place, choices = place_of(comm), None
    with together(comm):
        if comm.rank == 0:
            choices = [_choose(case, place, record) for case in cases]
    return list(comm.bcast(choices))


def _choose(case: Case, place: Place, path: str | os.PathLike[str] | None) -> Choice:
    from dace_redist.selection.record import Record, record_path  # loads the library that checks the file

    record = Record(record_path(path))
    winner, ignored = record.find(case, place)
    if winner is not None:
        return Choice(winner.strategy, dict(winner.options), True, f"measured, in {record.path}")
    if ignored:
        _say_once(ignored)
    return Choice(rule(Traits(case, place)), {}, False, ignored or "by the rule, nothing was measured")


@functools.cache
def _say_once(line: str) -> None:
    _log.warning(line)

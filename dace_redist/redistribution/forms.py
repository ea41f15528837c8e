"""Further forms of calls: tensors by name, and ranks in the two groups of an intercommunicator."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mpi4py import MPI

from dace_redist.distribution import check_distribution
from dace_redist.mpi.collective import checked_communicator, together
from dace_redist.mpi.groups import Groups
from dace_redist.redistribution.cache import Settings, move
from dace_redist.redistribution.distributed_array import known_communicator, redistribute_known
from dace_redist.redistribution.problem import CHANGE, Problem, is_list
from dace_redist.redistribution.problem.agreement import fail_together
from dace_redist.redistribution.request import Request
from dace_redist.redistribution.tensor_plan import Plan


def is_named(*values: Any) -> bool:
    """Return True if any of the values is a dict."""
    return any(isinstance(value, Mapping) for value in values)


def by_name(values: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    """
    Return the names of tensors in alphabetical order, and the values with lists in the place of dicts.

    :param values: Arguments of a call; None, and arguments that are not of each tensor, stay as they are.
    :raises ValueError: If the dicts have different names, or none.
    :raises TypeError: If an argument that must be a dict is something else.
    """
    first, given = next((key, value) for key, value in values.items() if isinstance(value, Mapping))
    ordered = _ordered(tuple(given))
    if ordered is None:
        raise ValueError(f"{first} must have names, at least one, got {list(given)}")
    names, pick = ordered
    return names, {key: _listed(key, value, names, pick, first) for key, value in values.items()}


@functools.lru_cache(64)
def _ordered(given: tuple[Any, ...]) -> tuple[tuple[str, ...], Callable[[Any], Any]] | None:
    """Return names in alphabetical order, and what picks their values; None if there are none, or one is no name."""
    if not given or not all(isinstance(name, str) and name for name in given):
        return None
    names = sorted(given)
    return tuple(names), operator.itemgetter(*names) if len(names) > 1 else lambda value: (value[names[0]],)


def _listed(key: str, value: Any, names: tuple[str, ...], pick: Callable[[Any], Any], first: str) -> Any:
    if isinstance(value, Mapping):
        try:  # dicts of a thousand names: no comparison of the names, as each is looked up
            if len(value) == len(names) and (type(value) is dict or value.keys() == {*names}):
                return [*pick(value)]
        except KeyError:
            pass
        wrong = ", ".join(map(repr, sorted(value.keys() ^ {*names}, key=str)))
        raise ValueError(f"{key} must have the names of {first}; only one of the two has {wrong}")
    if value is not None and key in ("array", "source", "target", "out"):
        raise TypeError(f"{key} must be a dict with the names of {first}, got {type(value).__name__}")
    return value


class Form(NamedTuple):
    """
    Form of a call.

    :param names: Names of the tensors; None: they have none.
    :param sends: True if this rank's group has the sources, False if it has the targets; None: there are no groups.
    """

    names: tuple[str, ...] | None = None
    sends: bool | None = None

    def lists(self, **arrays: Any) -> list[Any]:
        """Return arrays of a call without their names."""
        if self.names is None or not is_named(*arrays.values()):
            return list(arrays.values())
        return list(by_name({"the plan": dict.fromkeys(self.names), **arrays})[1].values())[1:]

    def result(self, targets: Any) -> Any:
        """Return the targets as the caller gets them."""
        return None if self.sends else self.named(targets)

    def named(self, values: Any) -> Any:
        """Return a list by the names of the tensors."""
        return values if self.names is None else dict(zip(self.names, values, strict=True))


def on_both_groups(groups: Groups, sends: bool, source: Any, target: Any) -> tuple[Any, Any]:
    """Return distributions with the ranks of both groups together."""

    def moved(name: str, side: Any, owned: bool) -> Any:
        if is_list(side):
            return [moved(f"{name}[{number}]", one, owned) for number, one in enumerate(side)]
        check_distribution(name, side)
        ranks = len(groups.ranks[0 if owned else 1])
        if side.ranks_needed > ranks:
            raise ValueError(f"{name} needs {side.ranks_needed} ranks, but its group has {ranks}")
        return groups.moved(side, owned)

    if source is None or target is None:
        raise TypeError("between groups, both distributions are needed: pass array.local, its distribution, and target")
    return moved("source", source, sends), moved("target", target, not sends)


def redistribute_in_form(array: Any, source: Any, target: Any, comm: Any, out: Any, how: Settings) -> Any:
    """Move tensors by name, or between groups; see :func:`dace_redist.redistribute`."""
    groups = sends = names = None
    if isinstance(comm, MPI.Intercomm):
        groups = Groups.of(comm)
        sends, comm = groups.sends(array is not None), groups.merged
    elif comm is None:
        comm = known_communicator([*array.values()] if isinstance(array, Mapping) else []) or MPI.COMM_WORLD
    try:
        values = {"array": array, "source": source, "target": target, "out": out}
        values |= dict(zip(CHANGE, how[0], strict=True))
        if is_named(array, source, target):
            names, values = by_name(values)
        array, source, target, out, *change = values.values()
        if groups is not None:
            source, target = on_both_groups(groups, bool(sends), source, target)
    except Exception as error:
        fail_together(comm, error)
    how = (tuple(change), *how[1:-1], names)
    if source is None or target is None:
        results = redistribute_known(array, target if source is None else source, comm, out, how)
    else:
        results = move(array, source, target, comm, out, how)
    return Form(names, sends).result(results)


class FormedPlan(Plan):
    """Plan of tensors by name, or between groups; see :func:`dace_redist.plan`."""

    def __init__(self, comm: MPI.Intracomm, problem: Problem, sends: bool | None) -> None:
        self._form = Form(problem.names, sends)
        super().__init__(comm, problem)

    def _each(self, rows: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        return [*map(self._form.named, super()._each(rows))]

    def _like(self, problem: Problem) -> Plan:
        sends = self._form.sends
        return FormedPlan(self._comm, problem, None if sends is None else not sends)

    def __call__(self, array: Any = None, out: Any = None) -> Any:  # noqa: D102 (as of the base)
        if self._form.sends is None:
            arrays = self._lists(array, out)
        else:
            with together(checked_communicator(self._comm)):  # an error of one group is one of the other, too
                arrays = self._lists(array, out)
                self._checked(*arrays)
        return self._form.result(super().__call__(*arrays))

    def start(self, array: Any = None, out: Any = None, *, progress: str = "calls") -> Request:  # noqa: D102
        request = super().start(*self._lists(array, out), progress=progress)
        request.show = self._form.result
        return request

    def empty_target(self, array: Any = None) -> Any:  # noqa: D102
        return self._form.result(self._lists(array, None)[1])

    def _lists(self, array: Any, out: Any) -> list[Any]:
        """Return the arrays of a call without names; new targets in the place of None."""
        array, out = self._form.lists(array=array, out=out)
        return [array, self._new_targets(array) if out is None else out]

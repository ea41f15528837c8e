"""Agreement of all ranks on a problem. Start reading at: agreed_problem."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from mpi4py import MPI

from dace_redist.distribution import AnyDistribution, Distribution, check_distribution
from dace_redist.integers import AnyInt, at_least
from dace_redist.mpi.collective import agreed, together
from dace_redist.native.device import ensure_device_library
from dace_redist.native.interface import agree, prepare
from dace_redist.redistribution.arrays import ArrayView, Views
from dace_redist.redistribution.problem import Arguments, Columns, Problem
from dace_redist.redistribution.problem.checks import check_arrays

#: Element types of the sources; None: unknown.
_Known = Sequence[np.dtype[Any] | None]


class Facts(NamedTuple):
    """
    Local booleans of a call, of which all ranks learn the logical OR.

    They are true if a source, or a target, has elements in main memory, has some on the GPU, or has strides that are
    negative or not a multiple of the element size.
    """

    source_cpu: bool = False
    source_gpu: bool = False
    source_irregular: bool = False
    target_cpu: bool = False
    target_gpu: bool = False
    target_irregular: bool = False

    @classmethod
    def of(cls, views: Views) -> Facts:
        """Return the facts of the arrays of a complete call."""
        return cls(*_of_side(views.sources), *_of_side(views.targets))


def _of_side(views: Sequence[ArrayView | None]) -> tuple[bool, bool, bool]:
    held = [view for view in views if view is not None and view.size > 0]
    cpu, gpu = (any(view.device == device for view in held) for device in ("cpu", "gpu"))
    return cpu, gpu, any(not view.is_plain for view in held)


_NO_FACTS = Facts()


def agreed_problem(comm: MPI.Intracomm, given: Arguments, array: Any, out: Any) -> tuple[Problem, Views]:
    """
    Return the problem that all ranks agree on, and views of this rank's arrays. Collective.

    An error on one rank, or a difference between ranks, is raised on every rank. Ranks that know the element types of
    all sources tell those that do not.
    """
    told: _Known | None = None
    while True:
        problem = views = failure = None
        types: _Known = ()
        try:
            columns = given.in_columns()
            views = Views.of(array, out, columns.length, columns.lists)
            types = _source_types(columns, views, told)
            if not any(element is None for element in types):  # float64 equals None, for NumPy
                problem = columns.checked(types, comm.size)
                check_arrays(problem, views, comm.rank, new=out is None)
        except Exception as error:
            failure = error
        if problem is None or views is None:
            found = agreed(comm, failure, 0, facts=_NO_FACTS)
        else:
            found = agreed(comm, failure, problem.digest, problem.facts, Facts.of(views))
        if found is not None:
            assert problem is not None and views is not None
            problem = _placed(problem, Facts(*found))
            if problem.on_gpu:
                prepare(comm, ensure_device_library)
            return problem, views
        known = itertools.zip_longest(*comm.allgather(types))  # another number of tensors is an error next time
        told = [next((element for element in of_all if element is not None), None) for of_all in known]


def _source_types(columns: Columns, views: Views, told: _Known | None) -> _Known:
    """
    Return the element types of the sources. A None source has the type of its target or, without one or if elements are
    converted, the type that other ranks report.

    :param told: Types that any rank knows; None: the ranks were not asked yet.
    """
    types: list[np.dtype[Any] | None] = []
    wanted = columns.values["target_dtype"]
    for number, (source, target) in enumerate(zip(*views, strict=True)):
        typed = source if source is not None or wanted[number] is not None else target
        types.append(typed.dtype if typed is not None else None if told is None else told[number])
        if types[-1] is None and told is not None:
            name = views.name("array", number, columns.lists)
            raise ValueError(f"{name} is None on every rank: pass an empty array of the source's element type")
    return types


def _placed(problem: Problem, anywhere: Facts) -> Problem:
    """Return the problem with the devices of its arrays, from the facts of all ranks."""
    if anywhere.source_gpu or anywhere.target_gpu:
        hint = ", or in other parts of the list: these take a call each" if problem.lists else ""
        sides = (
            ("array", anywhere.source_cpu and anywhere.source_gpu, anywhere.source_irregular),
            ("out", anywhere.target_cpu and anywhere.target_gpu, anywhere.target_irregular),
        )
        for name, mixed, irregular in sides:
            if mixed:
                raise ValueError(f"{name} lies on the GPU on some ranks, and in main memory on others{hint}")
            if irregular:
                raise ValueError(
                    f"{name} has strides that do not count elements forward, on some rank, and source or target is on "
                    "the GPU: copy it first"
                )
    source = "gpu" if anywhere.source_gpu else "cpu"  # also the place of a target that no rank passes
    return problem.placed((source, "gpu" if anywhere.target_gpu else "cpu" if anywhere.target_cpu else source))


def fail_together(comm: MPI.Intracomm, failure: Exception) -> NoReturn:
    """Raise a failure that kept this rank from a problem, and have :func:`agreed_problem` raise it on all others."""
    enter_without_plan(comm)
    agreed(comm, failure, 0, facts=_NO_FACTS)
    raise AssertionError  # for type checkers


def enter_without_plan(comm: MPI.Intracomm) -> None:
    """Begin a ``redistribute`` without a plan: all ranks then compare their arguments. Collective."""
    prepare(comm)
    agree(MPI._handleof(comm), 0)


def shapes_on_ranks(comm: MPI.Intracomm, shapes: list[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """Return for each array the shapes of its parts on all ranks. An error on every rank if one has a problem."""
    enter_without_plan(comm)
    agreed(comm, None, 0, facts=_NO_FACTS)
    rows = comm.allgather(tuple(shapes))  # a list is of element types, from agreed_problem
    if any(not isinstance(row, tuple) or len(row) != len(shapes) for row in rows):
        kinds = [f"{len(row)} of another library" if isinstance(row, tuple) else "others" for row in rows]
        agreed(comm, ValueError(f"the ranks pass different arrays, by rank: {', '.join(kinds)}"), 0, facts=_NO_FACTS)
    return [list(of_array) for of_array in zip(*rows, strict=True)]


def agreed_root(name: str, distribution: AnyDistribution, comm: MPI.Intracomm, root: AnyInt) -> Distribution:
    """Return the distribution of a whole tensor on one rank; an error on one rank is raised on all. Collective."""
    with together(comm, {"root": root}):
        check_distribution(name, distribution)
        if at_least(0, "root", root) >= comm.size:
            raise ValueError(f"root must be from 0 to {comm.size - 1}, got {root}")
        return Distribution.on_rank(distribution.shape, int(root))
    raise AssertionError  # for type checkers: together() raises only what the block raises

"""Function :func:`plan`, and the agreement of all ranks on a problem. Start reading at: agreed_problem."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import AnyDistribution, Distribution, check_distribution
from dace_redist.errors import RedistributionError
from dace_redist.integers import AnyInt, AnyInts, AnyNumber
from dace_redist.mpi.collective import checked_communicator, encoded_failure, raise_first, together
from dace_redist.native.device import ensure_device_library
from dace_redist.native.interface import NativePlan, agree, prepare
from dace_redist.redistribution.arrays import DEVICES, Views
from dace_redist.redistribution.plan import Plan
from dace_redist.redistribution.problem import CHANGE, Arguments, Problem, check_arrays, is_measured, listed
from dace_redist.strategies import AUTO
from dace_redist.tuning.problem import memory_name

#: Element types of the sources; None: unknown.
_Known = Sequence[np.dtype[Any] | None]


def agreed(
    comm: MPI.Intracomm, problem: Problem | None, failure: Exception | None, facts: Sequence[bool] = ()
) -> list[bool]:
    """
    Raise on every rank the failure of any rank, or a difference between their problems. Collective.

    :param problem: Problem of this rank; None if its arguments are invalid or incomplete.
    :param facts: Local booleans, equally many on all ranks. If the first is true on any rank, problems may be missing.
    :return: The logical OR of each over all ranks.
    """
    digest = 0 if problem is None else problem.digest
    mine = np.array([failure is not None, digest, -digest, *facts], np.int64)
    highest = np.empty_like(mine)
    comm.Allreduce(mine, highest, MPI.MAX)
    if highest[0]:
        raise_first(failure, comm.allgather(encoded_failure(failure)))
    anywhere = [bool(fact) for fact in highest[3:]]
    if highest[1] != -highest[2] and not any(anywhere[:1]):
        assert problem is not None
        raise ValueError(_difference(comm.allgather(problem.facts())))
    return anywhere


def _difference(facts: list[list[tuple[str, str]]]) -> str:
    """Describe the first fact in which a rank differs from rank 0."""
    asked = "the ranks ask for different redistributions"
    for rank, other in enumerate(facts):
        for (name, first), (_, value) in zip(facts[0], other, strict=False):
            if first != value:
                return f"{asked}: {name} is {first} on rank 0 and {value} on rank {rank}"
    return asked


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
            views = Views.of(array, out, given.tensor_count(), given.lists)
            types = _source_types(given, views, told)
            if all(element is not None for element in types):
                problem = given.checked(list(types) if given.lists else types[0], comm.size)
                check_arrays(problem, views, comm.rank, new=out is None)
        except Exception as error:
            failure = error
        incomplete = failure is None and problem is None
        facts = _facts(views, out) if views is not None and failure is None else [False] * 10
        anywhere = agreed(comm, problem, failure, [incomplete, *facts])
        if not anywhere[0]:
            assert problem is not None and views is not None
            problem = _placed(problem, anywhere[1:])
            if problem.on_gpu:
                prepare(comm, ensure_device_library)
            return problem, views
        columns = itertools.zip_longest(*comm.allgather(types))  # another number of tensors is an error next time
        told = [next((element for element in column if element is not None), None) for column in columns]


def _source_types(given: Arguments, views: Views, told: _Known | None) -> _Known:
    """
    Return the element types of the sources. A None source has the type of its target or, if elements are converted, the
    type that other ranks report.

    :param told: Types that any rank knows; None: the ranks were not asked yet.
    """
    types: list[np.dtype[Any] | None] = []
    wanted = listed("target_dtype", given.change["target_dtype"], len(views.sources))
    for number, (source, target) in enumerate(zip(*views, strict=True)):
        name = views.name("array", number, given.lists)
        if source is None and target is None:
            raise TypeError(
                f"{name} is None: pass an empty array of the element type, or out, if this rank owns no elements; "
                "otherwise its part"
            )
        typed = source if source is not None or wanted[number] is not None else target
        types.append(typed.dtype if typed is not None else None if told is None else told[number])
        if types[-1] is None and told is not None:
            raise TypeError(
                f"{name} is None on every rank, and out has the type that elements are converted to: pass an empty "
                "array of the source's element type"
            )
    return types


def _facts(views: Views, out: Any) -> list[bool]:
    """
    Return for sources, then for targets: any in main memory, any on the GPU, any with irregular strides (negative, or
    not a multiple of the element size), any that node-aware strategies cannot access directly; then: targets are
    given, an array is not in C order.
    """
    facts = []
    for side in views:
        held = [view for view in side if view is not None and view.size > 0]
        facts += [any(view.device == device for view in held) for device in ("cpu", "gpu")]
        facts += [any(not view.is_plain for view in held), any(not (v.is_shared and v.is_plain) for v in held)]
    ordered = all(view is None or view.in_c_order for side in views for view in side)
    return [*facts, out is not None, not ordered]


def _placed(problem: Problem, facts: Sequence[bool]) -> Problem:
    """Return the problem with devices and memories of its arrays, from :func:`_facts` of any rank."""
    sides, (given_target, unordered) = (facts[:4], facts[4:8]), facts[8:]
    (_, source_gpu, _, source_private), (target_cpu, target_gpu, _, target_private) = sides
    if source_gpu or target_gpu:
        hint = ", or in other parts of the list: these take a call each" if problem.lists else ""
        for name, (cpu, gpu, irregular, _) in zip(("array", "out"), sides, strict=True):
            if cpu and gpu:
                raise ValueError(f"{name} lies on the GPU on some ranks, and in main memory on others{hint}")
            if irregular:
                raise ValueError(
                    f"{name} has strides that do not count elements forward, on some rank, and source or target is on "
                    "the GPU: copy it first"
                )
    source = "gpu" if source_gpu else "cpu"  # also the place of a target that no rank passes
    problem = problem.placed((source, "gpu" if target_gpu else "cpu" if target_cpu else source))
    # A result allocated by redistribute() may lie in node-shared or in ordinary memory.
    kinds = (not target_private,) if given_target else (True, False)
    main = [memory_name(not source_private, kind) for kind in kinds]
    return problem if unordered else _measured_as(problem, main)


def _measured_as(problem: Problem, memories: Sequence[str]) -> Problem:
    """Return the problem with the memories of its arrays for strategy "Auto": some in main memory, or that on GPUs."""
    if problem.strategy != AUTO.name or problem.lists:
        return problem
    if problem.on_gpu:
        memories = [memory_name(problem.device[0] == "gpu", problem.device[1] == "gpu", "gpu")]
    return dataclasses.replace(problem, memories=tuple(memories))


def fail_together(comm: MPI.Intracomm, failure: Exception) -> NoReturn:
    """Raise a failure that kept this rank from a problem, and have :func:`agreed_problem` raise it on all others."""
    _agree_without_problem(comm, failure)
    raise AssertionError  # for type checkers


def _agree_without_problem(comm: MPI.Intracomm, failure: Exception | None) -> None:
    """Take part in the first exchanges of a ``redistribute`` with a failure, or with a problem that is incomplete."""
    prepare(comm)
    agree(MPI._handleof(comm), 0)
    agreed(comm, None, failure, [failure is None] + [False] * 10)


def shapes_of_all(comm: MPI.Intracomm, shapes: list[tuple[int, ...]]) -> list[list[tuple[int, ...]]]:
    """Return for each array the shapes of its parts on all ranks. An error on every rank if one has a problem."""
    _agree_without_problem(comm, None)
    rows = comm.allgather(tuple(shapes))  # a list is of element types, from agreed_problem
    if any(not isinstance(row, tuple) or len(row) != len(shapes) for row in rows):
        kinds = [f"{len(row)} of another library" if isinstance(row, tuple) else "others" for row in rows]
        agreed(comm, None, ValueError(f"the ranks pass different arrays, by rank: {', '.join(kinds)}"), [False] * 11)
    return [list(of_array) for of_array in zip(*rows, strict=True)]


def agreed_root(name: str, distribution: AnyDistribution, comm: MPI.Intracomm, root: AnyInt) -> Distribution:
    """Return the distribution of a whole tensor on one rank; an error on one rank is raised on all. Collective."""
    with together(comm, {"root": root}):
        check_distribution(name, distribution)
        if isinstance(root, bool) or not isinstance(root, int | np.integer):
            raise TypeError(f"root must be a rank, got {root!r}")
        if not 0 <= root < comm.size:
            raise ValueError(f"root must be from 0 to {comm.size - 1}, got {root}")
        return Distribution.on_rank(distribution.shape, int(root))
    raise AssertionError  # for type checkers: together() raises only what the block raises


Distributions = AnyDistribution | Sequence[AnyDistribution]
Types = npt.DTypeLike | Sequence[npt.DTypeLike]


def plan(
    source: Distributions,
    target: Distributions,
    dtype: Types,
    *,
    comm: MPI.Intracomm | None = None,
    strategy: str = "Auto",
    axes: AnyInts | Sequence[AnyInts | None] | None = None,
    region: Sequence[Any] | None = None,
    target_dtype: Types | None = None,
    alpha: AnyNumber | Sequence[AnyNumber] = 1,
    beta: AnyNumber | Sequence[AnyNumber] = 0,
    conj: bool | Sequence[bool] = False,
    op: str | Sequence[str | None] | None = None,
    reshape: AnyInts | Sequence[AnyInts | None] | None = None,
    memory_bytes: AnyInt | None = None,
    device: str | tuple[str, str] = "cpu",
    **options: AnyInt | float,
) -> Plan:
    """
    Plan a redistribution that runs repeatedly. Collective over ``comm``.

    Lists of distributions plan several tensors in one exchange, by any strategy: all blocks from one rank to another
    form one message. ``dtype``, ``axes``, ``region``, ``target_dtype``, ``alpha``, ``beta``, ``conj``, ``op`` and
    ``reshape`` are then lists of one value per tensor, or a single value, not a list, for all of them, such as
    ``axes=(1, 0)``.

    :param source: Source distribution; for several tensors a list.
    :param target: Target distribution, or a list; of the same shape unless ``axes``, ``region`` or ``reshape`` is
        given.
    :param dtype: Element type of the source, of NumPy or DaCe.
    :param comm: mpi4py communicator; default: the world. Every rank must call, even one that owns nothing.
    :param strategy: Name of a strategy, or ``"Auto"``. That selects the fastest
        measured one (:func:`dace_redist.tune`), else the default; see :func:`dace_redist.chosen_strategy`.
    :param axes: Source axis of each target axis, as in ``numpy.transpose``. Default: no permutation.
    :param region: Sub-tensor to move: (source_offset, target_offset, shape), the shape in the axes of the source. The
        rest of the target is unchanged. Default: the whole tensor.
    :param target_dtype: Element type of the target; default: ``dtype``. Elements are converted by NumPy's rule
        "same_kind"; messages hold the smaller of the two types.
    :param alpha: Factor of the source: the target becomes ``alpha * array + beta * out``, in its own type.
    :param beta: Factor of the target; if 0, ``out`` is not read. With ``op`` only if that is ``"sum"``.
    :param conj: True to conjugate the source.
    :param op: ``"sum"``, ``"prod"``, ``"min"`` or ``"max"``: replicas of the source are partial results, which are
        reduced. The order is the same in every run. If the parts are large, replicas of the target reduce a share each
        and exchange the results. Default: replicas are equal.
    :param reshape: Global shape of the target, as in ``numpy.reshape``, after ``axes``; one extent may be -1. Not
        together with ``region``. Default: no reshape.
    :param memory_bytes: Maximum bytes of buffers per rank. A lower limit means more, smaller chunks. For strategies
        with chunks or slots; ``"Auto"`` is then the default strategy. Default: set by the options.
    :param device: ``"cpu"``, ``"gpu"`` (the current GPU of this process), or a pair for source and target.
    :param options: Options of the strategy, such as ``chunk_bytes=1 << 20``. With ``"Auto"`` only common options.
    :return: The plan.
    :raises ValueError: On every rank, if an argument is invalid on one of them, or if the ranks pass different
        arguments; names the rank, the expected and the given value.
    :raises TypeError: On every rank, if an argument has the wrong type on one of them.
    :raises BuildError: On every rank, if the library cannot be built on any of them.
    """
    comm = checked_communicator(comm)
    prepare(comm)
    change = dict(zip(CHANGE, (axes, region, target_dtype, alpha, beta, conj, op, reshape), strict=True))
    problem = failure = None
    try:
        problem = Arguments(source, target, change, strategy, options, memory_bytes).checked(dtype, comm.size)
        problem = problem.placed(_checked_device(device))
        problem = _measured_as(problem, ("shared-target", "ordinary", "shared-both", "shared-source"))
        if problem.on_gpu:
            ensure_device_library()
    except Exception as error:
        failure = error
    if is_measured(comm):  # strategy "Auto" communicates, which all ranks must do alike
        agreed(comm, problem, failure)
    if problem is None or failure is not None:
        with contextlib.suppress(RedistributionError):
            NativePlan.of_tensors((MPI._handleof(comm), "", {}), [], failure=encoded_failure(failure))
        raise failure or AssertionError
    return Plan(comm, problem)


def _checked_device(device: Any) -> tuple[str, str]:
    """Return the devices of source and target; raises ValueError if they are not one or two of ``DEVICES``."""
    pair = (device, device) if isinstance(device, str) else device
    if not isinstance(pair, tuple | list) or len(pair) != 2 or any(side not in DEVICES for side in pair):
        raise ValueError(f'device must be "cpu" or "gpu", or a pair of them for source and target, got {device!r}')
    return pair[0], pair[1]

"""Function :func:`plan`."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import AnyDistribution
from dace_redist.errors import RedistributionError
from dace_redist.mpi.collective import checked_communicator, encoded_failure
from dace_redist.native.device import ensure_device_library
from dace_redist.native.interface import EncodedProblem, NativePlan, prepare
from dace_redist.redistribution.agreement import agreed
from dace_redist.redistribution.arrays import DEVICES
from dace_redist.redistribution.plan import Plan
from dace_redist.redistribution.problem import Arguments, Problem, is_measured
from dace_redist.strategies import AUTO
from dace_redist.tuning.problem import memory_name

Distributions = AnyDistribution | Sequence[AnyDistribution]
Types = npt.DTypeLike | Sequence[npt.DTypeLike]


def plan(
    source: Distributions,
    target: Distributions,
    dtype: Types,
    *,
    comm: MPI.Intracomm | None = None,
    strategy: str = "Auto",
    axes: Sequence[int] | Sequence[Sequence[int] | None] | None = None,
    region: Sequence[Any] | None = None,
    target_dtype: Types | None = None,
    alpha: complex | Sequence[complex] = 1,
    beta: complex | Sequence[complex] = 0,
    conj: bool | Sequence[bool] = False,
    op: str | Sequence[str | None] | None = None,
    reshape: Sequence[int] | Sequence[Sequence[int] | None] | None = None,
    memory_bytes: int | None = None,
    device: str | tuple[str, str] = "cpu",
    **options: int | float,
) -> Plan:
    """
    Plan a redistribution that runs repeatedly. Collective over ``comm``.

    Lists of distributions plan several tensors in one exchange, by any strategy: all blocks from one rank to another
    form one message. ``dtype``, ``axes``, ``region``, ``target_dtype``, ``alpha``, ``beta``, ``conj``, ``op`` and
    ``reshape`` are then lists of one value per tensor, or a single value, not a list, for all of them, such as
    ``axes=(1, 0)``.

    :param source: Source distribution, over the ranks of ``comm``; for several tensors a list.
    :param target: Target distribution, of the same shape but for ``axes``, ``region`` and ``reshape``; or a list.
    :param dtype: Element type of the source: a NumPy or DaCe type.
    :param comm: mpi4py communicator; default: the world. Every rank must call, even one that owns nothing.
    :param strategy: Name of a strategy, or ``"Auto"``. That selects the fastest
        measured one (:func:`dace_redist.tune`), else one that the cost model predicts to be clearly faster than the
        default, else the default; see :func:`dace_redist.chosen_strategy`.
    :param axes: Permutation of the dimensions, as of ``numpy.transpose``: the source axis of each target axis.
        Default: no permutation.
    :param region: Sub-tensor to move: (source_offset, target_offset, shape); the shape is in the axes of the source.
        The rest of the target is unchanged. Default: the whole tensor.
    :param target_dtype: Element type of the target; default: ``dtype``. Elements are converted by NumPy's rule
        "same_kind"; messages hold the smaller of the two types.
    :param alpha: Factor of the source: the target becomes ``alpha * array + beta * out``, in its own type.
    :param beta: Factor of the target; if 0, ``out`` is not read. With ``op`` only if that is ``"sum"``.
    :param conj: True to conjugate the source.
    :param op: ``"sum"``, ``"prod"``, ``"min"`` or ``"max"``: replicas of the source are partial results, and the
        target becomes their reduction. Its order is the same in every run. If the parts are large, replicas of
        the target reduce a share each and exchange the results. Default: replicas are equal.
    :param reshape: Global shape of the target, to which the source, permuted by ``axes``, is reshaped in C order; one
        extent may be -1. Not together with ``region``. Default: no reshape.
    :param memory_bytes: Maximum bytes of buffers per rank. A lower limit means more, smaller chunks. For strategies
        with chunks or slots; ``"Auto"`` is then the default strategy. Default: set by the options.
    :param device: ``"cpu"``, ``"gpu"`` (the current GPU of this process), or a pair for source and target.
    :param options: Options of the strategy, such as ``chunk_bytes=1 << 20``; with ``"Auto"`` only common options.
    :return: The plan.
    :raises ValueError: On every rank, if an argument is invalid on one of them, or if the ranks pass different
        arguments; names the rank, the expected and the given value.
    :raises TypeError: On every rank, if an argument has the wrong type on one of them.
    :raises BuildError: On every rank, if the library cannot be built on any of them.
    """
    comm = checked_communicator(comm)
    prepare(comm)
    change: dict[str, Any] = {"axes": axes, "region": region, "target_dtype": target_dtype}
    change |= {"alpha": alpha, "beta": beta, "conj": conj, "op": op, "reshape": reshape}
    problem = failure = None
    try:
        problem = Arguments(source, target, change, strategy, options, memory_bytes).checked(dtype, comm.size)
        problem = _planned(problem.placed(_checked_device(device)))
    except Exception as error:
        failure = error
    if is_measured(comm):  # strategy "Auto" communicates, which all ranks must do alike
        agreed(comm, problem, failure)
    if problem is None or failure is not None:
        with contextlib.suppress(RedistributionError):
            NativePlan(MPI._handleof(comm), EncodedProblem(failure=encoded_failure(failure)))
        raise failure or AssertionError
    return Plan(comm, problem)


def _planned(problem: Problem) -> Problem:
    """Return the problem of a plan, whose arrays are unknown but for their device."""
    if problem.on_gpu:
        ensure_device_library()
    if problem.strategy != AUTO.name or problem.lists:
        return problem
    memories: tuple[str, ...] = ("shared-target", "ordinary", "shared-both", "shared-source")
    if problem.on_gpu:
        memories = (memory_name(problem.device[0] == "gpu", problem.device[1] == "gpu", "gpu"),)
    return dataclasses.replace(problem, memories=memories)


def _checked_device(device: Any) -> tuple[str, str]:
    """Return the devices of source and target; raises ValueError if they are not one or two of ``DEVICES``."""
    pair = (device, device) if isinstance(device, str) else device
    if not isinstance(pair, tuple | list) or len(pair) != 2 or any(side not in DEVICES for side in pair):
        raise ValueError(f'device must be "cpu" or "gpu", or a pair of them for source and target, got {device!r}')
    return pair[0], pair[1]

"""Function :func:`plan`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt
from mpi4py import MPI

from dace_redist.errors import RedistributionError
from dace_redist.integers import AnyBytes, AnyInt, AnyInts, AnyNumber
from dace_redist.mpi.collective import checked_communicator, encoded_failure
from dace_redist.mpi.groups import Groups
from dace_redist.native.device import ensure_device_library
from dace_redist.native.interface import NativePlan, prepare
from dace_redist.redistribution.arrays import DEVICES
from dace_redist.redistribution.forms import FormedPlan, by_name, is_named, on_both_groups
from dace_redist.redistribution.problem import CHANGE, Arguments, Distributions, Named, Types
from dace_redist.redistribution.tensor_plan import Plan


def plan(
    source: Distributions | Named,
    target: Distributions | Named,
    dtype: Types | Mapping[str, npt.DTypeLike],
    *,
    comm: MPI.Intracomm | MPI.Intercomm | None = None,
    sends: bool | None = None,
    strategy: str = "Auto",
    axes: AnyInts | Sequence[AnyInts | None] | None = None,
    region: Sequence[Any] | None = None,
    target_dtype: Types | None = None,
    alpha: AnyNumber | Sequence[AnyNumber] = 1,
    beta: AnyNumber | Sequence[AnyNumber] = 0,
    conj: bool | Sequence[bool] = False,
    op: str | Sequence[str | None] | None = None,
    reshape: AnyInts | Sequence[AnyInts | None] | None = None,
    wire: Types | None = None,
    within_nodes: bool | Sequence[bool] = False,
    accumulate: Types | None = None,
    reproducible: bool | Sequence[bool] = False,
    memory_bytes: AnyBytes | None = None,
    device: str | tuple[str, str] = "cpu",
    **options: AnyInt | float,
) -> Plan:
    """
    Plan a redistribution that runs repeatedly. Collective over ``comm``.

    Lists or tuples of distributions plan several tensors in one exchange, by any strategy: all blocks from one rank to
    another form one message. ``dtype``, ``axes``, ``region``, and all arguments from ``target_dtype`` to
    ``reproducible`` are then lists of one value per tensor, or a single value for all of them, such as ``axes=(1, 0)``.
    Dicts plan tensors by name, and arrays, results and lists of values are then dicts.

    :param source: Source distribution; for several tensors a list.
    :param target: Target distribution, or a list; of the same shape unless ``axes``, ``region`` or ``reshape`` is
        given.
    :param dtype: Element type of the source, of NumPy or DaCe.
    :param comm: mpi4py communicator; default: the world. Every rank must call, even one that owns nothing. Between the
        groups of an intercommunicator, ranks of ``source`` and ``target`` are those of a group. Ranks in attributes of
        the plan and in errors are those of the merged groups.
    :param sends: With an intercommunicator, True in the group that has the source. It calls the plan with arrays, and
        the other group with None or nothing. Calls are collective over both groups, and raise an error of one rank on
        all; they wait for the other group without a limit.
    :param strategy: Name of a strategy, or ``"Auto"``, the default one; :func:`dace_redist.tune` finds the fastest.
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
    :param wire: Element type in messages between nodes, such as ``"float32"``, ``"float16"`` or ``"bfloat16"``, of at
        most as many bytes as elements travel in without it. What stays within a node, or on its rank, is not rounded.
        An integer that does not fit is an error. Arrays lie in main memory.
    :param within_nodes: True to round all elements to ``wire``, also those that stay on their rank: the result then
        does not depend on where ranks run.
    :param accumulate: Element type in which ``op`` reduces, such as ``"float64"`` for arrays of float32. The result is
        converted at the end. Default: ``target_dtype``. Arrays lie in main memory.
    :param reproducible: True to reduce partial results in a binary tree over the source's grid: the bits of the result
        depend on the partial results only, not on nodes, the strategy or the target. With ``wire`` it requires
        ``within_nodes``.
    :param memory_bytes: Maximum bytes of buffers per rank, also as ``"64MiB"``. A lower limit means more, smaller
        chunks. For strategies with chunks or slots. Default: set by the options.
    :param device: ``"cpu"``, ``"gpu"`` (the current GPU of this process), or a pair for source and target.
    :param options: Options of the strategy, such as ``chunk_bytes=1 << 20``.
    :return: The plan.
    :raises ValueError: On every rank, if an argument is invalid on one of them, or if the ranks pass different
        arguments; names the rank, the expected and the given value.
    :raises TypeError: On every rank, if an argument has the wrong type on one of them.
    :raises BuildError: On every rank, if the library cannot be built on any of them.
    """
    groups, given = None, sends
    if isinstance(comm, MPI.Intercomm):
        groups = Groups.of(comm)
        sends, comm = groups.sends(bool(sends)), groups.merged
    comm = checked_communicator(comm)
    prepare(comm)
    problem = failure = names = None
    try:
        if (given is None) != (groups is None):
            raise TypeError(f"sends must be True or False with an intercommunicator, and only then, got {given!r}")
        values: dict[str, Any] = {"source": source, "target": target, "dtype": dtype}
        precision = wire, within_nodes, accumulate, reproducible
        change = axes, region, target_dtype, alpha, beta, conj, op, reshape, *precision
        values |= dict(zip(CHANGE, change, strict=True))
        if is_named(source, target):
            names, values = by_name(values)
        source, target, dtype = (values.pop(name) for name in ("source", "target", "dtype"))
        if groups is not None:
            source, target = on_both_groups(groups, bool(sends), source, target)
        problem = Arguments(source, target, values, strategy, options, memory_bytes, names).checked(dtype, comm.size)
        problem = problem.placed(_checked_device(device))
        if problem.on_gpu:
            ensure_device_library()
    except Exception as error:
        failure = error
    if problem is None or failure is not None:
        with contextlib.suppress(RedistributionError):
            NativePlan.of_tensors((MPI._handleof(comm), "", {}), [], failure=encoded_failure(failure))
        raise failure or AssertionError
    return Plan(comm, problem) if groups is None and names is None else FormedPlan(comm, problem, sends)


def _checked_device(device: Any) -> tuple[str, str]:
    """Return the devices of source and target; raises ValueError if they are not one or two of ``DEVICES``."""
    pair = (device, device) if isinstance(device, str) else device
    if not isinstance(pair, tuple | list) or len(pair) != 2 or any(side not in DEVICES for side in pair):
        raise ValueError(f'device must be "cpu" or "gpu", or a pair of them for source and target, got {device!r}')
    return pair[0], pair[1]

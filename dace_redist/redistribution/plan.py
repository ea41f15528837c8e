"""Redistributions that are planned once and run repeatedly. Start reading at: plan."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import AnyDistribution
from dace_redist.element_operation import element_type
from dace_redist.mpi.collective import checked_communicator
from dace_redist.native.device import synchronize
from dace_redist.redistribution.agreement import agreed_arguments, agreed_joint_arguments
from dace_redist.redistribution.arguments import (
    JointArguments,
    PlanArguments,
    checked_arguments,
)
from dace_redist.redistribution.device_arrays import ArrayView, array_view
from dace_redist.redistribution.device_joint_plan import make_joint_plan
from dace_redist.redistribution.device_plan import DevicePlan, checked_device, make_plan
from dace_redist.redistribution.host_plan import Plan as Plan
from dace_redist.redistribution.host_plan import build_library
from dace_redist.redistribution.joint_plan import joint_arguments
from dace_redist.strategies import AUTO

Array = npt.NDArray[Any]


def plan(
    source: Any,
    target: Any,
    dtype: Any = "float64",
    *,
    comm: Any = None,
    strategy: str = "Auto",
    axes: Any = None,
    region: Any = None,
    target_dtype: Any = None,
    alpha: Any = 1,
    beta: Any = 0,
    conj: Any = False,
    op: str | None = None,
    memory_bytes: int | None = None,
    device: Any = "cpu",
    **options: Any,
) -> Any:
    """
    Plan a redistribution that runs repeatedly. Collective over ``comm``.

    Lists of distributions plan several tensors in one exchange, by any strategy: all blocks from one rank to another
    form one message. ``dtype``, ``axes``, ``region``, ``target_dtype``, ``alpha``, ``beta``, ``conj`` and ``op`` are
    then lists of one value per tensor, or a single value, not a list, for all of them, such as ``axes=(1, 0)``.

    :param source: Distribution of the tensor before, over the ranks of ``comm``; for several tensors a list.
    :param target: Distribution after, of the same global shape except for ``axes`` and ``region``; or a list.
    :param dtype: Element type of the source: a NumPy or DaCe type.
    :param comm: mpi4py communicator; default: the world. Every rank must call, even one that owns nothing.
    :param strategy: Name of a strategy, see :data:`dace_redist.strategies.STRATEGIES`. ``"Auto"`` selects the fastest
        measured one (:func:`dace_redist.tune`), else one that the cost model predicts to be clearly faster than the
        default, else the default; see :func:`dace_redist.chosen_strategy`.
    :param axes: Permutation of the dimensions, as of ``numpy.transpose``: the source axis of each target axis.
        Default: no permutation.
    :param region: Sub-tensor to move: (source_offset, target_offset, shape), each offset in the axes of its own
        tensor, the shape in those of the source. The rest of the target is unchanged. Default: the whole tensor.
    :param target_dtype: Element type of the target; default: ``dtype``. Elements are converted by NumPy's rule
        "same_kind"; messages hold the smaller of the two types.
    :param alpha: Factor of the source: the target becomes ``alpha * array + beta * out``, in its own type.
    :param beta: Factor of the target; if 0, ``out`` is not read. With ``op`` only if that is ``"sum"``.
    :param conj: True to conjugate the source.
    :param op: ``"sum"``, ``"prod"``, ``"min"`` or ``"max"``: replicas of the source are partial results, and the
        target becomes their reduction, in an order that is the same in every run. If the parts are large, replicas of
        the target reduce a share each and exchange the results. Default: replicas are equal.
    :param memory_bytes: Maximum bytes of buffers per rank, in addition to the arrays; a lower limit means more,
        smaller chunks. For strategies with chunks or slots; ``"Auto"`` is then the default strategy. Default: set by
        the options.
    :param device: Device of the arrays: ``"cpu"`` (main memory), ``"gpu"`` (memory of the current GPU of this
        process), or a pair for source and target; equal for all of several tensors.
    :param options: Options of the strategy, e.g. ``chunk_bytes=1 << 20``; with ``"Auto"`` only common options.
    :return: The plan, a :class:`Plan`, or for lists a :class:`dace_redist.redistribution.joint_plan.JointPlan`, on a
        GPU a :class:`dace_redist.redistribution.device_joint_plan.DeviceJointPlan`; to be called, and freed.
    :raises ValueError: On every rank, if an argument is invalid on one of them, or if the ranks pass different
        arguments; names the rank, the expected and the given value.
    :raises TypeError: On every rank, if an argument has the wrong type on one of them.
    :raises BuildError: On every rank, if the library cannot be built on any of them.
    """
    comm = checked_communicator(comm)
    if isinstance(source, list) or isinstance(target, list):
        how = {
            "axes": axes,
            "region": region,
            "dtype": target_dtype,
            "alpha": alpha,
            "beta": beta,
            "conj": conj,
            "op": op,
        }

        def checked_lists() -> JointArguments:
            pair = checked_device(device)
            made = joint_arguments(dtype, source, target, comm, strategy, options, memory_bytes, how)
            return dataclasses.replace(
                made, tensors=tuple(dataclasses.replace(one, device=pair) for one in made.tensors)
            )

        joint = agreed_joint_arguments(comm, (), (), checked_lists)
        build_library(comm)
        return make_joint_plan(comm, joint)

    def checked() -> PlanArguments:
        sample = np.empty(0, element_type(dtype))
        how: dict[str, Any] = {"alpha": alpha, "beta": beta, "conj": conj, "op": op}
        how |= {"memory_bytes": memory_bytes, "planned": True}
        arguments = checked_arguments(
            sample, source, target, comm, None, strategy, options, axes, region, target_dtype, **how
        )
        return dataclasses.replace(arguments, device=checked_device(device))

    arguments = agreed_arguments(comm, None, None, checked)
    if arguments.strategy == AUTO.name and "gpu" not in arguments.device:
        # the kind of main memory of later arrays is unknown; a result allocated by the plan is node-shared
        arguments = dataclasses.replace(
            arguments, memories=("shared-target", "ordinary", "shared-both", "shared-source")
        )
    build_library(comm)
    return make_plan(comm, arguments)


def _seen(part: Any) -> Array | ArrayView:
    """Return a NumPy array as it is, or the view of an array of another library."""
    return part if isinstance(part, np.ndarray) else array_view("array", part)


def _device_of(part: Array | ArrayView) -> str:
    return "cpu" if isinstance(part, np.ndarray) else part.device


class ArrayPlan:
    """
    A plan bound to its two arrays; a call redistributes them. Measurements time this call.

    Parameters and errors are those of :func:`dace_redist.redistribute`. Construction is collective, :meth:`free` local.

    :param array: This rank's part of the source, in main memory or on the GPU; its memory is read at every call.
    :param out: This rank's part of the target.
    """

    def __init__(
        self,
        array: Any,
        source: AnyDistribution,
        target: AnyDistribution,
        *,
        comm: MPI.Intracomm,
        out: Any,
        strategy: str = "Auto",
        axes: Sequence[int] | None = None,
        region: Sequence[Sequence[int]] | None = None,
        **options: Any,
    ) -> None:
        source_part, target_part = (_seen(part) for part in (array, out))
        device = _device_of(source_part), _device_of(target_part)

        def checked() -> PlanArguments:
            arguments = checked_arguments(
                source_part, source, target, comm, target_part, strategy, options, axes, region
            )
            return dataclasses.replace(arguments, device=device)

        agreed = agreed_arguments(comm, source_part, target_part, checked)
        build_library(comm)
        self.plan = make_plan(comm, agreed)
        self._call: Callable[[], Any] = functools.partial(self.plan, array, out)
        if isinstance(self.plan, DevicePlan):
            self._call = self.plan.bound(array, out)

    def __call__(self) -> None:
        """Redistribute, and synchronise with the GPU. Collective; errors as of :meth:`Plan.__call__`."""
        self._call()
        if isinstance(self.plan, DevicePlan):
            synchronize()

    def free(self) -> None:
        """Free the plan. Local."""
        self.plan.free()

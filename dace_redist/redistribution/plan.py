"""A redistribution that is planned once and carried out as often as wanted. Start reading at: plan."""

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
    Plans a redistribution that is to be carried out several times. Collective over ``comm``.

    Lists of distributions plan several tensors in one exchange, by any strategy: all blocks from one rank to another
    are one message. ``dtype``, ``axes``, ``region``, ``target_dtype``, ``alpha``, ``beta``, ``conj`` and ``op`` are
    then lists of one value for each tensor, or anything but a list for all of them, such as ``axes=(1, 0)``.

    :param source: Distribution of the tensor now, over the ranks of ``comm``; of several tensors, a list.
    :param target: Distribution wanted; of the same global shape, but for ``axes`` and ``region``; or a list.
    :param dtype: Element type of the source: what NumPy takes, or a DaCe type.
    :param comm: mpi4py communicator; default: the world. Every rank of it must call, also one that owns nothing.
    :param strategy: How to move, see :data:`dace_redist.strategies.STRATEGIES`; ``"Auto"``: what was measured to be the
        fastest (:func:`dace_redist.tune`), else what the cost model predicts to be clearly faster than the default,
        else the default; see :func:`dace_redist.chosen_strategy`.
    :param axes: Permutes the dimensions on the way, as ``numpy.transpose``: the source axis that each target axis comes
        from. Default: the same order.
    :param region: Moves a sub-tensor: (source_offset, target_offset, shape), each offset in the axes of its own tensor,
        the shape in those of the source. The rest of the target stays as it is. Default: the whole tensor.
    :param target_dtype: Element type of the target; default: the same. Elements are converted on the way, by NumPy's
        rule "same_kind"; messages hold the smaller of the two types.
    :param alpha: The target gets ``alpha * array + beta * out``, in its own type.
    :param beta: See ``alpha``; 0: what is in ``out`` is not read. With ``op`` only where that is ``"sum"``.
    :param conj: Whether the source is conjugated.
    :param op: Replicas of the source are partial results, and the target gets their ``"sum"``, ``"prod"``, ``"min"``
        or ``"max"``: reduced one after another in an order that is the same in every run. Replicas of a target whose
        parts are not small reduce a share each, and send it each other. Default: replicas are equal.
    :param memory_bytes: Most bytes of buffers that a rank takes besides the arrays: the tensor then moves in more,
        smaller chunks. For strategies with chunks or slots; ``"Auto"`` is the default one then. Default: as the options
        say.
    :param device: Where the arrays lie: ``"cpu"`` (main memory), ``"gpu"`` (memory of the GPU that is current in this
        process), or a pair for source and target; of several tensors the same for all.
    :param options: Options of the strategy, e.g. ``chunk_bytes=1 << 20``; with ``"Auto"`` those that all have.
    :return: The plan, a :class:`Plan`, or for lists a :class:`dace_redist.redistribution.joint_plan.JointPlan`, on a
        GPU a :class:`dace_redist.redistribution.device_joint_plan.DeviceJointPlan`; to be called, and freed.
    :raises ValueError: On every rank, if something does not fit on any of them, or if the ranks ask for different
        things; says which rank, what was expected and what was given.
    :raises TypeError: The same, for something of the wrong type.
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
        # where in main memory the arrays will lie is not known: a result of its own is node-shared
        arguments = dataclasses.replace(
            arguments, memories=("shared-target", "ordinary", "shared-both", "shared-source")
        )
    build_library(comm)
    return make_plan(comm, arguments)


def _seen(part: Any) -> Array | ArrayView:
    """An array of NumPy, or how one of another library lies."""
    return part if isinstance(part, np.ndarray) else array_view("array", part)


def _device_of(part: Array | ArrayView) -> str:
    return "cpu" if isinstance(part, np.ndarray) else part.device


class ArrayPlan:
    """
    A plan and its two arrays: calling it redistributes them. What is timed when strategies are compared.

    Parameters and errors are those of :func:`dace_redist.redistribute`; making one is collective, freeing it is local.

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
        """Redistributes, and waits for what the GPU does. Collective; errors as of :meth:`Plan.__call__`."""
        self._call()
        if isinstance(self.plan, DevicePlan):
            synchronize()

    def free(self) -> None:
        """Free the plan. Local."""
        self.plan.free()

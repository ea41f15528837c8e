"""Redistribution of several tensors in one exchange. Start reading at: JointPlan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist import _core
from dace_redist.element_operation import element_type
from dace_redist.joint_schedule import JointSchedule
from dace_redist.native.interface import NativePlan, function_address
from dace_redist.redistribution.arguments import (
    JointArguments,
    check_covered,
    check_part,
    checked_arguments,
    is_writeable,
    overlap,
)
from dace_redist.redistribution.base_plan import BasePlan
from dace_redist.redistribution.device_arrays import ArrayView
from dace_redist.redistribution.request import Request, progress_number
from dace_redist.redistribution.shared_arrays import empty_result
from dace_redist.strategies import AUTO, DEFAULT_STRATEGY

Array = npt.NDArray[Any]


class JointPlan(BasePlan):
    """
    A redistribution of several tensors in one exchange, made by :func:`dace_redist.plan` from lists.

    All blocks from one rank to another, of all tensors, form one message; a tensor with an ``op`` has separate
    messages. It is a context manager that frees the plan at the end.

    :ivar strategy: Name of the strategy, one for all tensors.
    :ivar options: Options that are not at their defaults.
    """

    def __init__(self, comm: MPI.Intracomm, arguments: JointArguments) -> None:
        self.strategy = DEFAULT_STRATEGY if arguments.strategy == AUTO.name else arguments.strategy
        self._handle, self._rank = MPI._handleof(comm), comm.rank
        self._arguments, self._tensors = arguments, arguments.tensors
        self._shapes = [(one.source.local_shape(comm.rank), one.target.local_shape(comm.rank)) for one in self._tensors]
        problems = [
            (
                one.dtype.itemsize,
                one.source.encoded_array,
                one.target.encoded_array,
                one.index_map.encoded_array,
                one.operation.encoded,
            )
            for one in self._tensors
        ]
        self.options = dict(self._tensors[0].options)
        self._native = native = NativePlan(self._handle, self.strategy, self.options, problems, joint=True)
        parts = [
            (one.dtype, one.operation.target, *shapes) for one, shapes in zip(self._tensors, self._shapes, strict=True)
        ]
        execute, agreement = function_address("dr_plan_execute"), function_address("dr_python_agree")
        self._bound = _core.BoundPlan(execute, agreement, native.address, parts, True)

    def __call__(self, arrays: Sequence[Array | None], out: Sequence[Array] | None = None) -> list[Array]:
        """
        Move the tensors. Collective over the ranks that have a part in any of them.

        :param arrays: This rank's part of each source, as for :meth:`dace_redist.Plan.__call__`.
        :param out: This rank's part of each target; default: new arrays.
        :return: This rank's parts of the targets.
        :raises ValueError: On this rank only, if the plan was freed, or an array or the number of arrays is wrong;
            the others may wait for this rank.
        :raises TypeError: On this rank only, if an array has another type.
        :raises RedistributionError: If MPI fails.
        """
        out = self._targets(out)
        if not self._run_bound(arrays, out):
            native, sources, targets = self._prepared(arrays, out)
            native.execute([array.ctypes.data for array in sources], [array.ctypes.data for array in targets])
            for result, target in zip(out, targets, strict=True):
                if target is not result:
                    result[...] = target
        return out

    def start(
        self, arrays: Sequence[Array | None], out: Sequence[Array] | None = None, *, progress: str = "calls"
    ) -> Request:
        """
        Start to move the tensors, as :meth:`dace_redist.Plan.start`.

        :param arrays: As in a call of the plan.
        :param out: As in a call of the plan.
        :param progress: ``"calls"`` or ``"thread"``.
        :return: The transfer, to be waited for.
        """
        number = progress_number(progress)
        out = self._targets(out)
        native, sources, targets = self._prepared(arrays, out)
        read, written = ([array.ctypes.data for array in side] for side in (sources, targets))
        started = native.start(read, written, number)
        self._started = True
        return Request(started, sources, list(zip(targets, out, strict=True)), out, self._ended)

    def _targets(self, out: Sequence[Array] | None) -> list[Array]:
        if out is None:
            return self.empty_target()
        check_count("out", out, len(self._tensors))
        return list(out)

    def _prepared(
        self, arrays: Sequence[Array | None], out: Sequence[Array]
    ) -> tuple[NativePlan, list[Array], list[Array]]:
        """Return the native plan, and the arrays that it reads and writes, or copies of them in C order."""
        self._ready()
        native = self._native
        assert isinstance(native, NativePlan)
        check_joint_arrays(self._arguments, arrays, out, self._rank)
        sources = [
            np.empty(shape, tensor.dtype) if array is None else np.ascontiguousarray(array)
            for array, tensor, (shape, _) in zip(arrays, self._tensors, self._shapes, strict=True)
        ]
        return native, sources, [result if result.flags.c_contiguous else result.copy("C") for result in out]

    def empty_target(self) -> list[Array]:
        """
        Return new arrays for this rank's parts of the targets.

        :raises ValueError: If the redistribution does not define all elements.
        """
        for tensor in self._tensors:
            check_covered(tensor.index_map, tensor.operation, tensor.target)
        shapes = zip(self._shapes, self._tensors, strict=True)
        return [empty_result(shape, tensor.operation.target) for (_, shape), tensor in shapes]

    @property
    def schedule(self) -> JointSchedule:
        """
        Messages of all tensors, joined between each two ranks.

        :raises ValueError: If a tensor has an ``op``: it moves in separate exchanges.
        """
        return JointSchedule([one.schedule for one in self._tensors])

    def __repr__(self) -> str:
        state = ", freed" if self._native is None else ""
        return f"JointPlan({len(self._tensors)} tensors, {self.strategy}{state})"


def check_count(name: str, given: Any, count: int) -> None:
    """
    Check that a list has an array for each tensor.

    :param name: Name of the list in error messages.
    :raises ValueError: If its length differs.
    """
    if not isinstance(given, Sequence) or len(given) != count:
        shown = f"{len(given)}" if isinstance(given, Sequence) else repr(type(given).__name__)
        raise ValueError(f"{name} must be a list of {count} arrays, one per tensor, got {shown}")


def check_joint_arrays(arguments: JointArguments, arrays: Any, out: Any, rank: int) -> None:
    """
    Check that arrays are a rank's parts of several tensors. Local.

    :param arrays: Parts of the sources.
    :param out: Parts of the targets; None: new arrays.
    :raises ValueError: If their number or a shape differs, or if a target is read-only, overlaps another array, or is
        new and not fully defined by the redistribution.
    :raises TypeError: If one is not an array, or an element type differs.
    """
    tensors = arguments.tensors
    for name, given in (("arrays", arrays), ("out", out)):
        if name == "arrays" or given is not None:
            check_count(name, given, len(tensors))
    for number, tensor in enumerate(tensors):
        check_part(f"arrays[{number}]", arrays[number], tensor.source.local_shape(rank), tensor.dtype, rank)
        if out is None:
            check_covered(tensor.index_map, tensor.operation, tensor.target)
            continue
        result = out[number]
        if not isinstance(result, np.ndarray | ArrayView):
            raise TypeError(f"out[{number}] must be a NumPy array, got {type(result).__name__}")
        check_part(f"out[{number}]", result, tensor.target.local_shape(rank), tensor.operation.target, rank)
        if not is_writeable(result):
            raise ValueError(f"out[{number}] is read-only")
        for name, others in (("arrays", arrays), ("out", out[:number])):
            for other, array in enumerate(others):
                if overlap(array, result):
                    raise ValueError(
                        f"{name}[{other}] and out[{number}] overlap; a tensor cannot be redistributed in place"
                    )


def tensor_count(source: Any, target: Any) -> int:
    """
    Return the number of tensors of lists of distributions.

    :raises ValueError: If these are not lists of equal length.
    """
    if not isinstance(source, list) or not isinstance(target, list) or len(source) != len(target) or not source:
        lengths = [len(side) if isinstance(side, list) else "no list" for side in (source, target)]
        raise ValueError(
            f"source and target must be lists of equal length, at least 1, for several tensors: got {lengths[0]} "
            f"and {lengths[1]}"
        )
    return len(source)


def joint_arguments(
    types: Any,
    source: Any,
    target: Any,
    comm: MPI.Intracomm,
    strategy: str,
    options: dict[str, Any],
    memory_bytes: Any,
    how: dict[str, Any],
) -> JointArguments:
    """
    Check this rank's arguments for several tensors. Local.

    :param types: Element types of the sources: a list of one per tensor, or one for all.
    :param how: Axes, regions, factors and so on, each a list of one value per tensor, or one value for all.
    :raises ValueError: If the lists differ in length, a value is invalid, or an option excludes several tensors.
    :raises TypeError: As :func:`dace_redist.redistribute`.
    """
    count = tensor_count(source, target)
    if memory_bytes is not None:
        raise ValueError("memory_bytes is for one tensor, not for lists")
    each = {name: listed(name, value, count) for name, value in how.items()}
    tensors = []
    for number, dtype in enumerate(listed("dtype", types, count)):
        of_tensor = {name: values[number] for name, values in each.items()}
        sides = source[number], target[number]
        sample = np.empty(0, element_type(dtype))
        tensors.append(checked_arguments(sample, *sides, comm, None, strategy, options, **of_tensor, planned=True))
    return JointArguments(strategy, tuple(tensors))


def listed(name: str, value: Any, count: int) -> list[Any]:
    """
    Return one value per tensor.

    :param name: Name of the argument in error messages.
    :param value: A list of one value per tensor, or one value for all.
    :raises ValueError: If it is a list of another length.
    """
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"{name} must be a list of {count} values, one per tensor, got {len(value)}")
    return value

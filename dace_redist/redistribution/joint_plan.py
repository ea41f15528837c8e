"""Several tensors in one exchange. Start reading at: JointPlan."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.joint_schedule import JointSchedule
from dace_redist.mpi.collective_errors import check_same, together
from dace_redist.native.interface import NativeJointPlan
from dace_redist.redistribution.arguments import PlanArguments, check_covered, check_part
from dace_redist.redistribution.shared_arrays import empty_result

Array = npt.NDArray[Any]

#: How several tensors move.
JOINT_STRATEGY = "Pack"


class JointPlan:
    """
    A redistribution of several tensors in one exchange, made by :func:`dace_redist.plan` from lists.

    What goes to the same rank is one message, packed and unpacked: for many small tensors. It is a context manager that
    frees it at the end.

    :ivar strategy: ``"Pack"``.
    """

    strategy = JOINT_STRATEGY

    def __init__(self, comm: MPI.Intracomm, tensors: Sequence[PlanArguments]) -> None:
        self._tensors, self._rank = list(tensors), comm.rank
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
        options = dict(self._tensors[0].options)
        self._native: NativeJointPlan | None = NativeJointPlan(MPI._handleof(comm), options, problems)

    def __call__(self, arrays: Sequence[Array | None], out: Sequence[Array] | None = None) -> list[Array]:
        """
        Moves the tensors. Collective over the ranks that have a part in any of them.

        :param arrays: This rank's part of each source, as :meth:`dace_redist.Plan.__call__` takes one.
        :param out: Where to put this rank's part of each target; default: new arrays.
        :return: This rank's parts of the targets.
        :raises ValueError: On this rank only, if the plan was freed, or an array or the number of them does not fit;
            the others may wait for this rank.
        :raises TypeError: The same, for an array of another type.
        :raises RedistributionError: If MPI fails.
        """
        if self._native is None:
            raise ValueError("this plan was freed")
        if out is None:
            out = [self._empty_target(number) for number in range(len(self._tensors))]
        for name, given in (("arrays", arrays), ("out", out)):
            if not isinstance(given, Sequence) or len(given) != len(self._tensors):
                shown = f"{len(given)}" if isinstance(given, Sequence) else repr(type(given).__name__)
                raise ValueError(f"{name} must be a list of {len(self._tensors)} arrays, one per tensor, got {shown}")
        sources, targets = [], []
        for number, (array, result) in enumerate(zip(arrays, out, strict=True)):
            source, target = self._prepared(number, array, result)
            sources.append(source)
            targets.append(target)
        self._native.execute([array.ctypes.data for array in sources], [array.ctypes.data for array in targets])
        for result, target in zip(out, targets, strict=True):
            if target is not result:
                result[...] = target
        return list(out)

    def _prepared(self, number: int, array: Array | None, out: Array) -> tuple[Array, Array]:
        """What the library reads and writes: the arrays, or copies of them in C order."""
        tensor, (source_shape, target_shape) = self._tensors[number], self._shapes[number]
        check_part(f"arrays[{number}]", array, source_shape, tensor.dtype, self._rank)
        check_part(f"out[{number}]", out, target_shape, tensor.operation.target, self._rank)
        if not out.flags.writeable:
            raise ValueError(f"out[{number}] is read-only")
        if array is not None and np.may_share_memory(array, out):
            raise ValueError(f"arrays[{number}] and out[{number}] overlap; a tensor cannot be redistributed in place")
        source = np.empty(source_shape, tensor.dtype) if array is None else np.ascontiguousarray(array)
        return source, out if out.flags.c_contiguous else out.copy("C")

    def _empty_target(self, number: int) -> Array:
        tensor = self._tensors[number]
        check_covered(tensor.index_map, tensor.operation, tensor.target)
        return empty_result(self._shapes[number][1], tensor.operation.target)

    @property
    def schedule(self) -> JointSchedule:
        """Who sends what to whom."""
        return JointSchedule([one.schedule for one in self._tensors])

    def free(self) -> None:
        """Frees buffers and MPI handles; the plan cannot be called afterwards. Collective."""
        if self._native is not None:
            self._native.free()
            self._native = None

    def __enter__(self) -> JointPlan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:  # else the other ranks may not come to free theirs
            self.free()

    def __repr__(self) -> str:
        state = ", freed" if self._native is None else ""
        return f"JointPlan({len(self._tensors)} tensors, {self.strategy}{state})"


def listed(name: str, value: Any, count: int) -> list[Any]:
    """
    A value for each tensor of several.

    :param name: What errors call it.
    :param value: A list of one value per tensor, or one value for all.
    :raises ValueError: If it is a list of another length.
    """
    if not isinstance(value, list):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"{name} must be a list of {count} values, one per tensor, got {len(value)}")
    return value


def check_tensors(comm: MPI.Intracomm, source: Any, target: Any, strategy: str, op: Any, memory_bytes: Any) -> int:
    """
    The number of tensors. Collective.

    :raises ValueError: On every rank, if the lists do not fit, differ in length, or an option is not for several
        tensors.
    """
    with together(comm):
        if not isinstance(source, list) or not isinstance(target, list) or len(source) != len(target) or not source:
            lengths = [len(side) if isinstance(side, list) else "no list" for side in (source, target)]
            raise ValueError(
                f"source and target must be lists of equal length, at least 1, for several tensors: got {lengths[0]} "
                f"and {lengths[1]}"
            )
        if strategy not in ("Auto", JOINT_STRATEGY):
            raise ValueError(f"several tensors at once move by {JOINT_STRATEGY}, got strategy {strategy!r}")
        if op is not None:
            raise ValueError("op is for one tensor, not for lists")
        if memory_bytes is not None:
            raise ValueError("memory_bytes is for one tensor, not for lists")
    check_same(comm, "the number of tensors", [str(len(source))])
    return len(source)

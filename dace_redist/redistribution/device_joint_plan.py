"""Redistributions of several tensors with sources, targets, or both on a GPU. Start reading at: DeviceJointPlan."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from mpi4py import MPI

from dace_redist.joint_schedule import JointSchedule
from dace_redist.redistribution.arguments import JointArguments
from dace_redist.redistribution.base_plan import FreedAtEnd
from dace_redist.redistribution.device_plan import DevicePlan
from dace_redist.redistribution.joint_plan import JointPlan, check_count
from dace_redist.redistribution.request import Request
from dace_redist.strategies import AUTO, DEFAULT_STRATEGY


class DeviceJointPlan(FreedAtEnd):
    """
    A redistribution of several tensors at once, made by :func:`dace_redist.plan` from lists with ``device="gpu"``.

    Each tensor moves as by its own plan, all concurrently. It is a context manager that frees the plan at the end.

    :ivar strategy: Name of the strategy, one for all tensors.
    :ivar options: Options that are not at their defaults.
    :ivar device: Devices of all sources and of all targets, each ``"cpu"`` or ``"gpu"``.
    """

    def __init__(self, comm: MPI.Intracomm, arguments: JointArguments) -> None:
        self.strategy = DEFAULT_STRATEGY if arguments.strategy == AUTO.name else arguments.strategy
        self._plans = [DevicePlan(comm, dataclasses.replace(one, strategy=self.strategy)) for one in arguments.tensors]
        self.options, self.device = self._plans[0].options, self._plans[0].device
        self._arguments = arguments
        self._freed = False

    def __call__(self, arrays: Sequence[Any], out: Sequence[Any] | None = None) -> list[Any]:
        """
        Move the tensors. Collective over the ranks that have a part in any of them.

        :param arrays: This rank's part of each source, as for
            :class:`dace_redist.redistribution.device_plan.DevicePlan`.
        :param out: This rank's part of each target; default: new arrays.
        :return: This rank's parts of the targets.
        :raises ValueError: On this rank only, if the plan was freed, or an array or the number of arrays is wrong;
            the others may wait for this rank.
        :raises TypeError: On this rank only, if an array has another type.
        :raises RedistributionError: If MPI or the GPU fails.
        """
        return self.start(arrays, out).wait()

    def start(
        self, arrays: Sequence[Any], out: Sequence[Any] | None = None, *, progress: str = "calls"
    ) -> DeviceJointRequest:
        """
        Start to move the tensors, as :meth:`dace_redist.Plan.start`. Arrays on a GPU are not protected.

        :param arrays: As in a call of the plan.
        :param out: As in a call of the plan.
        :param progress: ``"calls"`` or ``"thread"``.
        :return: The transfer, to be waited for.
        """
        check_count("arrays", arrays, len(self._plans))
        if out is not None:
            check_count("out", out, len(self._plans))
        results = self._targets_for(arrays) if out is None else list(out)
        tensors = list(zip(self._plans, arrays, results, strict=True))
        for plan, array, result in tensors:  # check all before any transfer starts
            plan.check_arrays(array, result)
        return DeviceJointRequest(
            [plan.start(array, result, progress=progress) for plan, array, result in tensors], results
        )

    def _targets_for(self, arrays: Sequence[Any]) -> list[Any]:
        if self.device[1] == "cpu":
            return [plan.empty_target() for plan in self._plans]
        return [plan.empty_target_for(array) for plan, array in zip(self._plans, arrays, strict=True)]

    @property
    def schedule(self) -> JointSchedule:
        """
        Messages of all tensors, as if the messages between two ranks were joined.

        :raises ValueError: If a tensor has an ``op``: it moves in separate exchanges.
        """
        return JointSchedule([one.schedule for one in self._arguments.tensors])

    def free(self) -> None:
        """
        Free buffers and MPI handles; the plan cannot be called afterwards. Collective.

        :raises ValueError: If a transfer of it is under way.
        """
        for plan in self._plans:
            plan.free()
        self._freed = True

    def __repr__(self) -> str:
        where = " to ".join(dict.fromkeys(self.device))
        state = ", freed" if self._freed else ""
        return f"DeviceJointPlan({len(self._plans)} tensors, {where}, {self.strategy}{state})"


class DeviceJointRequest:
    """
    Transfers under way, made by :meth:`DeviceJointPlan.start`; a context manager that waits at the end.

    :param requests: One for each tensor.
    :param results: What :meth:`wait` returns.
    """

    def __init__(self, requests: list[Request], results: list[Any]) -> None:
        self._requests, self._results = requests, results

    def test(self) -> bool:
        """
        Advance all transfers; return True when all are complete.

        :raises RedistributionError: If MPI or the GPU fails.
        """
        return all([request.test() for request in self._requests])

    def wait(self) -> list[Any]:
        """
        Wait until all transfers are complete.

        :return: This rank's parts of the targets.
        :raises RedistributionError: If MPI or the GPU fails.
        :raises ValueError: If it was waited for before.
        """
        failures = []
        with contextlib.suppress(Exception):  # the request's wait raises it again
            while not self.test():
                os.sched_yield()  # yield to ranks on the same core
        for request in self._requests:
            try:
                request.wait()
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return self._results

    def __enter__(self) -> DeviceJointRequest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.wait()


def make_joint_plan(comm: MPI.Intracomm, arguments: JointArguments) -> JointPlan | DeviceJointPlan:
    """Return a plan of several tensors on the devices of its arguments. Collective."""
    return DeviceJointPlan(comm, arguments) if "gpu" in arguments.device else JointPlan(comm, arguments)

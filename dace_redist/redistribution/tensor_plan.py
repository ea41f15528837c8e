"""Plans of redistributions. Start reading at: Plan."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from dace_redist import _core
from dace_redist.native.interface import NativePlan, StridedShape, check, function_address
from dace_redist.redistribution.arrays import DEVICES, ArrayView, Views
from dace_redist.redistribution.arrays.new import new_array
from dace_redist.redistribution.halo_adjoint import HaloGradients, adjoint_of_owned
from dace_redist.redistribution.in_program import CallableInProgram
from dace_redist.redistribution.message_plan import from_datatypes, from_messages
from dace_redist.redistribution.problem import Problem, is_list
from dace_redist.redistribution.problem.checks import check_arrays, check_covered, check_devices
from dace_redist.redistribution.request import FreeablePlan, Request, copied, progress_number, write_back
from dace_redist.schedule import Schedule
from dace_redist.strategies import STRATEGIES


class Plan(FreeablePlan, CallableInProgram):
    """
    Reusable redistribution of one tensor or several, made by :func:`dace_redist.plan`.

    Calling it moves the tensors. All blocks from one rank to another, of all tensors, form one message; a tensor with
    an ``op``, or with an array on a GPU, has separate messages. It is a context manager that frees the plan at the end:
    a plan that is dropped without :meth:`free` keeps its buffers until the process ends. Of several tensors, arrays,
    distributions and types are lists. A plan of one tensor may be called in a ``@dace.program``.

    With an array on the GPU that was current when the plan was made, the transfer is ordered on a stream, after work
    enqueued before and ahead of work enqueued afterwards: the current stream of CuPy or PyTorch, or the stream that the
    first array names, targets first.

    :ivar source, target, dtype, target_dtype, axes, region, reshape: See :func:`dace_redist.plan`.
    :ivar device: Devices of source and target.
    :ivar strategy: Name of the strategy, never ``"Auto"``.
    :ivar options: Options that are not at their defaults.
    """

    from_datatypes = staticmethod(from_datatypes)
    from_messages = staticmethod(from_messages)

    def __init__(self, comm: MPI.Intracomm, problem: Problem) -> None:
        self._comm, self._handle, self._problem = comm, MPI._handleof(comm), problem
        tensors, self.device = problem.tensors, problem.device
        self.strategy, self.options = problem.chosen()
        rows = [
            (one.source, one.target, change.dtype, change.target_dtype, change.axes, change.region, change.reshape)
            for one in tensors
            for change in [one.transform]
        ]
        shown = self._each(rows)
        self.source, self.target, self.dtype, self.target_dtype, self.axes, self.region, self.reshape = shown
        places = [DEVICES.index(side) for side in self.device]
        how = self._handle, self.strategy, self.options
        self._native = native = NativePlan.of_tensors(how, tensors, places, problem.elements)
        self._rank = rank = comm.rank
        self._parts = [
            (dtype, made, tuple(source.core.local_shape(rank)), tuple(target.core.local_shape(rank)))
            for source, target, dtype, made, *_ in rows
        ]
        in_place = [one.exchanges_halo for one in tensors]
        # Fast path: runs without further Python if the strides equal those of the previous call, initially C order.
        execute, start, agreement = map(function_address, ("dr_plan_execute", "dr_plan_start", "dr_python_agree"))
        address = 0 if problem.on_gpu else native.address
        self._bound = _core.BoundPlan(execute, start, agreement, address, self._parts, in_place, problem.lists)
        self._layouts = [(_layout(None), _layout(None))] * len(tensors)
        self._stream = 0
        self._covers = all(one.transform.covers(one.target.shape) and one.transform.beta == 0 for one in tensors)
        self._zeros = False  # in new targets
        self._results_are_shared = STRATEGIES[self.strategy].node_aware
        plain = self._covers and not problem.on_gpu and not any(any(one.target.halo) for one in tensors)
        sources = [math.prod(shape) * dtype.itemsize for dtype, _, shape, _ in self._parts]
        targets = [math.prod(shape) * dtype.itemsize for _, dtype, _, shape in self._parts]
        self._array_bytes = sum(sources + targets)
        # NumPy arrays made without a further look
        self._small_targets = plain and max(targets) < _core.min_shared_bytes

    def _each(self, rows: Sequence[tuple[Any, ...]]) -> Sequence[Any]:
        """Return columns of values per tensor as users see them: of a single tensor its values."""
        return [list(column) for column in zip(*rows, strict=True)] if self._problem.lists else rows[0]

    def __call__(self, array: Any, out: Any = None) -> Any:
        """
        Move the tensors. Collective over the ranks that have a part in any of them.

        :param array: This rank's part of the source, as for :func:`dace_redist.redistribute`.
        :param out: This rank's part of the target, likewise. Default: a new array of the library of ``array``, in main
            memory in node-shared memory if the strategy copies directly into it.
        :return: This rank's part of the target: ``out`` if given.
        :raises ValueError: On this rank only, if the plan was freed, or an array does not fit; other ranks may wait for
            it.
        :raises TypeError: On this rank only, if an array has another type.
        :raises RedistributionError: If MPI or the GPU fails.
        """
        self._check_not_started()
        out = self._new_targets(array) if out is None else out
        code = self._bound.run(array, out)
        if code > 0:
            check(code)
        if code:
            self._run(self._checked(array, out))
        return out

    def start(self, array: Any, out: Any = None, *, progress: str = "calls") -> Request:
        """
        Start to move the tensors. Collective over the ranks that have a part in any of them.

        At most one transfer of a plan can be under way. Until :meth:`Request.wait`, arrays are read-only, but for those
        on a GPU; the source must not change, and the target must not be used. Transfers of several plans may be started
        and waited for in any order, which may differ between ranks. All ranks start a transfer with the same
        ``progress``, or all call the plan.

        :param array: As in a call of the plan.
        :param out: As in a call of the plan.
        :param progress: ``"calls"``: the transfer advances in :meth:`Request.test` and :meth:`Request.wait` of any
            transfer, and within a node while a partner waits; ``"thread"``: in a separate thread, which requires
            ``MPI_THREAD_MULTIPLE``, as mpi4py requests by default.
        :raises ValueError: On this rank only, as for a call, and if a transfer of the plan is under way.
        :raises TypeError: On this rank only, if an array has another type.
        :raises RedistributionError: If MPI has no threads, or fails.
        """
        number = progress_number(progress)
        out = self._new_targets(array) if out is None else out
        self._ready()
        # made before, so that the arrays live on if a handler of a signal raises an exception after the start
        request = Request((array, out), (), out, self)
        code = self._bound.start(array, out, number, request._address)
        if code > 0:
            check(code)
        if code == 0:
            return request._begun((*array, *out) if self._problem.lists else (array, out))
        given = self._checked(array, out)
        native, used = self._prepared(given)
        return self._start(native, given, used, out, number)

    def empty_target(self, array: Any = None) -> Any:
        """
        Return a new array for this rank's part of the target.

        :param array: This rank's part of the source, whose library and device the new array has.
        :raises ValueError: If the redistribution does not define all elements.
        """
        return self._new_targets(array)

    def inverse(self) -> Plan:
        """
        Return the plan of the way back, with the same strategy and options. Collective.

        :raises ValueError: If elements are scaled, added or reduced.
        :raises TypeError: If the conversion of elements has no inverse by NumPy's rule "same_kind".
        """
        return self._like(self._way_back([tensor.inverse() for tensor in self._problem.tensors]))

    def adjoint(self, *, source_partial: bool = True, target_partial: bool = True) -> Plan:
        """
        Return the plan of the adjoint, from target to source: gradients. Collective.

        Strategy and options are the same. As in PyTorch it is the conjugate transpose. Source elements outside the
        ``region``, and in margins, have gradient 0: new arrays hold zeros there, and ``out`` is unchanged. Replicas and
        partial sums change places. Gradients in margins of the target are added to those of the elements that they
        mirror, in a copy and by two exchanges for each axis with a halo; such a plan can only be called and freed.

        :param source_partial: True if the gradient is the sum of the source's replicas, which get an equal share each;
            False if each gets the whole gradient, as always with ``op="sum"``.
        :param target_partial: True if the gradients of the target's replicas are added; False if they are equal.
        :raises ValueError: If the redistribution is not linear: with ``beta``, or an ``op`` other than ``"sum"``; if
            boxes overlap whose gradients are partial; if a distribution with a halo is not a :class:`Distribution`, or
            one of several tensors.
        :raises TypeError: If the conversion of elements has no inverse by NumPy's rule "same_kind".
        """
        partial = {"source_partial": source_partial, "target_partial": target_partial}
        if any(any((*one.source.halo, *one.target.halo)) for one in self._problem.tensors):
            owned = adjoint_of_owned(self._problem, repr(self), **partial)
            with_halos = HaloAdjoint(self._comm, self._way_back([owned]))
            with_halos.set_halos(self._problem.tensors[0])
            return with_halos
        adjoint = self._like(self._way_back([tensor.adjoint(**partial) for tensor in self._problem.tensors]))
        adjoint._zeros = not adjoint._covers
        return adjoint

    def _new_targets(self, array: Any) -> Any:
        if self._small_targets:
            arrays = array if self._problem.lists else (array,)
            if array is None or (
                is_list(arrays) and all(issubclass(kind, np.ndarray) for kind in {*map(type, arrays)})
            ):
                return self._bound.new_targets()
        if not self._covers and not self._zeros:
            for tensor, (*_, shape) in zip(self._problem.tensors, self._parts, strict=True):
                check_covered(tensor, shape)
        samples = array if isinstance(array, list | tuple) else [array] * len(self._parts)
        where, shared = self.device[1], self._results_are_shared
        parts = zip(samples, self._parts, self._problem.tensors, strict=False)  # another number is an error of the call
        made = [  # margins at the ends of the tensor stay as they are
            new_array(sample, shape, dtype, where, shared, self._zeros or any(tensor.target.halo))
            for sample, (_, dtype, _, shape), tensor in parts
        ]
        return made if self._problem.lists else made[0]

    def _like(self, problem: Problem) -> Plan:
        """Return a plan of another problem on the same ranks. Collective."""
        return Plan(self._comm, problem)

    def _way_back(self, tensors: list[Schedule]) -> Problem:
        options, names = tuple(sorted(self.options.items())), self._problem.names
        problem = Problem(tuple(tensors), self._problem.lists, self.strategy, options, names=names)
        return problem.placed((self.device[1], self.device[0]))

    def free(self) -> None:
        """
        Free the plan's buffers; it cannot be called afterwards. Local.

        MPI objects that plans share are freed with the communicator, or when MPI is finalized.

        :raises ValueError: If a transfer of it is under way.
        """
        self._check_not_started()
        if self._native is not None:
            self._bound.release()
        super().free()

    @property
    def schedule(self) -> Schedule:
        """Messages of the redistribution; of several tensors joined, a ValueError if one of them has an ``op``."""
        return Schedule.joined(self._problem.tensors)

    def __repr__(self) -> str:
        first, count = self._problem.tensors[0], len(self._problem.tensors)
        parts = [f"{first.source} -> {first.target}, {first.dtype}"]
        parts += [text for text in (first.transform.map_text, first.transform.operation_text) if text]
        if self._problem.lists:
            parts = [f"{count} tensors"]
        if self._problem.on_gpu:
            parts.append(" to ".join(dict.fromkeys(self.device)))
        parts += [self.strategy, *(f"{name}={value}" for name, value in self.options.items())]
        return f"Plan({', '.join(parts)}{', freed' if self._native is None else ''})"

    def _checked(self, array: Any, out: Any) -> Views:
        """Return the views of the arrays of a call; errors as of :meth:`__call__`."""
        self._ready()
        problem = self._problem
        views = Views.of(array, out, len(problem.tensors), problem.lists)
        check_arrays(problem, views, self._rank)
        check_devices(problem, views)
        return views

    def _run(self, given: Views) -> None:
        native, used = self._prepared(given)
        native.execute(*used.addresses())
        write_back(copied(given, used))

    def _prepared(self, given: Views) -> tuple[NativePlan, Views]:
        """Return the native plan, set up for some arrays, and these or copies that it reads and writes."""
        native, used = self._native, given.plain()
        assert native is not None
        layouts = [(_layout(source), _layout(target)) for source, target in zip(*used, strict=True)]
        if layouts != self._layouts:
            native.set_arrays([layout for pair in layouts for layout, _ in pair])
            self._bound.set_strides([(source[1], target[1]) for source, target in layouts])
            self._layouts = layouts
        if self._problem.on_gpu:
            named = (view.stream for view in (*used.targets, *used.sources) if view is not None)
            stream = next((stream for stream in named if stream is not None), 0)
            if stream != self._stream:
                native.set_stream(stream)
                self._stream = stream
        return native, used


class HaloAdjoint(HaloGradients, Plan):
    """Plan of the adjoint of a redistribution from or to a distribution with a halo; see :meth:`Plan.adjoint`."""


def _layout(view: ArrayView | None) -> tuple[StridedShape, tuple[int, ...]]:
    """Return shape and strides in elements for the native plan, and strides in bytes; nothing for C order."""
    if view is None or view.in_c_order:
        return None, ()
    # the stride of an axis of one element is arbitrary, and may be negative
    return (view.shape, tuple(abs(stride) // view.dtype.itemsize for stride in view.strides)), view.strides


def run_if_agreed(plan: Plan) -> Callable[[Any, Any], int]:
    """
    Return a function of source and target that runs a plan if all ranks agree. Collective.

    The ranks agree if all call this for equal problems, with arrays of the shapes and types of the plan and the
    strides of the previous call. A rank without a plan calls ``interface.agree`` with 0. The function returns 0 if the
    tensors were moved, -1 on all ranks if they disagree, else the code of the library's error.
    """
    return functools.partial(plan._bound.run_if_agreed, plan._handle, plan._problem.digest)


def bound_call(plan: Plan, array: Any, out: Any) -> Callable[[], None]:
    """Return a call of a plan with these arrays, which are checked only once; for measurements."""
    native, used = plan._prepared(plan._checked(array, out))
    addresses = used.addresses()
    return lambda: native.execute(*addresses)

"""Redistributes NumPy arrays at once: for mpi4py programs that contain no DaCe."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import AnyDistribution
from dace_redist.redistribution.plan_cache import Plan, forget, kept_plan, new_plan
from dace_redist.redistribution.request import Request, agreed_request, checked_request, is_plain
from dace_redist.redistribution.shared_arrays import empty_if_shared
from dace_redist.strategies import NODE_AWARE_STRATEGIES, OPTIONS


def redistribute(
    array: npt.NDArray[Any] | None,
    source: AnyDistribution,
    target: AnyDistribution,
    *,
    comm: Any = None,
    out: npt.NDArray[Any] | None = None,
    strategy: str = "Auto",
    **options: Any,
) -> npt.NDArray[Any]:
    """
    Moves a distributed tensor. Collective over ``comm``.

    The first call with a strategy compiles a program, which is kept on disk for all later processes; the first call
    with a pair of distributions plans, and later calls reuse the plan.

    :param array: This rank's part of the source, of shape ``source.local_shape(rank)`` and any strides. A rank that
        owns nothing of the source may pass None if it passes ``out``.
    :param source: Distribution of the tensor now, over the ranks of ``comm``.
    :param target: Distribution wanted, of the same global shape.
    :param comm: mpi4py communicator (default: the world). Every rank of it must call, also one that owns nothing.
    :param out: Where to put this rank's part of the target, of shape ``target.local_shape(rank)``; it must not overlap
        ``array``. Default: a new C-order array, in node-shared memory with the strategies that copy straight into it.
    :param strategy: How to move, see ``dace_redist.strategies``; ``"Auto"``: what was measured to be fastest for this
        redistribution here (:func:`dace_redist.tune`), else the default one; see :func:`dace_redist.chosen_strategy`.
    :param options: Options of the strategy, e.g. ``chunk_bytes=1 << 20``; with ``"Auto"`` those that all have.
    :return: This rank's part of the target: ``out`` if given.
    :raises ValueError: On every rank, if something does not fit on any of them, or if the ranks ask for different
        things; says which rank, what was expected and what was given.
    :raises TypeError: The same, for something of the wrong type.
    :raises RedistributionError: If MPI fails.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise TypeError(f"comm must be an mpi4py intra-communicator of this rank, got {comm!r}")
    request = agreed_request(
        comm, array, out, lambda: checked_request(array, source, target, comm, out, strategy, options)
    )
    plan = kept_plan(comm, request)
    result = _result(target.local_shape(comm.rank), request.dtype, plan) if out is None else out
    _move(plan, _plain(array, source, request, comm), result, request, comm)
    return result


class Move:
    """
    A redistribution of two arrays that is checked, agreed upon and planned once, and then run as often as wanted.

    It does at each run what the node of a compiled DaCe program does, and no more. Making, running and freeing it are
    collective. Parameters and errors are those of :func:`redistribute`.

    :param array: This rank's part of the source; its memory is read at every run.
    :param out: This rank's part of the target; strides must not be negative, here or in ``array``.
    """

    def __init__(
        self,
        array: npt.NDArray[Any],
        source: AnyDistribution,
        target: AnyDistribution,
        *,
        comm: MPI.Intracomm,
        out: npt.NDArray[Any],
        strategy: str = "Auto",
        **options: Any,
    ) -> None:
        def checked() -> Request:
            request = checked_request(array, source, target, comm, out, strategy, options)
            if not (is_plain(array) and is_plain(out)):
                raise ValueError("arrays must have strides that count elements forward")
            return request

        request = agreed_request(comm, array, out, checked)
        plan = new_plan(comm, request)
        self._words = _word_lists(array, out, request)
        self._arguments, self._arrays = _values(self._words, array, out, plan, comm), (array, out)
        self._plan: Plan | None = plan

    def __call__(self) -> None:
        """
        Redistributes. Collective.

        :raises RedistributionError: If MPI fails.
        :raises ValueError: If it was freed.
        """
        if self._plan is None:
            raise ValueError("this redistribution was freed")
        self._plan.program.run(self._plan.state, self._arguments)

    @property
    def chosen(self) -> dict[str, Any]:
        """The strategy and options that it runs with, and whether ``"Auto"`` took them from what was measured."""
        if self._plan is None:
            raise ValueError("this redistribution was freed")
        return {"strategy": self._plan.strategy, "options": self._plan.options, "recorded": self._plan.recorded}

    def free(self) -> None:
        """Frees the plan. Collective."""
        if self._plan is not None:
            self._plan.free()
            self._plan = None


def _result(shape: tuple[int, ...], dtype: str, plan: Plan) -> npt.NDArray[Any]:
    if plan.strategy in NODE_AWARE_STRATEGIES:
        return empty_if_shared(shape, dtype)
    return np.empty(shape, dtype)


def _plain(
    array: npt.NDArray[Any] | None, source: AnyDistribution, request: Request, comm: MPI.Intracomm
) -> npt.NDArray[Any]:
    """The source array in a form whose strides count elements forward."""
    if array is None:
        return np.empty(source.local_shape(comm.rank), request.dtype)
    return array if is_plain(array) else np.ascontiguousarray(array)


def _move(plan: Plan, array: npt.NDArray[Any], out: npt.NDArray[Any], request: Request, comm: MPI.Intracomm) -> None:
    target = out if is_plain(out) else out.copy()
    words = _word_lists(array, target, request)
    try:
        plan.program.run(plan.state, _values(words, array, target, plan, comm))
    except Exception:
        forget(comm, plan)
        raise
    if target is not out:
        out[...] = target


def _word_lists(
    array: npt.NDArray[Any], target: npt.NDArray[Any], request: Request
) -> dict[str, npt.NDArray[np.int64]]:
    """What tells the program of distributions and arrays; it is given addresses, so the lists must outlive the run."""
    return {
        "source_words": request.source.word_array,
        "source_local": _local_words(array),
        "target_words": request.target.word_array,
        "target_local": _local_words(target),
    }


def _values(
    words: dict[str, npt.NDArray[np.int64]],
    array: npt.NDArray[Any],
    target: npt.NDArray[Any],
    plan: Plan,
    comm: MPI.Intracomm,
) -> dict[str, Any]:
    """Arguments of the program."""
    values: dict[str, Any] = {name: list_.ctypes.data for name, list_ in words.items()}
    values |= {f"{name}_count": list_.size for name, list_ in words.items()}
    values |= {"source": array.ctypes.data, "target": target.ctypes.data, "element_bytes": array.itemsize}
    values |= {name: option.default for name, option in OPTIONS.items()} | plan.options
    return values | {"communicator": MPI._handleof(comm)}


def _local_words(array: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    return np.array([*array.shape, *(stride // array.itemsize for stride in array.strides)], dtype=np.int64)

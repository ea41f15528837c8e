"""Redistributes NumPy arrays at once: for mpi4py programs that contain no DaCe."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist import program
from dace_redist.agreement import together
from dace_redist.case_key import Case, memory_name
from dace_redist.choosing import choose_all
from dace_redist.distribution import AnyDistribution, Distribution, TiledDistribution
from dace_redist.schedule import schedule
from dace_redist.shared_memory import empty_if_shared, is_shared
from dace_redist.strategies import AUTO, NODE_AWARE_STRATEGIES, OPTIONS, check_options, find_strategy

#: Element types that can be moved (DaCe's numeric types).
_KINDS = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16)}

#: Plans kept per communicator; the one used least recently is freed first.
_PLANS_KEPT = 64


@dataclasses.dataclass(frozen=True)
class _Request:
    """What all ranks must agree on."""

    strategy: str
    options: tuple[tuple[str, int | float], ...]
    dtype: str
    source: AnyDistribution
    target: AnyDistribution
    #: Where the arrays lie, for strategy ``"Auto"``: the kinds of memory that a choice may be for, the first one first.
    memories: tuple[str, ...] = ()

    def digest(self) -> int:
        text = repr((self.strategy, self.options, self.dtype)).encode()
        state = hashlib.blake2b(text, digest_size=7)
        for distribution in (self.source, self.target):
            state.update(distribution.word_array.tobytes())
        return int.from_bytes(state.digest(), "little")


@dataclasses.dataclass
class _Plan:
    """A state of a compiled program, and the options it runs with; the strategy is never ``"Auto"``."""

    program: program.Program
    state: int
    strategy: str
    options: dict[str, int | float]

    def free(self) -> None:
        self.program.stop(self.state)


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
    request = _agreed(comm, array, out, lambda: _request(array, source, target, comm, out, strategy, options))
    plan = _plan(comm, request)
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
        def checked() -> _Request:
            request = _request(array, source, target, comm, out, strategy, options)
            if not (_is_plain(array) and _is_plain(out)):
                raise ValueError("arrays must have strides that count elements forward")
            return request

        request = _agreed(comm, array, out, checked)
        plan = _new_plan(comm, request)
        self._words = _word_lists(array, out, request)
        self._arguments, self._arrays = _values(self._words, array, out, plan, comm), (array, out)
        self._plan: _Plan | None = plan

    def __call__(self) -> None:
        """
        Redistributes. Collective.

        :raises RedistributionError: If MPI fails.
        :raises ValueError: If it was freed.
        """
        if self._plan is None:
            raise ValueError("this redistribution was freed")
        self._plan.program.run(self._plan.state, self._arguments)

    def free(self) -> None:
        """Frees the plan. Collective."""
        if self._plan is not None:
            self._plan.free()
            self._plan = None


def _result(shape: tuple[int, ...], dtype: str, plan: _Plan) -> npt.NDArray[Any]:
    if plan.strategy in NODE_AWARE_STRATEGIES:
        return empty_if_shared(shape, dtype)
    return np.empty(shape, dtype)


def _request(
    array: Any, source: Any, target: Any, comm: MPI.Intracomm, out: Any, strategy: str, options: dict[str, Any]
) -> _Request:
    """Checks what this rank asks for."""
    for name, distribution in (("source", source), ("target", target)):
        if not isinstance(distribution, Distribution | TiledDistribution):
            raise TypeError(f"{name} must be a Distribution or TiledDistribution, got {distribution!r}")
        if distribution.ranks_needed > comm.size:
            raise ValueError(
                f"the {name} distribution names ranks up to {distribution.ranks_needed - 1}, "
                f"but the communicator has {comm.size} ranks"
            )
    if source.shape != target.shape:
        raise ValueError(f"source and target need one global shape, got {source.shape} and {target.shape}")
    chosen = AUTO if strategy == AUTO.name else find_strategy(strategy)
    if chosen.name == "MPI":
        raise ValueError("strategy MPI (stock DaCe) exists in DaCe programs only; take Datatype")
    checked = check_options(chosen, options)
    dtype = _check_arrays(array, source, target, out, comm.rank)
    return _Request(chosen.name, tuple(sorted(checked.items())), dtype, source, target)


def _check_arrays(array: Any, source: AnyDistribution, target: AnyDistribution, out: Any, rank: int) -> str:
    for name, given in (("array", array), ("out", out)):
        if given is not None and not isinstance(given, np.ndarray):
            raise TypeError(f"{name} must be a NumPy array, got {type(given).__name__}")
    typed = array if array is not None else out
    if typed is None:
        raise TypeError("array is None: pass an empty array of the element type, or out")
    dtype = typed.dtype
    if dtype.itemsize not in _KINDS.get(dtype.kind, ()):
        raise TypeError(f"cannot move elements of type {dtype}; possible: bool, int, uint, float and complex types")
    if out is not None and out.dtype != dtype:
        raise TypeError(f"array and out need one element type, got {dtype} and {out.dtype}")
    for name, given, distribution in (("array", array, source), ("out", out, target)):
        shape = distribution.local_shape(rank)
        empty = 0 in shape and (given is None or given.size == 0)
        if not empty and (given is not None or name == "array") and (given is None or given.shape != shape):
            what = "None" if given is None else f"shape {given.shape}"
            raise ValueError(f"{name} must have the shape {shape} that rank {rank} owns of the tensor, got {what}")
    if out is not None and not out.flags.writeable:
        raise ValueError("out is read-only")
    if out is not None and array is not None and np.may_share_memory(array, out):
        raise ValueError("array and out overlap; a tensor cannot be redistributed in place")
    return str(dtype.str)


def _agreed(comm: MPI.Intracomm, array: Any, out: Any, checked: Callable[[], _Request]) -> _Request:
    """What all ranks ask for; raises on every rank if one cannot take part, or if they differ. Collective."""
    request: _Request | None = None
    failure: Exception | None = None
    try:
        request = checked()
    except (ValueError, TypeError) as error:
        failure = error
    digest = request.digest() if request is not None else 0
    where = [request is not None and _is_private(part) for part in (array, out)]
    mine = np.array([failure is not None, digest, -digest, *where, out is not None], dtype=np.int64)
    most = np.empty_like(mine)
    comm.Allreduce(mine, most, MPI.MAX)
    if most[0]:
        failures = comm.allgather(None if failure is None else (type(failure).__name__, str(failure)))
        if failure is not None:
            raise failure
        rank, (kind, text) = next((r, f) for r, f in enumerate(failures) if f is not None)
        raise (TypeError if kind == "TypeError" else ValueError)(f"on rank {rank}: {text}")
    if most[1] != -most[2]:
        raise ValueError(_difference(comm.allgather(request)))
    assert request is not None
    if request.strategy != AUTO.name:
        return request
    private_source, private_target, given_target = (bool(flag) for flag in most[3:])
    # A result that redistribute() makes itself is in shared memory where that helps, but need not be.
    kinds = (not private_target,) if given_target else (True, False)
    return dataclasses.replace(request, memories=tuple(memory_name(not private_source, kind) for kind in kinds))


def _is_private(array: npt.NDArray[Any] | None) -> bool:
    """Whether the strategies that know nodes cannot reach an array's elements; without any, it does not matter."""
    return array is not None and array.size > 0 and not (is_shared(array) and _is_plain(array))


def _difference(requests: list[_Request]) -> str:
    """Names the first thing in which a rank differs from rank 0."""
    first = requests[0]
    for rank, other in enumerate(requests):
        for field in dataclasses.fields(_Request):
            a, b = getattr(first, field.name), getattr(other, field.name)
            if a != b:
                return (
                    f"the ranks ask for different redistributions: {field.name} is {_shown(a)} on rank 0 "
                    f"and {_shown(b)} on rank {rank}"
                )
    return "the ranks ask for different redistributions"


def _shown(value: Any) -> str:
    return ", ".join(f"{k}={v}" for k, v in value) or "none" if isinstance(value, tuple) else str(value)


def _plain(
    array: npt.NDArray[Any] | None, source: AnyDistribution, request: _Request, comm: MPI.Intracomm
) -> npt.NDArray[Any]:
    """The source array in a form whose strides count elements forward."""
    if array is None:
        return np.empty(source.local_shape(comm.rank), request.dtype)
    return array if _is_plain(array) else np.ascontiguousarray(array)


def _is_plain(array: npt.NDArray[Any]) -> bool:
    return all(stride >= 0 and stride % array.itemsize == 0 for stride in array.strides)


def _move(plan: _Plan, array: npt.NDArray[Any], out: npt.NDArray[Any], request: _Request, comm: MPI.Intracomm) -> None:
    target = out if _is_plain(out) else out.copy()
    words = _word_lists(array, target, request)
    try:
        plan.program.run(plan.state, _values(words, array, target, plan, comm))
    except Exception:
        _forget(comm, plan)
        raise
    if target is not out:
        out[...] = target


def _word_lists(
    array: npt.NDArray[Any], target: npt.NDArray[Any], request: _Request
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
    plan: _Plan,
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


_Plans = OrderedDict[_Request, _Plan]


def _free_all(plans: _Plans) -> None:
    while plans:
        plans.popitem(last=False)[1].free()


#: Communicators carry their plans as an attribute, so that freeing one frees them.
_plans_of = MPI.Comm.Create_keyval(delete_fn=lambda comm, keyval, plans: _free_all(plans), nopython=False)


def _plans(comm: MPI.Intracomm) -> _Plans:
    plans: Any = comm.Get_attr(_plans_of)
    if plans is None:
        plans = OrderedDict()
        comm.Set_attr(_plans_of, plans)
        atexit.register(_free_all, plans)  # before MPI is finalized
    return cast(_Plans, plans)


def _plan(comm: MPI.Intracomm, request: _Request) -> _Plan:
    """The plan of a request; all ranks keep and drop plans in the same order. Collective."""
    plans = _plans(comm)
    if request in plans:
        plans.move_to_end(request)
        return plans[request]
    plan = _new_plan(comm, request)
    while len(plans) >= _PLANS_KEPT:
        plans.popitem(last=False)[1].free()
    plans[request] = plan
    return plan


def _new_plan(comm: MPI.Intracomm, request: _Request) -> _Plan:
    """A plan; where the strategy is ``"Auto"``, it is chosen now. Collective."""
    strategy, options = request.strategy, dict(request.options)
    if strategy == AUTO.name:
        moves = schedule(request.source, request.target, dtype=request.dtype)
        choices = choose_all([Case(moves, memory) for memory in request.memories], comm)
        choice = next((choice for choice in choices if choice.recorded), choices[0])
        strategy, options = choice.strategy, {**choice.options, **options}
    loaded = _load(comm, strategy)
    return _Plan(loaded, loaded.start(), strategy, options)


def forget_choices(comm: MPI.Intracomm) -> None:
    """Frees the plans of strategy ``"Auto"``, so that the next call chooses anew. Collective."""
    plans = _plans(comm)
    for request in [r for r in plans if r.strategy == AUTO.name]:
        plans.pop(request).free()


def plans_in_use(comm: MPI.Intracomm) -> list[tuple[str, dict[str, int | float]]]:
    """
    Strategy and options of the plans that a communicator keeps, the one used last at the end.

    :param comm: mpi4py communicator.
    """
    return [(plan.strategy, dict(plan.options)) for plan in _plans(comm).values()]


def _forget(comm: MPI.Intracomm, plan: _Plan) -> None:
    plans = _plans(comm)
    for request in [r for r, p in plans.items() if p is plan]:
        del plans[request]


_loaded: dict[str, program.Program] = {}


def _load(comm: MPI.Intracomm, strategy: str) -> program.Program:
    """Builds and loads a program; on each node one rank builds if need be. Collective."""
    if comm.allreduce(strategy in _loaded, MPI.LAND):
        return _loaded[strategy]
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    builds = node.rank == 0
    node.Free()
    with together(comm), _failing_as(f"cannot compile strategy {strategy}"):
        if builds:
            program.ensure_built(strategy)
    with together(comm), _failing_as(f"cannot load strategy {strategy}"):
        _loaded[strategy] = program.load(strategy)
    return _loaded[strategy]


@contextlib.contextmanager
def _failing_as(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise RuntimeError(f"{what}: {error}") from error

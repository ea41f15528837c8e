"""Methods measured in a case: every strategy, stock DaCe, peers, and the plain copy. Start reading at: prepare."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from comparisons.comparison import UnsuitableError

from dace_redist import strategies
from dace_redist.mpi.collective import together
from dace_redist.redistribution.arrays.new import DeviceArray
from dace_redist.timing.comparison import Candidate
from dace_redist.timing.memories import PlacedSchedule
from dace_redist.timing.timed_plan import TimedPlan
from redistribution import peers, scalapack
from redistribution.arrays import Array, Arrays, is_right
from redistribution.catalogue import Case
from redistribution.stock import Stock

#: Labels of methods other than strategies.
STOCK, COPY, SCALAPACK, ALLTOALLW, PENCIL = "stock DaCe", "plain copy", "ScaLAPACK", "Alltoallw", "mpi4py-fft"
NESTED, DTENSOR, COSTA, PETSC = "Alltoallw, nested types", "DTensor", "COSTA", "PETSc VecScatter"

#: Peers to measure: other libraries and MPI, MPI (by mpi4py-fft where it is installed), none.
PEERS = ("all", "mpi", "none")

#: Strategies, and those that can make use of shared arrays, or take arrays of another kind.
STRATEGIES = ("Auto", *strategies.STRATEGIES)
_SHARING = ("Auto", "Hierarchical")
_STRATEGIES_OF = {"ordinary": STRATEGIES, "gpu": ("Auto", *strategies.gpu_strategies())}


@dataclasses.dataclass(frozen=True)
class Method:
    """
    Something that redistributes the arrays of a case, or the copy that it is compared with.

    :param label: Name in tables.
    :param kind: ``strategy``, ``stock``, ``peer`` or ``bound``.
    :param run: Runs it once; collective over the ranks of the case.
    :param target: Array written, to be checked; None: nothing to check.
    :param free: Releases what it holds; collective.
    :param choice: Strategy and options.
    :param variant: Memory of the arrays, one of :data:`redistribution.catalogue.VARIANTS`.
    """

    label: str
    kind: str
    run: Callable[[], Any]
    target: Array | DeviceArray | None = None
    free: Callable[[], None] = lambda: None
    choice: Candidate = Candidate("")
    variant: str = "ordinary"


#: Label of a method that could not be measured, and why.
Skipped = tuple[str, str]
#: Label of a method, and what makes it.
_Maker = tuple[str, Callable[[], Method]]


class WrongResultError(Exception):
    """Method that left wrong elements; raised on every rank."""


def prepare(arrays: Arrays, stock: Stock | str, options: Mapping[str, Any]) -> Iterator[Method | Skipped]:
    """
    Make the methods of a case, one after another, each checked. Collective over its ranks.

    :param arrays: Its local arrays.
    :param stock: Compiled stock program, or why there is none.
    :param options: ``strategies`` to measure (None: all), ``variants`` of memory, ``peers``: one of :data:`PEERS`.
    """
    makers: list[_Maker] = [(STOCK, partial(_stock, arrays, stock))]
    makers += _strategies(arrays, options["strategies"], options["variants"])
    makers += _peers(arrays, options["peers"])
    makers.append((COPY, lambda: Method(COPY, "bound", plain_copy(arrays.source(), arrays.target()))))
    for label, make in makers:
        yield _checked(label, make, arrays)


def _strategies(arrays: Arrays, strategies: Sequence[str] | None, variants: Sequence[str]) -> Iterator[_Maker]:
    for choice in arrays.case.choices or map(Candidate, STRATEGIES):
        for variant in variants if strategies is None or choice.strategy in strategies else ():
            if choice.strategy in _STRATEGIES_OF.get(variant, _SHARING):
                label = str(choice) if variant == "ordinary" else f"{choice}, {variant}"
                yield label, partial(_strategy, label, arrays, choice, variant)


def _peers(arrays: Arrays, which: str) -> Iterator[_Maker]:
    case = arrays.case
    if which == "none":
        return
    found: dict[str, Callable[[Case, Any], Any]] = {}
    if case.pencil is not None and importlib.util.find_spec("mpi4py_fft") is not None:
        found[PENCIL] = peers.PencilTransfer
    else:
        found[ALLTOALLW] = peers.Alltoallw
    if peers.NestedTypes.fits(case):
        found[NESTED] = peers.NestedTypes
    if which == "all" and case.dtensor is not None and importlib.util.find_spec("torch") is not None:
        found[DTENSOR] = peers.DTensorTransfer
    if which == "all" and len(case.shape) == 2:
        found[SCALAPACK] = _scalapack
    if which == "all" and os.environ.get(peers.COSTA_VARIABLE) and peers.Costa.fits(case):
        found[COSTA] = peers.Costa
    if which == "all" and importlib.util.find_spec("petsc4py") and peers.VecScatter.fits(case):
        found[PETSC] = peers.VecScatter
    for label, make in found.items():
        yield label, partial(_peer, label, make, arrays)


def plain_copy(source: Array, target: Array) -> Callable[[], None]:
    """
    Return a ``memmove`` of as many bytes as the rank's part of the target holds.

    :param source: Memory to copy from if it is contiguous and large enough; else new memory is taken.
    :param target: Memory to copy to if it is contiguous; else new memory is taken.
    """
    to = target if target.flags.c_contiguous else np.ones(target.nbytes, np.uint8)
    enough = source.flags.c_contiguous and source.nbytes >= target.nbytes
    held = source if enough else np.ones(target.nbytes, np.uint8)
    addresses = to.ctypes.data, held.ctypes.data

    def copy(_: Any = (to, held)) -> None:
        ctypes.memmove(*addresses, target.nbytes)

    return copy


def _stock(arrays: Arrays, stock: Stock | str) -> Method:
    if isinstance(stock, str):
        raise UnsuitableError(stock)
    source, target = arrays.source(), arrays.target()
    return Method(STOCK, "stock", partial(stock.run, source, target), target)


def _strategy(label: str, arrays: Arrays, choice: Candidate, variant: str) -> Method:
    case = arrays.case
    if variant == "gpu" and case.within:
        raise UnsuitableError("arrays on a GPU are measured as a whole only")
    try:
        source, target = arrays.on_gpu() if variant == "gpu" else (arrays.source(variant), arrays.target(variant))
    except MemoryError as error:
        raise UnsuitableError(str(error)) from None
    problem = PlacedSchedule(case.schedule, "ordinary" if variant == "mapped" else variant)
    made = TimedPlan(problem, choice.strategy, choice.options, (source, target), arrays.comm)
    return Method(label, "strategy", made, target, made.free, choice, variant)


def _peer(label: str, make: Callable[[Case, Any], Any], arrays: Arrays) -> Method:
    peer = make(arrays.case, arrays.comm)
    source, target = arrays.source(), arrays.target()
    return Method(label, "peer", partial(peer.run, source, target), target, peer.free)


def _scalapack(case: Case, comm: Any) -> scalapack.Gemr2d:
    if reason := scalapack.why_not(case):
        raise UnsuitableError(reason)
    return scalapack.Gemr2d(comm, case.dtype, case.source, case.target, case.region)


def _checked(label: str, make: Callable[[], Method], arrays: Arrays) -> Method | Skipped:
    """Return a method that has run once and is right; raise on every rank if it is wrong on one. Collective."""
    case, comm = arrays.case, arrays.comm
    try:
        with together(comm):
            method = make()
            if isinstance(method.target, np.ndarray):
                method.target[...] = -1  # which no element is
                comm.Barrier()  # a rank that is early may write into the memory of others
            method.run()
    except Exception as error:
        return label, str(error) if isinstance(error, UnsuitableError) else f"{type(error).__name__}: {error}"
    if method.target is not None:
        got = method.target.to_numpy() if isinstance(method.target, DeviceArray) else method.target
        wrong = comm.allgather(not is_right(got, case.target, comm.rank, case.region))
        if any(wrong):
            raise WrongResultError(f"{case.name}: {label} left wrong elements on rank {wrong.index(True)}")
    return method

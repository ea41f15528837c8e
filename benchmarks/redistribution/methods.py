"""Methods measured in a case: every strategy, stock DaCe, peers, and the plain copy. Start reading at: prepare."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from dace_redist.redistribution.bench import ArrayPlan
from dace_redist.redistribution.plan import Plan
from dace_redist.strategies import host_strategies
from redistribution import dtensor, free_memory, peers, scalapack
from redistribution.arrays import Array, Arrays, is_right, memory_of
from redistribution.bounds import PlainCopy
from redistribution.catalogue import USUAL_VARIANTS, VARIANTS, Case, ConfiguredStrategy
from redistribution.stock import Stock

#: Labels of methods other than strategies.
STOCK, COPY, SCALAPACK, ALLTOALLW, PENCIL = "MPI (stock)", "plain copy", "ScaLAPACK", "Alltoallw", "mpi4py-fft"
NESTED, DTENSOR = "Alltoallw, nested types", "DTensor"

#: Strategies that can make use of shared arrays.
_SHARING = ("Auto", "Shared", "Hierarchical", "Aggregated")


@dataclasses.dataclass(frozen=True)
class Method:
    """
    Something that redistributes the arrays of a case, or the copy that it is compared with.

    :param label: Its name in tables.
    :param kind: ``strategy``, ``stock``, ``peer`` or ``bound``.
    :param run: Does it once; collective over the ranks of the case.
    :param target: Where it writes, to be checked; None: nothing to check.
    :param free: Lets go of what it holds; collective.
    :param strategy: Name of the strategy.
    :param options: Options of the strategy.
    :param variant: Where the arrays lie, one of :data:`redistribution.catalogue.VARIANTS`.
    :param chosen: What strategy Auto is here: strategy, options, and whether it was measured (else it is
        predicted, or the default).
    """

    label: str
    kind: str
    run: Callable[[], None]
    target: Array | None = None
    free: Callable[[], None] = lambda: None
    strategy: str = ""
    options: tuple[tuple[str, int | float], ...] = ()
    variant: str = "ordinary"
    chosen: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class Skipped:
    """A method that could not be measured, and why."""

    label: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Wanted:
    """Selection of methods to measure; None: all."""

    strategies: Sequence[str] | None = None
    variants: Sequence[str] = USUAL_VARIANTS
    peers: bool = True


def prepare(case: Case, comm: Any, arrays: Arrays, stock: Stock | str, wanted: Wanted) -> Iterator[Method | Skipped]:
    """
    Make the methods of a case, one after another, each checked. Collective over ``comm``.

    :param case: The case.
    :param comm: Communicator of its ranks.
    :param arrays: Its local arrays.
    :param stock: The compiled stock program, or why there is none.
    :param wanted: Selection of methods.
    """
    for label, make in _makers(case, comm, arrays, stock, wanted):
        yield _checked(label, make, case, comm)


_Maker = Callable[[], Method]


def _makers(case: Case, comm: Any, arrays: Arrays, stock: Stock | str, wanted: Wanted) -> Iterator[tuple[str, _Maker]]:
    yield STOCK, partial(_stock, arrays, stock)
    for choice in _choices(case, wanted):
        for variant in wanted.variants if choice.strategy in _SHARING else VARIANTS[:1]:
            label = choice.label if variant == "ordinary" else f"{choice.label}, {variant}"
            yield label, partial(_strategy, label, case, comm, arrays, choice, variant)
    if wanted.peers:
        pencil = peers.pencil_axes(case) is not None and _installed("mpi4py_fft")
        make: type[peers.Alltoallw | peers.PencilTransfer] = peers.PencilTransfer if pencil else peers.Alltoallw
        yield (label := PENCIL if pencil else ALLTOALLW), partial(_peer, label, make, case, comm, arrays)
        if peers.NestedTypes.fits(case):
            yield NESTED, partial(_peer, NESTED, peers.NestedTypes, case, comm, arrays)
        if dtensor.mesh_of(case) is not None and _installed("torch"):
            yield DTENSOR, partial(_peer, DTENSOR, dtensor.Redistribute, case, comm, arrays)
        if len(case.shape) == 2:
            yield SCALAPACK, partial(_scalapack, case, comm, arrays)
    yield COPY, partial(_copy, arrays)


def _choices(case: Case, wanted: Wanted) -> list[ConfiguredStrategy]:
    every = [ConfiguredStrategy("Auto"), *map(ConfiguredStrategy, host_strategies())]
    chosen = case.choices or every
    wished = [c for c in chosen if wanted.strategies is None or c.strategy in wanted.strategies]
    return sorted(
        wished, key=lambda choice: free_memory.extra_bytes(case, choice)
    )  # should memory run out, for the last


def _installed(module: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(module) is not None


class UnsuitableError(Exception):
    """A method that does not fit the case or the machine; the same on every rank."""


def _stock(arrays: Arrays, stock: Stock | str) -> Method:
    if isinstance(stock, str):
        raise UnsuitableError(stock)
    source, target = arrays.source(), arrays.target()
    return Method(STOCK, "stock", partial(stock.run, source, target), target, strategy="MPI")


def _strategy(label: str, case: Case, comm: Any, arrays: Arrays, choice: ConfiguredStrategy, variant: str) -> Method:
    needed = free_memory.extra_bytes(case, choice) + (0 if variant == "ordinary" else arrays.missing_bytes(variant))
    reason = free_memory.too_little(needed, comm)
    if reason is not None:
        raise UnsuitableError(reason)
    try:
        source, target = arrays.source(memory_of("source", variant)), arrays.target(memory_of("target", variant))
    except MemoryError as error:
        raise UnsuitableError(str(error)) from None
    options: dict[str, Any] = dict(choice.options)
    options |= {"strategy": choice.strategy, "region": case.region}
    made = ArrayPlan((source, target), case.source, case.target, comm, **options)
    return Method(
        label,
        "strategy",
        made,
        target,
        made.free,
        strategy=choice.strategy,
        options=choice.options,
        variant=variant,
        chosen=_chosen(made.plan) if choice.strategy == "Auto" else None,
    )


def _chosen(plan: Plan) -> dict[str, Any]:
    """Return the choice of "Auto" for a plan."""
    return {"strategy": plan.strategy, "options": plan.options, "recorded": plan.recorded}


def _peer(label: str, make: Callable[[Case, Any], Any], case: Case, comm: Any, arrays: Arrays) -> Method:
    peer = make(case, comm)
    source, target = arrays.source(), arrays.target()
    return Method(label, "peer", partial(peer.run, source, target), target, peer.free)


def _scalapack(case: Case, comm: Any, arrays: Arrays) -> Method:
    reason = scalapack.why_not(case)
    if reason is not None:
        raise UnsuitableError(reason)

    def make(case: Case, comm: Any) -> scalapack.Gemr2d:
        return scalapack.Gemr2d(comm, case.dtype, case.source, case.target, case.region)

    return _peer(SCALAPACK, make, case, comm, arrays)


def _copy(arrays: Arrays) -> Method:
    return Method(COPY, "bound", PlainCopy(arrays.source(), arrays.target()).run)


def _checked(label: str, make: _Maker, case: Case, comm: Any) -> Method | Skipped:
    """A method that has run once and done right; raises on every rank if it did wrong. Collective."""
    method, reason = None, ""
    try:
        method = make()
        if method.target is not None:
            method.target[...] = -1  # which no element is
            comm.Barrier()  # who is early may write into the memory of others
        method.run()
    except Exception as error:
        reason = str(error) if isinstance(error, UnsuitableError) else f"{type(error).__name__}: {error}"
    reasons = [text for text in comm.allgather(reason) if text]
    if reasons or method is None:
        return Skipped(label, reasons[0])
    if method.target is not None:
        wrong = comm.allgather(not is_right(method.target, case.target, comm.rank, case.region))
        if any(wrong):
            raise WrongResultError(f"{case.name}: {label} left wrong elements on rank {wrong.index(True)}")
    return method


class WrongResultError(Exception):
    """A method that does not do what it should; raised on every rank."""

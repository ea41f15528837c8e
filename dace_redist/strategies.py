"""Strategies: the one table that names and documents them, and checks of their options and places."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dace_redist._core import max_eager_bytes, max_often_joined_bytes, min_often_joined, option_ranges

#: Kinds of progress of a started redistribution, in the order of ``dr_progress``.
PROGRESS = ("calls", "thread")


@dataclasses.dataclass(frozen=True)
class Option:
    """
    Option of a strategy, with its allowed range.

    :param description: Meaning, with its unit.
    """

    default: int | float
    minimum: int | float
    maximum: int | float
    description: str

    def check(self, name: str, value: Any) -> Any:
        """
        Return ``value`` as a number of this option's type; a symbol of a DaCe program stays one.

        :raises ValueError: If it is out of range.
        :raises TypeError: If it is of another type.
        """
        if getattr(value, "free_symbols", None):
            return value
        whole = isinstance(self.default, int)
        if isinstance(value, bool) or not isinstance(value, numbers.Integral if whole else numbers.Real):
            kind = "an integer" if whole else "a number"
            raise TypeError(f"option {name} must be {kind} ({self.description}), got {value!r}")
        number = type(self.default)(value)  # type: ignore[call-overload]
        if number < self.minimum or not number <= self.maximum:
            bounds = f"from {self.minimum} to {self.maximum}"
            raise ValueError(f"option {name} must be {bounds} ({self.description}), got {value!r}")
        return number


#: Meaning of each option.
_MEANINGS: Mapping[str, str] = {
    "chunk_bytes": "largest chunk of a message, in bytes",
    "depth": "chunks in flight per direction, or slots of a ring",
    "growth": "size of each chunk relative to the previous one",
    "threads": "threads that share each copy; 0: one, with Threaded one per core of the rank",
    "slot_bytes": "size of a slot of a ring in node-shared memory, in bytes",
    "max_message_bytes": "longest single MPI message, in bytes",
    "join_bytes": "largest message between two nodes that is sent as one with others, in bytes; 0: none is; -1: of "
    f"{max_often_joined_bytes >> 10} KiB, if a rank has {min_often_joined} of them in one direction",
    "max_in_flight_bytes": "bytes that a rank sends at a time, one message at least; 0: no limit (flow control)",
}

#: Options by name, in the order of the C++ ``Options``, which has their defaults and ranges (``options.hpp``).
OPTIONS: Mapping[str, Option] = {name: Option(*values, _MEANINGS[name]) for name, values in option_ranges.items()}


#: Defaults that are others where an array lies on a GPU: chunks that it copies about as fast as longer ones.
_GPU_DEFAULTS: Mapping[str, int | float] = {"chunk_bytes": 1 << 20}


def default_options(on_gpu: bool = False) -> dict[str, int | float]:
    """Return the value of every option that is not given, for arrays of which one is on a GPU or none."""
    return {name: option.default for name, option in OPTIONS.items()} | dict(_GPU_DEFAULTS if on_gpu else {})


def options_on_gpu(strategy: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a strategy for arrays on a GPU: those given, and those with another default there."""
    others = {name: value for name, value in _GPU_DEFAULTS.items() if name in find_strategy(strategy).options}
    return others | dict(options)


#: Options of every strategy that sends by MPI's messages.
_OF_MESSAGES = ("max_in_flight_bytes", "max_message_bytes", "threads")


@dataclasses.dataclass(frozen=True)
class Strategy:
    """
    Way to carry out a redistribution.

    :param name: Its one name: in the library, of the expansion, in tests and plots.
    :param summary: Description in one line.
    :param options: Names of the options it takes, see :data:`OPTIONS`.
    :param memory: Buffers that a rank takes besides the arrays, in words.
    :param buffers: Names of these buffers' formulas, see :mod:`dace_redist.strategy_memory`; none if only MPI knows.
    :param node_aware: True if it copies directly into, or out of, arrays in node-shared memory.
    :param on_gpus: True if it moves arrays on GPUs.
    """

    name: str
    summary: str
    options: tuple[str, ...] = _OF_MESSAGES
    memory: str = "buffers of MPI"
    buffers: tuple[str, ...] = ()
    node_aware: bool = False
    on_gpus: bool = False


#: Strategies by name; the library has a row and an expansion under the same name.
STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Strategy("Datatype", "MPI derived datatypes, non-blocking"),
        Strategy(
            "Pack",
            "one packed message per pair",
            memory="the bytes sent and received, unless contiguous in an array",
            buffers=("packed",),
        ),
        Strategy("Threaded", "Pack with OpenMP threads sharing each copy", memory="as Pack", buffers=("packed",)),
        Strategy(
            "Pipelined",
            "chunks through a small ring of buffers",
            options=("chunk_bytes", "depth", "growth", *_OF_MESSAGES),
            memory="at most 2 x depth x chunk_bytes",
            buffers=("chunks",),
        ),
        Strategy(
            "RMA",
            "packed messages put into one window",
            options=("max_message_bytes", "threads"),
            memory="the bytes sent and received",
            buffers=("packed",),
        ),
        Strategy(
            "Hierarchical",
            "copies between the memories of the ranks of a node; Pipelined between nodes, where short messages of "
            "several ranks may be joined",
            options=("slot_bytes", "chunk_bytes", "depth", "growth", "join_bytes", *_OF_MESSAGES),
            memory="a ring for each receiver on the node: depth x slot_bytes, or twice the message if that is less. "
            f"Messages above {max_eager_bytes >> 10} KiB to or from node-shared arrays need none, except short runs of "
            "a large source. Between nodes as Pipelined, twice the joined messages and, of partial results, the size "
            "of the source",
            buffers=("rings", "chunks", "joined", "node_sums"),
            node_aware=True,
            on_gpus=True,
        ),
    )
}


def gpu_strategies() -> tuple[str, ...]:
    """Return the names of the strategies for arrays on GPUs."""
    return tuple(name for name, strategy in STRATEGIES.items() if strategy.on_gpus)


#: The default strategy. It chooses for each pair of ranks: on one node it
#: copies into (push) or out of (pull) the array that is node-shared, through a ring where none is, and where short runs
#: of a large source would be pulled by several ranks; between nodes chunks over MPI.
DEFAULT_STRATEGY = "Hierarchical"

#: Another name of the default strategy, that of the default of arguments.
AUTO = "Auto"


def find_strategy(name: str) -> Strategy:
    """
    Return the strategy of that name; ``"Auto"`` is the default one.

    :raises ValueError: If the name is unknown; lists the known ones.
    """
    if name == AUTO:
        name = DEFAULT_STRATEGY
    if isinstance(name, str) and name in STRATEGIES:
        return STRATEGIES[name]
    hint = _hint(str(name), STRATEGIES)
    raise ValueError(f"unknown strategy {name!r}{hint}; choose from {AUTO}, {', '.join(STRATEGIES)}")


def _hint(name: str, known: Iterable[str]) -> str:
    """Return a question about the known name that is closest to a misspelt one, if any is close."""
    import difflib  # loads slowly

    by_lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.55)
    return f" (did you mean {by_lower[close[0]]}?)" if close else ""


def check_places(strategy: Strategy, source_on_gpu: bool, target_on_gpu: bool) -> None:
    """
    Make sure that a strategy can move between arrays on GPUs or in main memory.

    :raises ValueError: If it needs both in main memory; names others.
    """
    both = source_on_gpu and target_on_gpu
    if (source_on_gpu or target_on_gpu) and not strategy.on_gpus:
        where = "both are" if both else "the source is" if source_on_gpu else "the target is"
        raise ValueError(
            f"strategy {strategy.name} moves arrays in main memory only, but {where} on a GPU; "
            f"use {', '.join(gpu_strategies())}"
        )


def with_options(strategy: str, options: Mapping[str, Any]) -> str:
    """Return a strategy as it is called, such as ``Pipelined(chunk_bytes=1048576)``."""
    listed = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"{strategy}({listed})" if listed else strategy


def checked_strategy(name: Any, options: Mapping[str, Any], arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return the name of a strategy, never ``"Auto"``, and its options; see :func:`check_options`."""
    chosen = find_strategy(name)
    return chosen.name, check_options(chosen, options, arguments)


def check_options(strategy: Strategy, options: Mapping[str, Any], arguments: Sequence[str] = ()) -> dict[str, Any]:
    """
    Return ``options``, checked.

    :param arguments: Other arguments of the function, which a misspelt option may stand for.
    :raises ValueError: If the strategy does not take one of them, or a value is out of range.
    :raises TypeError: If a value is of another type.
    """
    for name in options:
        if name not in strategy.options:
            known = ", ".join(strategy.options) or "none"
            hint = _hint(name, [*strategy.options, *arguments])
            raise ValueError(f"strategy {strategy.name} does not take option {name!r}{hint}; it takes {known}")
    return {name: OPTIONS[name].check(name, value) for name, value in options.items()}

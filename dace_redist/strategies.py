"""
The strategies: the one table that names them, checks their options, computes their memory and documents both.

Start reading at :data:`STRATEGIES`.
"""

from __future__ import annotations

import dataclasses
import difflib
import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dace_redist import strategy_memory as memory_formulas
from dace_redist._core import max_eager_bytes, max_joined_bytes, option_ranges

if TYPE_CHECKING:
    from dace_redist.schedule import Schedule


@dataclasses.dataclass(frozen=True)
class Option:
    """
    One option of a strategy.

    :param default: Value if none is given.
    :param minimum: Smallest value allowed.
    :param maximum: Largest value allowed.
    :param description: What it is, with its unit.
    :param tuning: Values that the tuner tries besides the default.
    """

    default: int | float
    minimum: int | float
    maximum: int | float
    description: str
    tuning: tuple[int | float, ...] = ()

    def check(self, name: str, value: Any) -> Any:
        """
        ``value`` as a number of this option's type; a symbol of a DaCe program stays one.

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


#: What each option is, and the values that the tuner tries besides the default.
_MEANINGS: Mapping[str, tuple[str, tuple[int | float, ...]]] = {
    "chunk_bytes": ("largest chunk of a message, in bytes", (512 << 10, 2 << 20, 8 << 20)),
    "depth": ("chunks in flight per direction; in shared memory, most slots of a ring", (2, 4)),
    "growth": ("size of each chunk of a message relative to the one before; 1: all equal", (2.0,)),
    "threads": ("threads that share each copy; 0: one thread, with Threaded those of OpenMP", (1, 2, 4, 8)),
    "slot_bytes": ("size of a slot of a ring in node-shared memory, in bytes", (64 << 10, 128 << 10, 512 << 10)),
    "max_message_bytes": ("longest single MPI message, in bytes; longer ones are split", ()),
}

#: Options by name, in the order of the C++ ``Options``, which has their defaults and ranges (``options.hpp``).
OPTIONS: Mapping[str, Option] = {name: Option(*values, *_MEANINGS[name]) for name, values in option_ranges.items()}


#: Defaults that are others where an array lies on a GPU: chunks that it copies about as fast as longer ones.
_GPU_DEFAULTS: Mapping[str, int | float] = {"chunk_bytes": 1 << 20}


def default_options(on_gpu: bool = False) -> dict[str, int | float]:
    """
    The value of every option that is not given.

    :param on_gpu: Whether an array lies on a GPU.
    """
    return {name: option.default for name, option in OPTIONS.items()} | dict(_GPU_DEFAULTS if on_gpu else {})


def options_on_gpu(strategy: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a strategy for arrays on a GPU: those given, and those whose default is another one there."""
    others = {name: value for name, value in _GPU_DEFAULTS.items() if name in find_strategy(strategy).options}
    return others | dict(options)


@dataclasses.dataclass(frozen=True)
class Strategy:
    """
    How a redistribution is carried out.

    :param name: Its one name: in the library, of the expansion, in tests and plots.
    :param summary: What it does, in one line.
    :param options: Names of the options it takes, see :data:`OPTIONS`.
    :param memory: Buffers that a rank takes besides the arrays, in words.
    :param buffer_bytes: The same as a formula; None if only MPI knows.
    :param node_aware: Whether it copies directly into, or out of, arrays in node-shared memory.
    :param on_gpus: Whether it moves arrays on GPUs.
    :param overlaps: Whether it copies while messages are on their way between nodes.
    :param joins_messages: Whether messages of several ranks go as one.
    :param gpu_only: Whether it moves between arrays on GPUs only.
    """

    name: str
    summary: str
    options: tuple[str, ...] = ("max_message_bytes", "threads")
    memory: str = "what MPI takes"
    buffer_bytes: memory_formulas.BufferBytes | None = None
    node_aware: bool = False
    on_gpus: bool = False
    overlaps: bool = False
    joins_messages: bool = False
    gpu_only: bool = False


#: Strategies by name; the library has a row and an expansion under the same name.
STRATEGIES: dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Strategy("MPI", "stock DaCe's own code, kept as the baseline", options=()),
        Strategy(
            "Datatype",
            "MPI derived datatypes, all receives first, everything non-blocking",
        ),
        Strategy(
            "Pack",
            "pack, one message per pair, unpack in order of arrival",
            memory="what it sends and receives, but for messages that are contiguous in an array",
            buffer_bytes=memory_formulas.packed,
            on_gpus=True,
        ),
        Strategy(
            "Threaded",
            "Pack with OpenMP threads sharing each copy",
            options=("max_message_bytes", "threads"),
            memory="as Pack",
            buffer_bytes=memory_formulas.packed,
        ),
        Strategy(
            "Pipelined",
            "chunks through a small ring of buffers",
            options=("chunk_bytes", "depth", "growth", "max_message_bytes", "threads"),
            memory="at most 2 x depth x chunk_bytes",
            buffer_bytes=memory_formulas.chunks,
            on_gpus=True,
            overlaps=True,
        ),
        Strategy(
            "RMA",
            "packed messages put into one window, partners synchronise in pairs",
            memory="what it sends and receives",
            buffer_bytes=memory_formulas.packed,
        ),
        Strategy(
            "Shared",
            "copies between the memories of the ranks of one node",
            options=("slot_bytes", "depth", "max_message_bytes", "threads"),
            memory="at most depth x slot_bytes, and twice the message, for each rank it sends to; used for messages of "
            f"up to {max_eager_bytes >> 10} KiB, where neither array is node-shared, and where short runs of a large "
            "node-shared source go to several ranks",
            buffer_bytes=memory_formulas.rings,
            node_aware=True,
            on_gpus=True,
        ),
        Strategy(
            "Hierarchical",
            "Shared inside a node, Pipelined between nodes",
            options=("slot_bytes", "chunk_bytes", "depth", "growth", "max_message_bytes", "threads"),
            memory="as Shared and Pipelined together",
            buffer_bytes=memory_formulas.rings_and_chunks,
            node_aware=True,
            on_gpus=True,
            overlaps=True,
        ),
        Strategy(
            "Aggregated",
            f"Hierarchical, but messages of at most {max_joined_bytes >> 10} KiB (and chunk_bytes) between two nodes "
            "are sent as one",
            options=("slot_bytes", "chunk_bytes", "depth", "growth", "max_message_bytes", "threads"),
            memory="as Hierarchical, and twice the messages that are joined, in node-shared memory",
            buffer_bytes=memory_formulas.rings_chunks_and_joined,
            node_aware=True,
            overlaps=True,
            joins_messages=True,
        ),
        Strategy(
            "NCCL",
            "packed messages between GPUs by NVIDIA's communication library; each rank needs a GPU of its own",
            options=(),
            memory="what it sends and receives, on the GPU, but for messages that are contiguous in an array",
            buffer_bytes=memory_formulas.packed,
            on_gpus=True,
            gpu_only=True,
        ),
    )
}


def host_strategies() -> tuple[str, ...]:
    """Names of those that move arrays in main memory anywhere; stock DaCe's code does in DaCe programs only."""
    return tuple(name for name, strategy in STRATEGIES.items() if name != "MPI" and not strategy.gpu_only)


def gpu_strategies(both_on_gpu: bool = True) -> tuple[str, ...]:
    """
    Names of those that move arrays on GPUs.

    :param both_on_gpu: Whether source and target lie there; else one of them.
    """
    return tuple(
        name for name, strategy in STRATEGIES.items() if strategy.on_gpus and (both_on_gpu or not strategy.gpu_only)
    )


#: What ``Auto`` stands for where nothing was measured or predicted. It chooses for each pair of ranks: on one node it
#: copies into (push) or out of (pull) the array that is node-shared, through a ring where none is, and where short runs
#: of a large source would be pulled by several ranks; between nodes chunks over MPI.
DEFAULT_STRATEGY = "Hierarchical"

#: Takes the options that every strategy takes, for whichever is chosen.
AUTO = Strategy("Auto", "the measured winner, else the predicted one, else the default")


def find_strategy(name: str) -> Strategy:
    """
    The strategy of that name; ``"Auto"`` is the default one.

    :raises ValueError: If there is none; names those there are.
    """
    if name == "Auto":
        name = DEFAULT_STRATEGY
    if isinstance(name, str) and name in STRATEGIES:
        return STRATEGIES[name]
    close = difflib.get_close_matches(str(name).lower(), [s.lower() for s in STRATEGIES], n=1)
    hint = next((f" (did you mean {s}?)" for s in STRATEGIES if [s.lower()] == close), "")
    raise ValueError(f"unknown strategy {name!r}{hint}; there are Auto, {', '.join(STRATEGIES)}")


def check_places(strategy: Strategy, source_on_gpu: bool, target_on_gpu: bool) -> None:
    """
    Makes sure that a strategy can move between arrays where they lie.

    :param source_on_gpu: Whether the source lies on the GPU; else in main memory.
    :param target_on_gpu: The same for the target.
    :raises ValueError: If it needs both on the GPU, or both in main memory; names others.
    """
    both = source_on_gpu and target_on_gpu
    if (source_on_gpu or target_on_gpu) and not strategy.on_gpus:
        where = "both are" if both else "the source is" if source_on_gpu else "the target is"
        raise ValueError(
            f"strategy {strategy.name} moves arrays in main memory only, but {where} on a GPU; "
            f"take {', '.join(gpu_strategies(both))}"
        )
    if strategy.gpu_only and not both:
        where = "the target is" if source_on_gpu else "the source is" if target_on_gpu else "both are"
        raise ValueError(
            f"strategy {strategy.name} moves between arrays on GPUs, but {where} in main memory; "
            f"take {DEFAULT_STRATEGY}"
        )


def with_options(strategy: str, options: Mapping[str, Any]) -> str:
    """A strategy as it is called, such as ``Pipelined(chunk_bytes=1048576)``."""
    listed = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"{strategy}({listed})" if listed else strategy


def check_options(strategy: Strategy, options: Mapping[str, Any], arguments: Sequence[str] = ()) -> dict[str, Any]:
    """
    ``options``, checked.

    :param arguments: What may have been meant, too, by the name of an option: other arguments of a function.
    :raises ValueError: If the strategy does not take one of them, or a value is out of range.
    :raises TypeError: If a value is of another type.
    """
    for name in options:
        if name not in strategy.options:
            known = ", ".join(strategy.options) or "none"
            meant = difflib.get_close_matches(name, [*strategy.options, *arguments], 1)
            hint = f" (did you mean {meant[0]}?)" if meant else ""
            raise ValueError(f"strategy {strategy.name} does not take option {name!r}{hint}; it takes {known}")
    return {name: OPTIONS[name].check(name, value) for name, value in options.items()}


def extra_memory(schedule: Schedule, strategy: str, **options: Any) -> int | None:
    """
    Most bytes of buffers that any rank takes besides the arrays.

    ``Shared`` touches its rings only where neither array is node-shared, or where short runs of a large node-shared
    source go to several ranks; ``Pack``, ``Threaded`` and ``RMA`` need less
    where a message is contiguous in an array. For ``Hierarchical`` the ranks may be on any nodes.

    :param schedule: Schedule of any number of ranks that can be counted.
    :param strategy: Name of a strategy.
    :param options: Its options.
    :return: Bytes; None if only MPI knows.
    :raises ValueError: If the strategy or an option is unknown or out of range.
    :raises TypeError: If an option is of another type.
    """
    chosen = find_strategy(strategy)
    values = default_options() | check_options(chosen, options)
    return None if chosen.buffer_bytes is None else int(np.max(chosen.buffer_bytes(schedule, values), initial=0))


def all_extra_memory(schedule: Schedule) -> dict[str, int]:
    """:func:`extra_memory` of every strategy for main memory with its default options, where it is known."""
    known = {name: extra_memory(schedule, name) for name in host_strategies()}
    return {name: nbytes for name, nbytes in known.items() if nbytes is not None}


#: Options that bound the memory of a strategy, each with a value below which it costs much time to halve it.
_BOUNDING = {"depth": 1, "slot_bytes": 8 << 10, "chunk_bytes": 8 << 10}


def options_within(schedule: Schedule, strategy: str, memory_bytes: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """
    Options with which a strategy takes no more than so many bytes besides the arrays: it then moves in more rounds.

    Chunks, slots and their number are halved by turns until the buffers of every rank fit; what is given stays.

    :param schedule: Schedule of any number of ranks that can be counted.
    :param strategy: Name of a strategy.
    :param memory_bytes: Most bytes of buffers on any rank.
    :param options: Its options that are given.
    :return: The options that are given, and those that bound the memory, but for those whose value is the default both
        for arrays in main memory and on GPUs.
    :raises ValueError: If the strategy has no options that bound its memory, or the bound is too small; says what is
        needed.
    :raises TypeError: If ``memory_bytes`` is no integer.
    """
    if isinstance(memory_bytes, bool) or not isinstance(memory_bytes, numbers.Integral):
        raise TypeError(f"memory_bytes must be a number of bytes, got {memory_bytes!r}")
    chosen = find_strategy(strategy)
    bounding = [name for name in _BOUNDING if name in chosen.options]
    if chosen.buffer_bytes is None or not bounding:
        others = ", ".join(s.name for s in STRATEGIES.values() if set(_BOUNDING) & set(s.options))
        raise ValueError(
            f"strategy {chosen.name} takes {chosen.memory}, which memory_bytes cannot bound; take {others}"
        )
    values = {name: options.get(name, OPTIONS[name].default) for name in bounding}
    needed = extra_memory(schedule, chosen.name, **{**options, **values})
    while needed is not None and needed > memory_bytes:
        least = {"slot_bytes": 64, "chunk_bytes": schedule.itemsize, "depth": 1}
        free = [name for name in bounding if name not in options and values[name] > least[name]]
        if not free:
            given = [name for name in bounding if name in options]
            fewest = extra_memory(schedule, "Pipelined", chunk_bytes=schedule.itemsize, depth=1)
            hint = f" with {' and '.join(given)} as given" if given else ""
            if chosen.name != "Pipelined" and fewest is not None and fewest <= memory_bytes:
                hint += f"; Pipelined takes as little as {fewest}"
            raise ValueError(
                f"memory_bytes is {memory_bytes}, but strategy {chosen.name} needs at least {needed} bytes here{hint}"
            )
        name = max(free, key=lambda name: values[name] / _BOUNDING[name])
        values[name] = max(values[name] // 2, least[name])
        needed = extra_memory(schedule, chosen.name, **{**options, **values})
    usual, on_gpu = default_options(), default_options(on_gpu=True)
    return dict(options) | {
        name: value for name, value in values.items() if (value, value) != (usual[name], on_gpu[name])
    }


def rounds(schedule: Schedule, options: Mapping[str, Any]) -> int:
    """
    In how many chunks the busiest rank sends or receives, one after another, if all of it goes over MPI.

    :param schedule: Schedule of any number of ranks that can be counted.
    :param options: Options that are not at their defaults.
    """
    values = default_options() | dict(options)
    chunk = max(schedule.itemsize, int(min(values["chunk_bytes"], values["max_message_bytes"])))
    most = max(int(np.max(counts, initial=0)) for counts in (schedule.totals.sent, schedule.totals.received))
    return -(-most * schedule.itemsize // chunk)

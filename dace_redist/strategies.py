"""The strategies and their options: the one table that names, checks and describes them."""

from __future__ import annotations

import dataclasses
import difflib
import numbers
from collections.abc import Mapping
from typing import Any

from dace_redist._core import option_ranges


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
    "depth": ("chunks in flight per direction; in shared memory, most slots of a ring", (2, 8)),
    "growth": ("size of each chunk of a message relative to the one before; 1: all equal", (2.0,)),
    "threads": ("threads per rank; 0: what OpenMP has", (1, 2, 4, 8)),
    "slot_bytes": ("largest piece handed over in shared memory, in bytes", (32 << 10, 64 << 10, 512 << 10)),
    "max_message_bytes": ("longest single MPI message, in bytes; longer ones are split", ()),
}

#: Options by name, in the order of the C++ ``Options``, which has their defaults and ranges (``options.hpp``).
OPTIONS: Mapping[str, Option] = {name: Option(*values, *_MEANINGS[name]) for name, values in option_ranges.items()}


@dataclasses.dataclass(frozen=True)
class Strategy:
    """
    How a redistribution is carried out.

    :param name: Its one name: expansion, header, ``exchange_`` function, test parameter, label in plots.
    :param summary: What it does, in one line.
    :param options: Names of the options it takes.
    :param memory: Buffers that a rank takes besides the arrays, see :func:`dace_redist.report.memory.extra_memory`.
    """

    name: str
    summary: str
    options: tuple[str, ...]
    memory: str = "what MPI takes"


_ALL = ("max_message_bytes",)

#: Strategies by name.
STRATEGIES: Mapping[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Strategy("MPI", "stock DaCe's own code, kept as the baseline", ()),
        Strategy("Datatype", "MPI derived datatypes, all receives first, everything non-blocking", _ALL),
        Strategy(
            "Pack",
            "pack, one message per pair, unpack in order of arrival",
            _ALL,
            "what it sends and receives, but for messages that are contiguous in an array",
        ),
        Strategy("Threaded", "Pack with OpenMP threads sharing each copy", ("threads", *_ALL), "as Pack"),
        Strategy(
            "Pipelined",
            "chunks through a small ring of buffers",
            ("chunk_bytes", "depth", "growth", *_ALL),
            "at most 2 x depth x chunk_bytes",
        ),
        Strategy(
            "RMA",
            "packed messages put into one window, partners synchronise in pairs",
            _ALL,
            "what it sends and receives",
        ),
        Strategy(
            "Shared",
            "straight between the memories of one node's ranks",
            ("slot_bytes", "depth", *_ALL),
            "at most depth x slot_bytes for each rank it sends to, used only where neither array is node-shared",
        ),
        Strategy(
            "Hierarchical",
            "Shared inside a node, Pipelined between nodes",
            ("slot_bytes", "chunk_bytes", "depth", "growth", *_ALL),
            "as Shared and Pipelined together",
        ),
    )
}

#: Those that copy straight into, or out of, arrays in node-shared memory.
NODE_AWARE_STRATEGIES = frozenset({"Shared", "Hierarchical"})

#: What ``Auto`` stands for where nothing was measured. It chooses for each pair of ranks: on one node straight into
#: (push) or out of (pull) the array that is node-shared, through a ring where none is; between nodes chunks over MPI.
DEFAULT_STRATEGY = "Hierarchical"

#: Takes the options that every strategy takes, for whichever is chosen.
AUTO = Strategy("Auto", "the measured winner, else the default", _ALL)


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


def check_options(strategy: Strategy, options: Mapping[str, Any]) -> dict[str, Any]:
    """
    ``options``, checked.

    :raises ValueError: If the strategy does not take one of them, or a value is out of range.
    :raises TypeError: If a value is of another type.
    """
    for name in options:
        if name not in strategy.options:
            known = ", ".join(strategy.options) or "none"
            raise ValueError(f"strategy {strategy.name} does not take option {name!r}; it takes {known}")
    return {name: OPTIONS[name].check(name, value) for name, value in options.items()}

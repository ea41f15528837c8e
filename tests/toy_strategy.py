"""The strategy Toy: its library, its entry in the table, and its expansion."""

import ctypes
import os

from dace.library import register_expansion

from dace_redist.library_nodes.redistribute import Redistribute
from dace_redist.library_nodes.tasklets import ExpandToStrategy
from dace_redist.strategies import STRATEGIES, Strategy

ctypes.CDLL(os.environ["TOY_LIBRARY"])  # registers the strategy
STRATEGIES["Toy"] = Strategy(
    "Toy",
    "exchanges with one rank after another, and waits for each",
    options=("max_message_bytes",),
    memory="what it sends and receives",
    buffer_bytes=lambda schedule, options: (schedule.totals.sent + schedule.totals.received) * schedule.itemsize,
)


@register_expansion(Redistribute, "Toy")
class ExpandRedistributeToy(ExpandToStrategy):
    """A call of the library, with a plan of strategy ``Toy``."""

    strategy = "Toy"

"""Library node that waits for a non-blocking redistribution."""

from __future__ import annotations

from typing import Any

from dace import library
from dace.libraries.comm.nodes import Wait
from dace.sdfg import SDFG, SDFGState

from dace_redist.library_nodes.node import RedistNode
from dace_redist.library_nodes.redistribute import REQUEST, check_request

#: Connectors that order the wait after the start of the transfer and before uses of the output.
ORDER_INPUT, ORDER_OUTPUT = "_in_buffer", "_out_buffer"


@library.node
class RedistributeWait(RedistNode, Wait):
    """
    Wait for the completion of a non-blocking :class:`Redistribute`.

    ``_request`` is the request of that node. Its output array passes through ``_in_buffer`` and ``_out_buffer``, so
    that uses of it follow the wait.

    :param name: Label, for error messages.
    """

    _dace_library_name = __package__  # else that of DaCe's node
    implementations: dict[str, Any] = {}
    default_implementation = "pure"
    side_effects = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.in_connectors = dict.fromkeys((REQUEST, ORDER_INPUT))
        self.out_connectors = dict.fromkeys((ORDER_OUTPUT,))

    def validate(self, sdfg: SDFG, state: SDFGState) -> None:
        """
        Check the request, and that both buffers are the same array.

        :raises ValueError: If a check fails; names the node.
        """
        check_request(self, REQUEST, sdfg, state)
        before, after = (self.memlet(connector, state) for connector in (ORDER_INPUT, ORDER_OUTPUT))
        if before.data != after.data:
            raise ValueError(f"{self.title}: {ORDER_INPUT} and {ORDER_OUTPUT} must be one array, got {before}, {after}")

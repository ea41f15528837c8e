"""The name under which a distributed program is built: another one whenever its SDFG was changed."""

from __future__ import annotations

from typing import Any

from dace import SDFG


class ProgramName:
    """
    A name that stands for what an SDFG holds.

    Hashing an SDFG takes up to seconds. It is done again only if something was added, removed or set since the last
    time.
    """

    def __init__(self) -> None:
        self._seen: Any = None
        self._name = ""

    def of(self, sdfg: SDFG) -> str:
        """The name of an SDFG as it is now."""
        if _contents(sdfg) != self._seen:
            self._name = f"{sdfg.name}-{sdfg.hash_sdfg()[:16]}"
            self._seen = _contents(sdfg)
        return self._name

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        return ProgramName, ()


def _contents(sdfg: SDFG) -> Any:
    """Everything in an SDFG that transformations change, to be compared with what was there before."""
    blocks = list(sdfg.all_control_flow_blocks())
    states = [(state.nodes(), state.edges()) for state in sdfg.states()]
    inside = [vars(part).copy() for nodes, edges in states for part in (*nodes, *(edge.data for edge in edges))]
    arrays = [(name, vars(array).copy(), dict(array.location)) for name, array in sdfg.arrays.items()]
    return blocks, states, inside, arrays

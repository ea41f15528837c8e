"""Where the transients of a distributed program lie in memory: which are node-shared, and which share memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from dace import SDFG, data, dtypes, symbolic
from dace.sdfg import nodes
from dace.sdfg.state import ControlFlowBlock, ControlFlowRegion, LoopRegion, SDFGState

from dace_redist.library_nodes import Redistribute, SumReplicas
from dace_redist.library_nodes.distributed_node import INPUT
from dace_redist.library_nodes.environment import MEMORY_PIECE, NODE_SHARED, RuntimeEnvironment, allocate_at_start

#: Smaller transients are left alone: they are not worth pages of their own.
LEAST_BYTES = 64 << 10


@dataclass(frozen=True)
class _Use:
    """A state that reads or writes an array: its number in the order of the program, and the loops and branches
    around it.
    """

    time: int
    reads: bool
    loops: tuple[ControlFlowRegion, ...]


@dataclass
class _Piece:
    """Memory for arrays that are in use one after another."""

    nbytes: int
    lifetimes: list[tuple[int, int]]

    def is_free(self, lifetime: tuple[int, int]) -> bool:
        return all(lifetime[1] < first or last < lifetime[0] for first, last in self.lifetimes)


def place_transients(sdfg: SDFG, sizes: Mapping[str, int]) -> None:
    """
    Has the transients allocated once, when the program starts; those that are in use one after another share memory.

    Transients next to a ``Redistribute``, and partial sums, lie in node-shared memory.

    :param sdfg: A chain of states, with loops and branches of such chains; changed.
    :param sizes: Values of all symbols, on the rank that holds most.
    """
    nbytes = {
        name: int(symbolic.evaluate(array.total_size, dict(sizes))) * array.dtype.bytes
        for name, array in sdfg.arrays.items()
        if array.transient and not isinstance(array, data.View)
    }
    code = [node for state in sdfg.states() for node in state.nodes() if isinstance(node, nodes.CodeNode)]
    lifetimes, on_node = _lifetimes(sdfg), _exchanged(sdfg)
    pieces: list[_Piece] = []
    for name in sorted(nbytes, key=lambda name: -nbytes[name]):  # the largest first; among equals as they were made
        array, lifetime = sdfg.arrays[name], lifetimes.get(name)
        if lifetime is None or nbytes[name] < LEAST_BYTES or not code:
            array.lifetime = dtypes.AllocationLifetime.Persistent
            continue
        number = next((n for n, piece in enumerate(pieces) if piece.is_free(lifetime)), len(pieces))
        if number == len(pieces):
            pieces.append(_Piece(nbytes[name], []))
        pieces[number].lifetimes.append(lifetime)
        allocate_at_start(array, {MEMORY_PIECE: number, **({NODE_SHARED: 1} if name in on_node else {})})
    for node in code if pieces else ():  # this environment makes the program allocate the pieces; library nodes have it
        if isinstance(node, nodes.Tasklet):
            node.environments = {*node.environments, RuntimeEnvironment.full_class_path()}


def _exchanged(sdfg: SDFG) -> set[str]:
    """Arrays that other ranks of a node should see."""
    found = set()
    for state in sdfg.states():
        for node in state.nodes():
            if isinstance(node, Redistribute):
                found |= {edge.data.data for edge in state.all_edges(node)}
            elif isinstance(node, SumReplicas):
                found |= {edge.data.data for edge in state.in_edges(node) if edge.dst_conn == INPUT}
    return found


def _lifetimes(sdfg: SDFG) -> dict[str, tuple[int, int]]:
    """First and last state in which what an array holds matters, by the array's name."""
    uses: dict[str, list[_Use]] = {}
    spans: dict[ControlFlowRegion, tuple[int, int]] = {}
    for name, use in _uses(sdfg, (), count(), spans):
        uses.setdefault(name, []).append(use)
    return {name: _lifetime(sorted(own, key=lambda use: use.time), spans) for name, own in uses.items()}


def _uses(
    region: ControlFlowRegion,
    loops: tuple[ControlFlowRegion, ...],
    clock: Iterator[int],
    spans: dict[ControlFlowRegion, tuple[int, int]],
) -> Iterator[tuple[str, _Use]]:
    for block in region.bfs_nodes(region.start_block):
        time = next(clock)
        for edge in region.in_edges(block):
            yield from ((name, _Use(time, True, loops)) for name in edge.data.free_symbols)
        if isinstance(block, SDFGState):
            for node in block.nodes():
                if isinstance(node, nodes.AccessNode):
                    reads = block.out_degree(node) > 0 or any(map(_keeps_the_rest, block.predecessors(node)))
                    yield node.data, _Use(time, reads, loops)
            continue
        inner = [block] if isinstance(block, LoopRegion) else [body for _, body in getattr(block, "branches", ())]
        for name in _condition_names(block):  # read before each iteration
            yield name, _Use(time, True, (*loops, block) if isinstance(block, LoopRegion) else loops)
        for body in inner:  # which may run or not, as a loop may
            yield from _uses(body, (*loops, body), clock, spans)
            spans[body] = (time, next(clock))


def _keeps_the_rest(node: nodes.Node) -> bool:
    """Whether a node writes a part of an array only."""
    return isinstance(node, Redistribute) and bool(node.region)


def _condition_names(block: ControlFlowBlock) -> set[str]:
    conditions = [condition for condition, _ in getattr(block, "branches", ())]
    conditions += [block.loop_condition] if isinstance(block, LoopRegion) else []
    return {name for condition in conditions if condition is not None for name in condition.get_free_symbols()}


def _lifetime(uses: list[_Use], spans: Mapping[ControlFlowRegion, tuple[int, int]]) -> tuple[int, int]:
    """
    From the first to the last use, and all of a loop that leaves something in the array or finds something there.

    That is any loop but those in which every iteration writes the array before it reads it, and that alone use it.
    """
    first, last = uses[0].time, uses[-1].time
    for loop in {loop for use in uses for loop in use.loops}:
        inside = [use for use in uses if loop in use.loops]
        start = inside[0]
        written_first = not any(use.reads for use in inside if use.time == start.time)
        # a write in an inner loop may not happen at all
        surely = start.loops[-1] is loop or all(start.loops[-1] in use.loops for use in inside)
        if len(inside) < len(uses) or not (written_first and surely):
            first, last = min(first, spans[loop][0]), max(last, spans[loop][1])
    return first, last

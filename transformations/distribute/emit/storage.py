"""Storage of the arrays of a distributed program: GPU, node-shared memory, memory shared by several arrays."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from dace import SDFG, Memlet, data, dtypes
from dace.sdfg import nodes
from dace.sdfg.state import ControlFlowRegion, LoopRegion, SDFGState

from dace_redist.einsum.pieces import pieces
from dace_redist.einsum.statement import Statement
from dace_redist.library_nodes import Contraction, LinearSolve
from dace_redist.library_nodes.environment import MEMORY_PIECE, NODE_SHARED, RuntimeEnvironment, allocate_at_start
from dace_redist.library_nodes.indexed import CUBLAS
from dace_redist.library_nodes.node import NUMBERS
from dace_redist.library_nodes.redistribute import StrategicNode
from dace_redist.transformations.distribute.ir import Body, codes_of, in_numbers, operations, scalars_of

#: Smaller transients have no pages of their own.
MIN_BYTES = 64 << 10


@dataclass(frozen=True)
class _Use:
    """Use of an array: number of the state in the order of the program; the loops and branches around it."""

    time: int
    reads: bool
    loops: tuple[ControlFlowRegion, ...]


def place_transients(sdfg: SDFG, sizes: Mapping[str, int]) -> None:
    """
    Allocate the transients once, when the program starts; those with disjoint lifetimes share memory.

    Transients next to a ``Redistribute``, and partial sums, lie in node-shared memory.

    :param sdfg: A chain of states, with loops and branches of such chains.
    :param sizes: Values of all symbols, on the rank with the largest parts.
    """
    nbytes = {
        name: math.prod(in_numbers(array.shape, sizes)) * array.dtype.bytes
        for name, array in sdfg.arrays.items()
        if array.transient and not isinstance(array, data.View)
    }
    code = [node for state in sdfg.states() for node in state.nodes() if isinstance(node, nodes.CodeNode)]
    lifetimes, on_node = _lifetimes(sdfg), _exchanged(sdfg)
    large = [name for name, size in nbytes.items() if size >= MIN_BYTES and name in lifetimes and code]
    for name in nbytes.keys() - {*large}:
        sdfg.arrays[name].lifetime = dtypes.AllocationLifetime.Persistent
    numbers = pieces([nbytes[name] for name in large], [lifetimes[name] for name in large])
    for name, number in zip(large, numbers, strict=True):
        allocate_at_start(sdfg.arrays[name], {MEMORY_PIECE: number, **({NODE_SHARED: 1} if name in on_node else {})})
    for node in code if large else ():  # this environment makes the program allocate the pieces; library nodes have it
        if isinstance(node, nodes.Tasklet):
            node.environments = {*node.environments, RuntimeEnvironment.full_class_path()}


def _exchanged(sdfg: SDFG) -> set[str]:
    """Return the arrays that other ranks of the node access."""
    nodes_of = [(node, state) for state in sdfg.states() for node in state.nodes()]
    edges = [edge for node, state in nodes_of if isinstance(node, StrategicNode) for edge in state.all_edges(node)]
    return {edge.data.data for edge in edges}


def _lifetimes(sdfg: SDFG) -> dict[str, tuple[int, int]]:
    """Return the first and last state at which each array is live."""
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
                    writers = [one for one in block.predecessors(node) if isinstance(one, StrategicNode)]
                    tensors = [tensor for one in writers for tensor in one.tensors]
                    # one with a region writes only a part of the array
                    reads = block.out_degree(node) > 0 or any(one.region for one in tensors)
                    reads |= any(_writes_a_part(edge, block.sdfg) for edge in block.in_edges(node))
                    yield node.data, _Use(time, reads, loops)
            continue
        inner = [block] if isinstance(block, LoopRegion) else [body for _, body in getattr(block, "branches", ())]
        around = (*loops, block) if isinstance(block, LoopRegion) else loops
        for code in codes_of(block):  # read before each iteration
            yield from ((name, _Use(time, True, around)) for name in code.get_free_symbols())
        for body in inner:  # which may not run, like the body of a loop
            yield from _uses(body, (*loops, body), clock, spans)
            spans[body] = (time, next(clock))


def _writes_a_part(edge: Any, sdfg: SDFG) -> bool:
    if not isinstance(edge.src, nodes.MapExit | nodes.Tasklet):
        return False
    return bool(edge.data.subset != Memlet.from_array(edge.data.data, sdfg.arrays[edge.data.data]).subset)


def _lifetime(uses: list[_Use], spans: Mapping[ControlFlowRegion, tuple[int, int]]) -> tuple[int, int]:
    """
    Return the time from the first to the last use, extended to every loop across whose iterations the array is live.

    It is live across them unless it is used only in the loop, and each iteration writes it before reading it.
    """
    first, last = uses[0].time, uses[-1].time
    for loop in {loop for use in uses for loop in use.loops}:
        inside = [use for use in uses if loop in use.loops]
        start = inside[0]
        written_first = not any(use.reads for use in inside if use.time == start.time)
        # an inner loop may run zero times
        surely = start.loops[-1] is loop or all(start.loops[-1] in use.loops for use in inside)
        if len(inside) < len(uses) or not (written_first and surely):
            first, last = min(first, spans[loop][0]), max(last, spans[loop][1])
    return first, last


_REMEDY = 'distribute the program with device="cpu"'


def check_for_gpu(sdfg: SDFG, body: Body) -> None:
    """Raise an error that names the statement if a program cannot run on the GPU."""
    scalars = sorted(scalars_of(body))
    if scalars:
        raise ValueError(
            f'"{sdfg.name}": a condition, a bound or an index reads {", ".join(scalars)}, which the processor would '
            f"have to fetch from the GPU; {_REMEDY}"
        )
    for operation in operations(body):
        dtype = sdfg.arrays[operation.result].dtype
        if not isinstance(operation, Statement) or operation.elementwise:
            continue
        if operation.reduction:
            raise ValueError(
                f"{operation.label}: {operation.reduction} along axes is not computed on the GPU; {_REMEDY}"
            )
        if dtype not in NUMBERS[:4]:
            raise ValueError(f"{operation.label}: cuBLAS multiplies no elements of {dtype}; {_REMEDY}")


def place_on_gpu(
    sdfg: SDFG, read: tuple[str, ...], written: tuple[str, ...], keep_transients: bool, there: Collection[str] = ()
) -> None:
    """
    Move a program to the GPU; arguments in main memory are copied there before and back after each run.

    :param keep_transients: True to allocate memory on the GPU once for all runs.
    :param there: Arguments that lie on the GPU already.
    :raises ValueError: If it solves a linear system; names the statement.
    """
    for state in sdfg.states():
        for node in state.nodes():
            _compute_on_gpu(node, state)
    for name in there:
        sdfg.arrays[name].storage = dtypes.StorageType.GPU_Global
    copies = _copies_on_gpu(sdfg)
    for array in sdfg.arrays.values():
        if array.transient:
            array.storage = dtypes.StorageType.GPU_Global
            scope = array.lifetime == dtypes.AllocationLifetime.Scope and not isinstance(array, data.View)
            if keep_transients and scope:
                array.lifetime = dtypes.AllocationLifetime.Persistent
    (last,) = (block for block in sdfg.nodes() if sdfg.out_degree(block) == 0)
    before = {name: copied for name, copied in copies.items() if name in read}
    after = {copied: name for name, copied in copies.items() if name in written}
    if before:
        _add_copies(sdfg.add_state_before(sdfg.start_block, "to_the_gpu", is_start_block=True), before)
    if after:
        _add_copies(sdfg.add_state_after(last, "from_the_gpu"), after)


def _compute_on_gpu(node: nodes.Node, state: SDFGState) -> None:
    if isinstance(node, LinearSolve):
        raise ValueError(f"{node.statement}: linear systems are not solved on the GPU; {_REMEDY}")
    if isinstance(node, Contraction):
        node.implementation = CUBLAS
    elif isinstance(node, nodes.MapEntry):
        node.map.schedule = dtypes.ScheduleType.GPU_Device
        node.map.gpu_block_size = [256, 1, 1] if len(node.map.params) == 1 else [32, 8, 1]


def _copies_on_gpu(sdfg: SDFG) -> dict[str, str]:
    """Add an array on the GPU for each argument in main memory; return their names by argument."""
    copies: dict[str, str] = {}
    for name, array in list(sdfg.arrays.items()):
        if not array.transient and array.storage != dtypes.StorageType.GPU_Global:
            copy = sdfg.add_transient(f"gpu_{name.lstrip('_')}", array.shape, array.dtype, find_new_name=True)
            copies[name] = str(copy[0])
    for state in sdfg.states():
        state.replace_dict(copies)
    return copies


def _add_copies(state: SDFGState, targets: Mapping[str, str]) -> None:
    """Add copies of whole arrays; ``targets`` maps sources to targets."""
    for source, target in targets.items():
        memlet = Memlet.from_array(source, state.sdfg.arrays[source])
        state.add_nedge(state.add_read(source), state.add_write(target), memlet)

"""Clocks between the steps of a distributed program: local work, contractions, sums, redistributions."""

from collections.abc import Iterator

import dace
import numpy as np
from dace.libraries import comm
from dace.sdfg import nodes
from dace.sdfg.state import ControlFlowBlock, ControlFlowRegion, LoopRegion

from dace_redist.library_nodes import Contraction, LinearSolve, Redistribute, SumReplicas

_STEPS = (Contraction, LinearSolve, SumReplicas, Redistribute)
_HEAD = 2  # of the clock: when the last step ended, and whether there is a barrier between steps


def add_clocks(sdfg: dace.SDFG) -> list[str]:
    """
    Put a clock between the steps of a program, and return their names, such as ``redistribute T`` or ``local 1``.

    The program gets an argument ``clock``, float64 [1, 2 + steps], see :func:`new_clock`. A step in a loop adds up.
    """
    chain = list(_chain(sdfg))
    sdfg.add_array("clock", [1, _HEAD + len(chain)], dace.float64)
    kinds, names = [kind for kind, _ in chain], []
    for number, (kind, blocks) in enumerate(chain):
        seen = kinds[: number + 1].count(kind)
        names.append(f"{kind}_{seen}" if seen > 1 or kind == "local" else kind)
        last = blocks[-1]
        _add_clock(last.parent_graph.add_state_after(last), f"clock_{names[number]}", number)
    first = chain[0][1][0]
    _add_clock(sdfg.add_state_before(first if first.parent_graph is sdfg else sdfg.start_block), "clock_start", None)
    return [name.replace("_", " ", 1) for name in names]


def _chain(region: ControlFlowRegion) -> Iterator[tuple[str, list[ControlFlowBlock]]]:
    """Yield the steps of a region and of its loops in order: label of the node or ``local``, and their blocks."""
    local: list[ControlFlowBlock] = []
    for block in region.bfs_nodes(region.start_block):
        code = [node for node, _ in block.all_nodes_recursive() if isinstance(node, nodes.CodeNode)]
        label = next((node.label for node in code if isinstance(node, _STEPS)), None)
        if local and (label is not None or isinstance(block, LoopRegion)):
            yield "local", local
            local = []
        if isinstance(block, LoopRegion):
            yield from _chain(block)
        elif label is not None:
            yield label, [block]
        elif code:
            local.append(block)
    if local:
        yield "local", local


def _add_clock(state: dace.SDFGState, name: str, number: int | None) -> None:
    """Add the time since the last clock to a step; None: only start the clock."""
    step = "" if number is None else f"_clock[{_HEAD + number}] += MPI_Wtime() - _clock[0]; "
    code = f"{step}if (_clock[1] != 0) MPI_Barrier(MPI_COMM_WORLD); _clock[0] = MPI_Wtime();"
    tasklet = state.add_tasklet(name, {}, {"_clock"}, code, language=dace.Language.CPP, side_effects=True)
    tasklet.environments = {comm.environments.mpi.MPI.full_class_path()}
    memlet = dace.Memlet.from_array("clock", state.sdfg.arrays["clock"])
    state.add_edge(tasklet, "_clock", state.add_write("clock"), None, memlet)


def new_clock(sdfg: dace.SDFG, barrier: bool) -> np.ndarray:
    """
    Return the argument ``clock`` for one run.

    :param barrier: Whether a barrier follows each step, outside of all times, so that none includes waiting for others.
    """
    clock = np.zeros((1, int(sdfg.arrays["clock"].shape[1])))
    clock[0, 1] = barrier
    return clock


def read_clock(clock: np.ndarray) -> np.ndarray:
    """Return the seconds of a run in each step of :func:`add_clocks`."""
    return clock[0, _HEAD:]

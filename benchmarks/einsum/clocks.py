"""Clocks between the steps of a program: local work, reductions, redistributions, broadcasts."""

from collections.abc import Iterator

import dace
import numpy as np
from dace.libraries import comm
from dace.sdfg import nodes
from dace.sdfg.state import ControlFlowBlock, ControlFlowRegion, LoopRegion

from dace_redist.library_nodes import Contraction, LinearSolve, Redistribute, SumReplicas

_STOCK = (comm.Reduce, comm.Redistribute, comm.Bcast, comm.Allreduce)
_OWN = {Contraction: "contract", LinearSolve: "solve", SumReplicas: "sum", Redistribute: "redistribute"}
_HEAD = 2  # of the clock: when the last step ended, and whether there is a barrier between steps
_PREFIX = "clock_"

Chain = list[tuple[str, list[ControlFlowBlock]]]


def add_clocks(sdfg: dace.SDFG) -> None:
    """
    Put a clock between the steps of a program: a chain of blocks, with loops of such chains.

    The program gets an argument ``clock``, float64 [1, 2 + steps], see :func:`new_clock`. A step in a loop adds up.
    """
    chain = list(_chain(sdfg))
    sdfg.add_array("clock", [1, _HEAD + len(chain)], dace.float64)
    first = chain[0][1][0] if chain[0][1][0].parent_graph is sdfg else sdfg.start_block
    names = [_name(kind, blocks) for kind, blocks in chain]
    for number, (kind, blocks) in enumerate(chain):
        seen = names[: number + 1].count(names[number])
        name = names[number] if seen == 1 and names[number] != kind else f"{names[number]}_{seen}"
        _add_clock(blocks[-1].parent_graph.add_state_after(blocks[-1]), f"{_PREFIX}{number}_{name}", number)
    _add_clock(sdfg.add_state_before(first), f"{_PREFIX}start", None)


def _chain(region: ControlFlowRegion) -> Iterator[tuple[str, list[ControlFlowBlock]]]:
    """Return the steps of a region in order: their kind, and their blocks."""
    steps: Chain = []
    for block in region.bfs_nodes(region.start_block):
        if isinstance(block, LoopRegion):
            yield from steps
            yield from _chain(block)
            steps = []
            continue
        kind = _kind(block)
        if steps and {kind, steps[-1][0]} <= {"clear", "local"}:  # a result that is cleared first is one local step
            steps[-1] = ("local" if "local" in (kind, steps[-1][0]) else "clear", [*steps[-1][1], block])
        elif kind:
            steps.append((kind, [block]))
    yield from steps


def _code(block: ControlFlowBlock) -> list[nodes.CodeNode]:
    return [node for node, _ in block.all_nodes_recursive() if isinstance(node, nodes.CodeNode)]


def _kind(block: ControlFlowBlock) -> str | None:
    """Return the kind of a block: communication, ``contract``, ``clear`` (with zeros) or ``local``; None if empty."""
    code = _code(block)
    for node in code:
        if isinstance(node, _STOCK):
            return type(node).__name__.lower()
        if type(node) in _OWN:
            return _OWN[type(node)]
    work = [node for node in code if not isinstance(node, comm.Dummy)]
    if not work:
        return None
    return "clear" if all(node.label == "_numpy_full_" for node in work) else "local"


def _name(kind: str, blocks: list[ControlFlowBlock]) -> str:
    """Return kind and tensor of a node of this package, from its label; else the kind."""
    labels = [node.label for node in _code(blocks[0]) if type(node) in _OWN]
    return labels[0] if labels else kind


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
    """Return the seconds of a run in each of :func:`steps`."""
    return clock[0, _HEAD:]


def steps(sdfg: dace.SDFG) -> list[str]:
    """Return the names of the steps, such as ``local 1`` or ``redistribute T``, in the order of :func:`read_clock`."""
    found = {}
    for state in sdfg.states():
        for label in (node.label for node in state.nodes() if isinstance(node, nodes.Tasklet)):
            number, _, name = label.removeprefix(_PREFIX).partition("_")
            if label.startswith(_PREFIX) and name:
                found[int(number)] = name.replace("_", " ", 1)
    return [found[number] for number in sorted(found)]

"""Puts a clock between the steps of a program: local work, reductions, redistributions, broadcasts."""

import dace
from dace.libraries import comm
from dace.sdfg import nodes
from dace.sdfg.state import ControlFlowBlock


def _kind(block: ControlFlowBlock) -> str | None:
    """Name what a block does: a communication, ``clear`` (fill with zeros) or ``local``; None if it takes no time."""
    code = [node for node, _ in block.all_nodes_recursive() if isinstance(node, nodes.CodeNode)]
    for node in code:
        if isinstance(node, comm.Reduce | comm.Redistribute | comm.Bcast | comm.Allreduce):
            return type(node).__name__.lower()
    work = [node for node in code if not isinstance(node, comm.Dummy)]
    if not work:
        return None
    return "clear" if all(node.label == "_numpy_full_" for node in work) else "local"


def add_clocks(sdfg: dace.SDFG) -> None:
    """
    Put a clock between the steps of a program that is a chain of blocks; a clock is named after the step it ends.

    The program gets two arguments: ``clock`` (float64 [steps + 1, 2]: seconds at the end of a step and at the start
    of the next) and ``barrier``: if not 0, the ranks meet between the two, outside of every step.
    """
    chain: list[tuple[str, list[ControlFlowBlock]]] = []
    for block in sdfg.bfs_nodes(sdfg.start_block):
        kind = _kind(block)
        if chain and {kind, chain[-1][0]} <= {"clear", "local"}:  # a result that is cleared first is one local step
            chain[-1] = ("local" if "local" in (kind, chain[-1][0]) else "clear", [*chain[-1][1], block])
        elif kind:
            chain.append((kind, [block]))
    sdfg.add_array("clock", [len(chain) + 1, 2], dace.float64)
    sdfg.add_scalar("barrier", dace.int32)
    _add_clock(sdfg, sdfg.add_state_before(chain[0][1][0]), "clock_start", 0)
    kinds = [kind for kind, _ in chain]
    for number, (kind, blocks) in enumerate(chain, start=1):
        name = f"clock_{kind}_{kinds[:number].count(kind)}"
        _add_clock(sdfg, sdfg.add_state_after(blocks[-1]), name, number)


def _add_clock(sdfg: dace.SDFG, state: dace.SDFGState, name: str, number: int) -> None:
    tasklet = state.add_tasklet(
        name,
        {"_barrier": None},
        {"_clock": None},
        "_clock[0] = MPI_Wtime(); if (_barrier) MPI_Barrier(MPI_COMM_WORLD); _clock[1] = MPI_Wtime();",
        language=dace.Language.CPP,
        side_effects=True,
    )
    tasklet.environments = {comm.environments.mpi.MPI.full_class_path()}
    state.add_edge(state.add_read("barrier"), None, tasklet, "_barrier", dace.Memlet("barrier"))
    state.add_edge(tasklet, "_clock", state.add_write("clock"), None, dace.Memlet(f"clock[{number}, 0:2]"))


def steps(sdfg: dace.SDFG) -> list[str]:
    """Names of the steps between the clocks of a program, such as ``local 1``."""
    labels = [node.label for block in sdfg.bfs_nodes(sdfg.start_block) for node in block.nodes()]
    return [label.removeprefix("clock_").replace("_", " ") for label in labels if label.startswith("clock_")][1:]

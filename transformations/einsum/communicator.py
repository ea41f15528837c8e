"""Has a distributed program communicate in a communicator that comes with its arguments."""

from __future__ import annotations

from dace import SDFG, Memlet, dtypes

from dace_redist.library_nodes import LinearSolve, Redistribute, SumReplicas


def take_communicator(sdfg: SDFG) -> str:
    """
    Gives a program an argument that holds the ``MPI_Comm`` of its nodes, which is the world otherwise.

    The nodes then make their plans at the first run, not when the program starts.

    :param sdfg: A distributed program; changed.
    :return: Name of the argument, a 64-bit integer.
    """
    name, _ = sdfg.add_scalar("communicator", dtypes.int64, find_new_name=True)
    for state in sdfg.states():
        for node in state.nodes():
            if isinstance(node, Redistribute | SumReplicas | LinearSolve):
                node.add_in_connector("_comm")
                state.add_edge(state.add_read(name), None, node, "_comm", Memlet(f"{name}[0]"))
    return str(name)

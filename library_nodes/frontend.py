"""What a ``@dace.program`` may call: :func:`dace_redist.redistribute`, with the arguments it has outside of one."""

from __future__ import annotations

from typing import Any

from dace import symbolic
from dace.data.distributed import ProcessGrid
from dace.frontend.common import op_repository
from dace.memlet import Memlet
from dace.sdfg import SDFG, SDFGState

from dace_redist.distribution import Distribution, TiledDistribution
from dace_redist.library_nodes.distributed_node import INPUT, OUTPUT
from dace_redist.library_nodes.redistribute import Redistribute


@op_repository.replaces("dace_redist.redistribute")
@op_repository.replaces("dace_redist.redistribution.redistribute.redistribute")
def _redistribute(
    visitor: Any,
    sdfg: SDFG,
    state: SDFGState,
    array: str,
    source: Any,
    target: Any,
    comm: str | None = None,
    out: str | None = None,
    strategy: str = "Auto",
    **options: Any,
) -> None:
    """
    Adds a ``Redistribute`` node.

    :param array: Name of the local source array.
    :param source: Its distribution; sizes may be symbols of the program.
    :param target: Distribution of ``out``.
    :param comm: Name of an integer that holds an ``MPI_Comm``, or of a process grid; default: the world.
    :param out: Name of the local target array.
    :param strategy: Name of the strategy.
    :param options: Its options.
    :raises ValueError: If ``out`` is missing, or the strategy or an option is unknown.
    :raises TypeError: If a distribution is none.
    """
    for side, distribution in (("source", source), ("target", target)):
        if not isinstance(distribution, Distribution | TiledDistribution):
            raise TypeError(f"redistribute: {side} must be a Distribution or TiledDistribution, got {distribution!r}")
    if out is None or array not in sdfg.arrays or out not in sdfg.arrays:
        raise ValueError("redistribute: a DaCe program needs two arrays, array and out=..., whose sizes it knows")
    strategy = getattr(strategy, "value", strategy)  # a literal in a program is DaCe's StringLiteral
    node = Redistribute(f"redistribute_{array}_{out}", source, target, strategy, **options)
    state.add_node(node)
    state.add_edge(state.add_read(array), None, node, INPUT, Memlet.from_array(array, sdfg.arrays[array]))
    state.add_edge(node, OUTPUT, state.add_write(out), None, Memlet.from_array(out, sdfg.arrays[out]))
    if comm is not None:
        _connect_communicator(node, comm, sdfg, state)
    for number in (*source.encoded, *target.encoded, *node.options.values()):
        for name, symbol in symbolic.symlist(number).items():
            if name not in sdfg.symbols:
                sdfg.add_symbol(name, symbol.dtype)


def _connect_communicator(node: Redistribute, name: str, sdfg: SDFG, state: SDFGState) -> None:
    grid = isinstance(sdfg.arrays.get(name), ProcessGrid)
    connector = "_grid" if grid else "_comm"
    node.add_in_connector(connector)
    state.add_edge(state.add_read(name), None, node, connector, Memlet(data=name) if grid else Memlet(f"{name}[0]"))

"""Optimisation of DaCe programs that are not changed: ``DACE_call_hooks=dace_redist.hook``."""

from __future__ import annotations

import copy
import functools
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from dace import Config
from dace.codegen.compiled_sdfg import CompiledSDFG
from dace.libraries.comm.nodes.redistribute import Redistribute as StockRedistribute
from dace.sdfg import SDFG
from dace.sdfg import utils as sdutil

from dace_redist.report.units import count

if TYPE_CHECKING:
    from dace_redist.library_nodes.node import RedistNode

# Nodes are imported in functions: DaCe may ask for the hook while their package, which imports DaCe, is half imported.

#: Programs that the hook has seen, and the stock nodes that it left in them.
_seen: WeakKeyDictionary[SDFG, int] = WeakKeyDictionary()


def hook(sdfg: SDFG) -> None:
    """
    Optimize a DaCe program when it is compiled, as :func:`dace_redist.optimize` does. Collective over the world.

    DaCe calls it before every call of a program that is not compiled yet, if the environment variable
    ``DACE_call_hooks`` or DaCe's configuration names ``dace_redist.hook``. Programs compiled by
    ``dace.sdfg.utils.distributed_compile`` are then optimized, too, and any other program redistributes by this
    package's default strategy. One line per program on standard error reports the changes; a program without
    redistributions has none. A node whose ``implementation`` is ``"MPI"`` remains DaCe's; one with a strategy keeps it.
    A program that cannot be optimized is not changed, and the line gives the reason.

    :param sdfg: Changed in place, including nested SDFGs.
    """
    from mpi4py import MPI

    if not any("_comm" in node.in_connectors for node in _redistributions(sdfg)):  # else some ranks may not run it
        _optimize(sdfg, MPI.COMM_WORLD, reports=MPI.COMM_WORLD.rank == 0)


def _optimize(sdfg: SDFG, comm: Any, reports: bool) -> None:
    """Optimize a program once, or again if stock nodes were added since. Collective over ``comm``."""
    from dace_redist.transformations.optimization import optimize

    before = _redistributions(sdfg)
    if not before or _seen.get(sdfg) == _stock(before):
        return
    try:
        optimize(copy.deepcopy(sdfg), comm=comm)  # fails on all ranks if on one
    except Exception as error:  # of any kind: the program runs without it
        changes = f"not optimized: {error}"
    else:
        optimize(sdfg, comm=comm)
        changes = _changes(sdfg, before)
    _seen[sdfg] = _stock(_redistributions(sdfg))
    if reports:
        print(f"dace-redist: {sdfg.name}: {changes}", file=sys.stderr, flush=True)


def _redistributions(sdfg: SDFG) -> list[StockRedistribute | RedistNode]:
    """Return all nodes that redistribute, DaCe's and this package's."""
    from dace_redist.library_nodes import JointRedistribute, Redistribute

    kinds = StockRedistribute | Redistribute | JointRedistribute
    return [node for node, _ in sdfg.all_nodes_recursive() if isinstance(node, kinds)]


def _stock(nodes: list[Any]) -> int:
    return sum(isinstance(node, StockRedistribute) for node in nodes)


def _changes(sdfg: SDFG, before: list[Any]) -> str:
    """Return one line on what :func:`dace_redist.optimize` changed."""
    from dace_redist.library_nodes.environment import is_node_shared

    after = _redistributions(sdfg)
    tensors, left = (sum(len(getattr(node, "tensors", [node])) for node in found) for found in (before, after))
    strategies = Counter(node.strategy for node in after if not isinstance(node, StockRedistribute))
    parts = {
        "replaced": _stock(before) - _stock(after),
        "left to DaCe": _stock(after),
        "fused or removed": tensors - left,
        "joined": left - len(after) - (tensors - len(before)),
        "overlapped": sum(bool(getattr(node, "nonblocking", False)) for node in after),
        **{f"by {name}": number for name, number in sorted(strategies.items())},
    }
    shared = sum(is_node_shared(array) for _, _, array in sdfg.arrays_recursive())
    found = [f"{number} {what}" for what, number in parts.items() if number]
    found += [f"{count(shared, 'array')} in node-shared memory"] if shared else []
    return f"{count(tensors, 'redistribution')}: {', '.join(found)}"


_compile_on_first = sdutil.distributed_compile


@functools.wraps(_compile_on_first)
def _compile_optimized(sdfg: SDFG | None, comm: Any, **options: Any) -> CompiledSDFG:
    from mpi4py import MPI

    if isinstance(comm, MPI.Intracomm):
        sdfg = _optimized_on_first(sdfg, comm)
    return _compile_on_first(sdfg, comm, **options)


def _optimized_on_first(sdfg: SDFG | None, comm: Any) -> SDFG | None:
    """Optimize the program that rank 0 compiles, which other ranks may lack; return what this rank has to compile."""
    from mpi4py import MPI

    from dace_redist.mpi.collective import together

    if all(comm.allgather(sdfg is not None)):
        _optimize(sdfg, comm, comm.rank == 0)
        return sdfg
    with together(comm):
        if sdfg is not None:
            _optimize(sdfg, MPI.COMM_SELF, comm.rank == 0)
    return sdfg


if "dace_redist.hook" in str(Config.get("call_hooks")):
    sdutil.distributed_compile = _compile_optimized

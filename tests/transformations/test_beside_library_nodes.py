"""Library nodes of DaCe beside redistributions: the SDFG validates with arrays in node-shared memory, as before."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import dace
import dace.libraries
from dace.sdfg import nodes
from sdfgs import add_move

import dace_redist
from dace_redist import Distribution
from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.environment import is_node_shared

#: Shapes of some arrays where not all have one.
OTHERS = {"Dot": {"_result": (1,)}, "Gemv": {"_A": (4, 4)}, "Ger": {"_A": (4, 4), "_res": (4, 4)}}
#: Arrays of one shape that nodes may have: matrices, vectors, tensors, elements.
SHAPES, TYPES = ((4, 4), (4,), (2, 2, 2), (1,)), (dace.float64, dace.int32)
ARGUMENTS = {"TensorTranspose": {"axes": [1, 0]}, "TensorDot": {"left_axes": [1], "right_axes": [0]}}
#: Nodes without fixed connectors, or with several lists of sizes.
LEFT_OUT = {"AINode", "Einsum", "CodeLibraryNode", "Gearbox", "Reduce", "CSRMM", "Gatherv", "Alltoallv"}


def library_nodes() -> list[type[nodes.LibraryNode]]:
    """Return the nodes of DaCe's libraries."""
    for name in ("blas", "comm", "fft", "lapack", "linalg", "pblas", "sparse", "standard"):
        package = importlib.import_module(f"dace.libraries.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found, queue = set(), [nodes.LibraryNode]
    while queue:
        queue += (kinds := queue.pop().__subclasses__())
        found |= {kind for kind in kinds if kind.__module__.startswith("dace.libraries.")}
    return sorted((kind for kind in found if kind.__name__ not in LEFT_OUT), key=str)


def beside(kind: Any, shape: tuple[int, ...], dtype: Any, transients: tuple[bool, bool]) -> dace.SDFG:
    """Return an SDFG that redistributes all inputs and outputs of a node; either may be transients."""
    sdfg, node = dace.SDFG("beside"), kind("n", **ARGUMENTS.get(kind.__name__, {}))
    state = sdfg.add_state()
    state.add_node(node)
    for connectors, reads in ((node.in_connectors, True), (node.out_connectors, False)):
        for connector in connectors:
            far, near = f"far{connector}_{reads}", f"near{connector}_{reads}"
            extents = OTHERS.get(kind.__name__, {}).get(connector, shape)
            of = Distribution(extents, (1,) * len(extents))
            sdfg.add_array(far, extents, dtype)
            sdfg.add_array(near, extents, dtype, transient=transients[reads])
            memlet = dace.Memlet.from_array(near, sdfg.arrays[near])
            move = Redistribute("move", of, of, "Hierarchical", alpha=2)
            if reads:
                add_move(state, move, far, near)
                state.add_edge(state.out_edges(move)[0].dst, None, node, connector, memlet)
            else:
                state.add_edge(node, connector, state.add_access(near), None, memlet)
                add_move(state, move, near, far)
    return sdfg


def is_valid(sdfg: dace.SDFG) -> bool:
    try:
        sdfg.validate()
    except Exception:  # of any kind
        return False
    return True


def test_what_validates_still_does_after_optimize():
    placed = set()
    for kind in library_nodes():
        ways = ((shape, dtype) for shape in SHAPES for dtype in TYPES)
        way = next(way for way in ways if is_valid(beside(kind, *way, (True, True))))
        for transients in ((True, True), (True, False), (False, True)):
            sdfg = beside(kind, *way, transients)
            assert not is_valid(sdfg) or is_valid(dace_redist.optimize(sdfg)), (kind, transients)
            placed |= {kind.__name__ for array in sdfg.arrays.values() if is_node_shared(array)}
    assert placed >= {"Gemm", "Dot", "Transpose", "FFT", "Inv", "Allreduce"} and "TensorTranspose" not in placed

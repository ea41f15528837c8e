"""Simplification of the SDFG of a program before translation to statements. Start reading at: simplify."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import networkx as nx
import sympy
from dace import SDFG, SDFGState, data, dtypes, symbolic
from dace.sdfg import nodes
from dace.sdfg.state import LoopRegion
from dace.sdfg.validation import InvalidSDFGError
from dace.transformation.passes.simplify import SimplifyPass
from dace.utils import find_new_name

from dace_redist.library_nodes.tasklets import changing_symbols
from dace_redist.transformations.distribute.ir import codes_of
from dace_redist.transformations.distribute.read.location import BY_ARRAYS, Location, source_line

#: Keywords of C++ that are not keywords of Python: invalid names of variables of the compiled program.
CPP_KEYWORDS = frozenset(
    "alignas alignof asm auto bool case catch char compl concept const consteval constexpr constinit const_cast "
    "co_await co_return co_yield decltype default delete do double dynamic_cast enum explicit export extern float "
    "friend goto inline int long mutable namespace new noexcept nullptr operator private protected public register "
    "reinterpret_cast requires short signed sizeof static static_assert static_cast struct switch template this "
    "thread_local throw typedef typeid typename union unsigned using virtual void volatile wchar_t xor".split()
)


def simplify(sdfg: SDFG) -> None:
    """
    Simplify an SDFG in place, as DaCe does, with three differences.

    Variables named like keywords of C++, or scalars like functions of SymPy, are renamed. A scalar computed from
    elements of arrays remains a scalar: DaCe would replace it by a symbol if a condition reads it, but only one rank
    has the element. Statements whose result is never read are removed.

    :raises ValueError: If the SDFG is invalid; names the statement.
    """
    for name in sorted(name for name, array in sdfg.arrays.items() if array.transient and _is_reserved(name, array)):
        sdfg.replace(name, find_new_name(f"{name}_", {*sdfg.arrays, *sdfg.symbols}))
    changing = any(edge.data.assignments for edge in sdfg.all_interstate_edges(recursive=True))
    changing |= any(array.transient and array.total_size == 1 for _, _, array in sdfg.arrays_recursive())
    skip = set() if changing else {"SymbolPropagation"}  # which looks for symbols of all states, again and again
    with naming_invalid_statements():
        options = {"ScalarToSymbolPromotion.ignore": _read_from_arrays(sdfg)}
        SimplifyPass(skip=skip, pass_options=options).apply_pass(sdfg, {})
        for name in sorted(changing_symbols(sdfg) - {"", *sdfg.symbols}):  # of inlined functions
            sdfg.add_symbol(name, dtypes.int64)
        for state in sdfg.states():
            state.remove_nodes_from([node for node in state.data_nodes() if state.degree(node) == 0])
        sdfg.validate()


def _is_reserved(name: str, array: data.Data) -> bool:
    """Return True for a name that is not a variable in C++, or in conditions, which DaCe reads with SymPy."""
    if array.total_size != 1 or not hasattr(sympy, name):
        return name in CPP_KEYWORDS
    with suppress(TypeError):
        return not symbolic.pystr_to_symbolic(f"{name} + 1").free_symbols
    return True


def count_apart(sdfg: SDFG) -> None:
    """
    Give loops whose variable is used elsewhere counters of their own, from which each iteration takes the variable.

    Then a loop in a loop may have the same variable, and after a loop it has the value of the last iteration, as in
    Python but not in an SDFG.
    """
    loops = [region for region in sdfg.all_control_flow_regions() if isinstance(region, LoopRegion)]
    elsewhere: set[str] = set()
    for region in sdfg.all_control_flow_regions():
        variable, around = getattr(region, "loop_variable", ""), _variables_around(region.parent_graph)
        blocks = [block for block in region.nodes() if isinstance(block, SDFGState)]
        used = {name for block in (*blocks, *(edge.data for edge in region.edges())) for name in block.free_symbols}
        used |= {name for code in codes_of(region) for name in code.get_free_symbols()}
        elsewhere |= ({variable} & around) | used - around - {variable}
    for loop in loops:
        name = loop.loop_variable
        if name and name in elsewhere:
            # Inlining of a function may rename its i to i_0, which must not be the counter.
            counter = sdfg.add_symbol(f"{name}_counter", sdfg.symbols[name], find_new_name=True)
            loop.replace_meta_accesses({name: counter})
            loop.add_state_before(loop.start_block, is_start_block=True, assignments={name: counter})


def check_indices(sdfg: SDFG) -> None:
    """Raise an error for an index that is computed from an array; DaCe removes scalars that only memlets read."""
    computed = _read_from_arrays(sdfg) | sdfg.free_symbols - {*sdfg.symbols}  # a returned scalar is renamed
    for state in sdfg.states():
        for edge in state.edges():
            names = sorted(computed & {str(name) for name in edge.data.free_symbols})
            if names:
                Location(sdfg, edge.dst, state).refuse(
                    f"its index {names[0]} is computed from an array; choose elements by np.where, as in "
                    "np.where(np.arange(N) == k, x, 0.0)"
                )


def _variables_around(region: Any) -> set[str]:
    """Return the variables of a region and the loops around it."""
    if region is None or isinstance(region, SDFG):
        return set()
    return {getattr(region, "loop_variable", "")} | _variables_around(region.parent_graph)


@contextmanager
def naming_invalid_statements() -> Iterator[None]:
    """Convert DaCe's error of an invalid SDFG to a ValueError that names the statement; remove DaCe's file."""
    try:
        yield
    except InvalidSDFGError as error:
        remove_report(error)
        said = str(getattr(error, "message", error)).rstrip(".")
        where = source_line(_place(error)) or f'"{error.sdfg.name}"'
        remedy = "give it another name" if "is already used" in said else BY_ARRAYS
        raise ValueError(f"{where}: DaCe finds the statement invalid ({said}); {remedy}") from error


def remove_report(error: Exception) -> None:
    """Remove the file that DaCe writes about an invalid SDFG."""
    path = getattr(error, "path", None)
    if isinstance(error, InvalidSDFGError) and path is not None and os.path.exists(path):
        os.remove(path)
        with suppress(OSError):  # other files are in there
            os.rmdir(os.path.dirname(path))


def _place(error: InvalidSDFGError) -> dtypes.DebugInfo | None:
    """Return the line of the program that an invalid node or edge comes from, if DaCe knows it."""
    state: Any = error.sdfg.node(error.state_id) if getattr(error, "state_id", None) is not None else None
    found: list[Any] = []
    if state is not None and getattr(error, "node_id", None) is not None:
        found.append(state.node(error.node_id))
    if state is not None and getattr(error, "edge_id", None) is not None:
        edge = state.edges()[error.edge_id]
        found += [edge.dst, edge.src]
    found += state.nodes() if isinstance(state, SDFGState) else []
    places = (getattr(node, "debuginfo", None) for node in found)
    return next((place for place in places if place is not None and place.filename), None)


def _read_from_arrays(sdfg: SDFG) -> set[str]:
    """Return the transient scalars that are computed from elements of arrays, or from other such scalars."""
    single = {n for n, array in sdfg.arrays.items() if array.total_size == 1 and not isinstance(array, data.View)}
    graph = nx.DiGraph()
    graph.add_nodes_from(sdfg.arrays)
    for state in sdfg.states():
        for node in state.data_nodes():
            for before in state.predecessors(node) if node.data in single else ():
                data_read = [edge.data.data for edge in state.in_edges(before) if edge.data.data is not None]
                reads = [before.data] if isinstance(before, nodes.AccessNode) else data_read
                graph.add_edges_from((name, node.data) for name in reads)
    return set().union(*(nx.descendants(graph, name) for name in graph if name not in single))

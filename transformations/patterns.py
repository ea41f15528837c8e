"""Base of the transformations of one redistribution, and what they share: predicates, fusion, values of symbols."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar
from weakref import WeakSet

from dace import SDFG, Memlet, SDFGState, data, dtypes, subsets, symbolic
from dace.sdfg import nodes
from dace.sdfg import utils as sdutil
from dace.sdfg.graph import MultiConnectorEdge
from dace.sdfg.state import ConditionalBlock, LoopRegion
from dace.transformation import transformation
from dace.transformation.passes.analysis import StateReachability
from networkx.utils import UnionFind

from dace_redist.distribution import AnyDistribution, decode_distribution
from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.environment import MEMORY_PIECE
from dace_redist.library_nodes.node import COMMUNICATORS, INPUT, OUTPUT, lies_on_gpu, symbols_of
from dace_redist.strategies import check_places, find_strategy
from dace_redist.transform import Transform


class OfRedistribute(transformation.SingleStateTransformation):
    """
    Transformation of a redistribution, and of nodes before or after it.

    ``permissive`` permits what the class says, by default nothing more.

    :cvar paths: The patterns: names of the pattern nodes along each path.
    """

    node = transformation.PatternNode(Redistribute)
    paths: ClassVar[tuple[tuple[str, ...], ...]] = (("node",),)

    @classmethod
    def expressions(cls) -> list[Any]:
        """Return the patterns."""
        return [sdutil.node_path_graph(*(getattr(cls, name) for name in path)) for path in cls.paths]


#: SDFGs that may have been changed since they were compiled.
changed: WeakSet[SDFG] = WeakSet()


def checked_sdfg(given: Any, caller: str) -> SDFG:
    """Return an SDFG, to be changed; raise a TypeError for anything else, with the way to the SDFG of a program."""
    if isinstance(given, SDFG):
        changed.add(given)
        return given
    remedy = ": pass its SDFG, program.to_sdfg()" if hasattr(given, "to_sdfg") else ""
    raise TypeError(f"{caller} takes an SDFG, got {type(given).__name__}{remedy}")


def redistributions(sdfg: SDFG) -> list[tuple[Redistribute, SDFGState]]:
    """Return the redistributions of an SDFG and of its nested SDFGs, with their states."""
    return [(node, state) for node, state in sdfg.all_nodes_recursive() if isinstance(node, Redistribute)]


def is_plain(node: Any) -> bool:
    """True for a blocking redistribution of a whole tensor, of one shape, over the world, with its types and order."""
    special = isinstance(node, Redistribute) and (
        node.region or node.reshapes or node.nonblocking or any(node.precision.values())
    )
    return not (special or {*COMMUNICATORS} & set(node.in_connectors))


def input_of(node: nodes.Node, state: SDFGState, connector: str = INPUT) -> Any:
    """Return the edge into a connector."""
    (edge,) = (edge for edge in state.in_edges(node) if edge.dst_conn == connector)
    return edge


def output_of(node: nodes.Node, state: SDFGState, connector: str = OUTPUT) -> Any:
    """Return the edge out of a connector."""
    (edge,) = (edge for edge in state.out_edges(node) if edge.src_conn == connector)
    return edge


def is_only_used_between(
    graph: SDFGState, sdfg: SDFG, between: nodes.AccessNode, absorbed: Iterable[nodes.Node]
) -> bool:
    """
    True for a transient that is written once and read once, at this node, by nodes that only data orders.

    :param absorbed: Nodes that a fusion removes with it; all their edges must carry elements as they are.
    """
    if not sdfg.arrays[between.data].transient or graph.in_degree(between) != 1 or graph.out_degree(between) != 1:
        return False
    if any(is_ordered(node, graph) for node in (*graph.predecessors(between), *graph.successors(between))):
        return False
    if between.setzero or not all(
        carries_all(edge, graph) for one in (between, *absorbed) for edge in graph.all_edges(one)
    ):
        return False
    return len(list(accesses(sdfg, between.data))) == 1 and not is_named_by_edges(sdfg, between.data)


def carries_all(edge: MultiConnectorEdge[Memlet], graph: SDFGState) -> bool:
    """True if an edge always carries all its elements as they are: without a wcr, in the type of the array."""
    memlet = edge.data
    if memlet.data is None or memlet.wcr is not None or memlet.dynamic:
        return False
    dtype = graph.sdfg.arrays[memlet.data].dtype
    kinds = edge.src.out_connectors.get(edge.src_conn), edge.dst.in_connectors.get(edge.dst_conn)
    return all(kind is None or kind.type is None or kind in (dtype, dtypes.pointer(dtype)) for kind in kinds)


def memory_groups(sdfg: SDFG) -> UnionFind:
    """
    Return groups of arrays that may share memory.

    A view belongs to what it views, a reference to everything. In a nested SDFG two arrays may be one array outside.
    Transients of a distributed program may have one piece of memory.
    """
    groups, pieces = UnionFind(sdfg.arrays), dict[Any, str]()
    for name, array in sdfg.arrays.items():
        groups.union(name, pieces.setdefault(array.location.get(MEMORY_PIECE, name), name))
    groups.union(*(name for name, array in sdfg.arrays.items() if getattr(array, "may_alias", False)))
    if any(isinstance(array, data.Reference) for array in sdfg.arrays.values()):
        groups.union(*sdfg.arrays)
    for state in sdfg.states():
        for node in state.data_nodes():
            if isinstance(sdfg.arrays[node.data], data.View):
                viewed = sdutil.get_view_node(state, node)
                groups.union(*(root_name(one.data) for one in (node, viewed) if isinstance(one, nodes.AccessNode)))
    if sdfg.parent_nsdfg_node is not None:
        outside, first = memory_groups(sdfg.parent_sdfg), dict[str, str]()
        for edge in sdfg.parent.all_edges(sdfg.parent_nsdfg_node):
            inner = edge.dst_conn if edge.dst is sdfg.parent_nsdfg_node else edge.src_conn
            if edge.data.data is not None:
                groups.union(inner, first.setdefault(outside[root_name(edge.data.data)], inner))
    return groups


def root_name(name: str) -> str:
    """Return the name of the structure that a name of a member begins with, or a name without members."""
    return name.partition(".")[0]


def memory_of(sdfg: SDFG, name: str) -> set[str]:
    """Return the names of an array and of all arrays that may share its memory."""
    return next(set(group) for group in memory_groups(sdfg).to_sets() if root_name(name) in group)


def accesses(sdfg: SDFG, name: str) -> Iterator[tuple[SDFGState, nodes.AccessNode]]:
    """Yield the access nodes of an array and of those that may share its memory, with their states."""
    names = memory_of(sdfg, name)
    for state in sdfg.states():
        yield from ((state, node) for node in state.data_nodes() if root_name(node.data) in names)


def is_written(access: nodes.AccessNode, state: SDFGState) -> bool:
    """True if a node is more than a view of an array that is written elsewhere."""
    view = sdutil.get_view_edge(state, access) if isinstance(state.sdfg.arrays[access.data], data.View) else None
    return any(edge is not view for edge in state.in_edges(access))


def is_named_by_edges(sdfg: SDFG, name: str) -> bool:
    """True if an interstate edge, the condition of a loop or branch, or a symbol in a state uses an array's memory."""
    names = memory_of(sdfg, name)
    if any(names & state.free_symbols for state in sdfg.states()):
        return True
    blocks = [one for one in sdfg.all_control_flow_blocks() if isinstance(one, LoopRegion | ConditionalBlock)]
    codes = (code for block in blocks for code in block.get_meta_codeblocks())
    if any(names & edge.data.free_symbols for edge in sdfg.all_interstate_edges()):
        return True
    return any(names & code.get_free_symbols() for code in codes)


def share_elements(sdfg: SDFG, first: Memlet, second: Memlet) -> bool:
    """True if two memlets may share elements: no node may read one and write the other."""
    if first.data == second.data:
        return subsets.intersects(first.subset, second.subset) is not False
    return second.data in memory_of(sdfg, first.data)


def is_ordered(node: nodes.Node, graph: SDFGState) -> bool:
    """True if edges without data order a node before or after others."""
    return any(edge.data.data is None for edge in graph.all_edges(node))


def can_compute(node: Redistribute, source: data.Data, target: data.Data, alpha: Any, op: str = "") -> bool:
    """
    True if a redistribution, with this factor and reduction instead of its own, is possible between two arrays.

    A product with a symbol may be no number of an integer type, although both factors are.
    """
    types = [array.dtype.base_type.as_numpy_dtype() for array in (source, target)]
    on_gpu = lies_on_gpu(source), lies_on_gpu(target)
    if symbols_of([alpha]) and alpha != node.alpha and target.dtype in dtypes.INTEGER_TYPES:
        return False
    factors = [2 if symbols_of([factor]) else complex(factor) for factor in (alpha, node.beta)]
    try:
        check_places(find_strategy(node.strategy), *on_gpu)
        Transform(1, *types, None, None, *factors, op=op or None).check_on_gpu(*on_gpu)
    except (ValueError, TypeError):
        return False
    return True


def is_used_after(sdfg: SDFG, state: SDFGState, name: str) -> bool:
    """True if a later state, including a later iteration of this one, or the caller may access an array."""
    if not sdfg.arrays[name].transient or is_named_by_edges(sdfg, name):
        return True
    reachable = StateReachability().apply_pass(sdfg.root_sdfg, {})[sdfg.cfg_id][state]
    return any(where in reachable for where, _ in accesses(sdfg, name))


def absorb(node: Redistribute, graph: SDFGState, beyond: MultiConnectorEdge[Memlet], absorbed: Iterable[Any]) -> None:
    """
    Connect a redistribution to the array beyond the nodes that it replaces, and remove these.

    :param beyond: Edge between the last of these nodes and that array; it comes from the array if the redistribution
        replaces what was before it.
    :param absorbed: The nodes. A transient among them is removed from the SDFG.
    """
    memlet, absorbed = copy.deepcopy(beyond.data), list(absorbed)
    if beyond.dst in absorbed:
        graph.add_edge(beyond.src, beyond.src_conn, node, INPUT, memlet)
    else:
        graph.add_edge(node, OUTPUT, beyond.dst, beyond.dst_conn, memlet)
    graph.remove_nodes_from(absorbed)
    for access in absorbed:
        if isinstance(access, nodes.AccessNode):
            graph.sdfg.remove_data(access.data)


def value_of(expression: Any, values: Mapping[str, int]) -> int:
    """Return the value of an expression of sizes, given those of its symbols."""
    return int(symbolic.evaluate(symbolic.pystr_to_symbolic(str(expression)), dict(values)))


def numbers_of(node: Redistribute, expressions: Iterable[Any], values: Mapping[str, int]) -> list[int]:
    """Return expressions of a node in numbers; raise a ValueError that names the symbols without a value."""
    expressions = list(expressions)
    unknown = sorted(symbols_of(expressions) - values.keys())
    if unknown:
        wanted = ", ".join(f"{name!r}: ..." for name in unknown)
        raise ValueError(f'Redistribute "{node.label}": {", ".join(unknown)} has no value: give symbols={{{wanted}}}')
    return [number if isinstance(number, int) else value_of(number, values) for number in expressions]


def with_values(node: Redistribute, side: AnyDistribution, values: Mapping[str, int]) -> AnyDistribution:
    """Return a distribution of a node with values for symbols; raise a ValueError if one has none."""
    numbers = numbers_of(node, side.encoded, values)
    with node.naming(ValueError):
        return decode_distribution(numbers)

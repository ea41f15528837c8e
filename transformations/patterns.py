"""Base of the transformations of one redistribution, and what they share: predicates, fusion, values of symbols."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar
from weakref import WeakSet

from dace import SDFG, Memlet, SDFGState, data, subsets, symbolic
from dace.sdfg import nodes
from dace.sdfg import utils as sdutil
from dace.sdfg.graph import MultiConnectorEdge
from dace.sdfg.state import ConditionalBlock, LoopRegion
from dace.transformation import transformation
from dace.transformation.passes.analysis import StateReachability

from dace_redist.distribution import AnyDistribution, decode_distribution
from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.node import COMMUNICATORS, INPUT, OUTPUT, DistributedNode, lies_on_gpu, symbols_of
from dace_redist.strategies import check_places, find_strategy
from dace_redist.transform import Transform


class OfRedistribute(transformation.SingleStateTransformation):
    """
    Transformation of a redistribution, and of nodes before or after it.

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
    """True for a blocking redistribution of a whole tensor, of one shape, over the world."""
    special = isinstance(node, Redistribute) and (node.region or node.reshapes or node.nonblocking)
    return not (special or {*COMMUNICATORS} & set(node.in_connectors))


def input_of(node: nodes.Node, state: SDFGState, connector: str = INPUT) -> Any:
    """Return the edge into a connector."""
    (edge,) = (edge for edge in state.in_edges(node) if edge.dst_conn == connector)
    return edge


def output_of(node: nodes.Node, state: SDFGState, connector: str = OUTPUT) -> Any:
    """Return the edge out of a connector."""
    (edge,) = (edge for edge in state.out_edges(node) if edge.src_conn == connector)
    return edge


def is_only_used_between(graph: SDFGState, sdfg: SDFG, between: nodes.AccessNode) -> bool:
    """True for a transient that is written once and read once, at this node, by nodes that only data orders."""
    if not sdfg.arrays[between.data].transient or graph.in_degree(between) != 1 or graph.out_degree(between) != 1:
        return False
    if any(is_ordered(node, graph) for node in (*graph.predecessors(between), *graph.successors(between))):
        return False
    return len(list(accesses(sdfg, between.data))) == 1 and not is_named_by_edges(sdfg, between.data)


def accesses(sdfg: SDFG, name: str) -> Iterator[tuple[SDFGState, nodes.AccessNode]]:
    """Yield the access nodes of an array, with their states."""
    for state in sdfg.states():
        yield from ((state, node) for node in state.data_nodes() if node.data == name)


def is_named_by_edges(sdfg: SDFG, name: str) -> bool:
    """True if an interstate edge, or the condition of a loop or branch, uses an array."""
    blocks = [one for one in sdfg.all_control_flow_blocks() if isinstance(one, LoopRegion | ConditionalBlock)]
    conditions = (memlet for block in blocks for memlet in block.get_meta_read_memlets(include_scalars=True))
    edges = sdfg.all_interstate_edges()
    return any(name in edge.data.free_symbols for edge in edges) or any(memlet.data == name for memlet in conditions)


def share_elements(first: Memlet, second: Memlet) -> bool:
    """True if two memlets may share elements: no node may read one and write the other."""
    return first.data == second.data and subsets.intersects(first.subset, second.subset) is not False


def is_ordered(node: nodes.Node, graph: SDFGState) -> bool:
    """True if edges without data order a node before or after others."""
    return any(edge.data.data is None for edge in graph.all_edges(node))


def can_compute(node: Redistribute, source: data.Data, target: data.Data, alpha: Any, op: str = "") -> bool:
    """True if a redistribution, with this factor and reduction instead of its own, is possible between two arrays."""
    types = [array.dtype.base_type.as_numpy_dtype() for array in (source, target)]
    on_gpu = lies_on_gpu(source), lies_on_gpu(target)
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


def same(source: AnyDistribution, target: AnyDistribution) -> bool:
    """True if two distributions are equivalent."""
    if source.is_symbolic or target.is_symbolic:
        return source == target
    return source.is_equivalent_to(target)


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


def numbers_of(node: DistributedNode, expressions: Iterable[Any], values: Mapping[str, int]) -> list[int]:
    """Return expressions of a node in numbers; raise a ValueError that names the symbols without a value."""
    expressions = list(expressions)
    unknown = sorted(symbols_of([one for one in expressions if not isinstance(one, int)]) - values.keys())
    if unknown:
        wanted = ", ".join(f"{name!r}: ..." for name in unknown)
        raise ValueError(f'Redistribute "{node.label}": {", ".join(unknown)} has no value: give symbols={{{wanted}}}')
    return [number if isinstance(number, int) else value_of(number, values) for number in expressions]


def with_values(node: DistributedNode, encoded: Any, values: Mapping[str, int]) -> AnyDistribution:
    """Return a distribution of a node with values for symbols; raise a ValueError if one has none."""
    numbers = numbers_of(node, encoded, values)
    with node.naming(ValueError):
        return decode_distribution(numbers)

"""Code of stock DaCe's own redistribution, for nodes that stock DaCe can express."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dace.data import Array, Data
from dace.libraries.comm.nodes.redistribute import ExpandRedistribute as ExpandStock
from dace.sdfg import SDFG, SDFGState, nodes

from dace_redist.distribution import Distribution
from dace_redist.library_nodes.node import COMMUNICATORS, differ
from dace_redist.library_nodes.redistribute import Redistribute


@dataclass
class _StockNode:
    """Attributes of a node that the stock expansion reads."""

    name: str
    redistr: str
    in_connectors: dict[str, Any]
    out_connectors: dict[str, Any]
    buffers: tuple[Data, Data]

    @property
    def _redistr(self) -> str:
        return self.redistr

    def validate(self, sdfg: SDFG, state: SDFGState) -> tuple[Data, Data]:
        return self.buffers


def _check_stock(node: Redistribute, side: str, distribution: Any, array: Data, subset: Any) -> None:
    """:raises ValueError: If stock DaCe cannot express the distribution, or the array, or would hang."""
    refused = f"{node.title}: strategy MPI (stock DaCe) knows"
    plain = isinstance(distribution, Distribution) and not distribution.ranks
    sized = plain and distribution.shape != () and not any(extent == 0 for extent in distribution.shape)
    whole = sized and None not in distribution.dims and all(pin is None for pin in distribution.pins)
    if not whole or set(distribution.dims) != set(range(len(distribution.grid))):
        raise ValueError(
            f"{refused} uniform blocks over a whole process grid only; its {side} needs another strategy: "
            f"{distribution}"
        )
    blocks = [n if isinstance(block, str) else block for n, block in zip(array.shape, distribution.block, strict=True)]
    filled = [n * distribution.grid[axis] for n, axis in zip(array.shape, distribution.dims, strict=True)]
    if differ(array.shape, blocks) or differ(filled, distribution.shape):
        raise ValueError(
            f"{refused} blocks that fill the tensor and their local arrays only; its {side} needs another strategy: "
            f"a local array of shape {tuple(array.shape)} for {distribution}"
        )
    if differ(array.shape, subset.size()) or differ(array.strides, Array(array.dtype, array.shape).strides):
        raise ValueError(f"{refused} whole arrays in C order only; its {side} is {subset} of an array {array}")


def _stock_subarray(node: Redistribute, side: str, distribution: Any, array: Data, sdfg: SDFG) -> tuple[str, list[str]]:
    """Add a process grid and a sub-array to the SDFG, as the stock frontend does."""
    grid = sdfg.add_pgrid(list(distribution.grid), name=f"{node.label}_{side}_grid")
    subarray = sdfg.add_subarray(
        array.dtype, list(distribution.shape), list(array.shape), grid, list(distribution.dims), f"{node.label}_{side}"
    )
    ndim = len(distribution.grid)
    fields = [f"MPI_Comm {grid};", f"MPI_Group {grid}_group;", f"int {grid}_coords[{ndim}];"]
    fields += [f"int {grid}_dims[{ndim}];", f"int {grid}_rank;", f"int {grid}_size;", f"bool {grid}_valid;"]
    fields += [f"MPI_Datatype {subarray};", f"int* {subarray}_counts;", f"int* {subarray}_displs;"]
    return subarray, fields


def _stock_fields(name: str) -> list[str]:
    """Return the state fields of the stock descriptor ``RedistrArray``."""
    fields = [f"MPI_Datatype {name};", f"int {name}_sends;", f"int {name}_recvs;", f"int {name}_self_copies;"]
    fields += [f"MPI_Datatype* {name}_send_types;", f"MPI_Datatype* {name}_recv_types;"]
    return fields + [f"int* {name}_{part};" for part in ("dst_ranks", "src_ranks", "self_src", "self_dst", "self_size")]


def stock_tasklet(node: Redistribute, state: SDFGState, sdfg: SDFG, _: str) -> nodes.Tasklet:
    """
    Return the tasklet of stock DaCe's node, after adding its descriptors to the SDFG.

    :raises ValueError: If stock DaCe cannot express the node; names it.
    """
    node.validate(sdfg, state)
    if any(node.on_gpu(sdfg, state)):
        raise ValueError(node.refusal_of_stock_code)
    if node.given_at_run_time or any(e.dst_conn in COMMUNICATORS for e in state.in_edges(node)):
        raise ValueError(f"{node.title}: strategy MPI (stock DaCe) knows the world communicator only")
    if node.index_map.encoded:
        raise ValueError(
            f"{node.title}: strategy MPI (stock DaCe) moves whole tensors and keeps the order of their axes; take "
            "another strategy"
        )
    if not node.operation(sdfg, state).is_copy:
        raise ValueError(
            f"{node.title}: strategy MPI (stock DaCe) only moves elements: it neither converts nor reduces them; "
            "take another strategy"
        )
    (source_array, source_subset), (target_array, target_subset) = node.arrays(sdfg, state)
    source, target = node.distributions()
    _check_stock(node, "source", source, source_array, source_subset)
    _check_stock(node, "target", target, target_array, target_subset)
    from_name, from_fields = _stock_subarray(node, "source", source, source_array, sdfg)
    to_name, to_fields = _stock_subarray(node, "target", target, target_array, sdfg)
    redistr = sdfg.add_rdistrarray(from_name, to_name, name=f"{node.label}_redistr")
    stock = _StockNode(node.name, redistr, node.in_connectors, node.out_connectors, (source_array, target_array))
    tasklet = ExpandStock.expansion(stock, state, sdfg)
    tasklet.state_fields = from_fields + to_fields + _stock_fields(redistr)
    tasklet.side_effects = True
    return tasklet

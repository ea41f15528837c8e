"""SDFGs with redistributions, for the tests of the node and of the transformations."""

from __future__ import annotations

import json
from typing import Any

import dace
from dace.sdfg import SDFGState

from dace_redist import Distribution
from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.node import INPUT, OUTPUT

ROWS, COLUMNS = Distribution((8, 8), (4, 1)), Distribution((8, 8), (1, 4))


def with_arrays(name: str, transients: str = "", dtype: Any = dace.float64, **shapes: Any) -> dace.SDFG:
    """Return an SDFG with arrays of these shapes by name, of which those in ``transients`` are such."""
    sdfg = dace.SDFG(name)
    for array, shape in shapes.items():
        sdfg.add_array(array, shape, dtype, transient=array in transients)
    return sdfg


def add_move(state: SDFGState, node: Any, source: Any, target: Any, connectors: Any = (INPUT, OUTPUT)) -> Any:
    """
    Connect a node with the last access of an array and a new access of another, and return it.

    :param source: Name of an array of the state's SDFG, or a memlet for a part of it.
    :param target: The same.
    """
    memlets = [
        end if isinstance(end, dace.Memlet) else dace.Memlet.from_array(end, state.sdfg.arrays[end])
        for end in (source, target)
    ]
    accesses = [one for one in state.data_nodes() if one.data == memlets[0].data]
    read = accesses[-1] if accesses else state.add_read(memlets[0].data)
    if node not in state.nodes():
        state.add_node(node)
    state.add_edge(read, None, node, connectors[0], memlets[0])
    state.add_edge(node, connectors[1], state.add_write(memlets[1].data), None, memlets[1])
    return node


def connected(
    node: Redistribute,
    source_shape=(2, 8),
    target_shape=(8, 2),
    dtype=dace.float64,
    target_dtype=None,
    name="connected",
):
    """Return an SDFG with the node between two arrays, and its state."""
    sdfg = dace.SDFG(name)
    sdfg.add_array("A", source_shape, dtype)
    sdfg.add_array("B", target_shape, target_dtype or dtype)
    state = sdfg.add_state("state", is_start_block=True)
    add_move(state, node, "A", "B")
    return sdfg, state


def rows_to_columns(strategy: str = "Auto", name: str = "rows_to_columns", **options: Any) -> dace.SDFG:
    """An SDFG of one state and one node "move": (8, 8) from (4, 1) to (1, 4)."""
    return connected(Redistribute("move", ROWS, COLUMNS, strategy, **options), name=name)[0]


def contracting(node: Any, *shapes, dtype=dace.float64, types=None, name="contracting") -> dace.SDFG:
    """An SDFG of one node, between arrays A0, A1, ... and C of these shapes."""
    sdfg = dace.SDFG(name)
    state = sdfg.add_state()
    state.add_node(node)
    names = [*(f"A{position}" for position in range(len(shapes) - 1)), "C"]
    for array, shape, of_type in zip(names, shapes, types or [dtype] * len(shapes), strict=True):
        sdfg.add_array(array, shape, of_type)
    whole = {array: dace.Memlet.from_array(array, sdfg.arrays[array]) for array in names}
    for position, array in enumerate(names[:-1]):
        state.add_edge(state.add_read(array), None, node, f"_{position}", whole[array])
    state.add_edge(node, "_result", state.add_write("C"), None, whole["C"])
    if "_cin" in node.in_connectors:
        state.add_edge(state.add_read("C"), None, node, "_cin", dace.Memlet.from_array("C", sdfg.arrays["C"]))
    return sdfg


def reread(sdfg: dace.SDFG) -> dace.SDFG:
    """Return a copy of an SDFG by way of JSON."""
    return dace.SDFG.from_json(json.loads(json.dumps(sdfg.to_json())))


def redistributions(sdfg: dace.SDFG) -> list[Redistribute]:
    """Return the nodes of this package, in the SDFG and its nested SDFGs."""
    return [node for node, _ in sdfg.all_nodes_recursive() if isinstance(node, Redistribute)]


def count(sdfg: dace.SDFG, *kinds: type) -> list[int]:
    """Return the number of nodes of each kind, in the SDFG and its nested SDFGs."""
    found = [node for node, _ in sdfg.all_nodes_recursive()]
    return [sum(isinstance(node, kind) for node in found) for kind in kinds]


def computing_on_a_gpu(name: str) -> dace.SDFG:
    """A map on the GPU, a redistribution of its result, meanwhile another map, and a map of what arrived."""
    sdfg, gpu = dace.SDFG(name), dace.StorageType.GPU_Global
    sdfg.add_array("A", [2, 8], dace.float64, storage=gpu)
    sdfg.add_array("B", [8, 2], dace.float64, storage=gpu)
    sdfg.add_array("H", [8, 2], dace.float64)
    sdfg.add_transient("doubled", [2, 8], dace.float64, storage=gpu)
    sdfg.add_transient("moved", [8, 2], dace.float64, storage=gpu)
    state = sdfg.add_state()

    def add_map(source: str, target: str, shape: tuple[int, int]) -> None:
        ranges = {"i": f"0:{shape[0]}", "j": f"0:{shape[1]}"}
        edges = {"_in": dace.Memlet(f"{source}[i, j]")}, "_out = 2 * _in", {"_out": dace.Memlet(f"{target}[i, j]")}
        where = {node.data: node for node in state.data_nodes()}
        given = {"input_nodes": {source: where[source]}} if source in where else {}
        state.add_mapped_tasklet(
            f"to_{target}", ranges, *edges, external_edges=True, schedule=dace.ScheduleType.GPU_Device, **given
        )

    add_map("A", "doubled", (2, 8))
    node = Redistribute("move", ROWS, COLUMNS)
    state.add_node(node)
    (written,) = [one for one in state.data_nodes() if one.data == "doubled"]
    state.add_edge(written, None, node, "_inp_buffer", dace.Memlet("doubled[0:2, 0:8]"))
    state.add_edge(node, "_out_buffer", state.add_write("moved"), None, dace.Memlet("moved[0:8, 0:2]"))
    add_map("moved", "B", (8, 2))
    home = sdfg.add_state_after(state, "home")
    add_move(home, Redistribute("home", COLUMNS, COLUMNS), "B", "H")
    return sdfg

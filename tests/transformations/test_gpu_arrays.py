"""Transformations with arrays on the GPU."""

from __future__ import annotations

import dace
import pytest
from dace.libraries.linalg import Transpose
from sdfgs import COLUMNS, ROWS, add_move, redistributions, rows_to_columns

from dace_redist import Distribution
from dace_redist.library_nodes import Redistribute
from dace_redist.transformations import FuseConversion, FuseRedistributes, FuseTranspose
from dace_redist.transformations.exchange import JoinRedistributes, place_in_shared_memory

GPU, HEAP = dace.StorageType.GPU_Global, dace.StorageType.CPU_Heap
PLACES = {"both": (GPU, GPU), "source": (GPU, HEAP), "target": (HEAP, GPU)}


def transients(*places: dace.StorageType) -> dace.SDFG:
    """rows_to_columns() between two transients."""
    sdfg = rows_to_columns("Hierarchical")
    for name, storage in zip("AB", places, strict=True):
        sdfg.arrays[name].transient, sdfg.arrays[name].storage = True, storage
    return sdfg


def chain(*shapes_and_places: tuple[tuple[int, int], dace.StorageType]) -> tuple[dace.SDFG, dace.SDFGState]:
    """Return an SDFG with arrays A, B, ...; the inner ones are transients."""
    sdfg = dace.SDFG("chain")
    for number, (shape, storage) in enumerate(shapes_and_places):
        between = 0 < number < len(shapes_and_places) - 1
        sdfg.add_array("ABCDE"[number], shape, dace.float64, storage=storage, transient=between)
    return sdfg, sdfg.add_state()


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
def test_no_array_moves_to_node_shared_memory(places):
    sdfg = transients(*places)
    place_in_shared_memory(sdfg)
    assert [sdfg.arrays[name].storage for name in "AB"] == list(places)
    assert all(array.lifetime == dace.AllocationLifetime.Scope for array in sdfg.arrays.values())
    both = transients(HEAP, HEAP)
    place_in_shared_memory(both)
    assert all(array.lifetime == dace.AllocationLifetime.External for array in both.arrays.values())


def test_only_what_lies_in_main_memory_is_joined():
    sdfg = dace.SDFG("joined")
    state = sdfg.add_state()
    for number, storage in enumerate((HEAP, GPU, HEAP)):
        for name, shape in ((f"A{number}", [2, 8]), (f"B{number}", [8, 2])):
            sdfg.add_array(name, shape, dace.float64, storage=storage)
        add_move(state, Redistribute(f"move{number}", ROWS, COLUMNS), f"A{number}", f"B{number}")
    assert sdfg.apply_transformations_repeated(JoinRedistributes) == 1
    assert [node.label for node in redistributions(sdfg)] == ["move1"]
    sdfg.validate()


def test_two_in_a_row_become_one_from_main_memory_to_the_gpu():
    sdfg, state = chain(((2, 8), HEAP), ((8, 2), GPU), ((2, 8), GPU))
    add_move(state, Redistribute("there", ROWS, COLUMNS), "A", "B")
    add_move(state, Redistribute("back", COLUMNS, Distribution((8, 8), (4, 1), ranks=[3, 2, 1, 0])), "B", "C")
    assert sdfg.apply_transformations(FuseRedistributes) == 1
    (node,) = redistributions(sdfg)
    assert node.on_gpu(sdfg, state) == (False, True)
    sdfg.validate()
    sdfg.expand_library_nodes()
    (call,) = [one.code_init.as_string for one in state.nodes() if isinstance(one, dace.nodes.Tasklet)]
    assert "DR_MAIN_MEMORY, /*target_memory*/ DR_DEVICE_MEMORY" in call


def test_a_transposition_on_the_gpu_becomes_axes():
    sdfg, state = chain(((2, 8), GPU), ((8, 2), GPU), ((2, 8), GPU))
    add_move(state, Redistribute("move", ROWS, COLUMNS), "A", "B")
    add_move(state, Transpose("turn", dtype=dace.float64), "B", "C", ("_inp", "_out"))
    assert sdfg.apply_transformations(FuseTranspose) == 1
    (node,) = redistributions(sdfg)
    assert node.index_map.axes == (1, 0) and node.on_gpu(sdfg, state) == (True, True)
    sdfg.validate()


def test_a_conversion_on_the_gpu_becomes_a_property():
    sdfg, state = chain(((2, 8), GPU), ((2, 8), GPU), ((8, 2), GPU))
    sdfg.arrays["A"].dtype = dace.float32
    state.add_mapped_tasklet(
        "convert",
        {"i": "0:2", "j": "0:8"},
        {"_in": dace.Memlet("A[i, j]")},
        "_out = 2 * _in",
        {"_out": dace.Memlet("B[i, j]")},
        external_edges=True,
        schedule=dace.ScheduleType.GPU_Device,
    )
    add_move(state, Redistribute("move", ROWS, COLUMNS), "B", "C")
    assert sdfg.apply_transformations(FuseConversion) == 1
    (node,) = redistributions(sdfg)
    assert node.alpha == 2 and node.on_gpu(sdfg, state) == (True, True)
    sdfg.validate()

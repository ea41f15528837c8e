"""PlaceInSharedMemory: which arrays it moves, and the code that allocates them."""

from __future__ import annotations

import dace
import pytest
from sdfgs import add_move

import dace_redist
from dace_redist import Distribution
from dace_redist.library_nodes import Redistribute
from dace_redist.transformations import PlaceInSharedMemory

External = dace.AllocationLifetime.External


def chain(strategy: str = "Hierarchical", **array: object) -> dace.SDFG:
    """A -> B -> C -> D, all by redistribution; B and C are transients."""
    N = dace.symbol("N")
    sdfg = dace.SDFG("chain")
    sdfg.add_array("A", [N], dace.float64)
    sdfg.add_transient("B", **({"shape": [2 * N], "dtype": dace.float64} | array))
    sdfg.add_transient("C", [N], dace.float64)
    sdfg.add_array("D", [2 * N], dace.float64)
    state = None
    for source, target in ("AB", "BC", "CD"):
        state = sdfg.add_state_after(state, source) if state else sdfg.add_state(source, is_start_block=True)
        spread, whole = Distribution((2 * N,), (2,)), Distribution((2 * N,), (1,))
        ends = (whole, spread) if source == "B" else (spread, whole)
        add_move(state, Redistribute(f"{source}_{target}", *ends, strategy), source, target)
    return sdfg


def placed(sdfg: dace.SDFG) -> set[str]:
    return {name for name, array in sdfg.arrays.items() if array.lifetime == External}


@pytest.mark.parametrize("strategy", ["Auto", "Hierarchical"])
def test_all_transients_next_to_a_redistribution(strategy):
    sdfg = dace_redist.transformations.place_in_shared_memory(chain(strategy))
    sdfg.validate()
    assert placed(sdfg) == {"B", "C"}
    assert all(sdfg.arrays[name].storage == dace.StorageType.CPU_Heap for name in "BC")
    assert sdfg.apply_transformations_repeated(PlaceInSharedMemory) == 0


def test_survives_json():
    sdfg = dace.SDFG.from_json(dace_redist.transformations.place_in_shared_memory(chain()).to_json())
    assert placed(sdfg) == {"B", "C"}
    sdfg.expand_library_nodes()
    code = sdfg.generate_code()[0].clean_code
    for name in "BC":
        assert code.count(f"__state->__0_{name} = static_cast<double*>(piece);") == 1
        assert code.count(f"dace_redist::program::free(__state->__0_{name});") == 1


@pytest.mark.parametrize(
    ("strategy", "array"),
    [
        ("Pack", {}),
        ("Hierarchical", {"storage": dace.StorageType.GPU_Global}),
        ("Hierarchical", {"lifetime": External}),
        ("Hierarchical", {"shape": [dace.symbol("i")]}),
    ],
    ids=["strategy", "storage", "external", "size not known at the start"],
)
def test_left_alone(strategy, array):
    sdfg = chain(strategy, **array)
    sdfg.add_state_before(sdfg.start_block, assignments={"i": "N + 1"})
    before = placed(sdfg)
    sdfg.apply_transformations_repeated(PlaceInSharedMemory, validate=False)
    expected = {"C"} if "shape" in array or "storage" in array else before
    assert placed(sdfg) == expected


def test_cleared_arrays_are_left_alone():
    sdfg = chain()
    for state in sdfg.states():
        for node in state.data_nodes():
            node.setzero = node.data == "B"
    assert placed(dace_redist.transformations.place_in_shared_memory(sdfg)) == {"C"}

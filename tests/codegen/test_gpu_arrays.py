"""Redistributions of arrays on the GPU: what is accepted, what is generated, and that it compiles."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import dace
import pytest
from dace.sdfg.validation import InvalidSDFGNodeError
from sdfgs import COLUMNS, ROWS, computing_on_a_gpu, contracting, rows_to_columns

import dace_redist
from dace_redist.library_nodes import Contraction, Redistribute
from dace_redist.library_nodes.environment import DeviceEnvironment
from dace_redist.native.device import DEVICE_VARIABLE
from dace_redist.strategies import STRATEGIES, gpu_strategies
from dace_redist.transformations import OverlapRedistribute

GPU, SHARED = dace.StorageType.GPU_Global, dace.StorageType.GPU_Shared
#: Arrays on the GPU, and what generated code says of source and target.
PLACES = {
    "AB": "/*source_memory*/ DR_DEVICE_MEMORY, /*target_memory*/ DR_DEVICE_MEMORY",
    "A": "/*source_memory*/ DR_DEVICE_MEMORY, /*target_memory*/ DR_MAIN_MEMORY",
    "B": "/*source_memory*/ DR_MAIN_MEMORY, /*target_memory*/ DR_DEVICE_MEMORY",
}


def on_gpu(sdfg: dace.SDFG, arrays: Iterable[str] = "AB", storage: dace.StorageType = GPU) -> dace.SDFG:
    for name in arrays:
        sdfg.arrays[name].storage = storage
    return sdfg


def expanded(sdfg: dace.SDFG) -> list[dace.nodes.Tasklet]:
    sdfg.expand_library_nodes()
    return [node for node, _ in sdfg.all_nodes_recursive() if isinstance(node, dace.nodes.Tasklet)]


# What is accepted -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arrays", PLACES)
@pytest.mark.parametrize("strategy", gpu_strategies())
def test_either_array_or_both(strategy: str, arrays: str):
    sdfg = on_gpu(rows_to_columns(strategy), arrays)
    sdfg.validate()
    (tasklet,) = expanded(sdfg)
    code = tasklet.code.as_string
    assert "->run(MPI_COMM_WORLD, {}, {_inp_buffer}, {_out_buffer}, __dace_current_stream);" in code
    assert f", {PLACES[arrays]}}}}});" in tasklet.code_init.as_string
    assert DeviceEnvironment.full_class_path() in tasklet.environments


@pytest.mark.parametrize("strategy", sorted({*STRATEGIES} - {*gpu_strategies()}))
def test_strategies_of_main_memory(strategy: str):
    with pytest.raises(ValueError, match=f'Redistribute "move": strategy {strategy} moves arrays in main memory only'):
        expanded(on_gpu(rows_to_columns(strategy), "AB"))


def test_conversions():
    """The side with the larger elements converts."""
    integers, numbers = rows_to_columns(), rows_to_columns()
    for sdfg in (integers, numbers):
        sdfg.arrays["A"].dtype = dace.int32
    on_gpu(integers, "A").validate()
    for arrays in ("B", "AB"):
        with pytest.raises(InvalidSDFGNodeError, match="from int32 to float64 on a GPU, only between float32"):
            on_gpu(numbers, arrays).validate()


def test_memory_of_a_kernel_is_refused():
    sdfg = on_gpu(rows_to_columns(), "A", SHARED)
    ((node, state),) = [(n, s) for n, s in sdfg.all_nodes_recursive() if isinstance(n, Redistribute)]
    with pytest.raises(ValueError, match='^Redistribute "move": A has .*GPU_Shared, which only a kernel sees; take'):
        node.validate(sdfg, state)


@pytest.mark.parametrize("arrays", PLACES)
def test_non_blocking(arrays: str):
    sdfg = on_gpu(rows_to_columns(), arrays)
    assert sdfg.apply_transformations(OverlapRedistribute) == 1
    sdfg.validate()
    by_call = {tasklet.code.as_string.split("(")[0]: tasklet.code.as_string for tasklet in expanded(sdfg)}
    start, wait = (by_call[call] for call in ("__state->__redist_0->start", "dace_redist::program::wait"))
    assert start.endswith("{_inp_buffer}, {_out_buffer}, 0, _request, __dace_current_stream);")  # 0: by calls
    expected = "_request, __dace_current_stream" if "B" in arrays else "_request"
    assert wait == f"dace_redist::program::wait({expected});"


def test_the_result_of_a_call_lies_where_its_array_does():
    @dace.program
    def moved(A: dace.float64[2, 8] @ GPU):
        B = dace_redist.redistribute(A, ROWS, COLUMNS)
        return dace_redist.redistribute(B, COLUMNS, ROWS)

    sdfg = moved.to_sdfg(simplify=False)
    places = [array.storage for array in sdfg.arrays.values() if array.transient]
    assert GPU in places
    found = [(n, s) for n, s in sdfg.all_nodes_recursive() if isinstance(n, Redistribute)]
    assert all(node.on_gpu(state.sdfg, state)[0] for node, state in found)


# What is generated ------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.compile
def test_a_program_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc on this machine: a program with arrays on the GPU cannot be compiled")
    monkeypatch.setenv(DEVICE_VARIABLE, "none")  # the program is not run
    sdfg = computing_on_a_gpu("gpu_program")
    assert sdfg.apply_transformations_repeated(OverlapRedistribute) == 2
    sdfg.build_folder = str(tmp_path)
    sdfg.compile(return_program_handle=False)
    assert list(tmp_path.rglob(f"lib{sdfg.name}.so"))


# Contractions -----------------------------------------------------------------------------------------------------


def test_a_contraction_calls_cublas_on_its_stream():
    node = Contraction("product", "ij,jk->ik", alpha=2)
    node.implementation = "cuBLAS"
    sdfg = on_gpu(contracting(node, (2, 3), (3, 4), (2, 4)), ["A0", "A1", "C"])
    sdfg.validate()
    (tasklet,) = expanded(sdfg)
    assert tasklet.state_fields == ["dace_redist::program::DeviceContraction *__contraction_0;"]
    code = tasklet.code.as_string
    assert "cublasSetStream(__dace_cublas_handle, __dace_current_stream)" in code
    assert code.rstrip().endswith(
        "dace_redist::program::contract(*__state->__contraction_0, {2, 3, 3, 1, 3, 4, 4, 1, 2, 4, 4, 1}, {_0, _1}, "
        "_result, double(2), double(0), __dace_cublas_handle, __dace_current_stream);"
    )
    assert DeviceEnvironment.full_class_path() not in tasklet.environments  # what it depends on brings it
    sources = {part.language: part.clean_code for part in sdfg.generate_code()[:2]}
    assert '#include "dace_redist_cublas.hpp"' in sources["cpp"] and "dace_redist_cublas" not in sources["cu"]

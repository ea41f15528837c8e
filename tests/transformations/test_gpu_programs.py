"""Distributed programs whose tensors lie on the GPU: their graphs, what is refused, and that they compile."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import dace
import numpy as np
import pytest
from builds import BUILD_TYPE, nvcc_with_cublas

import dace_redist
from dace_redist.library_nodes import Contraction, Redistribute, SumReplicas
from dace_redist.native.device import DEVICE_VARIABLE
from dace_redist.redistribution.arrays import ArrayView
from dace_redist.redistribution.device_arrays import DeviceArray
from dace_redist.transformations.distribute.runtime import run as running

N, M, K = (dace.symbol(name) for name in "NMK")
SIZES = {"N": 64, "M": 64, "K": 64}
GPU, PERSISTENT = dace.StorageType.GPU_Global, dace.AllocationLifetime.Persistent


@dace.program
def two_products(A: dace.float64[N, M], B: dace.float64[M, K], C: dace.float64[K, N]):
    D = A @ B
    E = 2 * D + 1
    return E @ C


@dace.program
def long_sum(A: dace.float64[N, M], B: dace.float64[M, K]):
    return A @ B


@dace.program
def in_place(A: dace.float32[N, M], B: dace.float32[M, K], G: dace.float32[N, K]):
    for _ in range(3):
        G += np.exp(A @ B)


WEIGHTS = np.ones(64)


@dace.program
def weighted(A: dace.float64[N, 64], s: dace.float64[1]):
    return np.sum(s * (A @ WEIGHTS))


def on_gpus(program, sizes=None, **options):
    return dace_redist.distribute(program, 4, sizes or SIZES, device="gpu", **options)


def nodes_of(sdfg: dace.SDFG, kind: type) -> list:
    return [node for node, _ in sdfg.all_nodes_recursive() if isinstance(node, kind)]


def test_everything_but_the_arguments_lies_on_the_gpu():
    program = on_gpus(two_products)
    sdfg = program.sdfg
    sdfg.validate()
    assert program.recipe.device == "gpu" and sdfg.name.endswith("two_products_on_4_gpus")
    for name, array in sdfg.arrays.items():
        assert array.transient == (array.storage == GPU), name
        assert not array.transient or array.lifetime == PERSISTENT, name
    assert {node.implementation for node in nodes_of(sdfg, Contraction)} == {"cuBLAS"}
    assert {node.map.schedule for node in nodes_of(sdfg, dace.nodes.MapEntry)} == {dace.ScheduleType.GPU_Device}
    found = [(n, s) for n, s in sdfg.all_nodes_recursive() if isinstance(n, Redistribute)]
    assert found and all(node.on_gpu(sdfg, state) == (True, True) for node, state in found)


def test_arguments_are_copied_once():
    sdfg = on_gpus(two_products).sdfg
    first, last = sdfg.start_block, next(block for block in sdfg.nodes() if sdfg.out_degree(block) == 0)
    assert [(e.src.data, e.dst.data) for e in first.edges()] == [("A", "gpu_A"), ("B", "gpu_B"), ("C", "gpu_C")]
    assert [(e.src.data, e.dst.data) for e in last.edges()] == [("gpu_return", "__return")]
    others = {node.data for state in sdfg.states() if state not in (first, last) for node in state.data_nodes()}
    assert others.isdisjoint({"A", "B", "C", "__return"})


def test_what_a_loop_changes_in_place_is_copied_before_and_after():
    sdfg = on_gpus(in_place).sdfg
    sdfg.validate()
    states = [block for block in sdfg.nodes() if isinstance(block, dace.SDFGState)]
    copies = [(edge.src.data, edge.dst.data) for state in states for edge in state.edges()]
    assert {("G", "gpu_G"), ("gpu_G", "G")} <= {*copies}


def test_arguments_on_the_gpu_are_used_where_they_are():
    program = on_gpus(two_products, arguments="gpu")
    sdfg = program.sdfg
    sdfg.validate()
    assert program.gpu_arguments == {"A", "B", "C", "__return"}
    assert {array.storage for array in sdfg.arrays.values()} == {GPU}
    assert not any(name.startswith("gpu_") for name in sdfg.arrays)
    assert {name for name, array in sdfg.arrays.items() if not array.transient} == program.gpu_arguments
    code = copy.deepcopy(sdfg).generate_code()[0].clean_code
    assert "cudaMemcpy" not in code and "__dace_gpu_set_all_streams" not in code
    for other in (program.with_sizes(N=32), program.built_in(dace.SDFG("again"), SIZES)):
        assert (other.recipe.device, other.recipe.arguments, other.gpu_arguments) == (
            "gpu",
            "gpu",
            program.gpu_arguments,
        )


def test_scalars_and_the_closure_stay_in_main_memory():
    program = on_gpus(weighted, {"N": 64}, arguments="gpu")
    program.sdfg.validate()
    assert program.gpu_arguments == {"A"}
    first, last = program.sdfg.start_block, next(b for b in program.sdfg.nodes() if program.sdfg.out_degree(b) == 0)
    assert sorted((e.src.data, e.dst.data) for e in first.edges()) == [("__g_WEIGHTS", "gpu_g_WEIGHTS"), ("s", "gpu_s")]
    assert [(e.src.data, e.dst.data) for e in last.edges()] == [("gpu_return", "__return")]


def test_partial_sums_are_reduced_on_the_way():
    program = on_gpus(long_sum, {"N": 4, "M": 4096, "K": 4}, overrides={"__return": {"b": 4}})
    assert not nodes_of(program.sdfg, SumReplicas)
    assert [node.op for node in nodes_of(program.sdfg, Redistribute)] == ["sum"]
    program.sdfg.validate()


def test_memory_is_given_back_where_it_is_limited():
    arrays = on_gpus(two_products, memory_bytes=1 << 30).sdfg.arrays.values()
    assert not any(array.lifetime == PERSISTENT for array in arrays)


def test_other_sizes_stay_on_the_gpu():
    program = on_gpus(two_products)
    assert program.with_sizes(N=32).recipe.device == "gpu"
    assert program.built_in(dace.SDFG("again"), SIZES).sdfg.arrays["gpu_A"].storage == GPU


def test_generated_code():
    code = [part.clean_code for part in copy.deepcopy(on_gpus(two_products).sdfg).generate_code()[:2]]
    assert code[0].count("dace_redist::program::contract(") == 2 and "__dace_cublas_handle" in code[0]
    assert code[0].count("DR_DEVICE_MEMORY, DR_DEVICE_MEMORY}, _inp_buffer") == 1
    assert code[1].count("__global__") >= 1 and "mpi.h" not in code[1]


@pytest.mark.compile
def test_a_program_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Compile the C++ and CUDA that DaCe generates; the program is not run."""
    if not nvcc_with_cublas(tmp_path):
        pytest.skip("no nvcc with cuBLAS on this machine: a program that computes on a GPU cannot be compiled")
    monkeypatch.setenv(DEVICE_VARIABLE, "host")
    sdfg = copy.deepcopy(on_gpus(two_products).sdfg)
    sdfg.build_folder = str(tmp_path)
    with dace.config.set_temporary("compiler", "build_type", value=BUILD_TYPE):
        sdfg.compile(return_program_handle=False)
    assert list(tmp_path.rglob(f"lib{sdfg.name}.so"))


@dace.program
def largest(A: dace.float64[N, M]):
    return np.max(A, axis=1)


@dace.program
def of_integers(A: dace.int64[N, M], B: dace.int64[M, K]):
    return A @ B


@dace.program
def solved(A: dace.float64[N, N], B: dace.float64[N, K]):
    return np.linalg.solve(A, B)


@dace.program
def conditional(A: dace.float64[N, M], B: dace.float64[M, K], s: dace.float64[1]):
    C = A @ B
    if s[0] > 0:
        C *= 2
    return C


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (largest, r"test_gpu_programs\.py.*max along axes is not computed on the GPU"),
        (of_integers, r"test_gpu_programs\.py.*cuBLAS multiplies no elements of int64"),
        (solved, r"test_gpu_programs\.py.*linear systems are not solved on the GPU"),
        (conditional, r'conditional": a condition, a bound or an index reads s, which the processor would'),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_is_not_there_is_refused(program, message: str):
    sizes = {name: size for name, size in SIZES.items() if name in {str(s) for s in program.to_sdfg().free_symbols}}
    with pytest.raises(ValueError, match=message) as caught:
        on_gpus(program, sizes)
    assert str(caught.value).endswith('distribute the program with device="cpu"')


def test_devices_are_checked():
    with pytest.raises(ValueError, match='distribute: device must be "cpu" or "gpu", got \'cuda\''):
        dace_redist.distribute(two_products, 4, SIZES, device="cuda")
    with pytest.raises(ValueError, match='distribute: arguments must be "cpu" or "gpu", got None'):
        on_gpus(two_products, arguments=None)
    with pytest.raises(ValueError, match='arguments="gpu" is for programs that compute there: pass device="gpu", too'):
        dace_redist.distribute(two_products, 4, SIZES, arguments="gpu")


class OnStream(DeviceArray):
    """Array whose accesses a stream orders."""

    @property
    def __cuda_array_interface__(self):
        return {**super().__cuda_array_interface__, "stream": 7}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, ArrayView]]:
    """Arguments of the runs of programs, on this rank alone; they are not compiled."""
    monkeypatch.setenv(DEVICE_VARIABLE, "host")
    found: list[dict[str, ArrayView]] = []

    class Recorded:
        start = staticmethod(lambda: None)
        run = staticmethod(found.append)

    monkeypatch.setattr(running, "load", lambda program, comm: Recorded)
    return found


def alone(program, sizes, **options):
    return dace_redist.distribute(program, 1, sizes, device="gpu", **options)


def test_parts_on_the_gpu_are_handed_over(runs):
    program = alone(in_place, {"N": 3, "M": 4, "K": 5}, arguments="gpu")
    A, B, G = (np.full(shape, 2, np.float32) for shape in ((3, 4), (4, 5), (3, 5)))
    local = program.scatter(A, B, G)
    assert {type(part) for part in local.values()} == {DeviceArray}
    local["B"] = OnStream.from_numpy(B)
    result = program.run(**local)
    assert result["G"] is local["G"] and {view.device for view in runs[0].values()} == {"gpu"}
    assert {name: view.owner for name, view in runs[0].items()} == local
    assert [view.stream for name, view in runs[0].items() if name == "B"] == [7]
    np.testing.assert_array_equal(program.gather(local["G"]), G)
    np.testing.assert_array_equal(program.gather(local["G"].to_numpy()), G)


def test_new_results_lie_on_the_gpu(runs):
    program = pickle.loads(pickle.dumps(alone(two_products, {"N": 3, "M": 4, "K": 5}, arguments="gpu")))  # as sent
    local = program.scatter(np.ones((3, 4)), np.ones((4, 5)), np.ones((5, 3)))
    result = program.run(**local)
    assert program.run(**local, __return=result) is result
    assert isinstance(result, DeviceArray) and (result.shape, result.dtype) == ((3, 3), np.float64)


def wrong(part: DeviceArray, **changed: object) -> object:
    """Return an array with a wrong interface."""

    class Wrong:
        __cuda_array_interface__ = {**part.__cuda_array_interface__, **changed}
        memory = part

    return Wrong()


def test_parts_that_do_not_fit(runs):
    sizes = {"N": 3, "M": 4, "K": 5}
    program = alone(in_place, sizes, arguments="gpu")
    arrays = {name: np.ones(shape, np.float32) for name, shape in {"A": (3, 4), "B": (4, 5), "G": (3, 5)}.items()}
    local = program.scatter(**arrays)
    interface = local["G"].__cuda_array_interface__
    wrongs = {
        r'A lies in main memory on rank 0, but the program was distributed with arguments="gpu"': {"A": arrays["A"]},
        r"A must hold float32, got int32 on rank 0": {"A": wrong(local["A"], typestr="<i4")},
        r"rank 0 holds \(3, 4\) of A, shape \(3, 4\); got \(4, 3\)": {"A": wrong(local["A"], shape=(4, 3))},
        r"A lies on the GPU, where its part must be in C order, on": {"A": wrong(local["A"], strides=(4, 12))},
        r"G lies on the GPU, .* in C order and writeable": {"G": wrong(local["G"], data=(interface["data"][0], True))},
        r"G is written in place, but shares memory with A": {"A": wrong(local["A"], data=interface["data"])},
    }
    for message, changed in wrongs.items():
        with pytest.raises(ValueError, match=f"run: {message}"):
            program.run(**{**local, **changed})
    main = alone(in_place, sizes)
    with pytest.raises(
        ValueError, match='A lies on the GPU, but .* in main memory: distribute it with arguments="gpu"'
    ):
        main.run(**{**arrays, "A": local["A"]})
    assert not runs

"""Distributed programs whose tensors lie on the GPU: their graphs, what is refused, and that they compile."""

from __future__ import annotations

import copy

import dace
import numpy as np
import pytest
from device_arrays import use_device

import dace_redist
from dace_redist.library_nodes import Contraction, Redistribute
from dace_redist.redistribution.arrays import ArrayView
from dace_redist.redistribution.arrays.new import DeviceArray
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
        recipe = other.recipe
        assert (recipe.device, recipe.arguments, other.gpu_arguments) == ("gpu", "gpu", program.gpu_arguments)


def test_scalars_and_the_closure_stay_in_main_memory():
    program = on_gpus(weighted, {"N": 64}, arguments="gpu")
    program.sdfg.validate()
    assert program.gpu_arguments == {"A"}
    first, last = program.sdfg.start_block, next(b for b in program.sdfg.nodes() if program.sdfg.out_degree(b) == 0)
    assert sorted((e.src.data, e.dst.data) for e in first.edges()) == [("__g_WEIGHTS", "gpu_g_WEIGHTS"), ("s", "gpu_s")]
    assert [(e.src.data, e.dst.data) for e in last.edges()] == [("gpu_return", "__return")]


def test_partial_sums_are_reduced_on_the_way():
    program = on_gpus(long_sum, {"N": 4, "M": 4096, "K": 4}, overrides={"__return": {"b": 4}})
    assert [node.op for node in nodes_of(program.sdfg, Redistribute)] == ["sum"]
    program.sdfg.validate()


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


class OnStream(DeviceArray):
    """Array whose accesses a stream orders."""

    @property
    def __cuda_array_interface__(self):
        return {**super().__cuda_array_interface__, "stream": 7}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, ArrayView]]:
    """Arguments of the runs of programs, on this rank alone; they are not compiled."""
    use_device("host", monkeypatch)
    found: list[dict[str, ArrayView]] = []

    class Recorded:
        start = staticmethod(lambda: None)
        run = staticmethod(found.append)

    monkeypatch.setattr(running, "load", lambda program, comm: Recorded)
    return found


def alone(program, sizes, **options):
    return dace_redist.distribute(program, 1, sizes, device="gpu", **options)


@pytest.mark.compile  # of the library for arrays on a GPU, if it is not there
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

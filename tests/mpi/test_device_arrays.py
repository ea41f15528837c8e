"""Arrays on a device: every strategy, all that is computed on the way, against NumPy on the whole tensor."""

from __future__ import annotations

import contextlib
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cases import CALLS, arrays, carry_out, cases, wrong_parts
from device_arrays import PARAMETERS, OtherLibrary, StridedDeviceArray, use_device
from distributions import rows_to_columns, same_on_all_ranks
from hypothesis import given
from hypothesis import strategies as st

from dace_redist import Distribution, RedistributionError, plan, redistribute
from dace_redist.redistribution.arrays.new import DeviceArray
from dace_redist.strategies import STRATEGIES, gpu_strategies
from dace_redist.transform import Transform

SIDES = [("gpu", "gpu"), ("gpu", "gpu"), ("gpu", "cpu"), ("cpu", "gpu")]


def placed(array: np.ndarray, side: str) -> Any:
    """Return the array, or its copy on the device."""
    return StridedDeviceArray(array) if side == "gpu" else array


def as_gpus_convert(case: dict[str, Any], sides: tuple[str, str]) -> None:
    """Remove what a GPU does not support: types on the wire, conversions by the side with the larger elements."""
    if "gpu" in sides:
        case["how"] |= {"wire": None, "within_nodes": False, "accumulate": None}
        case["types"] = tuple(name.removeprefix("b") if name == "bfloat16" else name for name in case["types"])
    source, target = map(np.dtype, case["types"])
    known = source == target or {source.name, target.name} in ({"float32", "float64"}, {"complex64", "complex128"})
    refused = not known and sides[source.itemsize < target.itemsize] == "gpu"
    with pytest.raises(TypeError) if refused else contextlib.nullcontext():
        Transform(1, source, target).check_on_gpu(*(side == "gpu" for side in sides))
    if refused:
        case["types"] = (target, target)


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[2, 4], full=[1, 5, 12], timeout=300)
@pytest.mark.parametrize("kind", PARAMETERS)
def test_random_operations(comm, kind, monkeypatch):
    use_device(kind, monkeypatch)

    @same_on_all_ranks(15, comm.size)
    @given(cases(comm.size), st.sampled_from(CALLS), st.sampled_from(SIDES), st.integers(0, 3))
    def check_strategies(case: dict[str, Any], call: str, sides: tuple[str, str], node_ranks: int) -> None:
        case["layouts"] = ["C" if layout == "backwards" else layout for layout in case["layouts"]]
        as_gpus_convert(case, sides)
        for strategy in gpu_strategies():
            monkeypatch.setenv("DACE_REDIST_NODE_RANKS", str(node_ranks))
            array, out, wanted = arrays(comm, case)
            there = [placed(part, side) for part, side in zip((array, out), sides, strict=True)]
            pair = case["source"], case["target"], case["types"]
            how = {"strategy": strategy, **case["how"], **case["options"].get(strategy, {})}
            carry_out(call, *there, *pair, comm=comm, device=sides, **how)
            got = there[1].to_numpy() if sides[1] == "gpu" else out
            wrong = wrong_parts(comm, f"{strategy} by {call}, {sides}", [(array, got, wanted)])
            assert not wrong, wrong[0]

    check_strategies()


@pytest.mark.mpi(ranks=[4])
@pytest.mark.parametrize("kind", PARAMETERS)
def test_large_tensors(comm, kind, monkeypatch):
    """Messages of many chunks through short rings, and of several calls, with buffers of other calls under way."""
    use_device(kind, monkeypatch)
    shape = (130, 40, 50)
    whole = np.random.default_rng(1).standard_normal(shape)
    source, target = Distribution(shape, (4, 1, 1)), Distribution(shape, (1, 2, 2), block=(None, 3, 5))
    array = DeviceArray.from_numpy(source.local(whole, comm.rank))
    wanted = target.local(whole, comm.rank)
    for options in ({"chunk_bytes": 5000, "depth": 3}, {}):
        with plan(source, target, "float64", comm=comm, device="gpu", strategy="Hierarchical", **options) as made:
            first, second = made(array), made(array)
            assert np.array_equal(first.to_numpy(), wanted)
            assert np.array_equal(second.to_numpy(), wanted)
        with plan(
            target, source, "float64", comm=comm, device=("gpu", "cpu"), strategy="Hierarchical", **options
        ) as back:
            assert np.array_equal(back(first), source.local(whole, comm.rank))


@pytest.mark.mpi(ranks=[2])
def test_strategies_for_gpus_are_those_of_the_runtime(comm, monkeypatch):
    use_device("host", monkeypatch)
    monkeypatch.setattr("dace_redist.redistribution.problem.check_places", lambda *_: None)
    source, target, _, _ = rows_to_columns(comm, (8, 6))
    refused = pytest.raises(RedistributionError, match="moves arrays in main memory only")
    for strategy in STRATEGIES:
        with contextlib.nullcontext() if strategy in gpu_strategies() else refused:
            plan(source, target, "float64", comm=comm, device="gpu", strategy=strategy).free()


@pytest.mark.mpi(ranks=[2])
def test_wrong_arrays(comm, monkeypatch):
    use_device("host", monkeypatch)
    source, target, here, _ = rows_to_columns(comm, (8, 6))
    there = DeviceArray.from_numpy(here)
    with pytest.raises(ValueError, match='device must be "cpu" or "gpu", or a pair of them .* got \'cuda\''):
        plan(source, target, "float64", comm=comm, device="cuda")
    with pytest.raises(ValueError, match="array lies on the GPU on some ranks, and in main memory on others"):
        redistribute(there if comm.rank else here, source, target, comm=comm)
    flipped = StridedDeviceArray(np.flip(here)) if comm.rank else there
    for array, out, name in (
        (flipped, DeviceArray((8, 3)), "array"),
        (np.flip(here) if comm.rank else here, DeviceArray((8, 3)), "array"),
        (there, np.flip(np.ones((8, 3))) if comm.rank else np.ones((8, 3)), "out"),
    ):
        with pytest.raises(ValueError, match=f"{name} has strides that do not count elements forward, on some rank"):
            redistribute(array, source, target, comm=comm, out=out)
        with pytest.raises(ValueError, match=f"{name} has strides that do not count elements forward, on some rank"):
            redistribute([array], [source], [target], comm=comm, out=[out])
    with plan(source, target, "float64", comm=comm) as made, pytest.raises(ValueError, match="lie in main memory, for"):
        made(there)
    with plan(source, target, "float64", comm=comm, device=("gpu", "gpu")) as made:
        assert "gpu" in repr(made)
        for wrong, out, kind, message in (
            (here, None, ValueError, "array must lie on the GPU, .* but lies in main memory"),
            (there, np.empty((8, 3)), ValueError, "out must lie on the GPU, .* but lies in main memory"),
            (DeviceArray((3, 3)), None, ValueError, r"array must have the shape \(4, 6\)"),
            (DeviceArray((4, 6), "f4"), None, TypeError, "array must hold float64, got float32"),
            (StridedDeviceArray(np.flip(np.ones((4, 6)))), None, ValueError, "do not count elements forward: copy it"),
            ("A", None, TypeError, "array must be an array of NumPy, CuPy or PyTorch"),
            (None, None, ValueError, r"array must have the shape \(4, 6\) that rank \d owns of the tensor, got None"),
            (there, there, ValueError, r"out must have the shape \(8, 3\)"),
        ):
            with pytest.raises(kind, match=message):
                made(wrong, out=out)
    with pytest.raises(ValueError, match="freed"):
        made(there)
    with plan(source, target, "float64", comm=comm, device=("cpu", "gpu")) as made:
        for call in (made, made.start):
            with pytest.raises(ValueError, match=r"array must have the shape \(4, 6\) .* got None"):
                call(None)


class SparseTensor:
    """Stand-in for a sparse tensor of PyTorch."""

    device, layout = SimpleNamespace(type="cpu"), "torch.sparse_coo"

    def __dlpack__(self) -> Any:
        raise AssertionError("a tensor says where it lies without DLPack")


class FailingLibrary:
    """Array whose interface raises."""

    @property
    def __cuda_array_interface__(self) -> Any:
        raise RuntimeError("it needs a gradient")


@pytest.mark.mpi(ranks=[2, 3])
def test_an_array_that_does_not_say_where_it_lies(comm, monkeypatch):
    """An exception of the array's library on one rank is an error on every rank."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=SparseTensor, strided="torch.strided"))
    source, target, here, wanted = rows_to_columns(comm)
    read_only = here.copy()
    read_only.flags.writeable = False
    for wrong, text in (
        (OtherLibrary(read_only), "but for OtherLibrary that fails with BufferError: .*readonly"),
        (SparseTensor(), "be a strided tensor, got layout torch.sparse_coo: call to_dense"),
        (FailingLibrary(), "but for FailingLibrary that fails with RuntimeError: it needs a gradient"),
    ):
        given = wrong if comm.rank == comm.size - 1 else here
        with pytest.raises(TypeError, match=f"array must .*{text}"):
            redistribute(given, source, target, comm=comm)
        with pytest.raises(TypeError, match=rf"array\[1\] .*{text}"):
            redistribute([here, given], [source] * 2, [target] * 2, comm=comm)
        out = wrong if comm.rank == 0 else np.empty_like(wanted)
        with pytest.raises(TypeError, match=f"out must .*{text}"):
            redistribute(here, source, target, comm=comm, out=out)
    assert np.array_equal(redistribute(here, source, target, comm=comm), wanted)


@pytest.mark.mpi(ranks=[3])
@pytest.mark.parametrize("kind", ["host", "host,apart,aware"])
@pytest.mark.parametrize("failing", [0, 2])
def test_a_failure_on_one_rank_is_an_error_of_its_partners(comm, kind, failing, monkeypatch):
    """Nobody waits for a rank whose array lies elsewhere than it says, and the plan can be used afterwards."""
    use_device(kind, monkeypatch)
    source, target, part, wanted = rows_to_columns(comm, (9, 6))
    there = DeviceArray.from_numpy(part)

    class WrongAddress:
        __cuda_array_interface__ = {"shape": (3, 6), "typestr": "<f8", "data": (part.ctypes.data, False), "version": 3}

    for strategy in ("Auto", "Hierarchical"):
        made = plan(source, target, "float64", comm=comm, strategy=strategy, device="gpu")
        wrong = "array lies in main memory" if comm.rank == failing else rf"on rank {failing}: the source array lies"
        with pytest.raises(RedistributionError, match=wrong):
            made(WrongAddress() if comm.rank == failing else there)
        made.free()
        result = redistribute(there, source, target, comm=comm, strategy=strategy)
        assert np.array_equal(result.to_numpy(), wanted)


@pytest.mark.mpi(ranks=[3], full=[1, 5])
@pytest.mark.parametrize("kind", ["host", "host,apart,aware"])
def test_several_tensors(comm, kind, monkeypatch):
    """Lists by plans, by requests, and by redistribute, with all that is done on the way, between any sides."""
    use_device(kind, monkeypatch)
    lists = st.lists(cases(comm.size), min_size=1, max_size=3)

    @same_on_all_ranks(10, comm.size)
    @given(lists, st.sampled_from(CALLS), st.sampled_from(SIDES), st.sampled_from(["Auto", "Hierarchical"]))
    def check(several: list[dict[str, Any]], call: str, sides: tuple[str, str], strategy: str) -> None:
        for case in several:
            case["layouts"] = ["C" if layout == "backwards" else layout for layout in case["layouts"]]
            as_gpus_convert(case, sides)
        made = [arrays(comm, case) for case in several]
        there = [[placed(part, side) for part, side in zip(one[:2], sides, strict=True)] for one in made]
        pair = [[case[name] for case in several] for name in ("source", "target")]
        types = [list(side) for side in zip(*(case["types"] for case in several), strict=True)]
        how = {name: [case["how"][name] for case in several] for name in several[0]["how"]}
        given_, out = (list(side) for side in zip(*there, strict=True))
        carry_out(call, given_, out, *pair, types, comm=comm, device=sides, strategy=strategy, **how)
        parts = [
            (array, out.to_numpy() if sides[1] == "gpu" else plain, wanted)
            for (array, plain, wanted), (_, out) in zip(made, there, strict=True)
        ]
        wrong = wrong_parts(comm, f"{strategy} by {call}, {sides}", parts)
        assert not wrong, wrong[0]

    check()


@pytest.mark.mpi(ranks=[3], alone=True)
def test_without_node_shared_memory(comm, monkeypatch, capfd):
    """Slots are memory of their own then, and everything goes through MPI."""
    use_device("host,unnamed", monkeypatch)
    monkeypatch.setenv("DACE_REDIST_SHARED_BYTES", "0")
    source, target, here, wanted = rows_to_columns(comm, (9, 8))
    for strategy in ("Auto", "Hierarchical"):
        result = redistribute(DeviceArray.from_numpy(here), source, target, comm=comm, strategy=strategy)
        assert np.array_equal(result.to_numpy(), wanted)
    comm.Barrier()
    said = "".join(comm.allgather(capfd.readouterr().err))
    assert said.count("node-shared memory") == 1


@pytest.mark.mpi(ranks=[2])
def test_a_result_lies_with_the_source(comm, monkeypatch):
    use_device("host", monkeypatch)
    source, target, here, wanted = rows_to_columns(comm, (6, 4))
    on_device = redistribute(DeviceArray.from_numpy(here), source, target, comm=comm)
    assert isinstance(on_device, DeviceArray)
    assert np.array_equal(on_device.to_numpy(), wanted)
    out = np.empty_like(wanted)
    assert redistribute(DeviceArray.from_numpy(here), source, target, comm=comm, out=out) is out
    assert np.array_equal(out, wanted)

    result = redistribute(OtherLibrary(here), source, target, comm=comm)
    assert isinstance(result, np.ndarray)
    assert np.array_equal(result, wanted)
    everything = Distribution((6, 4), (1, 1))  # rank 1 gets nothing
    with plan(source, everything, "float64", comm=comm, device="gpu") as gathered:
        assert gathered(DeviceArray.from_numpy(here)).shape == ((6, 4) if comm.rank == 0 else (0, 0))

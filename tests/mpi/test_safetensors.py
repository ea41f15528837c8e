"""Files of safetensors against the package safetensors: types, indices, and damaged headers."""

from __future__ import annotations

import copy
import json
import re
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from distributions import distributions, same_on_all_ranks
from hypothesis import given
from hypothesis import strategies as st
from results import refused
from seeds import seed, some

from dace_redist import DistributedArray, Distribution, inspect_file, load, save
from dace_redist.io.stored import format_of

safetensors, package = pytest.importorskip("safetensors"), pytest.importorskip("safetensors.numpy")
PLAIN = "bool uint8 int8 uint16 int16 float16 uint32 int32 float32 uint64 int64 float64 complex64".split()
SMALL = "bfloat16 float8_e5m2 float8_e4m3fn float8_e8m0fnu float8_e4m3fnuz float8_e5m2fnuz".split()
TYPES = [*map(np.dtype, PLAIN), *(np.dtype(getattr(ml_dtypes, name)) for name in SMALL)]


def tensors_of(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Return the tensors of a file as the package reads them."""
    found = safetensors.deserialize(path.read_bytes())
    return {name: (one["dtype"], list(one["shape"]), bytes(one["data"])) for name, one in found}


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[1, 3], timeout=240)
@pytest.mark.parametrize("has_ml_dtypes", [True, False])
def test_random_tensors(comm, tmp_path, monkeypatch, has_ml_dtypes):
    """Files of the package are loaded, and saved again; without ml_dtypes its elements are records of their bits."""
    if not has_ml_dtypes:
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    path = Path(comm.bcast(tmp_path)) / "a.safetensors"

    @same_on_all_ranks(30)
    @given(st.lists(st.tuples(st.sampled_from(TYPES), st.lists(st.integers(0, 5), max_size=3)), min_size=1), st.data())
    def check(kinds, data):
        rng = np.random.default_rng(1)
        wholes = {
            f"x.{number}": rng.integers(0, 2, (*shape, dtype.itemsize), np.uint8).view(dtype)[..., 0]
            for number, (dtype, shape) in enumerate(kinds)
        }
        if comm.rank == 0:
            package.save_file(wholes, path, metadata={"format": "np"})
            path.with_name("b.safetensors").unlink(missing_ok=True)  # whose other tensors would stay
        comm.barrier()
        found = load(path, lambda name, shape: data.draw(distributions(shape, comm.size), name), comm=comm)
        for name, array in found.items():
            own, whole = array.distribution, wholes[name]
            plain = np.dtype(f"V{whole.itemsize}") if whole.dtype.name in SMALL else whole.dtype
            expected = own.local(whole.view(plain), comm.rank)
            assert array.local.tobytes() == expected.astype(plain).tobytes(), name
            known = whole.dtype if has_ml_dtypes or whole.dtype.name in PLAIN else None
            record = np.dtype([(whole.dtype.name, f"u{whole.itemsize}")])
            assert array.local.dtype == (known or record)
        comm.barrier()
        save(path.with_name("b.safetensors"), found)
        comm.barrier()
        assert tensors_of(path.with_name("b.safetensors")) == tensors_of(path)
        comm.barrier()

    check()


@pytest.mark.mpi(ranks=[2])
def test_shards_and_their_index(comm, tmp_path):
    index, rows = Path(comm.bcast(tmp_path)) / "model.safetensors.index.json", Distribution((4, 6), (2,))
    wholes = {name: np.arange(24.0).reshape(4, 6) + number for number, name in enumerate("abc")}
    files = {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "model-1.safetensors"}

    def write(weight_map: Any) -> None:
        comm.barrier()
        if comm.rank == 0:
            index.write_text(json.dumps({"metadata": {"total_size": 576}, "weight_map": weight_map}))
        comm.barrier()

    if comm.rank == 0:
        for file in {*files.values()}:
            package.save_file({name: wholes[name] for name in files if files[name] == file}, index.with_name(file))
    write(files)
    assert {name: info.shape for name, info in inspect_file(index).items()} == dict.fromkeys("abc", (4, 6))
    for target in (dict.fromkeys("ab", rows), lambda name, shape: rows):
        for name, array in load(index, target, comm=comm).items():
            assert np.array_equal(array.local, rows.local(wholes[name], comm.rank))
    array = DistributedArray(rows.local(wholes["a"], comm.rank), rows, comm)
    refused(comm, ValueError, "an index is only read", lambda: save(index, {"a": array}))
    for damaged, text in [
        (
            {**files, "d": "model-2.safetensors"},
            "there must be a file .*model-2.* with tensor 'd', as the index .* says",
        ),
        ({**files, "d": "none.safetensors"}, "there must be a file .*none.safetensors' with tensor 'd'"),
        ({**files, "d": "../x.safetensors"}, r"must have names of .safetensors files beside it, got '../x"),
        ({**files, "d": "pytorch_model.bin"}, r"must have names of .safetensors files beside it, got 'pytorch"),
        ([1], r"weight_map must be an object of names of files, got \[1\]"),
    ]:
        write(damaged)
        refused(comm, ValueError, text, lambda: load(index, {"d": rows}, comm=comm))


@pytest.mark.mpi(ranks=[2])
def test_what_a_file_cannot_hold(comm, tmp_path):
    path, rows = Path(comm.bcast(tmp_path)) / "a.safetensors", Distribution((4, 6), (2,))
    for kind, how, error, text in [
        ("c16", {}, TypeError, "one of the types bool, .*bfloat16.*, got complex128"),
        (">f4", {}, TypeError, "in native byte order, got >f4"),
        ("f4", {"chunks": (2, 2)}, TypeError, "takes metadata, a dict of texts, and no other arguments"),
        ("f4", {"metadata": {"a": 1}}, TypeError, "takes metadata, a dict of texts"),
        ("f4", {"name": "__metadata__"}, ValueError, "no part that this format has for itself"),
        ("f4", {"name": "\ud800"}, ValueError, "surrogates not allowed"),
    ]:
        array = DistributedArray(np.zeros(rows.local_shape(comm.rank), kind), rows, comm)
        refused(comm, error, text, lambda array=array, how=how: save(path, array, **how))
    assert not any(path.parent.iterdir())


def header(**entries: Any) -> bytes:
    return json.dumps({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}, **entries}).encode()


def tensor(dtype: Any = "I16", shape: Any = (3,), data_offsets: Any = (2, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": data_offsets}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (header(b=tensor(data_offsets=(3, 9))), "tensor 'b' must begin where 'a' ends"),
        (header(b=tensor(data_offsets=(1, 7))), "tensor 'b' must begin where 'a' ends"),
        (header(b=tensor("U8", (5,), (2, 7))), "the file must end with 'b', at .*, but has"),
        (header(b=tensor("U8", (60,), (2, 62))), "the file must end with 'b', at .*, but has"),
        (
            header(b=tensor("I32")),
            "data_offsets of 'b', I32 of shape .3,., must differ by 12 bytes, got 2 and 8",
        ),
        (header(b=tensor(shape=(-3,))), "tensor 'b' must have .* numbers from 0"),
        (header(b=tensor(shape=(10**30,))), "tensor 'b' must have .* numbers from 0"),
        (header(b=tensor(shape=(0, *[10**9] * 9), data_offsets=(2, 2))), "tensor 'b' must have .* 2.60 elements"),
        (header(b=tensor(shape=[1] * 99 + [3])), "tensor 'b' must have .* at most 64 axes"),
        (header(b=tensor(shape=(3.0,))), "tensor 'b' must have"),
        (header(b=tensor("Q8")), "tensor 'b' must have a dtype of BOOL, .*'Q8'"),
        (header(b=tensor("F4")), "must differ by 1 and a half bytes"),
        (header(b=[1]), r"tensor 'b' must have a dtype .* got \[1\]"),
        (header(__metadata__={"a": 1}), "__metadata__ must be an object of texts"),
        (header(b=tensor())[:-1] + b',"a":1}', "must have each name once, got 'a' twice"),
        (header(b=tensor())[:-1] + b',"\\ud800":1}', "surrogates not allowed"),
        (header(b=tensor()) + b"\xff", "can't decode byte 0xff"),
        (header(b=tensor()) + b"\0", "Extra data"),
        (b"[1]", r"must have a JSON object, got \[1\]"),
        (b"[" * 200_000, "must have objects in one object, not deeper"),
        (b'{"a":' + b"9" * 10_000_000 + b"}", "tensor 'a' must have"),
        (b'{"a":[' + b"0," * (1 << 22) + b"0]}", "must have at most 100000000 bytes, and 4194304 names and values"),
        (b"", "Expecting value"),
    ],
)
def test_damaged_headers(tmp_path, text, message):
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(ValueError, match=f"(?s)a.safetensors.*{message}"):
        inspect_file(path)


@pytest.mark.parametrize("length", [1 << 63, 10**8 + 1, 60])
def test_a_header_lies_in_its_file(tmp_path, length):
    path = tmp_path / "a.safetensors"
    for content in (b"", b"12345", length.to_bytes(8, "little") + b"{}"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="must begin with a header of at most 100000000 bytes"):
            inspect_file(path)


#: Reasons for which only this package refuses a file.
STRICTER = r"must have each name once|to 10\^18, got (\[|.*\d{19}|.*'shape': \[0|.*, 0[],])"


def damaged(rng: np.random.Generator) -> bytes:
    """Return a file of random tensors, damaged in one to three places or none."""
    entries, end = {}, 0
    for number in range(rng.integers(4)):
        code, bits = [("U8", 8), ("F32", 32), ("BF16", 16), ("BOOL", 8), ("F4", 4), ("I64", 64)][rng.integers(6)]
        shape = [int(n) for n in rng.integers(0, 4, rng.integers(3))]
        nbytes = int(np.prod(shape, dtype=int)) * bits // 8
        entries["xyz"[number]] = tensor(code, shape, [end, end + nbytes])
        end += nbytes
    others = ["F6_E2M3", "Q", None, True, -1, 0, 1, 2, 3, 7, 2.0, 2**31, 2**62, 2**63, 2**64, 10**40, [], {}, [0, 0]]

    def other() -> Any:
        return copy.deepcopy(others[rng.integers(len(others))])

    for one in entries.values():
        if rng.random() < 0.2:
            one[["dtype", "shape", "data_offsets", "more"][rng.integers(4)]] = other()
        if rng.random() < 0.2 and isinstance(one["shape"], list):
            one["shape"].insert(0, other())
        if rng.random() < 0.2 and isinstance(one["data_offsets"], list):
            one["data_offsets"][-1:] = [other()]
    if rng.random() < 0.2:
        entries["__metadata__"] = other() if rng.random() < 0.5 else {"a": "b"}
    text = bytearray(json.dumps(entries, ensure_ascii=bool(rng.integers(2))).encode())
    for _ in range(rng.integers(3)):
        at, piece = rng.integers(len(text) + 1), rng.bytes(1) if rng.integers(2) else rng.choice([*'{}[]":,019- \\eE'])
        piece = piece if isinstance(piece, bytes) else piece.encode()
        match rng.integers(4):
            case 0:
                text[at : at + 1] = piece
            case 1:
                text[at:at] = piece
            case 2:
                del text[at : at + rng.integers(5)]
            case 3:
                text[at:at] = text[rng.integers(len(text) + 1) :][: rng.integers(60)]
    length = len(text) + int(rng.choice([0, 0, 0, 0, 0, 0, 0, 1, -1, 1 << 40]))
    return max(0, length).to_bytes(8, "little") + text + bytes(max(0, end + int(rng.choice([0, 0, 0, 0, 0, 1, -1]))))


@pytest.mark.fuzz
def test_random_headers(tmp_path):
    """A file that is accepted is accepted by the package, as the same tensors; else an error names the file."""
    path, accepted, cases = tmp_path / "a.safetensors", 0, some(2000)
    for number in range(cases):
        path.write_bytes(damaged(np.random.default_rng([seed(), number])))
        try:
            names, refusal = {*format_of(path)[1].names(str(path))}, None
        except ValueError as error:
            names, refusal = set(), str(error)
        try:
            expected = tensors_of(path)
        except safetensors.SafetensorError as error:
            assert refusal is not None and "a.safetensors" in refusal, (number, error)
            continue
        if refusal is not None:
            assert re.search(STRICTER, refusal), (number, refusal)
            continue
        assert names == {*expected}
        for name, (shape, dtype) in inspect_file(path).items():
            code, extents, data = expected[name]
            assert list(shape) == extents and dtype.itemsize * np.prod(extents, dtype=int) == len(data), (number, code)
            accepted += 1
    assert accepted > cases / 20

"""``rechunk``, against the packages of the formats: elements, properties, bytes read and written, peak of memory."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import gc
import math
import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from launching import launch
from results import refused
from seeds import seed, some

from dace_redist import inspect_file, rechunk
from dace_redist.io import rechunk as module
from dace_redist.io.stored import StoredArray, format_of

h5py, zarr = pytest.importorskip("h5py"), pytest.importorskip("zarr")
safetensors = pytest.importorskip("safetensors.numpy")
#: Kinds of files without properties of arrays, whose pages are mapped; all kinds.
PLAIN = ("npy", "fortran", "folder", "safetensors")
KINDS = (*PLAIN, "h5", "h5 chunks", "zarr2", "zarr3", "shards")
TYPES = ("f4", "f8", "i2", "u1", "c8", "bool", ">f4")


@dataclasses.dataclass
class Given:
    """Array to be written by the package of a format, and its properties."""

    whole: np.ndarray
    chunks: tuple[int, ...]
    names: tuple[str, ...] | None
    attributes: dict[str, Any]
    fill: int

    @property
    def facts(self) -> list[Any]:
        return [
            {key: np.asarray(one).tolist() for key, one in self.attributes.items()},
            self.names,
            self.whole.dtype.type(self.fill),
        ]


def drawn(rng: Any, count: int, extents: Sequence[int]) -> dict[str, Given]:
    """Draw arrays by name, with axes up to some extents."""
    found = {}
    for name in ("a", "g/b", "g/h/c")[:count]:
        shape = tuple(int(n) for n in rng.integers(1, extents[: rng.integers(0, 5)]))
        shape = tuple(0 if rng.random() < 0.03 else n for n in shape)
        whole = np.asarray(rng.integers(0, 99, shape)).astype(rng.choice(TYPES))
        chunks = tuple(int(rng.integers(1, n + 2)) if n < 30 else int(rng.integers(n // 6, n + 2)) for n in shape)
        named = tuple(rng.permutation(["x", "y", "z", "t"])[: len(shape)].tolist()) if rng.random() < 0.7 else None
        attributes = {"units": "K", "scale": 2.5, "range": [1, 2]} if rng.random() < 0.7 else {}
        found[name] = Given(whole, chunks, named if shape else None, attributes, int(rng.integers(0, 9)))
    return found


def write(path: Path, kind: str, arrays: dict[str, Given]) -> None:
    if kind in ("npy", "fortran"):
        np.save(path, np.asarray(arrays["a"].whole, order="F" if kind == "fortran" else "C"))
    if kind == "safetensors":
        safetensors.save_file(
            {name: np.asarray(one.whole, one.whole.dtype.newbyteorder("=")) for name, one in arrays.items()}, path
        )
    for name, one in arrays.items() if kind == "folder" else ():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(path / name, one.whole)
    for name, one in arrays.items() if path.suffix == ".h5" else ():
        with h5py.File(path, "a") as file:
            chunked = kind == "h5 chunks" and one.whole.size > 0 and one.whole.ndim > 0
            how = {"chunks": tuple(map(min, one.chunks, one.whole.shape)), "compression": "gzip"} if chunked else {}
            made = file.create_dataset(name, data=one.whole, fillvalue=one.whole.dtype.type(one.fill), **how)
            made.attrs.update(one.attributes)
            for axis, label in enumerate(one.names or ()):
                made.dims[axis].label = label
    if path.suffix == ".zarr":
        version = 2 if kind == "zarr2" else 3
        store = zarr.open_group(path, mode="w", zarr_format=version)
        for name, one in arrays.items():
            how = {"chunks": one.chunks, "fill_value": one.fill, "attributes": dict(one.attributes)}
            if kind == "shards" and one.whole.ndim:
                how["shards"] = tuple(2 * extent for extent in one.chunks)
            if version == 3:
                how["dimension_names"] = one.names
            elif one.names:
                how["attributes"]["_ARRAY_DIMENSIONS"] = list(one.names)
            store.create_array(name, data=one.whole, **how)


def stored(path: Path) -> dict[str, tuple[np.ndarray, list[Any]]]:
    """Return the elements and the properties of the arrays of a file, by the package of its format."""
    if path.suffix == ".npy":
        return {"a": (np.load(path), [])}
    if path.suffix == ".safetensors":
        return {name: (whole, []) for name, whole in safetensors.load_file(path).items()}
    if path.suffix == "":
        return {file.relative_to(path).as_posix()[:-4]: (np.load(file), []) for file in path.rglob("*.npy")}
    found = {}
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            for name in inspect_file(path):
                one = file[name]
                labels = tuple(dim.label for dim in one.dims)
                attributes = {key: one.attrs[key] for key in one.attrs if not key.startswith("DIMENSION_")}
                attributes = {key: np.asarray(value).tolist() for key, value in attributes.items()}
                found[name] = one[()], [attributes, labels if any(labels) else None, one.fillvalue]
        return found
    for name, one in zarr.open_group(path, mode="r").members(None):
        if isinstance(one, zarr.Array):
            attributes = one.attrs.asdict()
            names = attributes.pop("_ARRAY_DIMENSIONS", None) or getattr(one.metadata, "dimension_names", None)
            fill = one.dtype.type(0) if one.fill_value is None else one.fill_value
            found[name] = one[...], [attributes, tuple(names) if names else None, fill]
    return found


@contextlib.contextmanager
def counted(target: Path) -> Iterator[dict[str, int]]:
    """Count the bytes of the chunks that this rank reads and writes."""
    nbytes, patch, form = {"read": 0, "written": 0}, pytest.MonkeyPatch(), format_of(target)[1]

    def counting(what: str, opened: StoredArray) -> StoredArray:
        layout, transfer = opened.layout, opened.transfer

        def count(box: Any, array: Any) -> None:
            ends = zip(box, layout.unit, layout.shape, strict=True)
            touched = (min(n, -(-one.stop // unit) * unit) - one.start // unit * unit for one, unit, n in ends)
            nbytes[what] += math.prod(touched) * layout.dtype.itemsize
            transfer(box, array)

        return dataclasses.replace(opened, transfer=count)

    open_same, open_new = module.open_same, form.open_new
    patch.setattr(module, "open_same", lambda *how: counting("read", open_same(*how)))
    owner = form if isinstance(form, ModuleType) else type(form)
    patch.setattr(owner, "open_new", staticmethod(lambda new: counting("written", open_new(new))))
    try:
        yield nbytes
    finally:
        patch.undo()


@contextlib.contextmanager
def peak() -> Iterator[list[int]]:
    """Give a list that gets the growth of this process's memory in a block, at its peak, in bytes."""

    def resident(what: str) -> int:
        return 1024 * int(re.search(rf"{what}:\s*(\d+)", Path("/proc/self/status").read_text())[1])

    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before, found = resident("VmRSS"), list[int]()
    yield found
    found.append(resident("VmHWM") - before)


def asked(rng: Any, arrays: dict[str, Given], kind: str) -> dict[str, Any]:
    """Draw arguments for the target."""
    how: dict[str, Any] = {}
    if kind in ("h5 chunks", "zarr2", "zarr3", "shards"):
        chunks = {
            name: tuple(int(rng.integers(max(1, n // 5), n + 1)) if n else 1 for n in one.whole.shape)
            for name, one in arrays.items()
        }
        how["chunks"] = chunks
        if kind == "shards":
            how["shards"] = {name: tuple(2 * n for n in extents) for name, extents in chunks.items()}
    if kind.startswith(("zarr", "shards")):
        how["zarr_format"] = 2 if kind == "zarr2" else 3
    if kind == "fortran":
        how["fortran_order"] = True
    return how


def path_of(folder: Path, kind: str, name: str) -> Path:
    endings = {"npy": ".npy", "fortran": ".npy", "folder": "", "h5": ".h5", "h5 chunks": ".h5"}
    endings["safetensors"] = ".safetensors"
    return folder / f"{name}{endings.get(kind, '.zarr')}"


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[1, 2, 4], full=[3], timeout=600)
def test_random_rechunks(comm, tmp_path, monkeypatch):
    """Elements and properties are those of the source; bytes and memory are as the plan says."""
    slabs = 0
    for number in range(some(20)):
        rng = np.random.default_rng([seed(), number, comm.size])
        large = rng.random() < 0.4  # else it is cut as if it were
        monkeypatch.setattr(module, "_LIBRARY_BYTES", (24 << 20) * large)
        monkeypatch.setattr(module, "_MIN_PIECE", 256 << 10 if large else 16 << 10)
        old, new = str(rng.choice(KINDS)), str(rng.choice(KINDS))
        single = {"npy", "fortran"} & {old, new}
        if single:
            old, new = (str(rng.choice(["npy", "fortran"])) for _ in range(2))
        extents = (6000, 60, 40, 8) if large else (3000, 40, 30, 8)
        arrays = drawn(rng, 1 if single else int(rng.integers(1, 4)), extents)
        base = Path(comm.bcast(tmp_path)) / str(number)
        source, target = path_of(base, old, "old"), path_of(base, new, "new")
        if comm.rank == 0:
            base.mkdir()
            write(source, old, arrays)
        comm.barrier()
        how = {"comm": comm, **asked(rng, arrays, new)}
        memory = int(rng.integers(24 << 20, 40 << 20)) if large else 1 << 18
        while True:
            try:
                plan = rechunk(source, target, memory_bytes=memory, dry_run=True, **how)
                break
            except ValueError as error:
                assert "memory_bytes must be at least" in str(error), error
                memory += memory // 8
        comm.barrier()
        assert os.listdir(base) == [source.name]
        comm.barrier()
        with counted(target) as nbytes, peak() as grown:
            done = rechunk(source, target, memory_bytes=memory, **how)
        text = f"{number}: {old} to {new}, {memory}, {grown}, {nbytes}\n{plan}"
        assert str(done) == str(plan), text
        assert comm.allreduce(nbytes["read"]) == plan.bytes_read, text
        assert comm.allreduce(nbytes["written"]) == plan.bytes_written, text
        mapped = plan.bytes_written if old in PLAIN else 0  # pages of a source without chunks
        assert plan.peak_bytes <= memory, text
        assert not large or max(comm.allgather(grown[0])) <= plan.peak_bytes + mapped, text
        found = stored(target)
        assert {*found} == {*arrays}, text
        for name, one in arrays.items():
            whole, facts = found[name]
            assert np.array_equal(whole, one.whole) and whole.dtype == one.whole.dtype.newbyteorder("="), text
            if facts and old not in PLAIN:
                assert ("_FillValue" in facts[0]) == (old == "zarr2" != new and one.names is not None), text
                facts[0].pop("_FillValue", None)
                assert facts == one.facts, text
        comm.barrier()
        slabs += sum(len(one.slabs()) for one in plan.arrays.values())
        if comm.rank == 0:
            shutil.rmtree(base)
    assert some(20) < 10 or slabs > 2 * some(20)


@pytest.mark.mpi(ranks=[2], alone=True)
@pytest.mark.parametrize("form", ["h5", "zarr"])
def test_memory_of_a_new_process(comm, tmp_path, form):
    """Threads of codecs keep no freed memory."""
    folder = Path(comm.bcast(tmp_path))
    source, target, shape = folder / "a.zarr", folder / f"b.{form}", (800, 180, 90)
    if comm.rank == 0:
        whole = np.random.default_rng(0).integers(0, 1 << 40, shape)
        zarr.create_array(source, data=whole, chunks=(10, 180, 90))
    comm.barrier()
    with peak() as grown:
        plan = rechunk(source, target, chunks=(800, 9, 90), memory_bytes="72MiB")
    (one,) = plan.arrays.values()
    assert len(one.slabs()) > 1
    assert max(comm.allgather(grown[0])) <= plan.peak_bytes <= 72 << 20


KILLED = """
import os, signal, sys, warnings
sys.path[:0] = [{tests!r}, {here!r}]
from test_replaced_files import format_of, stopping
from dace_redist import rechunk
from dace_redist.io import rechunk as module
from mpi4py import MPI
module._LIBRARY_BYTES, module._MIN_PIECE = 0, 4096
warnings.simplefilter("error")
source, target, step, left, rank = *sys.argv[1:4], [int(sys.argv[4])], int(sys.argv[5])
def act():
    left[0] -= MPI.COMM_WORLD.rank == rank
    if left[0] == 0: os.kill(os.getpid(), signal.SIGKILL)
with stopping(format_of(target)[1], step, act):
    rechunk(source, target, chunks=(16, 32), memory_bytes="64KiB")
"""


@pytest.mark.fuzz
@pytest.mark.parametrize("form", ["h5", "zarr"])
def test_killed_rechunks(tmp_path, form):
    """The arrays of the target are the old ones, or the new ones; a second call begins anew, and says what is left."""
    for number in range(max(2, some(6))):
        rng = np.random.default_rng([seed(), number, len(form)])
        base = tmp_path / str(number)
        base.mkdir()
        source, target = base / f"old.{rng.choice(['h5', 'zarr'])}", base / f"new.{form}"
        whole = rng.random((64, 128))
        for path, sign in ((source, 1), (target, -1)):
            given = {name: Given(sign * whole, (64, 4), None, {}, 0) for name in ("a", "b")}
            write(path, "h5 chunks" if path.suffix == ".h5" else "zarr3", given)
        code = KILLED.format(tests=str(Path(__file__).parents[1]), here=str(Path(__file__).parent))
        step, ranks = str(rng.choice(["create", "open", "transfer", "commit"])), int(rng.integers(1, 3))
        rank = int(rng.integers(ranks)) if step in ("open", "transfer") else 0
        words = [
            str(source),
            str(target),
            step,
            str(rng.integers(1, 9) if step in ("open", "transfer") else 1),
            str(rank),
        ]
        launch(ranks, [sys.executable, "-c", code, *words], 60)
        text, found = f"{number} {step} {words} {os.listdir(base)}", stored(target)
        assert {*found} == {"a", "b"}, text
        new = [np.array_equal(one, whole) for one, _ in found.values()]
        assert all(is_new or np.array_equal(one, -whole) for is_new, (one, _) in zip(new, found.values(), strict=True))
        assert step == "open" or not any(new), text
        left = [name for name in os.listdir(base) if name.endswith(".tmp")]
        with contextlib.ExitStack() as block:
            if left:
                block.enter_context(pytest.warns(RuntimeWarning, match=rf"begins anew. Remove .*{left[0]}"))
            rechunk(source, target, chunks=(16, 32))
        assert all(np.array_equal(one, whole) for one, _ in stored(target).values()), text
        assert sorted(os.listdir(base)) == sorted([source.name, target.name, *left]), text


@pytest.mark.mpi(ranks=[2])
def test_wrong_arguments_are_refused_before_anything_is_written(comm, tmp_path):
    source = Path(comm.bcast(tmp_path)) / "a.zarr"
    if comm.rank == 0:
        store = zarr.create_group(source)
        store.create_array("a", data=np.ones((40, 60)), chunks=(40, 1))
        store.create_array("b", data=np.ones(40), chunks=(7,))
        with h5py.File(source.with_suffix(".h5"), "w") as file:
            file["a"], file["s"] = np.ones(4), ["text", "of any length"]
    comm.barrier()
    for kind, text, target, how in (
        (ValueError, "end in one of", "b.txt", {}),
        (ValueError, "must be a limit", "b.zarr", {"memory_bytes": None}),
        (ValueError, "at least 24.* for chunks of", "b.zarr", {"memory_bytes": "1MiB"}),
        (ValueError, "chunks must be for arrays that are written", "b.zarr", {"chunks": (2, 2, 2)}),
        (ValueError, "chunks must be for arrays that are written", "b.zarr", {"chunks": {"c": (2, 2)}}),
        (TypeError, "chunks must be a sequence of integers", "b.zarr", {"chunks": 4}),
        (TypeError, "chunks must be a sequence of integers", "b.zarr", {"chunks": {"a": 4}}),
        (ValueError, "at least 1, or -1", "b.zarr", {"chunks": (2, 0)}),
        (TypeError, "chunks.* must be an integer", "b.zarr", {"chunks": (2, 0.5)}),
        (ValueError, "names must be some of its arrays: a, b", "b.zarr", {"names": ["c"]}),
        (ValueError, "names must be some of its arrays: a, b", "b.zarr", {"names": []}),
        (ValueError, "holds one array", "b.npy", {}),
        (ValueError, "divisible by", "b.zarr", {"chunks": (4, 4), "shards": (6, 4)}),
        (TypeError, "unexpected keyword argument 'shards'", "b.h5", {"chunks": (4, 4), "shards": (8, 8)}),
        (TypeError, "unexpected keyword argument 'nothing'", "b.zarr", {"nothing": 1}),
        (ValueError, "the ranks differ in chunks", "b.zarr", {"chunks": (2 + comm.rank, 2)}),
    ):
        refused(comm, kind, text, lambda target=target, how=how: rechunk(source, source.with_name(target), **how))
    wrong = source.with_suffix(".h5")
    refused(comm, ValueError, "without a fixed size, in s, cannot be read", lambda: rechunk(wrong, source))
    refused(comm, FileNotFoundError, "No such file|no folder", lambda: rechunk(source.with_name("c.zarr"), source))
    assert sorted(os.listdir(source.parent)) == ["a.h5", "a.zarr"]
    assert sorted(rechunk(wrong, source.with_name("b.h5"), names=["a"], dry_run=True).arrays) == ["a"]


@pytest.mark.mpi(ranks=[3])
@pytest.mark.parametrize("form", ["h5", "zarr"])
def test_a_file_is_rechunked_in_place(comm, tmp_path, form):
    path, whole = Path(comm.bcast(tmp_path)) / f"a.{form}", np.arange(2400.0).reshape(40, 60)
    if comm.rank == 0:
        kept = Given(whole, (40, 1), ("y", "x"), {"units": "m"}, 3)
        write(path, "h5 chunks" if form == "h5" else "zarr3", {"a": kept, "b": Given(-whole, (3, 3), None, {}, 0)})
    comm.barrier()
    rechunk(path, path, names=["a"], chunks=(-1, 7))
    found = stored(path)
    assert np.array_equal(found["a"][0], whole) and np.array_equal(found["b"][0], -whole)
    assert found["a"][1] == [{"units": "m"}, ("y", "x"), 3] and os.listdir(path.parent) == [path.name]
    chunks = h5py.File(path)["a"].chunks if form == "h5" else zarr.open_array(path / "a").chunks
    assert chunks == (40, 7)


@pytest.mark.mpi(ranks=[2])
def test_names_and_missing_values_are_stored_as_xarray_and_netcdf_have_them(comm, tmp_path):
    folder = Path(comm.bcast(tmp_path))
    first, store, old_store, last = (folder / name for name in ("a.nc", "b.zarr", "c.zarr", "d.nc"))
    if comm.rank == 0:
        with h5py.File(first, "w") as file:
            file.attrs["title"], file["y"], file["x"] = "of all", np.arange(6.0), np.arange(4)
            for name, kind, missing in (("a", "f4", [-999]), ("b", "i2", [-7])):
                made = file.create_dataset(name, data=np.arange(24).reshape(6, 4), dtype=kind, chunks=(1, 4))
                made.attrs["_FillValue"] = np.array(missing, kind)
                for axis, scale in enumerate("yx"):
                    file[scale].make_scale(scale)
                    made.dims[axis].attach_scale(file[scale])
    comm.barrier()
    rechunk(first, store, chunks=(-1, 2))
    rechunk(store, old_store, zarr_format=2)
    rechunk(old_store, last)
    rechunk(last, last, chunks=(2, -1))  # in place, with all scales
    new, old = zarr.open_group(store), zarr.open_group(old_store)
    assert new.attrs["title"] == old.attrs["title"] == "of all" and old.metadata.zarr_format == 2
    assert [new[name].metadata.dimension_names for name in "aby"] == [("y", "x"), ("y", "x"), ("y",)]
    assert [new[name].attrs.get("_FillValue") for name in "aby"] == ["AAAAAAA4j8A=", -7, None]
    assert [old[name].attrs["_ARRAY_DIMENSIONS"] for name in "aby"] == [["y", "x"], ["y", "x"], ["y"]]
    assert [old[name].metadata.fill_value for name in "aby"] == [-999, -7, None]
    with h5py.File(last) as file:
        assert file.attrs["title"] == "of all" and (file["a"].chunks, file["y"].is_scale) == ((2, 4), True)
        assert [file[name].attrs["_FillValue"] for name in "ab"] == [-999, -7] and "_FillValue" not in file["y"].attrs
        assert [scale.name for dim in file["b"].dims for scale in dim.values()] == ["/y", "/x"]
        assert file["a"][()].tolist() == np.arange(24).reshape(6, 4).tolist() and file["b"].dtype == "i2"

"""Distributed arrays in files, against NumPy, h5py, zarr and safetensors on the whole array."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributions import distributions, same_on_all_ranks
from hypothesis import given
from hypothesis import strategies as st
from results import refused

from dace_redist import DistributedArray, Distribution, TiledDistribution, _core, load, save, shared_empty
from dace_redist.io import pieces
from dace_redist.io.stored import Layout, format_of

FORMATS = ("npy", "h5", "zarr", "safetensors")


def needed(form: str) -> Any:
    """Return the package of a format; skip the test if it is missing."""
    names = {"npy": "numpy", "h5": "h5py", "zarr": "zarr", "safetensors": "safetensors.numpy"}
    return pytest.importorskip(names[form], reason=f"needs {names[form]}")


def folder(comm, tmp_path) -> Path:
    return Path(comm.bcast(tmp_path))


def written(path: Path, name: str | None = None) -> np.ndarray:
    """Return the array of a file, read by the package of its format."""
    if path.suffix == ".npy":
        return np.asarray(np.load(path))
    if path.suffix == ".h5":
        with needed("h5").File(path) as file:
            return np.asarray(file[name or "data"][()])
    if path.suffix == ".safetensors":
        return np.asarray(needed("safetensors").load_file(path)[name or "data"])
    return np.asarray(needed("zarr").open_array(path / (name or ""), mode="r")[...])


def write(path: Path, whole: np.ndarray, chunks: tuple[int, ...] | None = None, **how: Any) -> None:
    """Write an array by the package of the format."""
    if path.suffix == ".npy":
        np.save(path, whole)
    elif path.suffix == ".h5":
        with needed("h5").File(path, "w") as file:
            file.create_dataset("data", data=whole, chunks=chunks, **how)
    elif path.suffix == ".safetensors":
        needed("safetensors").save_file({"data": whole}, path)
    else:
        needed("zarr").create_array(path, data=whole, chunks=chunks or "auto", overwrite=True, **how)


def numbers(shape: tuple[int, ...], dtype: Any = "f8") -> np.ndarray:
    return np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 120).astype(dtype)


def check_written(comm, path: Path, expected: np.ndarray) -> None:
    """Check the array of a file on each rank, after all have written it and before any writes it again. Collective."""
    comm.barrier()
    assert np.array_equal(written(path), expected)
    comm.barrier()


@st.composite
def stored(draw, ranks):
    """Draw a whole array with chunks or without, an index, distributions of both, and the ranks that access a file."""
    shape = tuple(draw(st.lists(st.integers(0, 7), max_size=3)))
    chunks = tuple(draw(st.integers(1, max(1, n))) for n in shape) if shape and draw(st.booleans()) else None
    index: list[Any] = []
    for extent in shape:
        start, stop = sorted((draw(st.integers(0, extent)), draw(st.integers(0, extent))))
        cut = slice(start, stop, draw(st.sampled_from([None, 1, 2, 3])))
        integers = [st.integers(-extent, extent - 1)] if extent else []
        index.append(draw(st.one_of(st.just(slice(None)), st.just(cut), *integers)))
    rest = draw(st.integers(0, len(index)))
    index = [*index[:rest], ...] if draw(st.booleans()) else index
    named = st.one_of(
        st.none(),
        st.integers(1, ranks),
        st.permutations(range(ranks)).flatmap(lambda order: st.integers(1, ranks).map(lambda n: tuple(order[:n]))),
    )
    return {
        "whole": numbers(shape, draw(st.sampled_from(["f8", "i2", "c8", ">f4", "bool"]))),
        "chunks": chunks,
        "index": draw(st.sampled_from([None, tuple(index)])),
        "named": (draw(named), draw(named)),
        "memory": draw(st.sampled_from([None, None, None, 1 << 16])),
        "source": draw(distributions(shape, ranks)),
        "compressed": draw(st.booleans()),
        "sizes": {
            "PIECE_BYTES": draw(st.integers(1, 300)),
            "_MIN_SHARE_BYTES": draw(st.integers(1, 300)),
            "_MIN_RUN_BYTES": draw(st.sampled_from([8, 30, 1 << 20])),
        },
    }


def storage(form: str, case: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of ``save`` that say how a file stores its array."""
    how: dict[str, Any] = {}
    if case["chunks"] and form == "npy":
        how["fortran_order"] = True
    if case["chunks"] and form in ("h5", "zarr") and case["whole"].size:
        how["chunks"] = case["chunks"]
        if case["compressed"] and form == "h5":
            how["compression"] = "gzip"
        elif case["compressed"]:
            how["shards"] = tuple(2 * n for n in case["chunks"])
    return how


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[1, 2, 4], timeout=240)
@pytest.mark.parametrize("form", FORMATS)
def test_random_arrays(comm, tmp_path, form, monkeypatch):
    """Small arrays are cut as large ones are: into many rounds, or into each rank's own part."""
    needed(form)
    path = folder(comm, tmp_path) / f"random.{form}"

    @same_on_all_ranks(40)
    @given(stored(comm.size), st.data())
    def check(case, data):
        whole, source, index = case["whole"], case["source"], case["index"]
        whole = whole.astype(whole.dtype.newbyteorder("=")) if form == "safetensors" else whole
        for name, size in case["sizes"].items():
            monkeypatch.setattr(pieces, name, size)
        local = source.local(whole, comm.rank).astype(whole.dtype, copy=False)  # of nothing, tiles are in native order
        array = DistributedArray(local, source, comm)
        how = {"memory_bytes": case["memory"], "strategy": data.draw(st.sampled_from(["Auto", "Pipelined"]))}
        save(path, array, writers=case["named"][0], **how, **storage(form, case))
        found = written(path)
        part = np.asarray(whole if index is None else whole[index])
        target = data.draw(distributions(part.shape, comm.size))
        kind = data.draw(st.sampled_from([None, "c16"]))
        back = load(path, target, comm=comm, readers=case["named"][1], index=index, target_dtype=kind, **how)
        expected = target.local(part.astype(kind or whole.dtype.newbyteorder("=")), comm.rank)
        wrong = [] if np.array_equal(found, whole) and found.dtype.kind == whole.dtype.kind else ["the file"]
        wrong += [] if np.array_equal(back.local, expected) and back.local.dtype == expected.dtype else ["the array"]
        assert not [text for some in comm.allgather(wrong) for text in some]

    check()


@pytest.mark.mpi(ranks=[4])
@pytest.mark.parametrize("form", FORMATS)
def test_long_arrays_in_rounds(comm, tmp_path, form, monkeypatch):
    """Pieces of a large array, each rank's own part, and parts that are exchanged, in rounds of some memory."""
    needed(form)
    path, shape = folder(comm, tmp_path) / f"long.{form}", (256, 96, 32)
    whole = np.random.default_rng(1).random(shape)
    chunks = {"chunks": (10, 96, 9)} if form in ("h5", "zarr") else {}
    rows = Distribution(shape, (comm.size,))
    for how in ({}, chunks):
        save(path, DistributedArray(rows.local(whole, comm.rank), rows, comm), **how)
        check_written(comm, path, whole)
        for target in (rows, Distribution.block_cyclic(shape, (2, 2, 1), 3), Distribution.replicated(shape, comm.size)):
            for memory_bytes in (None, np.int64(1 << 21)):
                back = load(path, target, comm=comm, memory_bytes=memory_bytes)
                assert np.array_equal(back.local, target.local(whole, comm.rank))
                save(os.fsencode(path.with_name(f"copy.{form}")), back, memory_bytes=memory_bytes)
                check_written(comm, path.with_name(f"copy.{form}"), whole)


@pytest.mark.mpi(ranks=[3])
def test_each_chunk_of_a_part_is_read_once(comm, tmp_path, monkeypatch):
    """The part begins within a chunk, and ranks read several pieces."""
    needed("zarr")
    path, whole, read = folder(comm, tmp_path) / "a.zarr", numbers((64, 10)), list[int]()
    if comm.rank == 0:
        write(path, whole, (8, 10))
    comm.barrier()
    transfer = pieces.Selection.transfer

    def counted(self: Any, stored: Any, part: Any, array: Any) -> None:
        rows = self.box(part)[0]
        read.extend(range(rows.start // 8, -(-rows.stop // 8)) if array.size else ())
        transfer(self, stored, part, array)

    monkeypatch.setattr(pieces.Selection, "transfer", counted)
    columns = Distribution((58, 10), (1, 3))
    back = load(path, columns, comm=comm, index=np.s_[3:61], readers=3, memory_bytes=1 << 16)
    assert np.array_equal(back.local, columns.local(whole[3:61], comm.rank))
    assert sorted(chunk for chunks in comm.allgather(read) for chunk in chunks) == [*range(8)]


@pytest.mark.mpi(ranks=[2])
def test_few_elements_of_a_chunked_file_need_their_memory(comm, tmp_path):
    needed("h5")
    path, rows = folder(comm, tmp_path) / "a.h5", Distribution((64, 64), (2,))
    if comm.rank == 0:
        write(path, numbers((64, 64)), chunks=(64, 64))
    comm.barrier()
    little = {"comm": comm, "memory_bytes": 1 << 16}
    refused(comm, ValueError, "at least 131072 for chunks of", lambda: load(path, rows, **little))
    path, columns = path.with_suffix(".npy"), Distribution((64, 64), (1, 2), halo=1)
    array = DistributedArray(columns.local(numbers((64, 64)), comm.rank), columns, comm)
    text = "half of memory_bytes=4096 is for exchanges, where memory_bytes is 2048, but strategy .* needs at least"
    refused(comm, ValueError, text, lambda: save(path, array, memory_bytes=4096))


@pytest.mark.mpi(ranks=[2])
def test_margins_beyond_the_ends_are_zeros(comm, tmp_path):
    path, with_halo = folder(comm, tmp_path) / "a.npy", Distribution((256, 64), (2,), halo=(1, 2))
    if comm.rank == 0:
        write(path, np.ones((256, 64)))
    comm.barrier()
    for _ in range(3):
        local = load(path, with_halo, comm=comm).local
        expected = np.zeros((130, 68))
        expected[comm.rank == 0 :, 2:-2][:129] = 1
        assert np.array_equal(local, expected)
        local.fill(7)


@pytest.mark.mpi(ranks=[3])
@pytest.mark.parametrize("form", ["h5", "zarr"])
def test_several_arrays_of_a_file(comm, tmp_path, form):
    needed(form)
    path, rows = folder(comm, tmp_path) / f"several.{form}", Distribution((6, 4), (3,))
    whole = numbers((6, 4))
    arrays = {"x/a": whole, "x/b": -whole, "c": 2 * whole, "x/a ": None}
    for name in ("x/a", "x/b", "c", "x/b"):
        save(path, DistributedArray(rows.local(arrays[name], comm.rank), rows, comm), name=name)
    for name in ("x/a", "x/b", "c"):
        assert np.array_equal(load(path, rows, comm=comm, name=name).local, rows.local(arrays[name], comm.rank))
    for name, got in ((None, "None"), ("x", "'x'"), ("d", "'d'")):
        refused(comm, ValueError, f"c, x/a, x/b; got {got}", lambda name=name: load(path, rows, comm=comm, name=name))
    array = DistributedArray(rows.local(whole, comm.rank), rows, comm)
    refused(comm, ValueError, "is a group|not a Zarr array", lambda: save(path, array, name="x"))
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.mpi(ranks=[2])
def test_partial_results_and_strides(comm, tmp_path, monkeypatch):
    """Partial sums are reduced; local arrays may have any strides and class, and lie in any memory."""
    path, whole = folder(comm, tmp_path) / "sum.npy", numbers((8, 6))
    copies = Distribution.replicated((8, 6), 2)
    save(path, DistributedArray(whole * (comm.rank + 1), copies, comm, op="sum"))
    check_written(comm, path, 3 * whole)
    rows = Distribution((8, 6), (2,))
    backwards = rows.local(whole, comm.rank)[::-1].copy()[::-1]
    save(path, DistributedArray(backwards, rows, comm))
    check_written(comm, path, whole)
    monkeypatch.setattr(pieces, "_MIN_RUN_BYTES", 8)  # so that each rank writes its own part
    columns = Distribution((8, 6), (1, 2))
    for sign, kind in ((2, lambda part: part.view(np.recarray)), (3, np.asmatrix)):
        save(path, DistributedArray(kind(columns.local(sign * whole, comm.rank)), columns, comm))
        check_written(comm, path, sign * whole)
    part = shared_empty(rows.local_shape(comm.rank))
    part[...] = rows.local(-whole, comm.rank)
    save(path, DistributedArray(part, rows, comm), target_dtype="f4")
    check_written(comm, path, -whole)
    assert written(path).dtype == "f4"


HEADER = "{'descr':\t'<f8', 'fortran_order': False,\n'shape': %s, }"


@pytest.mark.mpi(ranks=[2])
def test_npy_headers_of_other_programs(comm, tmp_path):
    path, rows = folder(comm, tmp_path) / "other.npy", Distribution((4,), (2,))
    for shape, version, words in [("(4 ,)", 1, ""), ("(4L,)", 2, ""), ("(4)", 1, "no .npy file"), ("(4,)", 4, "4.0")]:
        if comm.rank == 0:
            header = (HEADER % shape).encode()
            size = len(header).to_bytes(2 if version == 1 else 4, "little")
            path.write_bytes(b"\x93NUMPY" + bytes([version, 0]) + size + header + np.arange(4.0).tobytes())
        comm.Barrier()
        if words:
            refused(comm, ValueError, words, lambda: load(path, rows, comm=comm))
        else:
            np.testing.assert_array_equal(load(path, rows, comm=comm).allgather(), np.arange(4.0))


@pytest.mark.mpi(ranks=[3])
@pytest.mark.parametrize("form", FORMATS)
def test_damaged_and_missing_files(comm, tmp_path, form):
    needed(form)
    path, rows = folder(comm, tmp_path) / f"bad.{form}", Distribution((400, 6), (3,))
    refused(comm, FileNotFoundError, "No such file|is no folder", lambda: load(path, rows, comm=comm))
    if comm.rank == 0:
        write(path, np.random.default_rng(1).random((400, 6)))
        file = path if path.is_file() else path / "c" / "0" / "0"
        file.write_bytes(file.read_bytes()[:-700])
    comm.barrier()
    for readers in (None, 2, [2]):
        with pytest.raises((OSError, ValueError, RuntimeError), match=f"bad.{form}"):
            load(path, rows, comm=comm, readers=readers)
    if comm.rank == 0:
        file = path if path.is_file() else path / "zarr.json"
        file.write_bytes(b"{" * 900)
    comm.barrier()
    with pytest.raises((OSError, ValueError, RuntimeError), match=f"bad.{form}"):
        load(path, rows, comm=comm)


@pytest.mark.mpi(ranks=[3])
@pytest.mark.parametrize("form", FORMATS)
def test_files_that_only_some_ranks_see(comm, tmp_path, form, monkeypatch):
    """Each rank has a folder of its own, as on node-local disks."""
    needed(form)
    own = folder(comm, tmp_path) / str(comm.rank)
    own.mkdir()
    monkeypatch.chdir(own)
    rows, whole = Distribution((30, 8), (3,)), numbers((30, 8))
    path = Path(f"a.{form}")
    array = DistributedArray(rows.local(whole, comm.rank), rows, comm)
    if comm.rank == 1:
        write(path, whole)
    comm.barrier()
    refused(comm, OSError, "No such file|is no folder", lambda: load(path, rows, comm=comm))
    refused(comm, OSError, "rank 2, .* cannot open it.*as readers", lambda: load(path, rows, comm=comm, readers=[1, 2]))
    assert np.array_equal(load(path, rows, comm=comm, readers=[1]).local, array.local)
    if comm.rank == 0:
        write(path, whole[1:])
    comm.barrier()
    refused(comm, ValueError, "ranks see different arrays", lambda: load(path, rows, comm=comm, readers=[1, 0]))
    with monkeypatch.context() as changed:
        if comm.rank == 2:
            of = format_of(path)[1]
            of = of if inspect.ismodule(of) else type(of)
            changed.setattr(of, "open_new", staticmethod(lambda new: open(new.path + "/none")))
        refused(comm, OSError, "rank 2, .* cannot open it.* as writers", lambda: save(path, array, writers=[1, 2]))
    save(path, DistributedArray(-array.local, rows, comm), writers=[2])
    if comm.rank == 2:
        assert np.array_equal(written(path), -whole)
    assert os.listdir() == [path.name]


@pytest.mark.mpi(ranks=[2], alone=True)
@pytest.mark.parametrize("form", ["npy", "h5", "safetensors"])
def test_disk_that_fills(comm, tmp_path, form, monkeypatch):
    """No rank writes, the old file stays, and nothing is left beside it; then there is room again."""
    needed(form)
    place = folder(comm, tmp_path) / "disk"
    if comm.rank == 0:
        place.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place]
        mounted = not subprocess.run(mount, capture_output=True).returncode
    if not comm.bcast(mounted if comm.rank == 0 else None):
        pytest.skip("needs the right to mount a tmpfs")
    path, small, large = place / f"a.{form}", Distribution((8, 8), (2,)), Distribution((2048, 512), (2,))
    try:
        save(path, DistributedArray(small.local(numbers((8, 8)), comm.rank), small, comm))
        array = DistributedArray(np.ones(large.local_shape(comm.rank)), large, comm)
        moved: list[object] = []
        with monkeypatch.context() as patch, pytest.raises((OSError, RuntimeError), match=path.name):
            patch.setattr(pieces.Selection, "transfer", lambda *one: moved.append(one))
            save(path, array)
        comm.barrier()
        assert not moved
        assert np.array_equal(written(path), numbers((8, 8))) and os.listdir(place) == [path.name]
        save(path, DistributedArray(small.local(-numbers((8, 8)), comm.rank), small, comm))
        comm.barrier()
        assert np.array_equal(written(path), -numbers((8, 8)))
    finally:
        comm.barrier()
        if comm.rank == 0:
            subprocess.run(["umount", "-l", place], check=True)


@pytest.mark.mpi(ranks=[2])
def test_progress_bar(comm, tmp_path, capsys, monkeypatch):
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    path, columns = folder(comm, tmp_path) / "bar.npy", Distribution((64, 64), (1, 2))
    array = DistributedArray(columns.local(numbers((64, 64)), comm.rank), columns, comm)
    save(path, array, progress=True, memory_bytes=1 << 15)
    back = load(path, columns, comm=comm, progress=True)
    assert np.array_equal(back.local, array.local)
    shown = capsys.readouterr().err
    assert (comm.rank == 0) == ("save" in shown and "load" in shown and "100%" in shown)


@pytest.mark.mpi(ranks=[2])
def test_types_that_are_only_moved(comm, tmp_path):
    whole = np.zeros(12, [("a", "f4"), ("b", "S3")])
    whole["a"], whole["b"] = np.arange(12), b"xyz"
    cyclic, tiles = Distribution((12,), (2,), block=(1,)), TiledDistribution((12,), (5,), [1, 0, 1])
    for form in ("npy", "h5"):
        needed(form)
        path = folder(comm, tmp_path) / f"types.{form}"
        save(path, DistributedArray(cyclic.local(whole, comm.rank), cyclic, comm))
        assert np.array_equal(load(path, tiles, comm=comm).local, tiles.local(whole, comm.rank))
    objects = folder(comm, tmp_path) / "objects.npy"
    if comm.rank == 0:
        np.save(objects, np.array([None] * 12))
    comm.barrier()
    refused(
        comm, TypeError, "objects.npy.*objects of Python have no fixed size", lambda: load(objects, cyclic, comm=comm)
    )
    if comm.rank == 0:
        os.truncate(objects, 100)
    comm.barrier()
    refused(comm, ValueError, "objects.npy.*must be a complete .npy file", lambda: load(objects, cyclic, comm=comm))


@contextlib.contextmanager
def growth_of_memory():
    """Give a list that gets the largest growth of this process's memory in a block, in bytes, but for mapped files."""
    growth: list[int] = []
    begun, ended = threading.Event(), threading.Event()

    def resident() -> int:
        status = Path("/proc/self/status").read_text()
        return 1024 * sum(map(int, re.findall(r"Rss(?:Anon|Shmem):\s*(\d+)", status)))

    def watch() -> None:
        highest = before = resident()
        begun.set()
        while not ended.wait(0.001):
            highest = max(highest, resident())
        growth.append(highest - before)

    watching = threading.Thread(target=watch)
    watching.start()
    begun.wait()
    try:
        yield growth
    finally:
        ended.set()
        watching.join()


@pytest.mark.mpi(ranks=[2], alone=True)
def test_memory_is_bounded(comm, tmp_path):
    """Buffers that ranks share count on both of them."""
    path, columns = folder(comm, tmp_path) / "large.npy", Distribution((16384, 1024), (1, 2))
    array = DistributedArray(np.ones(columns.local_shape(comm.rank)), columns, comm)
    save(path, array, memory_bytes=1 << 20)  # modules are loaded
    for memory_bytes, least, most in ((4 << 20, 0, 8 << 20), (None, 24 << 20, 256 << 20)):
        with growth_of_memory() as growth:
            save(path, array, memory_bytes=memory_bytes)
        everywhere = comm.allgather(growth[0])
        assert least <= max(everywhere) <= most, f"{memory_bytes}: {everywhere}"


@pytest.mark.parametrize("form", ["npy", "safetensors"])
def test_ranks_read_short_arrays_themselves(tmp_path, form):
    """
    Columns of an array of one block are short runs, which each rank reads; those of a longer one are exchanged.

    Those of a new array are always exchanged.
    """
    needed(form)
    block = max(16384, os.stat(tmp_path).st_blksize)
    for count in (block, 2 * block):
        path, columns = tmp_path / f"a.{form}", Distribution((count // 64, 64), (1, 2))
        write(path, np.zeros(columns.shape, "u1"))
        with contextlib.closing(format_of(path)[1].open_array(str(path), None)) as stored:
            assert (pieces.Selection.of(stored.layout).own_box(columns, 0) is not None) == (count == block)
        with contextlib.ExitStack() as files:
            layout = Layout(columns.shape, np.dtype("u1"), (1, 1))
            (new,) = format_of(path)[1].create(str(path), {None: layout}, {None: {}}, files)
            assert pieces.Selection.of(new.layout).own_box(columns, 0) is None


def test_space_is_set_aside(tmp_path):
    """What a file has stays; a device, or a file system that cannot, is no error."""
    with open(tmp_path / "a", "w+b", buffering=0) as file:
        file.write(b"ab")
        if not _core.reserve(file.fileno(), 1, 1 << 20):
            pytest.skip("needs a file system with fallocate")
        facts = os.fstat(file.fileno())
        assert (facts.st_size, os.pread(file.fileno(), 3, 0)) == (1 + (1 << 20), b"ab\0") and facts.st_blocks >= 2048
        with pytest.raises(OSError, match="File too large"):
            _core.reserve(file.fileno(), 1, (1 << 63) - 2)
    with open("/dev/null", "wb") as device:
        assert not _core.reserve(device.fileno(), 0, 8)

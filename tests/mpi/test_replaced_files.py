"""Names of arrays in files, and new files in place of old ones: random cases, with failures at each step."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import launch
from seeds import seed, some

from dace_redist import DistributedArray, Distribution, inspect_file, load, save
from dace_redist.io.pieces import Selection
from dace_redist.io.stored import format_of

h5py, zarr = pytest.importorskip("h5py"), pytest.importorskip("zarr")
safetensors = pytest.importorskip("safetensors.numpy")
LETTERS = np.array(["x", "/", ".", "\\", "\0", "\n", " ", "ä"])
CHANCES = [0.58, 0.18, *[0.04] * 6]
SHAPE = 64, 64
FORMS = ("npy", "h5", "zarr", "safetensors", "")


def contents(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a file, by the package of its format."""
    if path.suffix == ".npy":
        return {"": np.load(path)}
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            names: list[str] = []
            file.visit(names.append)
            return {name: file[name][()] for name in names if isinstance(file[name], h5py.Dataset)}
    if path.suffix == ".safetensors":
        return dict(safetensors.load_file(path))
    if path.suffix == ".zarr":
        root = zarr.open(path, mode="r")
        members = [("", root)] if isinstance(root, zarr.Array) else root.members(None)
        return {name: item[...] for name, item in members if isinstance(item, zarr.Array)}
    return {file.relative_to(path).as_posix()[:-4]: np.load(file) for file in path.rglob("*.npy")}


def array(comm: Any, value: float) -> DistributedArray:
    """Return an array that compression hardly makes smaller, with a first element."""
    rows = Distribution(SHAPE, (comm.size,))
    whole = np.random.default_rng(int(abs(value))).random(SHAPE)
    whole[0, 0] = value
    return DistributedArray(rows.local(whole, comm.rank), rows, comm)


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[2], timeout=300)
@pytest.mark.parametrize("form", FORMS[1:])
def test_random_names(comm, tmp_path, form):
    """Names are refused before anything is written, or `inspect_file`, `load` and the format's package find them."""
    done, draws = 0, some(40)
    for number in range(draws):
        rng = np.random.default_rng([seed(), number, len(form)])
        base = Path(comm.bcast(tmp_path)) / str(number)
        path = base / Path("store").with_suffix(f".{form}" if form else "")
        names = ["".join(rng.choice(LETTERS, rng.integers(1, 6), p=CHANCES)) for _ in range(rng.integers(1, 4))]
        base.mkdir(exist_ok=True)
        comm.barrier()
        save(path, {"old": array(comm, -1)})
        arrays, error, wanted = {name: array(comm, k) for k, name in enumerate(names)}, None, {"old": -1}
        try:
            save(path, arrays)
            wanted |= {name.removeprefix("/"): k for k, name in enumerate(names)}
            done += 1
        except ValueError as failure:
            error = failure
        text = f"{number} {names!r} {error!r}"
        found = {name: one[0, 0] for name, one in contents(path).items()}
        assert found == wanted and {*inspect_file(path)} == {*wanted}, text
        assert len(wanted) == 1 + (0 if error else len(arrays)) and os.listdir(base) == [path.name], text
        for name, one in arrays.items() if error is None else ():
            assert np.array_equal(load(path, one.distribution, comm=comm, name=name).local, one.local), text
        comm.barrier()
    assert draws < 20 or 0 < done < draws


def test_objects_that_cannot_be_read_hide_no_array(tmp_path):
    whole, none = np.ones((3, 2)), np.dtype([("a", h5py.string_dtype())])
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file["x"], file["g/y"], file["empty"], file["type"] = whole, whole, h5py.Empty("f8"), np.dtype("f4")
        for number, kind in enumerate((h5py.vlen_dtype("i4"), h5py.ref_dtype, h5py.regionref_dtype, none)):
            file.create_dataset(f"of {number}", (3,), kind)
        h5py.h5d.create(file.id, b"time", h5py.h5t.UNIX_D32LE, h5py.h5s.create_simple((3,)))
        file["nowhere"], file["loop"], file["g/up"] = h5py.SoftLink("/none"), h5py.SoftLink("/loop"), file["/"]
        file["../z"] = whole
    for version in (2, 3):
        store = zarr.open_group(tmp_path / f"{version}.zarr", mode="w", zarr_format=version)
        for name in ("x", "g/y", "bad"):
            store.create_array(name, data=whole)
        metadata = tmp_path / f"{version}.zarr/bad" / (".zarray" if version == 2 else "zarr.json")
        metadata.write_text(metadata.read_text().replace("<f8", "odd").replace("float64", "odd"))
    for name in ("x", "g/y", ".hidden/z"):
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / "folder" / name, whole)
    np.save(tmp_path / "folder" / "objects", np.array([None]))
    (tmp_path / "folder" / "none.npy").mkdir()
    for path in (tmp_path / "a.nc", tmp_path / "2.zarr", tmp_path / "3.zarr", tmp_path / "folder"):
        assert {*inspect_file(path)} == {"x", "g/y"}, path
    (tmp_path / "classic.nc").write_bytes(b"CDF\x01" + bytes(28))
    with pytest.raises(ValueError, match="classic.nc.*not netCDF-3: nccopy"):
        inspect_file(tmp_path / "classic.nc")


def stopping(form: Any, step: str, act: Callable[[], None]) -> contextlib.ExitStack:
    """Do something at a step of :func:`save`, on this rank: after ``create``, else before."""
    module = form if inspect.ismodule(form) else type(form)
    patch, create, transfer, open_new = pytest.MonkeyPatch(), module.create, Selection.transfer, module.open_new

    def created(*arguments: Any) -> Any:
        made = create(*arguments)
        act() if step == "create" else None
        return [dataclasses.replace(new, commit=committed(new.commit)) for new in made]

    def committed(commit: Any) -> Any:
        return commit and (lambda: (act() if step == "commit" else None, commit()))

    patch.setattr(module, "create", created)
    opened = staticmethod(lambda new: (act() if step == "open" else None, open_new(new))[1])
    patch.setattr(module, "open_new", opened)
    patch.setattr(Selection, "transfer", lambda *a: (act() if step == "transfer" else None, transfer(*a))[1])
    stack = contextlib.ExitStack()
    stack.callback(patch.undo)
    return stack


def replaceable(base: Path, form: str, kind: str, mode: int) -> Path:
    """Make an old file, or what may be in its place; return the file."""
    name = "ä" * 121 + "a" if kind == "long" else "a"
    file = base / f"{name}.{form or 'npy'}"
    real = base / f"real{file.suffix}"
    if kind in ("dangling", "link"):
        file.symlink_to(real.name)
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "device":
        os.mknod(file, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    elif kind != "dangling":
        whole, old = np.full(SHAPE, -1.0), real if kind == "link" else file
        if form == "h5":
            with h5py.File(old, "w") as made:
                made["data"] = whole
        elif form == "zarr":
            zarr.create_array(old, data=whole)
        elif form == "safetensors":
            safetensors.save_file({"data": whole}, old)
        else:
            np.save(old, whole)
        file.chmod(mode | (0o700 if form == "zarr" else 0))
        if kind == "owner":
            os.chown(file, 12345, 23456)
    return file


def facts(file: Path) -> list[Any]:
    """Return mode and owner of a file, of the link to it, and the names beside it."""
    found = [os.lstat(file)] + ([os.stat(file)] if file.exists() else [])
    return [[(one.st_mode, one.st_uid, one.st_gid) for one in found], sorted(os.listdir(file.parent))]


def failing(base: Path, allowed: int, step: str) -> None:
    """Check the modes of new files, and fail."""
    for made in base.glob(".*.tmp"):
        assert made.stat().st_mode & ~allowed == 0, made
    if step:
        raise OSError(f"no {step}")


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[2], timeout=300)
def test_random_failures(comm, tmp_path):
    """A save that fails leaves all as it was, one that does not replaces the array alone; private files stay so."""
    kinds = ["file", "file", "link", "dangling", "long", "pipe", *(["owner", "device"] if os.getuid() == 0 else [])]
    limits, failures = resource.getrlimit(resource.RLIMIT_FSIZE), 0
    for number in range(some(60)):
        rng = np.random.default_rng([seed(), number])
        kind, form, mode = str(rng.choice(kinds)), str(rng.choice(FORMS)), int(rng.choice([0o600, 0o640, 0o666]))
        step = str(rng.choice(["", "full", "create", "open", "transfer", "commit"]))
        how = [{}, {"chunks": (32, 64)}][rng.integers(2)] if form in ("h5", "zarr") else {}
        base, rank = Path(comm.bcast(tmp_path)) / str(number), int(rng.integers(comm.size))
        if comm.rank == 0:
            base.mkdir()
            replaceable(base, form, kind, mode)
        comm.barrier()
        file = next(one for one in base.iterdir() if not one.name.startswith("real"))
        path, name = (file, None) if form else (base, file.stem)
        before, new, error = facts(file), array(comm, number), None
        comm.barrier()
        allowed = 0o177777 if kind == "dangling" else before[0][-1][0]
        fails = step not in ("", "full") and comm.rank == (0 if step in ("create", "commit") else rank)
        act = functools.partial(failing, base, allowed, step if fails else "")
        if step == "full":
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
        try:
            with stopping(format_of(path)[1], step or "transfer", act):
                save(path, new, name=name, **how)
        except (OSError, RuntimeError, ValueError) as failure:
            error = failure
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        text, failures = f"{number} {kind} {form} {oct(mode)} {step} {rank}: {error!r}", failures + (error is not None)
        assert len({one is None for one in comm.allgather(error)}) == 1, text
        if kind in ("pipe", "device"):
            assert error is not None, text
        elif step not in ("open", "transfer"):  # one rank may be enough
            assert (error is None) == (step == ""), text
        after = facts(file)
        if error is None and kind == "dangling":
            assert stat.S_ISLNK(after[0][0][0]) and after[1] == sorted([file.name, f"real{file.suffix}"]), text
        else:
            assert after == before, text
        if kind not in ("pipe", "device", "dangling") or error is None:
            (found,) = contents(file).values()
            assert np.array_equal(found, np.full(SHAPE, -1.0) if error else new.allgather()), text
        comm.barrier()
    assert failures


KILLED = """
import os, signal, sys
sys.path[:0] = [{tests!r}, {here!r}]
from test_replaced_files import array, format_of, save, stopping
from mpi4py import MPI
path, step, calls = sys.argv[1], sys.argv[2], int(sys.argv[3])
for value in (1, 2):
    left = [calls if value == 2 else -1]
    def act():
        left[0] -= 1
        if left[0] == 0: os.kill(os.getpid(), signal.SIGKILL)
    with stopping(format_of(path)[1], step, act):
        save(path, {{"a": array(MPI.COMM_SELF, value), "b": array(MPI.COMM_SELF, value)}})
"""


@pytest.mark.fuzz
@pytest.mark.parametrize("form", FORMS[1:])
def test_killed_saves(tmp_path, form):
    """Each array is the old one or the new one; what is left has the name that the manual says."""
    for number in range(max(1, some(3))):
        rng = np.random.default_rng([seed(), number, len(form)])
        path = tmp_path / str(number) / Path("store").with_suffix(f".{form}" if form else "")
        path.parent.mkdir()
        step, calls = str(rng.choice(["create", "open", "transfer", "commit"])), str(rng.integers(1, 3))
        code = KILLED.format(tests=str(Path(__file__).parents[1]), here=str(Path(__file__).parent))
        launch(1, [sys.executable, "-c", code, str(path), step, calls], 60)
        found = contents(path)
        assert {*found} == {"a", "b"} and {one[0, 0] for one in found.values()} <= {1, 2}, (step, found)
        assert form not in ("h5", "safetensors") or np.array_equal(found["a"], found["b"])
        subprocess.run(["find", path.parent, "-name", ".*.tmp", "-prune", "-exec", "rm", "-r", "{}", "+"], check=True)
        assert os.listdir(path.parent) == [path.name] and not [*path.rglob(".*.tmp")]

"""``save`` in files that other programs write: what it is not asked to change stays, and all ranks do the same."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seeds import seed, some

from dace_redist import DistributedArray, Distribution, save

h5py, zarr = pytest.importorskip("h5py"), pytest.importorskip("zarr")
safetensors = pytest.importorskip("safetensors.numpy")
NAMES = ("a", "b", "g", "g/a", "g/h", "g/h/a", "a/x", "l", "l/a", "g/new/b")
SHAPES, TYPES = ((4,), (6,), (3, 2)), ("f8", "i4")


class Hdf5:
    """Files that h5py writes."""

    path = "run.h5"
    other = "chunks"

    def write(self, path: Path, rng: Any) -> None:
        """Change something, as far as it is possible."""
        name, other, shape = (rng.choice(NAMES), rng.choice(NAMES), SHAPES[rng.integers(3)])
        whole, storage = rng.integers(0, 99, shape).astype(rng.choice(TYPES)), rng.integers(5)
        how = [{}, {"chunks": (2,) * len(shape), "compression": "gzip"}, {"fillvalue": 7}]
        how += [{"maxshape": (None,) * len(shape)}, {"external": str(path.with_name("raw.bin"))}]
        with (
            h5py.File(path, "a") as file,
            contextlib.suppress(LookupError, ValueError, TypeError, AttributeError, RuntimeError, OSError),
        ):
            match rng.integers(10):
                case 0:
                    file[name] = h5py.SoftLink(f"/{other}")
                case 1:
                    file[name] = h5py.ExternalLink("other.h5", f"/{other}")
                case 2:
                    file[name] = file[other]
                case 3:
                    file[name].make_scale(name)
                    file[other].dims[0].attach_scale(file[name])
                case 4 | 5:
                    values = {"units": "m", "x": whole, "none": h5py.Empty("f4"), "to": file.ref}
                    file[name].attrs.update(values)
                case _:
                    file.create_dataset(name, data=whole, **how[storage])

    def contents(self, path: Path) -> dict[str, Any]:
        """Return facts of each link, the values apart."""
        found: dict[str, Any] = {}
        with h5py.File(path) as file:
            names = ["/"]
            file.visit_links(names.append)
            links = {name: file.get(name, getlink=True) for name in names[1:]}
            hard = ["/", *(name for name, link in links.items() if isinstance(link, h5py.HardLink))]
            found.update((name, (vars(links[name]), None, None)) for name in {*names} - {*hard})
            for name in hard:
                item = file[name]
                values = {key: item.attrs[key] for key in item.attrs if not key.endswith("_LIST")}
                values = {key: file[one].name if key == "to" else repr(one) for key, one in values.items()}
                same = [other for other in hard if file[other] == item]
                if isinstance(item, h5py.Dataset):
                    scales = [(axis, scale.name) for axis, of in enumerate(item.dims) for scale in of.values()]
                    kind = [str(item.dtype), item.shape, item.chunks, item.compression, item.maxshape, item.fillvalue]
                    found[name] = (values, same, scales, item.is_scale), kind, item[()].tolist()
                else:
                    found[name] = (values, same), None, None
        return found

    def array(self, path: Path, name: str) -> Any:
        with h5py.File(path) as file:
            return file[name][()]


class Zarr:
    """Stores that zarr writes."""

    path = "run.zarr"
    other = "chunks"

    def __init__(self, version: int) -> None:
        self.version = version

    def write(self, path: Path, rng: Any) -> None:
        name, shape = rng.choice(NAMES), SHAPES[rng.integers(3)]
        whole = rng.integers(0, 99, shape).astype(rng.choice(TYPES))
        group = zarr.open_group(path, mode="a", zarr_format=self.version, use_consolidated=False)
        below = any(isinstance(group.get(str(above)), zarr.Array) for above in [*Path(name).parents][:-1])
        with contextlib.suppress(LookupError, ValueError, TypeError, OSError):
            match rng.integers(6):
                case 0:
                    zarr.consolidate_metadata(path / rng.choice(["", "g"]))
                case 1 | 2:
                    group[name].attrs.update({"units": "m", "x": whole.tolist()})
                case _ if not below:
                    how = {"dimension_names": list("xy"[: whole.ndim])} if self.version == 3 else {}
                    chunks = (2,) * whole.ndim
                    group.create_array(name, data=whole, chunks=chunks, attributes={"u": 1}, fill_value=7, **how)

    def _items(self, path: Path, name: str) -> Iterator[tuple[str, Any]]:
        """Yield a group and all in it, without consolidated metadata, which other programs leave as it was."""
        group = zarr.open_group(path / name, mode="r", use_consolidated=False)
        yield name or "/", group
        for below, item in group.members():
            if isinstance(item, zarr.Array):
                yield f"{name}/{below}".lstrip("/"), item
            else:
                yield from self._items(path, f"{name}/{below}".lstrip("/"))

    def contents(self, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, item in self._items(path, ""):
            array = isinstance(item, zarr.Array)
            kind = {key: one for key, one in item.metadata.to_dict().items() if key != "attributes"} if array else {}
            found[name] = item.attrs.asdict(), str(kind), item[...].tolist() if array else None
        return found

    def array(self, path: Path, name: str) -> Any:
        for above in Path(name).parents:  # whose consolidated metadata is renewed, if there is any
            group = zarr.open_group(path / above, mode="r")
            assert Path(name).relative_to(above).as_posix() in dict(group.members(None)), above
        return group[name][...]


class Safetensors:
    """Files that the package safetensors writes."""

    path = "run.safetensors"
    other = None

    def write(self, path: Path, rng: Any) -> None:
        tensors = safetensors.load_file(path) if path.exists() else {}
        whole = rng.integers(0, 99, SHAPES[rng.integers(3)]).astype(rng.choice(TYPES))
        tensors[str(rng.choice(NAMES))] = whole
        safetensors.save_file(tensors, path, metadata={"x": str(whole)} if rng.integers(2) else None)

    def contents(self, path: Path) -> dict[str, Any]:
        with safetensors.safe_open(path, framework="np") as file:
            found = {"/": (file.metadata(), None, None)}
            return found | {name: (None, str(one.dtype), one.tolist()) for name, one in file.get_tensors().items()}

    def array(self, path: Path, name: str) -> Any:
        return safetensors.load_file(path)[name]


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[2], timeout=300)
@pytest.mark.parametrize("kind", ["hdf5", "zarr2", "zarr3", "safetensors"])
def test_random_writes(comm, tmp_path, kind):
    own = {"hdf5": Hdf5, "safetensors": Safetensors}.get(kind, lambda: Zarr(int(kind[-1])))()
    warnings.simplefilter("ignore")  # of consolidated metadata
    saves = done = 0
    for number in range(some(100)):
        rng = np.random.default_rng([seed(), number])
        path = Path(comm.bcast(tmp_path)) / str(number) / own.path
        for _ in range(3):
            if comm.rank == 0:
                path.parent.mkdir(exist_ok=True)
                own.write(path.with_name("other.h5"), rng) if kind == "hdf5" else None
                for _ in range(3):
                    own.write(path, rng)
                before = own.contents(path), sorted(path.parent.iterdir())
            rng = np.random.default_rng(comm.bcast(int(rng.integers(1 << 30)) if comm.rank == 0 else None))
            name, shape = str(rng.choice(NAMES)), SHAPES[rng.integers(3)]
            whole = rng.integers(0, 99, shape).astype(rng.choice(TYPES))
            how = {own.other: (2,) * len(shape)} if own.other and rng.random() < 0.2 else {}
            rows, error = Distribution(shape, (2, *[1] * (len(shape) - 1))), None
            try:
                save(path, DistributedArray(rows.local(whole, comm.rank), rows, comm), name=name, **how)
            except (ValueError, RuntimeError) as failure:
                assert isinstance(failure, ValueError) or "too many links" in str(failure), failure
                error = failure
            assert len({one is None for one in comm.allgather(error)}) == 1
            saves, done = saves + 1, done + (error is None)
            if comm.rank == 0:
                assert sorted(path.parent.iterdir()) == before[1], name
                check(own, path, before[0], name, whole, how, error)
    assert done > saves / 3


def check(own: Any, path: Path, before: dict[str, Any], name: str, whole: Any, how: Any, error: Any) -> None:
    """Check that only an array changed, or nothing."""
    after, text = own.contents(path), f"{path} {name} {error}"
    if error is not None:
        assert after == before, text
        return
    assert np.array_equal(own.array(path, name), whole), text
    changed = [key for key in before if before[key] != after.get(key)]
    assert {key: before[key][0] for key in changed} == {key: after[key][0] for key in changed}, text
    assert all(after[key][2] == whole.tolist() for key in changed), text
    if not how:  # else, and for another shape or type, the array is stored as asked for
        for kind, stored in (before[key][1:3] for key in changed if before[key][1] != after[key][1]):
            assert np.shape(stored) != whole.shape or str(whole.dtype) not in str(kind), text

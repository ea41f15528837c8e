"""Several arrays of one file by name, against the whole arrays, and the information on a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dace_redist import DistributedArray, Distribution, inspect_file, load, save

SHAPE = (7, 8, 3)
NAMES = ("flow/v", "flow/w", "u")


@pytest.mark.mpi(ranks=[3], timeout=120)
@pytest.mark.parametrize("file", ["run.h5", "run.zarr", "run.safetensors", "run"])
def test_arrays_by_name(comm, tmp_path, file):
    if file in ("run.h5", "run.zarr"):
        pytest.importorskip({"run.h5": "h5py", "run.zarr": "zarr"}[file])
    path = Path(comm.bcast(tmp_path)) / file
    wholes = {name: np.random.default_rng(i).random(SHAPE) for i, name in enumerate(NAMES)}
    rows, cyclic = Distribution(SHAPE, (3, 1)), Distribution.block_cyclic(SHAPE, (1, 3, 1), 2)
    save(path, {name: DistributedArray(rows.local(whole, comm.rank), rows, comm) for name, whole in wholes.items()})
    found = load(path, dict.fromkeys(NAMES, cyclic), comm=comm)
    assert {name: (*info,) for name, info in inspect_file(path).items()} == dict.fromkeys(NAMES, (SHAPE, np.float64))
    for name, whole in wholes.items():
        np.testing.assert_array_equal(found[name].local, cyclic.local(whole, comm.rank))

    save(path, {"u": found["flow/v"], "flow/v": found["u"]})  # flow/w stays
    wholes["u"], wholes["flow/v"] = wholes["flow/v"], wholes["u"]
    for names in (None, ["u", "flow/w"]):
        found = load(path, lambda name, shape: Distribution(shape, (1, 3)), names=names, comm=comm)
        assert set(found) == set(names or NAMES)
        for name, array in found.items():
            np.testing.assert_array_equal(array.local, array.distribution.local(wholes[name], comm.rank))

    u, odd, flat = found["u"], comm.rank == 1, Distribution(SHAPE[:2], (3,))
    for call, kind, message in [
        (lambda: load(path, {"u": flat}, comm=comm), ValueError, "target of 'u' must have the shape"),
        (lambda: load(path, {"u": rows, "q": rows}, comm=comm), ValueError, "name must be one of the .*flow/v, flow/w"),
        (lambda: load(path, {"u": rows, NAMES[odd]: rows}, comm=comm), ValueError, "the ranks differ in name"),
        (lambda: load(path, {"u": rows}, name="u", comm=comm), ValueError, "name is for one array"),
        (lambda: load(path, {"u": rows}, names=["u"], comm=comm), ValueError, "names are for a function"),
        (lambda: load(path, lambda *_: rows, names=["q"], comm=comm), ValueError, "names must be some of the arrays"),
        (lambda: load(path, lambda *_: 3 if odd else rows, comm=comm), TypeError, "must be a Distribution"),
        (lambda: save(path, {}), ValueError, "array must have names"),
        (lambda: save(path, {"u": u, "x": 3 if odd else u}), TypeError, "must be a DistributedArray, got int"),
        (lambda: save(path, {"u": u, f"x{odd}": u}), ValueError, "the ranks differ in name"),
        (lambda: save(path, {"u": u, "u/below": u}), (ValueError, OSError, RuntimeError), ""),
    ]:
        if file == "run" and message == "":
            continue  # u.npy and the folder u may be neighbours
        with pytest.raises(kind, match=message):
            call()
        comm.barrier()
        assert set(inspect_file(path)) == set(NAMES)
        assert not [*path.parent.rglob(".*.tmp")]
        comm.barrier()


def test_a_file_with_one_array_has_no_names(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 3), ">f4", order="F"))
    assert inspect_file(tmp_path / "a.npy") == {None: ((2, 3), np.dtype("f4"))}
    with pytest.raises(OSError, match="b.npy"):
        inspect_file(tmp_path / "b.npy")
    with pytest.raises(ValueError, match=r"must end in one of .npy, .h5, .* that of a folder in none"):
        inspect_file(tmp_path / "b.txt")

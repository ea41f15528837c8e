"""Whole arrays of a call of a distributed program: written in place, or an error; equal on all ranks, or an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builds import planned

pytestmark = [pytest.mark.compile, pytest.mark.dace]


class Subclass(np.ndarray):
    pass


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


#: Arrays to write in place, made of one of float64, and True for those that can hold every result.
IN_PLACE: dict[str, tuple[Any, bool]] = {
    "ndarray": (np.copy, True),
    "big-endian": (lambda x: x.astype(">f8"), True),
    "subclass": (lambda x: x.copy().view(Subclass), True),
    "not contiguous": (lambda x: np.repeat(x, 2)[::2], True),
    "backwards": (lambda x: x[::-1].copy()[::-1], True),
    **{name: (lambda x, name=name: x.astype(name), False) for name in ("int64", "float32", "longdouble", "complex128")},
    **{"list": (list, False), "tuple": (tuple, False), "read-only": (lambda x: read_only(x.copy()), False)},
    "masked": (lambda x: np.ma.masked_greater(x, 4), False),
}


@pytest.mark.mpi(ranks=[2], timeout=300)
def test_arrays_in_place_and_whole_arrays_of_all_ranks(comm):
    """Names are those of macros and functions of C++; one argument is unused."""
    from programs.einsums import odd_names

    program = planned(comm, odd_names, {})
    x = np.arange(6.0)
    given = {"errno": x / 6, "unused": x[:2], "linux": 2.0, "_in": x * 3}
    expected = np.exp(x / 6) * 2 - (x * 3.5)
    for name, (make, fits) in IN_PLACE.items():
        exp = make(x)
        before = np.copy(exp)
        if fits:
            result = program(*given.values(), exp) if name == "ndarray" else program(**given, exp=exp)
            assert comm.rank != 0 or (np.allclose(result, expected) and np.allclose(exp, x * 3.5)), name
        else:
            with pytest.raises(ValueError, match="writes exp in place: pass a writeable NumPy array of float64"):
                program(**given, exp=exp)
            assert np.array_equal(exp, before), name
    with pytest.raises(ValueError, match="exp is written in place, but shares memory with _in; pass a copy"):
        program(**given, exp=given["_in"])
    for name, value in given.items():
        other = {**given, "exp": x.copy(), name: value + comm.rank}
        if name != "unused":
            with pytest.raises(ValueError, match=f"{name} differs between ranks 0 and 1: every rank passes the same"):
                program(**other)
            program(**{**other, name: other[name] if comm.rank == 1 else None})
    local = program.scatter(**given, exp=x)
    with pytest.raises(ValueError, match=r"the ranks differ in linux: \[2.0\] on rank 0 and \[3.0\] on rank 1"):
        program.run(**{**local, "linux": 2 + comm.rank})

"""Einsums of distributed arrays: random ones against NumPy, errors on every rank, what a user prints."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from cases import DTYPES, LAYOUTS, local_array, values
from distributions import distributions, same_on_all_ranks, with_margins
from hypothesis import given
from hypothesis import strategies as st

from dace_redist import DistributedArray, Distribution, einsum

LETTERS = "ijklmn"
#: Products of float16 overflow soon.
TYPES = [dtype for dtype in DTYPES if dtype != "float16"]


@st.composite
def operands_of(draw: st.DrawFn, ranks: int) -> dict[str, Any]:
    """Draw an expression, and shape, type, distribution and reduction of each operand; a number has none of these."""
    extents = {letter: draw(st.sampled_from([0, 1, 2, 3, 4, 5, 5, 6])) for letter in LETTERS}
    terms = draw(st.lists(st.text(LETTERS, max_size=4), min_size=1, max_size=6).filter(any))
    known = sorted(set("".join(terms)))
    result = "".join(draw(st.permutations(known))[: draw(st.integers(0, len(known)))])
    dots = draw(st.sampled_from(["", "", "..."]))
    expression = ",".join(dots + term if term else term for term in terms)
    arrow = draw(st.booleans())
    given = []
    for term in terms:
        if not term:
            given.append(values((), draw(st.sampled_from(TYPES)), draw(st.integers(0, 99)))[()])
            continue
        lead = draw(st.sampled_from([(), (3,), (1,), (2, 3)])) if dots else ()
        single = [term.count(letter) == 1 and draw(st.sampled_from([False] * 7 + [True])) for letter in term]
        shape = (*lead, *(1 if one else extents[letter] for letter, one in zip(term, single, strict=True)))
        whole = draw(with_margins(distributions(shape, ranks)))
        copies = isinstance(whole, Distribution) and not any(whole.halo)
        dtype = draw(st.sampled_from(TYPES))
        ops = [None, "sum", "sum" if "complex" in dtype else "max"] if copies else [None]
        given.append((shape, dtype, whole, draw(st.sampled_from(ops)), draw(st.integers(0, 99))))
    return {"expression": f"{expression}->{dots}{result}" if arrow else expression, "operands": given}


def whole_of(operand: Any) -> Any:
    """Return an operand as NumPy takes it."""
    if not isinstance(operand, tuple):
        return operand
    shape, dtype, whole, op, seed = operand
    made = values(shape, dtype, seed)
    times = whole.replicas if op == "sum" and dtype != "bool" else 1
    return (made * np.asarray(times).astype(dtype)).astype(dtype)


def distributed(operand: Any, comm: Any, layout: str) -> Any:
    if not isinstance(operand, tuple):
        return operand
    shape, dtype, whole, op, seed = operand
    part = whole.local(values(shape, dtype, seed), comm.rank)
    return DistributedArray(local_array(part, layout), whole, comm, op=op)


def wrong(comm: Any, found: DistributedArray, wanted: Any) -> str:
    """Describe a result that is not NumPy's; empty if it is, on all ranks."""
    whole, wanted = found.gather(), np.asarray(wanted)
    said = ""
    if comm.rank == 0:
        if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
            said = f"{found.dtype} {found.shape}, not {wanted.dtype} {wanted.shape}"
        elif not np.array_equal(whole, wanted):
            said = f"{whole}, not {wanted}"
    return str(comm.bcast(said))


@pytest.mark.fuzz
@pytest.mark.mpi_matrix
@pytest.mark.mpi(ranks=[2, 4], full=[1, 3, 8], timeout=400)
def test_random_einsums(comm):
    communicators = [comm, comm.Dup(), comm.Split(0, -comm.rank)]
    turn = itertools.count()

    @same_on_all_ranks(150, comm.size)
    @given(operands_of(comm.size), st.data())
    def check(drawn: dict[str, Any], data: st.DataObject) -> None:
        expression, operands = drawn["expression"], drawn["operands"]
        wholes = [whole_of(operand) for operand in operands]
        try:
            wanted = np.einsum(expression, *wholes)
        except ValueError:  # extents of "..." that do not fit
            wanted = None
        used = communicators[next(turn) % 3]
        layout = data.draw(st.sampled_from(LAYOUTS))
        arrays = [distributed(operand, used, layout) for operand in operands]
        if all(not isinstance(operand, tuple) for operand in operands):
            wanted = None
        if wanted is None:
            with pytest.raises((ValueError, TypeError)):
                einsum(expression, *arrays)
            return
        target = data.draw(st.one_of(st.none(), distributions(np.shape(wanted), comm.size)))
        how = {"optimize": data.draw(st.sampled_from(["auto", "greedy", False]))}
        for _ in range(2):  # planned, then by the plan
            found = einsum(expression, *arrays, target=target, **how)
            said = wrong(used, found, wanted)
            assert not said, said
        out = DistributedArray(np.full_like(found.local, 1), found.distribution, used)
        assert einsum(expression, *arrays, out=out, **how) is out
        assert not wrong(used, out, wanted)

    check()
    for made in communicators[1:]:
        made.Free()

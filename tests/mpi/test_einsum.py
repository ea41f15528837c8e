"""Einsums of distributed arrays: random ones against NumPy, errors on every rank, what a user prints."""

from __future__ import annotations

import copy
import functools
import itertools
from typing import Any

import numpy as np
import opt_einsum
import pytest
from cases import DTYPES, LAYOUTS, local_array, values
from distributions import distributions, same_on_all_ranks, with_margins
from hypothesis import given
from hypothesis import strategies as st
from seeds import seed, some

from dace_redist import DistributedArray, Distribution, einsum, einsum_plan, replicated

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
        alike = [one for one in given if isinstance(one, tuple) and one[0] == shape]
        if alike and draw(st.booleans()):  # one array twice
            given.append(draw(st.sampled_from(alike)))
            continue
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


def arguments(expression: str, operands: list[Any], lists: bool) -> list[Any]:
    """Return the arguments of ``einsum``, also in NumPy's other form: operands before lists of their indices."""
    if not lists:
        return [expression, *operands]
    left, arrow, result = expression.partition("->")
    terms = [
        [*([...] if "." in term else []), *(ord(index) - ord("a") for index in term.replace(".", ""))]
        for term in [*left.split(","), *([result] if arrow else [])]
    ]
    given = [one for pair in zip(operands, terms, strict=False) for one in pair]
    return given + terms[len(operands) :]


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
@pytest.mark.mpi(ranks=[2, 4], full=[1, 3, 8], timeout=400)
def test_random_einsums(comm):
    communicators = [comm, comm.Dup(), comm.Split(0, -comm.rank)]
    turn = itertools.count()

    @same_on_all_ranks(150, comm.size)
    @given(operands_of(comm.size), st.data())
    def check(drawn: dict[str, Any], data: st.DataObject) -> None:
        expression, operands = drawn["expression"], drawn["operands"]
        wholes = [whole_of(operand) for operand in operands]
        lists = data.draw(st.booleans())
        try:
            wanted = np.einsum(*arguments(expression, wholes, lists))
        except ValueError:  # extents of "..." that do not fit
            wanted = None
        used = communicators[next(turn) % 3]
        layout = data.draw(st.sampled_from(LAYOUTS))
        made = {id(operand): distributed(operand, used, layout) for operand in operands}
        called = arguments(expression, [made[id(operand)] for operand in operands], lists)
        if all(not isinstance(operand, tuple) for operand in operands):
            wanted = None
        if wanted is None:
            with pytest.raises((ValueError, TypeError)):
                einsum(*called)
            return
        target = data.draw(st.one_of(st.none(), with_margins(distributions(np.shape(wanted), comm.size))))
        how = {"optimize": data.draw(st.sampled_from(["auto", "greedy", False]))}
        for _ in range(2):  # planned, then by the plan
            found = einsum(*called, target=target, **how)
            said = wrong(used, found, wanted)
            assert not said, said
        out = DistributedArray(np.full_like(found.local, 1), found.distribution, used)
        assert einsum(*called, out=out, **how) is out
        assert not wrong(used, out, wanted)

    check()
    for made in communicators[1:]:
        made.Free()


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[2, 4], full=[3])
def test_random_block_cyclic_einsums(comm):
    """Axes that are dealt out alike, or not, also of one array under two indices."""
    rng = np.random.default_rng([seed(), comm.size])
    grids = [(comm.size, 1), (1, comm.size), *([(2, 2)] if comm.size == 4 else [])]
    expressions = (
        "ij,jk->ik ij,kj->ik ij,ji-> ij,jk,kl->il ii->i ij->ji ij,ij->ij ij,j->i ii,ij->ij ij->j ij,ik->jk ij,kj->i"
    )
    for number in range(some(200)):
        expression, size = str(rng.choice(expressions.split())), int(rng.choice([16, 24, 30, 32]))
        operands, result = expression.split("->")

        def drawn(axes: int, size: int = size) -> Distribution:
            if axes == 0:
                return Distribution((), (comm.size,))
            block, grid = int(rng.choice([2, 4, 4])), grids[rng.integers(len(grids))] if axes == 2 else (comm.size,)
            return Distribution((size,) * axes, grid, dims=rng.permutation(axes).tolist(), block=[block] * axes)

        one, alike, twice = drawn(2), rng.integers(2), rng.integers(3) == 0
        sides = [one if alike and len(term) == 2 else drawn(len(term)) for term in (*operands.split(","), result)]
        wholes = [rng.integers(-3, 4, side.shape).astype(float) for side in sides[:-1]]
        pairs = zip(sides[:-1], wholes, strict=True)
        arrays = [DistributedArray(side.local(whole, comm.rank), side, comm) for side, whole in pairs]
        if twice and all(len(term) == 2 for term in operands.split(",")):
            wholes, arrays = [wholes[0]] * len(wholes), [arrays[0]] * len(arrays)
        found = einsum(expression, *arrays, target=sides[-1] if rng.integers(4) else None)
        assert not wrong(comm, found, np.einsum(expression, *wholes)), f"{number}: {expression} of {sides}"


@pytest.mark.mpi(ranks=[2])
def test_axes_that_are_dealt_alike_are_not_moved(comm):
    """A product of block-cyclic matrices has the bytes of one of blocks; a target of other parts costs more."""
    blocks, cyclic, other = (Distribution((64, 64), (2, 1), block=[length, 64]) for length in (32, 4, 8))
    numbers = [
        einsum_plan("ij,jk->ik", left, right, target=left, dtype="f8", comm=comm).bytes_per_rank
        for left, right in ((blocks, blocks), (cyclic, cyclic), (cyclic, other))
    ]
    mixed = einsum_plan("ij,kj->ik", cyclic, cyclic, target=blocks, dtype="f8", comm=comm).bytes_per_rank
    assert numbers[0] == numbers[1] == numbers[2] < mixed


@pytest.mark.mpi(ranks=[1, 2])
def test_both_halves_of_a_gram_matrix_are_equal(comm):
    values = np.random.default_rng(3).standard_normal((500, 40))
    rows = Distribution.split((500, 40), 0, comm.size)
    array = DistributedArray(rows.local(values, comm.rank), rows, comm)
    found = einsum("ij,ik->jk", array, array).gather()
    if comm.rank == 0:
        np.testing.assert_allclose(found, values.T @ values, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(found, found.T)


@pytest.mark.mpi(ranks=[1, 3])
def test_more_indices_than_letters(comm):
    """A chain of 150 products, as text and as lists; diagonals; not all in one step."""
    factors = [(np.arange(16).reshape(4, 4) * number % 3 - 1).astype("i8") for number in range(1, 151)]
    rows = Distribution.split((4, 4), 0, comm.size)
    arrays = [DistributedArray(rows.local(factor, comm.rank), rows, comm) for factor in factors]
    names = [opt_einsum.get_symbol(number) for number in range(200)]
    wanted = functools.reduce(np.matmul, factors)
    text = ",".join(names[number] + names[number + 1] for number in range(150)) + "->" + names[0] + names[150]
    lists = [one for number, array in enumerate(arrays) for one in (array, [number, number + 1])]
    for found in (einsum(text, *arrays), einsum(*lists, [0, 150], optimize="greedy")):
        assert not wrong(comm, found, wanted)
    assert not wrong(comm, einsum("ÀÀ->À", arrays[0]), np.diag(factors[0]))
    with pytest.raises(ValueError, match="a step of its path has 151 indices, expected at most 52: leave optimize"):
        einsum(text, *arrays, optimize=False)


ROWS = Distribution.split((6, 8), 0, 2)


def indices(*index: Any) -> Any:
    return sum(10**axis * values for axis, values in enumerate(reversed(index)))


@pytest.mark.mpi(ranks=2)
def test_arguments_of_calls(comm):
    x = DistributedArray.from_function(indices, ROWS)
    whole = x.allgather()
    np.testing.assert_array_equal(whole, indices(*np.indices((6, 8))))
    assert einsum("ij->ij", x, out=x) is x and np.array_equal(x.allgather(), whole)
    vector = np.arange(8.0)
    assert np.array_equal(einsum("ij,j->i", x, replicated(vector)).allgather(), whole @ vector)
    path = np.einsum_path("ij,kj,lj->ikl", whole, whole, whole)[0]
    wanted = np.einsum("ij,kj,lj->ikl", whole, whole, whole)
    random = opt_einsum.RandomGreedy(max_repeats=4)
    for optimize in (path, "dp", False, True, ("greedy", 1000), random, random):
        np.testing.assert_allclose(einsum("ij,kj,lj->ikl", x, x, x, optimize=optimize).allgather(), wanted)
    for options in ({"memory_bytes": 10_000}, {"overrides": {"i": 2}}, {"strategy": "Pack", "max_message_bytes": 40}):
        for _ in range(2):
            np.testing.assert_array_equal(einsum("ij,kj->ik", x, x, **options).allgather(), whole @ whole.T)
    out = np.zeros_like(x.local)
    for _ in range(2):
        assert einsum(",ij->ij", 2, x, out=out, target=ROWS).local is out and np.array_equal(out, 2 * x.local)
    half = DistributedArray.full(ROWS, 0.5, "f2")
    assert einsum("ij->i", half).dtype == np.float16 and np.all(einsum("ij->i", half).local == 4)
    column = DistributedArray.from_function(indices, Distribution.split((6, 1), 0, 2))
    for expression in ("ij,ij->ij", "ij,jk->ik", "ij,ji->ij"):  # one array twice, with equal and with other axes
        wanted = np.einsum(expression, column.allgather(), column.allgather())
        np.testing.assert_array_equal(einsum(expression, column, column).allgather(), wanted)
    for number in (2, -1.5, np.float64(3)):  # by one plan for each type
        assert np.array_equal(einsum(",ij->ij", number, x).allgather(), number * whole)
    with einsum_plan("ij,,kj->ik", ROWS, None, x, dtype="f8", comm=comm) as plan:
        for operands in ((x, 2, x), (x.local, 2, x.local)):
            np.testing.assert_array_equal(plan(*operands).allgather(), 2 * whole @ whole.T)
        assert plan.distribution.shape == (6, 6) and "move" in str(plan) and plan.to_json()["moves"]
        with pytest.raises(ValueError, match="the plan takes 3 operands, got 2"):
            plan(x, 2)
        with pytest.raises(TypeError, match="a plan cannot be copied"):
            copy.copy(plan)
        with pytest.raises(TypeError, match="operand 2 must be as planned"):
            plan(x, 2, DistributedArray.zeros(ROWS, "f4"))
        out = np.zeros(plan.distribution.local_shape(comm.rank))
        assert plan(x, 2, x, out=out).local is out
    plan = einsum_plan("ij->ij", half)
    assert plan(half, out=half) is half
    plan.free()
    with pytest.raises(ValueError, match="this plan was freed"):
        plan(half)


@pytest.mark.mpi(ranks=2)
def test_plans_end_with_their_communicator(comm):
    """Those that were not used for longest are freed before; a call makes them again."""
    x = DistributedArray.from_function(indices, ROWS, comm=comm.Dup())
    for times in range(70):
        assert einsum("ij->i", x, overrides={"i": 1 + times % 2}, max_message_bytes=1000 + times).shape == (6,)
    assert np.array_equal(einsum("ij->i", x, max_message_bytes=1000).allgather(), x.allgather().sum(axis=1))
    x.comm.Free()
    with pytest.raises(TypeError, match="comm must be an mpi4py intra-communicator"):
        einsum("ij->i", x)

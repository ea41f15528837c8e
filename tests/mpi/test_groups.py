"""Redistribution between the groups of intercommunicators, against the parts of whole arrays."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from distributions import some_distribution
from launching import launch, skip_without_spawn
from seeds import seed, some

import dace_redist
from dace_redist import Distribution, RedistributionError, redistribute

#: Program of both groups, which mpiexec starts or the first of which spawns the second.
PROGRAM = Path(__file__).parents[1] / "coupled_program.py"
SHAPE = (6, 8)


def intercommunicator(comm, ranks):
    """Return an intercommunicator of the first ranks and the others, and True in the first group."""
    first = comm.rank < ranks
    return comm.Split(0 if first else 1).Create_intercomm(0, comm, ranks if first else 0), first


def random_pairs(inter, first, count):
    """Move random arrays from and to the group that is ``first``, by each form of a call."""
    for number in range(count):
        rng = np.random.default_rng(number)
        shape = tuple(rng.integers(1, 7, rng.integers(1, 4)).tolist())
        sends = first == (number % 2 == 0)
        sizes = (inter.size, inter.remote_size)[:: 1 if sends else -1]
        source, target = (some_distribution(shape, size, rng.integers(1 << 30)) for size in sizes)
        whole = np.arange(float(np.prod(shape))).reshape(shape)
        given = source.local(whole, inter.rank) if sends else None
        results = [redistribute(given, source, target, comm=inter)]
        named = {"a": source, "b": source}, {"b": target, "a": target}
        results += (redistribute(sends and dict.fromkeys("ab", given) or None, *named, comm=inter) or {}).values()
        results += redistribute(sends and [given] or None, [source], [target], comm=inter) or []
        with dace_redist.plan(source, target, whole.dtype, comm=inter, sends=sends) as plan:
            results += [plan(given), plan.start(given).wait()]
            with plan.inverse() as back:
                again = back(None if sends else results[-1])
        expected = None if sends else target.local(whole, inter.rank)
        for result in results:
            np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(again, given)


@pytest.mark.mpi_matrix
@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[5], timeout=240)
def test_random_pairs(comm):
    inter, first = intercommunicator(comm, 2)
    random_pairs(inter, first, some(60))
    inter.Free()


def changed(rng, source, given):
    """Return random keyword arguments, the result where the receivers pass ones, and True if they have to."""
    alpha = rng.choice([1, 2.5])
    how, wanted = {"alpha": alpha}, alpha * given
    if rng.random() < 0.4:
        how |= {"beta": 3}
        wanted = wanted + 3
    elif rng.random() < 0.4:
        how |= {"region": ((0, 0), (0, 0), (2, 3))}
        wanted = np.ones_like(given)
        wanted[:2, :3] = alpha * given[:2, :3]
    elif source.replicas > 1:
        how, wanted = how | {"op": "sum"}, wanted * source.replicas
    return how | rng.choice([{}, {"strategy": "Pack"}, {"conj": True}]), wanted, bool({*how} & {"beta", "region"})


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[3], timeout=240)
def test_wrong_arguments_of_one_rank(comm):
    """Random options in both directions: the right result, or an error on every rank of both groups."""
    inter, first = intercommunicator(comm, 1)
    for number in range(some(60)):
        rng = random.Random(seed() + number)
        sends = first == rng.choice([True, False])
        sizes = (inter.size, inter.remote_size)[:: 1 if sends else -1]
        source = rng.choice([Distribution.split(SHAPE, 0, sizes[0]), Distribution.replicated(SHAPE, sizes[0])])
        target = Distribution.split(SHAPE, rng.choice([0, 1]), sizes[1])
        whole = np.arange(48.0).reshape(SHAPE)
        how, wanted, needs_out = changed(rng, source, whole)
        given = source.local(whole, inter.rank) if sends else None
        passed, planned = needs_out or rng.random() < 0.5, rng.random() < 0.5
        out = np.ones(target.local_shape(inter.rank)) if passed and not sends else None
        at_fault, fault = rng.choice([None, *range(comm.size)]), rng.choice(["array", "type", "option"])
        if at_fault == comm.rank:
            if fault == "option":
                how = how | {"nonsense": 1}
            elif sends:
                given = given[:, 1:] if fault == "array" else given.astype("f4")
            else:
                out = np.ones((1, 1)) if fault == "array" else np.ones(target.local_shape(inter.rank), "f4")
        failure = None
        try:
            if planned:
                with dace_redist.plan(source, target, "f8", comm=inter, sends=sends, **how) as move:
                    result = move(given, out)
            else:
                result = redistribute(given, source, target, comm=inter, out=out, **how)
        except Exception as error:
            failure, result = error, None
        told = comm.allgather(None if failure is None else repr(failure))
        if at_fault is None:
            assert failure is None, told
            np.testing.assert_array_equal(result, None if sends else target.local(wanted, inter.rank))
        elif fault != "type" or None not in told:  # the only array may have another type
            assert isinstance(failure, ValueError | TypeError), (number, told)
        else:
            assert {*told} == {None} and not planned, (number, told)
    inter.Free()


@pytest.mark.mpi_matrix
@pytest.mark.parametrize("how", ["spawn", "connect"])
def test_groups_that_were_spawned_or_connected(how):
    skip_without_spawn()
    code, output = launch(2 if how == "spawn" else 5, [sys.executable, str(PROGRAM), how], 200)
    assert (code, output.count("moved all")) == (0, 5), output


SPLIT, COLUMNS = Distribution(SHAPE, (2, 1)), Distribution(SHAPE, (1, 3))
NAMED = {"u": SPLIT, "v": SPLIT}, {"u": COLUMNS, "v": COLUMNS}
OTHERS = {"u": SPLIT, "w": SPLIT}, {"u": COLUMNS, "w": COLUMNS}


@pytest.mark.mpi(ranks=[5], timeout=60)
def test_bad_calls_are_errors_on_every_rank_of_both_groups(comm, monkeypatch):
    inter, first = intercommunicator(comm, 2)
    whole = np.arange(48.0).reshape(SHAPE)
    array = SPLIT.local(whole, inter.rank) if first else None
    odd = comm.rank == 3
    tall = Distribution(SHAPE, (3, 1)) if odd else COLUMNS
    ours = {"u": array, "v": array} if first else None
    for arguments, kind, message in [
        ((array if first else whole, SPLIT, COLUMNS), ValueError, "one group .* must send .*, but both do"),
        ((None, SPLIT, COLUMNS), ValueError, "one group .* must send .*, but none does"),
        ((array, SPLIT, tall), ValueError, "the ranks differ in target: "),
        ((array, SPLIT, Distribution(SHAPE, (5, 1))), ValueError, "target needs 5 ranks, but its group has 3"),
        ((whole if first else None, SPLIT, COLUMNS), ValueError, "array must have the shape"),
        (
            (ours, *(OTHERS if odd else NAMED)),
            ValueError,
            "the list of names is u, v on rank . and u, [vw] on rank .|u, w",
        ),
        ((ours, NAMED[0], (OTHERS if odd else NAMED)[1]), ValueError, "must have the names of source.*'v', 'w'"),
        ((array, SPLIT), TypeError, "between groups, both distributions are needed"),
    ]:
        with pytest.raises(kind, match=message):
            redistribute(*arguments, comm=inter)
    with pytest.raises(TypeError, match="sends must be True or False with an intercommunicator"):
        dace_redist.plan(SPLIT, COLUMNS, "f8", comm=inter, sends=None if odd else first)
    with pytest.raises(TypeError, match="sends must be True or False with an intercommunicator"):
        dace_redist.plan(SPLIT, Distribution(SHAPE, (1, 2)), "f8", comm=comm, sends=True)
    with pytest.raises(TypeError, match="comm must be an mpi4py intra-communicator"):
        dace_redist.gather(array, SPLIT, comm=inter)
    assert (redistribute(array, SPLIT, COLUMNS, comm=inter) is None) == first  # errors leave it in order
    monkeypatch.setenv("DACE_REDIST_GROUP_SECONDS", "soon")
    with pytest.raises(ValueError, match="DACE_REDIST_GROUP_SECONDS must be a number of seconds.*'soon'"):
        redistribute(array, SPLIT, COLUMNS, comm=inter)
    monkeypatch.setenv("DACE_REDIST_GROUP_SECONDS", "1")
    time.sleep(0 if first else 3)
    for message in ("did not call within 1 seconds", "did not call within 1|did not meet in an earlier call"):
        with pytest.raises(RedistributionError, match=message):
            redistribute(array, SPLIT, COLUMNS, comm=inter)


@pytest.mark.mpi(ranks=[4])
def test_distributions_of_cartesian_communicators(comm):
    cart = comm.Create_cart((2, 2), periods=(True, False))
    made = Distribution.from_cart(cart, SHAPE, halo=1)
    assert made == Distribution(SHAPE, (2, 2), halo=1, periodic=(True, False))
    assert made.owner((5, 0)) == cart.Get_cart_rank((1, 0))
    assert Distribution.from_cart(cart.Sub((True, False)), (4, 3)) == Distribution((4, 3), (2,))
    small = comm.Create_cart((3,))  # COMM_NULL on one rank
    assert small or comm.rank == 3
    for wrong, kind in ((comm, TypeError), (cart, ValueError), *([] if small else [(small, TypeError)])):
        with pytest.raises(kind, match="must be a Cartesian communicator|has more axes than shape"):
            Distribution.from_cart(wrong, (8,))


@pytest.mark.mpi(ranks=[2])
def test_requests_have_the_names_of_mpi4py(comm):
    rows, columns = Distribution(SHAPE, (2, 1)), Distribution(SHAPE, (1, 2))
    whole = np.arange(48.0).reshape(SHAPE)
    with dace_redist.plan(rows, columns, "f8", comm=comm) as plan, plan.inverse() as back:
        requests = [
            plan.start(rows.local(whole, comm.rank)),
            comm.Ibarrier(),
            back.start(columns.local(whole, comm.rank)),
        ]
        first, _, second = dace_redist.Request.waitall(requests)
        request = plan.start(second)
        while not request.Test():
            pass
        assert request.Wait() is True
    assert np.array_equal(first, columns.local(whole, comm.rank))
    assert np.array_equal(second, rows.local(whole, comm.rank))

"""Random keyword arguments and numbers: an error on every rank, or the right result, whether data moves or not."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from results import refused
from seeds import seed, some

import dace_redist
from dace_redist import DistributedArray, Distribution, Plan, einsum, einsum_plan, plan, redistribute
from dace_redist.strategies import OPTIONS, STRATEGIES, Option, find_strategy

SHAPE = (6, 4)
WHOLE = np.arange(24.0).reshape(SHAPE)
#: Arguments of NumPy, and of some functions of the package.
FOREIGN = ["dtype", "order", "casting", "alpha", "beta", "conj", "axes", "op", "device", "root", "comm", "nonsense"]
NUMBERS = (-1, 0, 1, True, 2**31, 2**62, 2**63 - 1, 7.0, "4GiB")


class Layout:
    """Two distributions over the ranks of a communicator, equal if nothing is to move, and arrays of the first."""

    def __init__(self, comm: MPI.Intracomm, rng: random.Random) -> None:
        self.comm, self.rows = comm, Distribution.split(SHAPE, 0, comm.size)
        self.target = rng.choice([self.rows, Distribution.split(SHAPE, 1, comm.size)])
        self.part, self.wanted = (side.local(WHOLE, comm.rank) for side in (self.rows, self.target))
        self.array = DistributedArray(self.part, self.rows, comm)

    def calls(self, path: Any) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """Return functions with keyword arguments, and the positional ones of a valid call."""
        none = ([0] * self.comm.size, [0] * self.comm.size, [MPI.BYTE] * self.comm.size)
        return [
            (redistribute, (self.part, self.rows, self.target)),
            (redistribute, ({"a": self.part}, {"a": self.rows}, {"a": self.target})),
            (redistribute, (self.array, self.target)),
            (self.array.redistribute, (self.target,)),
            (plan, (self.rows, self.target, "f8")),
            (einsum, ("ij->ij", self.array) if self.target is self.rows else ("ij,kj->ik", self.array, self.array)),
            (einsum_plan, ("ij->ji", self.array)),
            (Plan.from_datatypes, (none, none)),
            (Plan.from_messages, ([], [], "f8")),
            (dace_redist.schedule, (self.rows, self.target)),
            (dace_redist.scatter, (WHOLE, self.target)),
            (dace_redist.gather, (self.part, self.rows)),
            (dace_redist.load, (path, self.target)),
            (dace_redist.tune, (self.rows, self.target)),
            (self.array.to, ("partitioned",)),
        ]


def misspelt(rng: random.Random, name: str) -> str:
    at = rng.randrange(1, len(name) - 1)
    return rng.choice([name[:at] + name[at + 1 :], name[:at] + name[at + 1] + name[at] + name[at + 2 :], f"{name}s"])


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[1, 2], full=[3], timeout=300)
def test_keywords_that_a_function_does_not_take(comm, tmp_path):
    path = comm.bcast(tmp_path) / "a.npy"
    for number in range(some(60)):
        rng = random.Random(seed() + number)
        here = Layout(comm, rng)
        if number == 0:
            dace_redist.save(path, here.array)
        call, arguments = rng.choice(here.calls(path))
        strategy = rng.choice(["Auto", *STRATEGIES])
        options = find_strategy(strategy).options
        takes = inspect.signature(redistribute if call == here.array.redistribute else call).parameters
        names = [*FOREIGN, *OPTIONS, *(misspelt(rng, one) for one in (*takes, *OPTIONS) if len(one) > 3)]
        name = rng.choice([one for one in names if one not in (*takes, *options)])
        how = {name: rng.choice([1, 2.0, "f8", None, True]), **({"strategy": strategy} if "strategy" in takes else {})}
        refused(comm, (TypeError, ValueError), name, lambda: call(*arguments, **how))  # noqa: B023
        assert np.array_equal(redistribute(here.part, here.rows, here.target, comm=comm), here.wanted)


def expected(name: str, value: Any) -> type[Exception] | None:
    """Return the error of a function for a number; None: a right result, or too little memory."""
    if (name, value) == ("memory_bytes", "4GiB"):
        return None
    option = OPTIONS.get(name, Option(1, 1, 2**63 - 1, name))
    if isinstance(value, bool | str) or type(option.default) is int is not type(value):
        return TypeError
    return None if option.minimum <= value <= option.maximum else ValueError


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[1, 3], timeout=300)
def test_numbers_at_their_limits(comm, tmp_path):
    path = comm.bcast(tmp_path) / "a.npy"
    for number in range(some(60)):
        rng = random.Random(seed() + number)
        here, name, value = Layout(comm, rng), rng.choice(["memory_bytes", *OPTIONS]), rng.choice(NUMBERS)
        how = {"strategy": rng.choice([s for s in STRATEGIES if name in (*STRATEGIES[s].options, "memory_bytes")])}
        how[name] = value
        pair = here.rows, here.target
        calls: list[Callable[[], Any]] = [
            lambda: redistribute(here.part, *pair, comm=comm, **how),  # noqa: B023
            lambda: plan(*pair, "f8", comm=comm, **how)(here.part),  # noqa: B023
            lambda: einsum("ij->ij", here.array, target=here.target, **how).local,  # noqa: B023
            lambda: einsum_plan("ij->ij", here.array, target=here.target, **how)(here.array).local,  # noqa: B023
        ]
        if name == "memory_bytes":
            dace_redist.save(path, here.array)
            calls.append(lambda: dace_redist.load(path, here.target, comm=comm, **how).local)  # noqa: B023
            calls.append(lambda: dace_redist.save(path, here.array, **how) or here.wanted)  # noqa: B023
        wanted, told = expected(name, value), None
        try:
            told = rng.choice(calls)()
            right = wanted is None and np.array_equal(told, here.wanted)
        except Exception as error:
            told = error
            too_little = name == "memory_bytes" and isinstance(error, ValueError | MemoryError)
            right = isinstance(error, wanted) if wanted else too_little and "memory_bytes" in str(error)
        everywhere = comm.allgather((right, type(told), str(told)))
        assert all(well for well, *_ in everywhere), (number, name, value, how, everywhere)
        assert len({kind for _, kind, _ in everywhere}) == 1, everywhere

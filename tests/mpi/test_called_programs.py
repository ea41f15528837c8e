"""Distributed programs that are called, not simulated, give what NumPy gives; compiled without optimisation."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from random_programs import load, random_program
from results import Results, by_numpy, check, raise_anywhere
from seeds import seed, some
from simulated_programs import arguments, sizes_of

from dace_redist import distribute
from dace_redist.mpi.collective import sleeping_barrier

pytestmark = [pytest.mark.compile, pytest.mark.dace]


@pytest.fixture(autouse=True)
def _quick_compilation(monkeypatch):
    monkeypatch.setenv("DACE_compiler_cpu_args", "-O0")
    monkeypatch.setenv("DACE_REDIST_EXCHANGE_SECONDS", "0")  # programs are small here, and must exchange
    monkeypatch.setattr("dace_redist.transformations.distribute.emit.storage.MIN_BYTES", 1)


def check_called(comm: Any, program: Any, function: Any, sizes: dict[str, int], draw: int, what: str) -> None:
    """Call a program with random arguments, some by name; compare all that it returns and changes. Collective."""
    given, wrong = arguments(function, sizes, draw), list[str]()
    mine, count = {name: np.copy(value) if np.ndim(value) else value for name, value in given.items()}, draw % 3
    names = [*mine]
    result = program(*[mine[name] for name in names[:count]], **{name: mine[name] for name in names[count:]})
    try:
        if comm.rank == 0:
            check(named(result, mine, program), by_numpy(function.f, given, sizes), given, what, 1e-8, 1e-3)
        else:
            assert result is None
            assert all(np.array_equal(mine[name], given[name], equal_nan=True) for name in given), "arguments changed"
    except AssertionError as error:
        wrong = [f"{what}: {error}"]
    raise_anywhere(comm, wrong)


def named(result: Any, arrays: Results, program: Any) -> Results:
    """Return what rank 0 gets of a call by names: what is returned, and the arrays that were written."""
    if isinstance(result, dict):
        assert all(result[name] is arrays[name] or np.array_equal(result[name], arrays[name]) for name in result)
        return result
    several = enumerate(result) if isinstance(result, tuple) else ()
    returned = {f"__return_{number}": value for number, value in several} or {"__return": result}
    return returned | {name: arrays[name] for name in arrays if name in program.outputs}


@pytest.mark.mpi(ranks=[2], full=[1, 3, 4], timeout=900)
@pytest.mark.fuzz
def test_random_programs(comm, tmp_path, monkeypatch):
    """Two calls, and one for other sizes."""
    monkeypatch.syspath_prepend(tmp_path)
    first, count = seed(5000), some(12)
    refused = 0
    for draw in range(first, first + count):
        source, sizes = random_program(draw)
        function = load(source, tmp_path, f"called_{draw}_{comm.size}_{comm.rank}").program
        own = [sizes_of(function, one) for one in sizes]
        program: Any = None
        if comm.rank == 0:
            with suppress(ValueError):
                program = distribute(function, comm.size, own[0])
        sleeping_barrier(comm)
        program = comm.bcast(program)
        if program is None:
            refused += 1
            continue
        what = f"{source} of seed {draw} on {comm.size} ranks, {sizes}"
        for turn in range(2):
            check_called(comm, program, function, sizes[0], 2 * draw + turn, what)
        check_called(comm, program.with_sizes(**own[1]), function, sizes[1], draw, what)
    assert refused <= count // 5 + 1

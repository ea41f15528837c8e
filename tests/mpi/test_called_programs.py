"""Distributed programs that are called, not simulated, give what NumPy gives; compiled without optimisation."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from builds import planned
from random_programs import load, random_program
from results import Results, by_numpy, check, check_gathered, raise_anywhere
from seeds import seed, some

from dace_redist import Distribution, distribute, set_strategy, tune
from dace_redist.mpi.collective import sleeping_barrier
from dace_redist.strategies import STRATEGIES

pytestmark = [pytest.mark.compile, pytest.mark.dace]


@pytest.fixture(autouse=True)
def _quick_compilation(monkeypatch):
    monkeypatch.setenv("DACE_compiler_cpu_args", "-O0")
    monkeypatch.setenv("DACE_REDIST_EXCHANGE_SECONDS", "0")  # programs are small here, and must exchange
    monkeypatch.setattr("dace_redist.transformations.distribute.emit.storage.MIN_BYTES", 1)


def check_called(comm: Any, program: Any, given: Results, wanted: Results, what: str, count: int = 0) -> None:
    """Call a program, with some arguments by name; compare all that it returns and changes. Collective."""
    mine, wrong = {name: np.copy(value) if np.ndim(value) else value for name, value in given.items()}, list[str]()
    names = [*mine]
    result = program(*[mine[name] for name in names[:count]], **{name: mine[name] for name in names[count:]})
    try:
        if comm.rank == 0:
            check(named(result, mine, program), wanted, given, what, 1e-7, 1e-3)
        else:
            assert result is None
            assert all(np.array_equal(mine[name], given[name], equal_nan=True) for name in given), "arguments changed"
    except AssertionError as error:
        wrong = [str(error)]
    raise_anywhere(comm, wrong)


def check_random(comm: Any, program: Any, function: Any, sizes: dict[str, int], draw: int, what: str) -> None:
    """Call a program with random arguments, as :func:`check_called`. Collective."""
    from programs.program import arguments

    given = arguments(function, sizes, draw)
    check_called(comm, program, given, by_numpy(function.f, given, sizes), what, draw % 3)


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
    from programs.program import sizes_of

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
            check_random(comm, program, function, sizes[0], 2 * draw + turn, what)
        check_random(comm, program.with_sizes(**own[1]), function, sizes[1], draw, what)
    assert refused <= count // 5 + 1


#: One for each kind of generated code; `make test-full` runs all.
KINDS = """
in_place functions diagonals quotients
by_index while_and_branches chosen positions diagonal variables_after_their_loops
covariance steps by_arrays_of_indices
gram_schmidt_qr attention mttkrp_by_unfolding gauss_legendre
""".split()


@pytest.mark.mpi(ranks=[3], full=[2], timeout=1800)
@pytest.mark.parametrize("others", [False, pytest.param(True, marks=pytest.mark.full)])
def test_each_kind_of_code(comm, others):
    """Simulations do not run the generated code. Arguments are scattered, then whole."""
    from programs import tagged

    for name, one in tagged("gallery", "einsum", "statement", "suite").items():
        if not one.refused and (name in KINDS) != others:
            program, given, wanted = planned(comm, one.program, one.sizes), one.arguments(), one.expected()
            check_gathered(comm, program, given, wanted, name, tolerance=1e-7)
            check_called(comm, program, given, wanted, name)


@pytest.mark.mpi(ranks=[3], timeout=300)
def test_ranks_that_compile_at_once(comm, monkeypatch):
    """Each runs the program alone; the cache, which they share, has none of this environment."""
    from mpi4py import MPI
    from programs import PROGRAMS

    monkeypatch.setenv("DACE_REDIST_TEST", str(comm.bcast(time.time_ns())))
    one = PROGRAMS["by_index"]
    given = one.arguments()
    distribute(one.program, 1, one.sizes)(**given, comm=MPI.COMM_SELF)
    np.testing.assert_array_equal(given["B"], one.expected()["B"])


@pytest.mark.mpi(ranks=[3], full=[2, 4], timeout=600)
def test_strategies_of_deinsum_kernels(comm):
    """2MM, 3MM, MTTKRP of order 3 and 5, TTMc; arguments lie where each kernel needs a redistribution."""
    from programs.einsums import deinsum_kernels

    from dace_redist.library_nodes import JointRedistribute, Redistribute

    sizes = {"I": 6, "J": 8, "K": 5, "L": 4, "R": 3}
    placed = {"X": "IJK", "Y": "IJKLR", "F": "JR", "__return_0": "IL", "__return_4": "IRR"}
    shapes = {name: [sizes[extent] for extent in extents] for name, extents in placed.items()}
    places = {
        name: Distribution.block_cyclic(shape, (*[1] * (len(shape) - 1), comm.size), 1)
        for name, shape in shapes.items()
    }
    program = planned(comm, deinsum_kernels, sizes, placements=places)
    moved = [
        node for node, _ in program.sdfg.all_nodes_recursive() if isinstance(node, Redistribute | JointRedistribute)
    ]
    assert len(moved) >= 3
    for strategy in STRATEGIES:
        set_strategy(program.sdfg, strategy)
        check_random(comm, program, deinsum_kernels, sizes, 1, strategy)
    set_strategy(program.sdfg, "Auto")
    tuned = tune(program.sdfg, limit_seconds=0.05, progress=False, symbols=program.local_extents())
    assert tuned and all(one.nodes for one in tuned)
    check_random(comm, program, deinsum_kernels, sizes, 2, "tuned")

"""Elementwise statements that become one, those that do not, and their values, equal to NumPy's."""

import dace
import numpy as np
import pytest
from distributed_simulation import SimulatedRanks

from dace_redist import distribute
from dace_redist.einsum.statement import Statement
from dace_redist.transformations.distribute.ir import operations

N = 12


def chain(x: dace.float64[N, N], y: dace.float64[N, N]):
    return (x + y.T) * x - y / 3.0


def constant(x: dace.float64[N, N], y: dace.float64[N, N]):
    t = np.empty((N, N), np.float64)
    t[:] = 1
    return x * y + t / 2


def used_twice(x: dace.float64[N, N], y: dace.float64[N, N]):
    t = x + y
    return t * t


def changed_between(x: dace.float64[N, N], y: dace.float64[N, N]):
    t = x + y
    x[:] = y * 2.0
    return t - 1.0


def of_another_type(x: dace.float64[N, N], y: dace.float64[N, N]):
    t = np.where(x > y, 1, 0)
    return t / 2


def one_that_is_an_argument(x: dace.float64[N, N], y: dace.float64[N, N]):
    y[:] = x + 1.0
    return y * 3.0


def in_a_loop(x: dace.float64[N, N], y: dace.float64[N, N]):
    for _ in range(3):
        t = x * y + y
        x[:] = t - 1.0


def of_complex_numbers(x: dace.float64[N, N], y: dace.float64[N, N]):
    return (x * 1j + y) * (y - 2j * x)


def of_integers(x: dace.float64[N, N], y: dace.float64[N, N]):
    t = np.where(x > y, 7, 4)
    return (t * t - t) // 2 + x


def of_narrow_types(x: dace.float64[N, N], y: dace.float64[N, N]):
    t = (x * 200).astype(np.uint8) + np.where(y > 0.5, y, x).astype(np.float32)
    return t * t


#: Programs, and how many elementwise statements they become.
PROGRAMS = {chain: 1, constant: 1, used_twice: 2, changed_between: 3, of_another_type: 1, in_a_loop: 1}
PROGRAMS |= {one_that_is_an_argument: 2, of_complex_numbers: 5, of_integers: 2, of_narrow_types: 2}


def elementwise(program):
    found = operations(program.recipe.body)
    return [one for one in found if isinstance(one, Statement) and one.code is not None]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_fused_statements_give_what_numpy_gives(function):
    rng = np.random.default_rng(1)
    x, y = rng.random((N, N)), rng.random((N, N))
    program = distribute(dace.program(function), 3)
    found = SimulatedRanks(program).run(x=x.copy(), y=y.copy())
    value = function(x, y)  # after the run: it changes its arguments
    expected = {"__return": value, "x": x, "y": y}
    assert found and all(np.array_equal(expected[name], one) for name, one in found.items())
    assert len(elementwise(program)) == PROGRAMS[function], [one.code.text for one in elementwise(program)]


def test_programs_for_the_gpu_are_not_fused():
    assert len(elementwise(distribute(dace.program(chain), 3, device="gpu"))) == 4


@pytest.mark.parametrize(("n", "ranks", "parallel"), [(63, 1, False), (64, 1, True), (64, 2, False)])
def test_threads_share_maps_of_many_iterations_only(n: int, ranks: int, parallel: bool):
    extent = dace.symbol("N")

    @dace.program
    def shifted(x: dace.float64[extent, extent]):
        return x + 1.0

    @dace.program
    def lower(x: dace.float64[extent * extent]):
        for i in range(1, extent * extent + 1):
            x[:i] += 1.0

    for program in (shifted, lower) if ranks == 1 else (shifted,):  # x of lower is on each rank
        code = distribute(program, ranks, {"N": n}).sdfg.generate_code()[0].clean_code
        assert "_on_" in code and ("omp parallel" in code) == parallel

"""What each rank computes as a whole: the choice, and results whatever was chosen."""

import numpy as np
import pytest
from distributed_simulation import SimulatedRanks
from programs import PROGRAMS, tagged
from results import check
from seeds import seed, some

from dace_redist import distribute
from dace_redist.library_nodes import Redistribute
from dace_redist.transformations.distribute import choice

pytestmark = pytest.mark.usefixtures("small_transients_share_memory")


@pytest.fixture
def exchanges_take_time(monkeypatch):
    monkeypatch.setenv(choice.VARIABLE, "4e-6")


def exchanges(program):
    return sum(isinstance(node, Redistribute) for node, _ in program.sdfg.all_nodes_recursive())


#: Kernels that each rank runs alone, and those that are distributed, on 2 ranks.
ALONE = ("seidel_2d", "adi", "gramschmidt", "jacobi_1d", "cavity_flow")
DISTRIBUTED = ("gemm", "k2mm", "mvt", "softmax", "mlp", "doitgen", "compute", "arc_distance", "vadv", "hdiff")


@pytest.mark.slow
@pytest.mark.parametrize("name", (*ALONE, *DISTRIBUTED))
def test_small_loops_are_replicated_and_large_products_distributed(name, exchanges_take_time):
    program = distribute(PROGRAMS[name].program, 2, PROGRAMS[name].sizes)
    if name in ALONE:
        assert not exchanges(program) and "exchanges in a run would take longer" in str(program)
    else:
        assert program.plan.flops < 0.6 * distribute(PROGRAMS[name].program, 1, PROGRAMS[name].sizes).plan.flops


@pytest.mark.parametrize("number", range(some(6)))
def test_any_choice_gives_what_numpy_gives(number, monkeypatch):
    """Each rank computes random statements as a whole, whatever that costs."""
    rng = np.random.default_rng([seed(), number])

    def random_choice(body, shapes, made, free):
        numbers = range(len(list(choice.operations(body))))
        return made(frozenset(n for n in numbers if rng.random() < 0.5))

    monkeypatch.setattr("dace_redist.transformations.distribute.choose", random_choice)
    for name in rng.choice([*tagged("einsum")], 4, replace=False):
        one = PROGRAMS[name]
        found = SimulatedRanks(distribute(one.program, 3, one.sizes)).run(**one.arguments())
        check(found, one.expected(), one.arguments(), f"{name}, choice {number}")


def test_too_large_tensors_are_not_replicated(exchanges_take_time, monkeypatch):
    monkeypatch.setattr(choice, "MAX_BYTES", 1 << 10)
    kernel = PROGRAMS["jacobi_1d"]
    assert exchanges(distribute(kernel.program, 2, kernel.sizes))


@pytest.mark.parametrize("given", ["fast", "-1", "nan", "inf"])
def test_the_variable_must_be_a_number(given, monkeypatch):
    monkeypatch.setenv(choice.VARIABLE, given)
    message = f"DACE_REDIST_EXCHANGE_SECONDS must be a number of seconds, at least 0, got '{given}'"
    with pytest.raises(ValueError, match=message):
        distribute(PROGRAMS["gemm"].program, 2, PROGRAMS["gemm"].sizes)

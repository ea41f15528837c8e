"""
NumPy's functions and operators, on all types and special values: equal results and types, or an error at planning.

``DACE_REDIST_SEED`` draws other pairs of types, in another order.
"""

import os
import random
import re

import pytest
from builds import planned
from numpy_statements import REASONS, REFUSED, arguments, by_numpy, cases, differs, module

SEED, SIZE = int(os.environ.get("DACE_REDIST_SEED", "0")), 100

pytestmark = [pytest.mark.compile, pytest.mark.dace]


def accepted(texts, given, folder, name):
    """Return the cases that are distributed; check the errors of others."""
    from dace_redist.transformations.distribute import rewritten
    from dace_redist.transformations.distribute.read import read_statements
    from dace_redist.transformations.distribute.read.frontend import parse

    programs, kept = module([[text] for text in texts], folder, f"{name}_single"), []
    for number, text in enumerate(texts):
        wanted, said = by_numpy(text, given), ""
        try:
            sdfg = parse(getattr(programs, f"program_{number}"))
            rewritten(read_statements(sdfg, {}), sdfg)
            kept.append(text)
        except ValueError as error:
            said = str(error)
        assert said or not isinstance(wanted, Exception), f"{text}: NumPy raises {wanted}"
        if said:
            assert re.match(rf"{name}_single\.py:\d+: .+: .", said) and "\n" not in said, f"{text}: {said}"
            known = isinstance(wanted, Exception) or re.search(REFUSED, text) or re.search(REASONS, said)
            assert known, f"{text}: {said}"
    return kept


@pytest.mark.fuzz
@pytest.mark.mpi(ranks=[2], timeout=1800)
@pytest.mark.parametrize("chunk", [0, *(pytest.param(number, marks=pytest.mark.full) for number in range(1, 120))])
def test_they_give_what_numpy_gives(comm, chunk, tmp_path):
    given, name = arguments(), f"statements_{chunk}"
    texts = cases(random.Random(SEED))[SIZE * chunk : SIZE * (chunk + 1)]
    if not texts:
        pytest.skip("some seeds draw fewer cases")
    program = None
    if comm.rank == 0:
        texts = accepted(texts, given, tmp_path, name)
        program = module([texts], tmp_path, name).program_0
    program = planned(comm, program, {})
    results = program(**{argument: given[argument] for argument in program.inputs})
    if comm.rank == 0:
        wanted = [by_numpy(text, given) for text in texts]
        compared = zip(texts, results, wanted, strict=True)
        wrong = [(t, x.ravel()[:9], y.ravel()[:9]) for t, x, y in compared if differs(t, x, y)]
        assert not wrong, wrong

"""
Random programs give what NumPy gives on 1 to 7 simulated ranks, or are refused in one line that names a statement.

``DACE_REDIST_SEED`` is the seed of the first program, ``DACE_REDIST_EXAMPLES`` the number of programs of each test.
"""

import os
import re

import numpy as np
import pytest
from distributed_simulation import SimulatedRanks
from programs.program import arguments, sizes_of
from random_programs import load, random_program
from results import by_numpy, check

from dace_redist import distribute

FIRST, COUNT = int(os.environ.get("DACE_REDIST_SEED", "0")), int(os.environ.get("DACE_REDIST_EXAMPLES", "10"))
REFUSED = r"random_program_\d+\.py:\d+: "


pytestmark = pytest.mark.usefixtures("small_transients_share_memory")


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("number", range(6))
def test_random_programs(number, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    first = FIRST + number * COUNT
    refused = [seed for seed in range(first, first + COUNT) if not runs(seed, tmp_path)]
    assert len(refused) <= COUNT // 5, f"many are refused: {refused}"


def runs(seed, folder):
    """Return True if a program is distributed; check its results, or the error."""
    source, (sizes, _) = random_program(seed)
    program = load(source, folder, f"random_program_{seed}").program
    given = arguments(program, sizes, seed)
    wanted = by_numpy(program.f, given, sizes)
    try:
        distributed = distribute(program, int(np.random.default_rng(seed).integers(1, 8)), sizes_of(program, sizes))
    except ValueError as error:
        assert re.match(REFUSED, str(error)) and "\n" not in str(error), f"seed {seed}: {error}"
        return False
    check(SimulatedRanks(distributed).run(**given), wanted, given, f"of seed {seed}", tolerance=1e-8, single=1e-3)
    return True

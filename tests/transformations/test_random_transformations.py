"""
Random SDFGs compute the same on simulated ranks after random transformations.

``DACE_REDIST_SEED`` is the number of the first SDFG, ``DACE_REDIST_EXAMPLES`` their number.
"""

from __future__ import annotations

import copy
import random

import dace
import numpy as np
import pytest
from random_sdfgs import RANKS, Writer
from seeds import seed, some
from simulated_sdfgs import SimulatedSDFG

from dace_redist import transformations

NAMES = [name for name in transformations.__all__ if name.startswith(("Fuse", "Join", "Overlap", "Relabel", "Remove"))]
SYMBOLS = [{"r": rank + 1} for rank in range(RANKS)]


@pytest.mark.slow
@pytest.mark.fuzz
def test_results_are_unchanged():
    for number in range(seed(), seed() + some(1200)):
        check(number)


def check(number: int) -> None:
    """Compare the results of an SDFG before and after transformations, where they are defined."""
    rng = random.Random(number)
    writer = Writer(rng)
    before = writer.write(steps=rng.randint(1, 6))
    after, names = copy.deepcopy(before), rng.sample(NAMES, k=rng.randint(3, len(NAMES)))
    if rng.random() < 0.8:  # what is joined or started is not fused
        names.sort(key=lambda name: name.startswith(("Join", "Overlap")))
    with dace.config.set_temporary("optimizer", "match_exception", value=True):  # else they count as no match
        applied = [after.apply_transformations_repeated(getattr(transformations, name)) for name in names]
    if not any(applied):
        return
    after.validate()
    arguments = writer.arguments()
    wanted = [SimulatedSDFG(before, SYMBOLS, seed).run(arguments) for seed in range(4)]
    for rank, arrays in enumerate(SimulatedSDFG(after, SYMBOLS, seed=4).run(arguments)):
        for name, array in arrays.items():
            want, *others = (results[rank][name] for results in wanted)
            defined = np.logical_and.reduce([want == other for other in others])
            tolerance = 0 if writer.rounds else 1e-5 * np.max(np.abs(want[defined]), initial=0)
            message = f"{name} of rank {rank} in SDFG {number} after {', '.join(names)}"
            np.testing.assert_allclose(array[defined], want[defined], 0, tolerance, err_msg=message)

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
from dace.sdfg import nodes
from dace.transformation.passes.pattern_matching import match_patterns
from random_sdfgs import OF_RANK, RANKS, Writer
from seeds import seed, some
from simulated_sdfgs import SimulatedSDFG

from dace_redist import transformations
from dace_redist.transformations.optimization import OF_CODE, hashes

NAMES = [name for name in transformations.__all__ if name.startswith(("Fuse", "Join", "Overlap", "Remove"))]
SYMBOLS = [{"r": rank + 1, "s": 2, "at": 0} for rank in range(RANKS)]


@pytest.mark.slow
@pytest.mark.fuzz
def test_results_are_unchanged():
    count = some(1200)
    checked = [check(number) for number in range(seed(), seed() + count)]
    applied, tries = (sum(numbers) for numbers in zip(*checked, strict=True))
    print(f"{applied} of {tries} transformations applied in {count} SDFGs")
    assert applied >= 0.3 * tries or count < 50


def check(number: int) -> tuple[int, int]:
    """
    Compare the results of an SDFG before and after transformations, where they are defined.

    :return: Number of transformations that were applied, and that were tried.
    """
    rng = random.Random(number)
    writer = Writer(rng)
    before = writer.write(steps=rng.randint(1, 6))
    equal = have_equal_code(before)
    possible = [name for name in NAMES if equal or getattr(transformations, name) not in OF_CODE]
    first = [name for name in possible if any(match_patterns(before, getattr(transformations, name)))]
    names = {*rng.sample(first, k=rng.randint(min(1, len(first)), len(first))), *rng.sample(possible, k=2)}
    after, names = copy.deepcopy(before), rng.sample(sorted(names), k=len(names))
    if rng.random() < 0.8:  # what is joined or started is not fused
        names.sort(key=lambda name: name.startswith(("Join", "Overlap")))
    with dace.config.set_temporary("optimizer", "match_exception", value=True):  # else they count as no match
        applied = [bool(after.apply_transformations_repeated(getattr(transformations, name))) for name in names]
    if not any(applied):
        return 0, len(names)
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
    return sum(applied), len(names)


def have_equal_code(sdfg: dace.SDFG) -> bool:
    """Return True if the programs of two ranks have one hash; they always do without the code of tasklets."""
    other = copy.deepcopy(sdfg)
    tasklets = [node for node, _ in other.all_nodes_recursive() if isinstance(node, nodes.Tasklet)]
    found = [node for node in tasklets if str(OF_RANK) in node.code.as_string]
    for node in found:
        node.code.as_string = node.code.as_string.replace(str(OF_RANK), str(OF_RANK + 1))
    if not found:
        return True
    (bare, whole), (other_bare, other_whole) = hashes(sdfg), hashes(other)
    assert bare == other_bare and whole != other_whole
    return False

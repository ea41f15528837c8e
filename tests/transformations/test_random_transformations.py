"""
Random SDFGs compute the same on simulated ranks after random transformations.

``DACE_REDIST_SEED`` is the number of the first SDFG, ``DACE_REDIST_EXAMPLES`` their number.
"""

from __future__ import annotations

import pytest
from seeds import seed, some
from transformed_sdfgs import Draw


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
    draw = Draw.of(number, ranks=2 + number % 3)
    if draw.applied:
        arguments = draw.writer.arguments()
        expected = draw.expected(arguments)
        for rank, arrays in enumerate(draw.simulated(draw.after, arguments, seed=4)):
            for name, array in arrays.items():
                expected[rank][name].check(array)
    return draw.applied, len(draw.names)

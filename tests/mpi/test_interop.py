"""Arrays of other libraries are read where they lie, and made of a target, as the libraries themselves have them."""

from __future__ import annotations

import numpy as np
import pytest
from distributions import distributions
from hypothesis import HealthCheck, Phase, given, seed, settings
from interop_libraries import LIBRARIES, numbers

from dace_redist import DistributedArray, redistribute


def some_distribution(shape: tuple[int, ...], ranks: int, number: int):
    """Return a random distribution, equal on all ranks."""
    found = []

    @seed(number)
    @settings(
        max_examples=1, phases=[Phase.generate], database=None, deadline=None, suppress_health_check=[*HealthCheck]
    )
    @given(distributions(shape, ranks))
    def draw(distribution):
        found.append(distribution)

    draw()
    return found[-1]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.mpi(ranks=[1, 3, 4], timeout=300)
def test_array_is_read(comm, library):
    for number, (array, whole) in enumerate(LIBRARIES[library](comm).arrays()):
        before = LIBRARIES[library].local(None, array)
        target = some_distribution(whole.shape, comm.size, number)
        result = redistribute(array, target, comm=comm)
        wrong = not np.array_equal(result.local, target.local(whole, comm.rank)) or result.distribution is not target
        wrong |= result.dtype != whole.dtype or not np.array_equal(before, LIBRARIES[library].local(None, array))
        assert not any(comm.allgather(wrong)), f"{array} to {target}"


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.mpi(ranks=[1, 3, 4], timeout=300)
def test_array_is_made(comm, library):
    own = LIBRARIES[library](comm)
    for number, (target, how) in enumerate(own.targets()):
        source, whole = some_distribution(target.shape, comm.size, number), numbers(target.shape)
        result = redistribute(source.local(whole, comm.rank), source, target, comm=comm)
        array = DistributedArray(result, target, comm).to(library, **how)
        assert np.array_equal(own.whole(array), whole), f"{target} {how}"
        assert library == "jax" or not result.size or np.shares_memory(own.local(array), result)
        back = redistribute(array, source, comm=comm)
        assert np.array_equal(back.local, source.local(whole, comm.rank))

"""Stacks of sparse matrices, transposed by plans for several tensors as by hand with NumPy and mpi4py."""

from __future__ import annotations

import numpy as np
import pytest
from redistribution.padded_stacks import PaddedStacks
from sparse_stacks import Stacks, peak_beyond_arrays

from dace_redist import Distribution, plan, redistribute, shared_empty


@pytest.mark.mpi(ranks=[1, 4])
def test_plans_and_steps_by_hand_agree(comm):
    for shape in [(7, 10), (3, 1), (2, 5), (61, 2000), (11, 30011)]:
        check(comm, shape)
    stacks = Stacks(comm, 61, 2000, 2)
    stacks.check({name: make() for name, make in stacks.ways().items()})
    assert peak_beyond_arrays(stacks, stacks.ordinary_arrays) < 8 << 20


def check(comm, shape):
    by_hand = PaddedStacks(comm, *shape)
    stack = Distribution(shape, (comm.size, 1), block=("balanced", None))
    columns = Distribution(shape, (1, comm.size))
    numbers = np.random.default_rng(5).standard_normal((3, 2, *shape))
    here = [stack.local(real + 1j * imaginary, comm.rank) for real, imaginary in numbers]
    rows, width = columns.local_shape(comm.rank)
    padded = [by_hand.to_nonzeros(by_hand.pad(one)) for one in here]
    for allocate in (np.empty, shared_empty):
        given = [allocate(one.shape, one.dtype) for one in here]
        for one, values in zip(given, here, strict=True):
            one[...] = values
        with plan([stack] * 3, [columns] * 3, "c16", comm=comm) as there:
            moved = there(given)
        for one, wanted in zip(moved, padded, strict=True):
            np.testing.assert_array_equal(one, wanted[:rows, :width])
        back = redistribute(moved, [columns] * 3, [stack] * 3, comm=comm)
        for one, wanted, array in zip(back, map(by_hand.to_energies, padded), here, strict=True):
            np.testing.assert_array_equal(one, array)
            np.testing.assert_array_equal(one, wanted[: len(one), : shape[1]])

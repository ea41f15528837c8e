"""Derivatives of DaCe programs with redistributions, by ``dace.autodiff``, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from builds import built


@pytest.mark.compile
@pytest.mark.dace
@pytest.mark.mpi(ranks=[4], full=[1, 2], timeout=200)  # each number takes a build of its own
def test_derivatives_of_a_chain(comm):
    from differentiated_programs import BOX, SHAPE, chain_sdfg, derivative, loss, sides

    rng = np.random.default_rng(7)
    arrays = [rng.random(shape) for shape in (SHAPE, (comm.size, *SHAPE), BOX, SHAPE)]
    program = built(comm, f"differentiated_{comm.size}", lambda: chain_sdfg(comm.size))
    rows, _, _, box = sides(comm.size)
    A, W, V, U = arrays
    A, V, U = (side.local(one, comm.rank) for side, one in ((rows, A), (box, V), (rows, U)))
    for _ in range(2):
        S, gradients = np.zeros(1), {"gradient_A": np.zeros_like(A), "gradient_W": np.zeros_like(W[0])}
        program(A=A, W=W[comm.rank].copy(), V=V, U=U, S=S, gradient_S=np.ones(1), **gradients)
        np.testing.assert_allclose(comm.allreduce(S[0]), loss(*arrays))
        np.testing.assert_allclose(gradients["gradient_A"], rows.local(derivative(0, *arrays), comm.rank))
        np.testing.assert_allclose(gradients["gradient_W"], derivative(1, *arrays)[comm.rank])

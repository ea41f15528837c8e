"""
Programs of the gallery, compiled: one for each kind of code that the others do not have, on three ranks.

``DACE_REDIST_GALLERY=1,3,4,7`` runs all of them, on as many ranks each.
"""

import os

import numpy as np
import pytest
from builds import planned, quick_builds

RANKS = os.environ.get("DACE_REDIST_GALLERY", "")
#: What the generated code has of its own: branches, loops with parts of tensors, maxima, other shapes, closures.
COMPILED = ("conjugate_gradients_with_limit", "gram_schmidt_qr", "attention", "mttkrp_by_unfolding", "gauss_legendre")


@pytest.mark.compile
@pytest.mark.dace
@pytest.mark.mpi(ranks=[int(n) for n in RANKS.split(",")] if RANKS else [3], timeout=3600 if RANKS else 600)
def test_compiled_programs_give_what_numpy_gives(comm):
    from gallery import GALLERY

    with quick_builds():
        for name in [name for name in GALLERY if not GALLERY[name].refused] if RANKS else COMPILED:
            example = GALLERY[name]
            program = planned(comm, example.program, example.sizes)
            given, wanted = example.arguments(), example.expected()
            local = program.scatter(**{key: given[key] for key in program.inputs}, comm=comm)
            for key in {*program.outputs} & {*given} - {*program.inputs}:  # written only
                tensor = program.outputs[key]
                local[key] = np.empty(tensor.distribution.local_shape(comm.rank), tensor.dtype)
            result = program.run(comm=comm, **local)
            parts = {f"__return_{n}": part for n, part in enumerate(result)} if isinstance(result, tuple) else {}
            parts = parts or (result if isinstance(result, dict) else {"__return": result})
            for output in program.outputs:
                whole = program.gather(parts.get(output, local.get(output)), output, comm)
                if comm.rank == 0:
                    tolerance = 1e-4 if np.asarray(wanted[output]).dtype == np.float32 else 1e-7
                    np.testing.assert_allclose(whole, wanted[output], tolerance, 1e-8, err_msg=f"{name} {output}")

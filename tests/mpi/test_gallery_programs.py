"""
Programs of the gallery, compiled: one for each kind of code that the others do not have, on three ranks.

``DACE_REDIST_GALLERY=1,3,4,7`` runs all of them, on as many ranks each.
"""

import os

import pytest
from builds import planned, quick_builds
from results import check_gathered

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
            check_gathered(comm, program, example.arguments(), example.expected(), name, tolerance=1e-7)

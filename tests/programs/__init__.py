"""Programs as people write them, and for each statement that is distributed; the manual links the gallery."""

from __future__ import annotations

from programs import (
    as_in_numpy,
    eigenvalues,
    einsums,
    factorisations,
    kernels,
    learning,
    networks,
    solvers,
    statements,
    suite,
)
from programs.program import Program

#: Modules by tag.
TAGS = {
    "gallery": (eigenvalues, solvers, factorisations, networks, learning),
    "kernel": (kernels,),
    "einsum": (einsums,),
    "statement": (statements, as_in_numpy),
    "suite": (suite,),
}


def tagged(*tags: str) -> dict[str, Program]:
    """Return the programs with one of some tags."""
    return {one.name: one for tag in tags for module in TAGS[tag] for one in module.PROGRAMS}


PROGRAMS = tagged(*TAGS)

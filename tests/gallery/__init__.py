"""Programs as people write them, one file per field; the manual links them."""

from __future__ import annotations

from gallery import eigenvalues, factorisations, learning, networks, solvers

GALLERY = {
    example.name: example
    for field in (eigenvalues, solvers, factorisations, networks, learning)
    for example in field.EXAMPLES
}

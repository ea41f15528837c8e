"""Programs as people write them, one file per field; the manual lists them."""

from __future__ import annotations

from gallery import eigenvalues, factorisations, learning, networks, solvers

#: The programs by field.
FIELDS = {
    "Eigenvalues and singular values": eigenvalues.EXAMPLES,
    "Linear systems and functions of matrices": solvers.EXAMPLES,
    "Factorisations of tensors and matrices": factorisations.EXAMPLES,
    "Tensor networks and quantum chemistry": networks.EXAMPLES,
    "Machine learning, graphs and statistics": learning.EXAMPLES,
}
GALLERY = {example.name: example for examples in FIELDS.values() for example in examples}

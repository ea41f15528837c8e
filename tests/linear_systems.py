"""Solution of linear systems by NumPy: the oracle of several tests."""

from __future__ import annotations

from typing import Any

import numpy as np


def solved(einsum: str, matrix: Any, right: Any = None) -> Any:
    """
    Return the X of ``G X = B``, or the inverse of G.

    :param einsum: ``ij,ik->jk``, ``ij,i->j`` or ``ij->ji``, the indices of each tensor in any order.
    :param matrix: G.
    :param right: B; None for the inverse.
    """
    operands, result = einsum.split("->")
    of_matrix, of_right = (*operands.split(","), result)[:2]
    rows = next(index for index in of_matrix if index in of_right)
    unknowns = of_matrix.replace(rows, "")
    matrix = np.einsum(f"{of_matrix}->{rows}{unknowns}", matrix)
    if right is None:
        return np.einsum(f"{unknowns}{rows}->{result}", np.linalg.inv(matrix))
    columns = of_right.replace(rows, "")
    right = np.einsum(f"{of_right}->{rows}{columns}", right)
    return np.einsum(f"{unknowns}{columns}->{result}", np.linalg.solve(matrix, right))

"""Assigns columns of a matrix to its rows so that the sum of the entries is largest."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import numpy.typing as npt

#: Up to so many rows the assignment is optimal: the method of Crouse, doi 10.1109/TAES.2016.140952, in SciPy.
MAX_EXACT_ROWS = 2048
#: So many assignments are all tried: SciPy takes a third of a second to load, which is longer.
MAX_TRIED_ASSIGNMENTS = math.factorial(7)


def assign(matrix: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """
    A column for each row, each at most once, with the largest sum.

    Of a small matrix all assignments are tried. Else, if every row can have its largest entry, this is found by a
    matching, which is fast; if not, by an optimal assignment or, where there are too many rows for that, by completing
    the matching in order.

    :param matrix: At least as many columns as rows, no negative entries.
    """
    largest = matrix.max(axis=1, keepdims=True)
    if (matrix == largest)[np.arange(len(matrix)), np.arange(len(matrix))].all():
        return np.arange(len(matrix))
    if math.perm(matrix.shape[1], len(matrix)) <= MAX_TRIED_ASSIGNMENTS:
        tried = np.array(list(permutations(range(matrix.shape[1]), len(matrix))))
        return np.asarray(tried[matrix[np.arange(len(matrix)), tried].sum(axis=1).argmax()], np.int64)
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import maximum_bipartite_matching

    matched = np.asarray(maximum_bipartite_matching(csr_matrix(matrix == largest), perm_type="column"), np.int64)
    if (matched >= 0).all():
        return matched
    if len(matrix) <= MAX_EXACT_ROWS:
        from scipy.optimize import linear_sum_assignment

        return np.asarray(linear_sum_assignment(matrix, maximize=True)[1], np.int64)
    free = np.setdiff1d(np.arange(matrix.shape[1]), matched)
    matched[matched < 0] = free[: (matched < 0).sum()]
    return matched

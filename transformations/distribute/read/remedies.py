"""Remedies for statements that cannot be distributed."""

from __future__ import annotations

import re

#: Error of a return in a branch or loop.
EARLY_RETURN = (
    "a return in a branch or loop cannot be distributed; assign the result to a variable, and return that at the end"
)

#: Remedies for functions that cannot be distributed.
INSTEAD = {
    "print": "take it out, and print what the program returns",
    "svd": "find the largest singular values by iteration with @, or call it on a gathered tensor outside the program",
    **dict.fromkeys(("eig", "eigh"), "find eigenvalues by iteration with @, or call it on a gathered tensor outside"),
    "qr": "orthogonalise by np.linalg.inv of the Gram matrix, or column by column in a loop",
    **dict.fromkeys(("sort", "argsort", "median"), "call it on the gathered tensor outside the program"),
    **dict.fromkeys(("concatenate", "stack", "hstack", "vstack", "roll"), "write the parts to slices of np.empty"),
    "cumsum": "write it as np.tril(np.ones((N, N))) @ x, or as a loop",
    "cov": "write it as A.T @ A / (N - 1), with A without its mean",
    "round": "take np.rint",
}

_BY_ARRAYS = "write it as np.einsum, @, or an elementwise expression of whole arrays"

#: Remedies by DaCe's function, type of error, and message.
_REMEDIES = {
    "KeyError: 'MatMult'": "write A @= B as A[:] = A @ B",
    "visit_Compare NotImplementedError": "compare two values at a time, as in 0 < a and a < 1",
    "Starred": "give each value a variable of its own, or slice the array",
    "Cannot reassign|already defined|already assigned": "give the result another name",
    "keyword argument 'out'": "assign the result, as in C[:] = np.matmul(A, B)",
    "Method .* is not registered": "write it as a function of NumPy, or elementwise",
    "could not be broadcast": "write both shapes with the same symbols, as in x[:n] + x[n : 2 * n]",
    "rhs may only be data": "write a choice as np.where(s > 0, 2.0, 3.0), and arrays of numbers outside the function",
    "scalar stop value": "write the size in the call, as in np.arange(N // 2)",
    "compile-time constant": "assign it to another variable first, and change that",
    "Undefined variable": "assign it to a variable before, and the variable of a loop after it, as in last = i",
}


def why(error: Exception, function: str) -> str:
    """Return the reason of an error in one of DaCe's functions, and a remedy."""
    if isinstance(error, ValueError):
        return str(error)
    if isinstance(error, KeyError) and function == "parse_program":  # after all statements: return values are renamed
        return f"it returns {error.args[0]} more than once; return it once, or np.copy({error.args[0]}) besides"
    said = " ".join(str(getattr(error, "message", error)).split()).rstrip(".")
    whole = f"{function} {type(error).__name__}: {said}"
    instead = next((remedy for text, remedy in _REMEDIES.items() if re.search(text, whole)), _BY_ARRAYS)
    return f"DaCe cannot read it ({type(error).__name__}: {said}); {instead}"

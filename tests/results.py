"""Results of programs by name: those of NumPy, those of several ranks, and their comparison."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dace_redist.redistribution.arrays.new import DeviceArray

Results = dict[str, Any]


def by_numpy(
    function: Callable[..., Any], arguments: Mapping[str, Any], sizes: Mapping[str, Any] | None = None
) -> Results:
    """
    Return all arguments as a Python function leaves them, and what it returns by the names in DaCe.

    :param arguments: Arguments; they are copied.
    :param sizes: Values of symbols that the function uses by name.
    """
    after = {name: value[()].copy() if isinstance(value, np.ndarray) else value for name, value in arguments.items()}
    from dace.frontend.python.parser import DaceProgram

    known = {name: one.f if isinstance(one, DaceProgram) else one for name, one in function.__globals__.items()}
    names = {**known, **(sizes or {})}
    with np.errstate(all="ignore"):
        returned = types.FunctionType(function.__code__, names, closure=function.__closure__)(**after)
    if isinstance(returned, tuple):
        return after | {f"__return_{number}": value for number, value in enumerate(returned)}
    return after if returned is None else after | {"__return": returned}


def check(
    found: Results, wanted: Results, given: Results, what: str = "", tolerance: float = 1e-9, single: float = 1e-4
) -> None:
    """
    Compare values, types and shapes.

    :param found: The results: all that are returned, at least, and all arrays whose elements are wanted to change.
    :param given: Arguments before the call.
    :param tolerance: Tolerance relative to the largest element.
    :param single: Tolerance for elements of single precision.
    """
    unchanged = {name for name, value in given.items() if np.array_equal(value, wanted[name])}
    assert {*wanted} - unchanged <= {*found}, f"{what}: found {[*found]} of {[*wanted]}"
    for name, value in found.items():
        want = np.asarray(wanted[name])
        relative = single if want.dtype in ("float32", "complex64") else tolerance
        scale = np.max(np.abs(want[np.isfinite(want)]), initial=0)
        value, text = np.asarray(value), f"{name} {what}"
        np.testing.assert_allclose(value.reshape(want.shape), want, relative, relative * scale, err_msg=text)
        assert value.dtype == want.dtype, text
        assert value.shape == want.shape or want.size == 1, text  # a result of one element may be a scalar


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


# On several ranks ----------------------------------------------------------------------------------------------------


def put(array: np.ndarray, part: np.ndarray) -> np.ndarray:
    """Write a part into the corner of an array; return the array."""
    if part.size:  # a rank without boxes has a part of one dimension
        array[tuple(slice(0, n) for n in part.shape)] = part
    return array


def raise_anywhere(comm: Any, wrong: list[str]) -> None:
    """Fail on every rank if something is wrong on any. Collective."""
    everywhere = [text for texts in comm.allgather(wrong) for text in texts]
    assert not everywhere, "\n".join(text[:1500] for text in everywhere[:6])


def refused(comm: Any, kind: type[Exception] | tuple[type[Exception], ...], text: str, call: Any) -> None:
    """Check that a call raises on every rank, with a text that a pattern finds in it. Collective."""
    told: tuple[bool, str] = (False, "nothing was raised")
    try:
        call()
    except Exception as error:
        told = isinstance(error, kind), f"{type(error).__name__}: {error}"
    everywhere = comm.allgather(told)
    assert all(right and re.search(text, said) for right, said in everywhere), (text, everywhere)


def gathered(comm: Any, program: Any, arguments: Results) -> Results:
    """Scatter the arguments of a distributed program, run it, and return its results on rank 0. Collective."""
    local = program.scatter(**{name: arguments[name] for name in program.inputs}, comm=comm)
    for name in {*program.outputs} & {*arguments} - {*program.inputs}:  # written only
        tensor = program.outputs[name]
        make = DeviceArray if name in program.gpu_arguments else np.empty
        local[name] = make(tensor.distribution.local_shape(comm.rank), tensor.dtype)
    result = program.run(comm=comm, **local)
    if isinstance(result, tuple):
        local |= {f"__return_{number}": part for number, part in enumerate(result)}
    else:
        local |= result if isinstance(result, dict) else {"__return": result}
    return {name: program.gather(local[name], name, comm) for name in program.outputs}


def check_gathered(comm: Any, program: Any, arguments: Results, wanted: Results, what: str = "", **tolerances: float):
    """Run a distributed program and compare all its results; an error on every rank. Collective."""
    found, wrong = gathered(comm, program, arguments), list[str]()
    if comm.rank == 0:
        try:
            check(found, wanted, arguments, what, **tolerances)
        except AssertionError as error:
            wrong = [str(error)]
    raise_anywhere(comm, wrong)

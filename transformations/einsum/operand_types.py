"""Gives the operands of every einsum the element type in which it is computed: BLAS and LAPACK want equal types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from string import ascii_letters

import numpy as np
from dace import SDFG, dtypes

from dace_redist.einsum.expression import Einsum
from dace_redist.einsum.statement import Statement
from dace_redist.library_nodes import Contraction, LinearSolve
from dace_redist.transformations.einsum.reading import common_type, logical_shape
from dace_redist.transformations.einsum.steps import Body, Item, Step, with_blocks


def with_equal_types(body: Body, sdfg: SDFG) -> tuple[Item, ...]:
    """
    The same statements; operands and results of another type than NumPy computes with are converted by further steps.

    :param body: The program.
    :param sdfg: Gets arrays for what is converted.
    :raises ValueError: If it cannot be computed with a type, or complex numbers would be stored as real ones; names the
        statement.
    """
    items: list[Item] = []
    for item in body:
        if not isinstance(item, Step):
            items.append(with_blocks(item, lambda block: with_equal_types(block, sdfg)))
        elif item.statement.elementwise or item.reduction:
            _check_real(item, sdfg)
            items.append(item)
        else:
            items += _converted(item, sdfg)
    return tuple(items)


def _check_real(step: Step, sdfg: SDFG) -> None:
    """Refuses copies of complex numbers to real ones, also those that DaCe makes of expressions and of ``astype``."""
    result = step.statement.result
    copied = re.fullmatch(r"\w+ = (?:dace\.\w+)?\(?(\w+)\)?", step.code.strip())
    if step.moved is None and (copied is None or copied[1] not in step.inputs):
        return
    for name in step.read:
        if _is_complex(sdfg.arrays[name].dtype) and not _is_complex(sdfg.arrays[result].dtype):
            raise ValueError(
                f"{step.statement.label}: complex numbers would be written to elements of "
                f"{sdfg.arrays[result].dtype.to_string()}; take their real part, as in np.real(A)"
            )


def _is_complex(dtype: dtypes.typeclass) -> bool:
    return bool(np.issubdtype(dtype.type, np.complexfloating))


def _converted(step: Step, sdfg: SDFG) -> Iterator[Step]:
    statement, result = step.statement, sdfg.arrays[step.statement.result].dtype
    common = _type_to_compute_with(statement, sdfg)
    names = []
    for name in statement.operands:
        if sdfg.arrays[name].dtype == common:
            names.append(name)
        else:
            names.append(_like(sdfg, name, common))
            yield _copy(statement, name, names[-1], sdfg)
    if result == common:
        yield replace(step, statement=replace(statement, operands=tuple(names)))
        return
    computed = _like(sdfg, statement.result, common)
    yield replace(step, statement=replace(statement, operands=tuple(names), result=computed))
    yield _copy(statement, computed, statement.result, sdfg)


def _type_to_compute_with(statement: Statement, sdfg: SDFG) -> dtypes.typeclass:
    """The type that holds all operands and the result."""
    types = [sdfg.arrays[name].dtype for name in (*statement.operands, statement.result)]
    possible = (LinearSolve if statement.solves else Contraction).element_types
    if all(dtype == types[0] for dtype in types) and types[0] in possible:
        return types[0]
    found = common_type(types)
    if found not in possible:
        known = ", ".join(dtype.to_string() for dtype in possible)
        raise ValueError(
            f"{statement.label}: cannot compute with elements of {found.to_string()}; convert them to one of {known}"
        )
    if _is_complex(found) and not _is_complex(types[-1]):
        raise ValueError(
            f"{statement.label}: complex numbers would be written to elements of {types[-1].to_string()}; take their "
            "real part, as in np.real(A)"
        )
    return found


def _like(sdfg: SDFG, name: str, dtype: dtypes.typeclass) -> str:
    """A new array of the same shape for another type."""
    return str(sdfg.add_temp_transient(logical_shape(sdfg.arrays[name]) or [1], dtype)[0])


def _copy(statement: Statement, source: str, target: str, sdfg: SDFG) -> Step:
    """``target = source`` where the statement stands."""
    indices = ascii_letters[: len(logical_shape(sdfg.arrays[target]))]
    einsum = Einsum((indices,), indices)
    copied = replace(statement, einsum=einsum, operands=(source,), result=target, elementwise=True, solves=False)
    return Step(copied, 1, "_out = _in", ("_in",), "_out")

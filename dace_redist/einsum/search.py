"""Minimisation of a sum of unary and pairwise costs: one grid per group. Start reading at: minimise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dace_redist.einsum.grids import Floats

if TYPE_CHECKING:
    from dace_redist.einsum.model import Model

#: Maximum entries of a table of the dynamic programme.
MAX_TABLE = 8_000_000
#: Maximum rounds of improvement.
MAX_SWEEPS = 20

Pair = tuple[int, int]


def minimise(unary: Sequence[Floats], pairs: dict[Pair, Floats]) -> tuple[list[int], float] | None:
    """
    Return the choice per variable with the least sum of costs: exact, by bucket elimination.

    For a chain or a tree of groups this is the usual dynamic programme over its edges. Source: Dechter, Bucket
    elimination, Artificial Intelligence 113 (1999), doi 10.1016/S0004-3702(99)00059-4.

    :param unary: Costs of each variable's choices by themselves.
    :param pairs: Additional costs of two variables' choices, by variables (i, j) with i < j: shape (K_i, K_j).
    :return: Choices and their cost; None if a table would be too large.
    """
    tables: list[tuple[tuple[int, ...], Floats]] = [((v,), costs) for v, costs in enumerate(unary)]
    tables += list(pairs.items())
    sizes = [len(costs) for costs in unary]
    decided: list[tuple[int, tuple[int, ...], Floats]] = []
    left = set(range(len(unary)))
    while left:
        variable = min(left, key=lambda v: _table_size(v, tables, sizes))
        if _table_size(variable, tables, sizes) > MAX_TABLE:
            return None
        scope = _scope(variable, tables)
        total = _joined([t for t in tables if variable in t[0]], (variable, *scope), sizes)
        decided.append((variable, scope, total))
        tables = [t for t in tables if variable not in t[0]] + [(scope, total.min(axis=0))]
        left.remove(variable)
    cost = float(sum(float(table) for scope, table in tables if not scope))
    choice = [0] * len(unary)
    for variable, scope, total in reversed(decided):
        choice[variable] = int(np.argmin(np.moveaxis(total, 0, -1)[tuple(choice[v] for v in scope)]))
    return choice, cost


def _scope(variable: int, tables: Sequence[tuple[tuple[int, ...], Floats]]) -> tuple[int, ...]:
    """Return the variables that share a table with this one."""
    return tuple(sorted({v for scope, _ in tables if variable in scope for v in scope} - {variable}))


def _table_size(variable: int, tables: Sequence[tuple[tuple[int, ...], Floats]], sizes: Sequence[int]) -> int:
    return math.prod(sizes[v] for v in (*_scope(variable, tables), variable))


def _joined(tables: Sequence[tuple[tuple[int, ...], Floats]], scope: tuple[int, ...], sizes: Sequence[int]) -> Floats:
    """Return the sum of tables over all variables of a scope."""
    total = np.zeros([sizes[v] for v in scope])
    for own, table in tables:
        order = sorted(range(len(own)), key=lambda n: scope.index(own[n]))
        shape = [sizes[v] if v in own else 1 for v in scope]
        total += np.transpose(table, order).reshape(shape)
    return total


def descend(model: Model, first: int, value: int) -> tuple[list[int], float]:
    """
    Choose one variable after another, given those before, then improve each given all others until nothing changes.

    :param model: The costs.
    :param first: The variable to start with.
    :param value: Its first choice.
    :return: Choices and a bound on their cost.
    """
    variables = len(model.unary)
    chosen: list[int | None] = [None] * variables
    chosen[first] = value
    for variable in sorted(range(variables), key=lambda v: abs(v - first))[1:]:
        chosen[variable] = int(np.argmin(model.given(variable, chosen)))
    choice = [int(v) for v in chosen if v is not None]
    stale = set(range(variables))  # variables whose costs have changed since they were improved
    for _ in range(MAX_SWEEPS):
        for variable in range(variables):
            if variable not in stale:
                continue
            stale.remove(variable)
            row = model.given(variable, choice)
            best = int(np.argmin(row))
            if row[best] < row[choice[variable]]:
                choice[variable] = best
                stale.update(model.neighbours[variable])
        if not stale:
            break
    return choice, model.bound(choice)

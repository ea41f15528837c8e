"""The joint search: one grid per group, such that the program moves least. Start reading at: choose_grids."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from dace_redist.einsum.dataflow import EinsumProgram, planned
from dace_redist.einsum.model import Model, Pair
from dace_redist.einsum.nodes import ranks_on_nodes
from dace_redist.einsum.placement import Array, Floats, Placement, overlap_matrix
from dace_redist.einsum.plan import EinsumPlan
from dace_redist.einsum.program import Group
from dace_redist.relabelling import MAX_MATCHED_RANKS, assign

#: Maximum entries of a table of the dynamic programme.
MAX_TABLE = 8_000_000
#: Maximum rounds of improvement.
MAX_SWEEPS = 20
#: Candidates per group from which descents start, and maximum number of descents.
STARTS, MAX_DESCENTS = 4, 32
#: Maximum candidates per group in the dynamic programme.
MAX_CANDIDATES = 1200
#: Maximum rounds of replacing the bounds of the best solution by exact traffic.
MAX_ROUNDS = 60


def choose_grids(model: Model, cutoff: float = math.inf) -> list[int]:
    """
    Choose one candidate per group such that the program moves least.

    Descents give a good solution; candidates that cannot improve on it are dropped. A dynamic programme over lower
    bounds is then repeated. After each round the bounds of its solution are replaced by exact traffic, until no
    solution is bounded below the best cost. The result is optimal for chains and trees of groups, unless candidates
    were dropped because there were too many. Source: Dellin and Srinivasa, lazy shortest paths (ICAPS 2016).

    :param model: Costs and candidates; only the candidates considered remain in it.
    :return: The candidate of each group.
    """
    variables = range(len(model.candidates))
    best = [int(np.argmin(costs)) for costs in model.unary]
    if len(best) == 1:
        return best
    best = _reduced(model, best, cutoff, limited=False)
    best = descend(model, 0, best[0])
    best = _reduced(model, best, min(model.total(best), cutoff))
    starts = [(v, row) for v in variables for row in np.argsort(model.unary[v], kind="stable")[:STARTS].tolist()]
    some = starts[:: -(-len(starts) // MAX_DESCENTS)]
    found = dict.fromkeys([tuple(best), *(tuple(descend(model, *start)) for start in some)])
    best = min((list(choice) for choice in sorted(found, key=model.bound)[:STARTS]), key=model.total)
    cost = model.total(best)
    return _lazily(model, _reduced(model, best, cost), cost)


def _reduced(model: Model, best: list[int], cost: float, limited: bool = True) -> list[int]:
    """
    Drop candidates that cannot be part of a better solution; return the best solution in the new numbering.

    :param limited: Limit the number of candidates, too: keep those that fit the best solution or cost least by
        themselves.
    """
    least = [float(costs.min()) for costs in model.unary]
    kept: list[Array] = []
    for variable, costs in enumerate(model.unary):
        rows = np.flatnonzero(costs + sum(least) - least[variable] <= cost * (1 + 1e-9))
        limit = MAX_CANDIDATES if len(model.neighbours[variable]) < 3 else MAX_CANDIDATES // 8
        if limited and len(rows) > limit:
            orders = (np.argsort(given[rows], kind="stable") for given in (model.given(variable, best), costs))
            rows = rows[np.concatenate([order[: limit // 2] for order in orders])]
        chosen = np.zeros(len(costs), np.bool_)
        chosen[[*rows, best[variable]]] = True
        kept.append(np.flatnonzero(chosen))
    for variable, rows in enumerate(kept):
        model.keep(variable, rows)
    return [int(np.searchsorted(rows, row)) for rows, row in zip(kept, best, strict=True)]


def _lazily(model: Model, best: list[int], cost: float) -> list[int]:
    pairs = {pair: model.pair_bounds(*pair).copy() for pair in model.linked}
    for _ in range(MAX_ROUNDS):
        found = minimise(model.unary, pairs)
        if found is None or found[1] >= cost * (1 - 1e-12):
            break
        choice = found[0]
        if model.ranks > MAX_MATCHED_RANKS:
            return choice
        for i, j in pairs:
            pairs[i, j][choice[i], choice[j]] = model.exact(i, choice[i], j, choice[j])
        total = model.total(choice)
        if total < cost:
            best, cost = choice, total
    return best


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
    near: list[set[int]] = [set() for _ in unary]  # variables that share a table with each
    for i, j in pairs:
        near[i].add(j)
        near[j].add(i)
    entries = [sizes[v] * math.prod(sizes[other] for other in near[v]) for v in range(len(unary))]
    left = set(range(len(unary)))
    while left:
        variable = min(left, key=entries.__getitem__)
        if entries[variable] > MAX_TABLE:
            return None
        scope = tuple(sorted(near[variable]))
        for other in scope:
            near[other] = (near[other] | near[variable]) - {variable, other}
        for other in scope:
            entries[other] = sizes[other] * math.prod(sizes[v] for v in near[other])
        total = _joined([t for t in tables if variable in t[0]], (variable, *scope), sizes)
        decided.append((variable, scope, total))
        tables = [t for t in tables if variable not in t[0]] + [(scope, total.min(axis=0))]
        left.remove(variable)
    cost = float(sum(float(table) for scope, table in tables if not scope))
    choice = [0] * len(unary)
    for variable, scope, total in reversed(decided):
        choice[variable] = int(np.argmin(np.moveaxis(total, 0, -1)[tuple(choice[v] for v in scope)]))
    return choice, cost


def _joined(tables: Sequence[tuple[tuple[int, ...], Floats]], scope: tuple[int, ...], sizes: Sequence[int]) -> Floats:
    """Return the sum of tables over all variables of a scope."""
    total = np.zeros([sizes[v] for v in scope])
    for own, table in tables:
        order = sorted(range(len(own)), key=lambda n: scope.index(own[n]))
        shape = [sizes[v] if v in own else 1 for v in scope]
        total += np.transpose(table, order).reshape(shape)
    return total


def descend(model: Model, first: int, value: int) -> list[int]:
    """Choose one variable after another from ``first`` on, then improve each given all others until nothing changes."""
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
    return choice


def assign_ranks(model: Model, choice: list[int], node_size: int | None = None) -> tuple[EinsumPlan, EinsumPlan]:
    """
    Return the plan on the chosen grids with node-aware ranks, and with node-unaware ranks.

    Ranks in order, 0, 1, 2, ..., are kept if that moves less than :func:`_relabelled`.
    """
    plain = _balanced(model.program, [found.group(row) for found, row in zip(model.candidates, choice, strict=True)])
    tried = [planned(model.program, groups, node_size) for groups in dict.fromkeys((_relabelled(model, plain), plain))]
    best = min(tried, key=lambda plan: plan.bytes_per_rank)
    if node_size is None:
        return best, best
    aware = planned(model.program, _relabelled(model, plain, node_size), node_size)
    return min([best, aware], key=lambda plan: preference(plan, best)), best


def _balanced(program: EinsumProgram, groups: Sequence[Group]) -> tuple[Group, ...]:
    """
    Return the groups with balanced blocks of the indices whose largest tensor lies so.

    That is an operand that the user or an earlier group placed, or a result that the user places, with equally many
    parts.
    """
    there, made = dict(program.problem.homes), list[Group]()
    for group in groups:
        names, terms = [*group.operands, group.result], [*group.einsum.operands, group.einsum.result]
        multiples = dict(zip(group.einsum.indices, group.multiples, strict=True))
        known = [(math.prod(program.sizes[name]), number) for number, name in enumerate(names) if name in there]
        for _, number in sorted(known):
            home = there[names[number]]
            if not isinstance(home, Placement):
                continue
            for axis, index in enumerate(terms[number]):
                if home.parts[axis] == group.parts[index] and multiples[index] <= 1:
                    multiples[index] = min(home.multiples[axis], 1)
        made.append(dataclasses.replace(group, multiples=tuple(multiples.values())))
        there.setdefault(group.result, made[-1].least_placement)
    return tuple(made)


def preference(plan: EinsumPlan, unaware: EinsumPlan) -> tuple[bool, float]:
    """Return a sort key: plans with more traffic between nodes than the node-unaware one come last, else by time."""
    between, limit = ((one.internode_bytes or (0.0,))[0] for one in (plan, unaware))
    return between > limit, plan.seconds


def _relabelled(model: Model, groups: tuple[Group, ...], node_size: int | None = None) -> tuple[Group, ...]:
    """
    Renumber the ranks of each group to maximise self copies, on nodes first.

    From the last group to the first, each gets the ranks with the largest self copies to and from the groups that
    have their ranks already. In a chain or a tree of groups this covers every pair. Nodes keep whole tiles of a grid:
    they are permuted, then the ranks of each.
    """
    known: dict[int, Group] = {}
    for number in reversed(range(len(groups))):
        group = groups[number]
        near = [e for e in model.edges if number in e.groups and {number} < e.groups <= {number, None, *known}]
        overlaps = [model.overlap(edge, number, group, known) for edge in near]
        matches = bool(overlaps) and model.ranks <= MAX_MATCHED_RANKS
        kept = overlap_matrix(overlaps, len(group.ranks), model.ranks) if matches else None
        ranks = ranks_on_nodes(group, node_size, kept) if node_size else None
        if ranks is None:
            ranks = group.ranks if kept is None else tuple(assign(kept).tolist())
        known[number] = group.with_ranks(ranks)
    return tuple(known[number] for number in range(len(groups)))

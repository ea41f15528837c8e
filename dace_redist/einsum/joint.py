"""The joint search over the grids of all groups. Start reading at: choose_grids."""

from __future__ import annotations

import math

import numpy as np

from dace_redist.einsum.model import Model
from dace_redist.einsum.nodes import node_tiles
from dace_redist.einsum.placement import Array
from dace_redist.einsum.plan import Group
from dace_redist.einsum.program import Walk
from dace_redist.einsum.relabel import best_ranks
from dace_redist.einsum.search import Pair, descend, minimise
from dace_redist.relabelling import MAX_MATCHED_RANKS

#: Candidates per group from which descents start.
STARTS = 4
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
    :param cutoff: Maximum cost of a solution.
    :return: The candidate of each group.
    """
    variables = range(len(model.candidates))
    best = [int(np.argmin(costs)) for costs in model.unary]
    if len(best) == 1:
        return best
    best = _restricted(model, best, [_promising(model, variable, best, cutoff) for variable in variables])
    best, _ = descend(model, 0, best[0])
    cost = min(model.total(best), cutoff)
    best = _restricted(model, best, [_promising(model, variable, best, cost) for variable in variables])
    best, cost = _descents(model, best)
    best = _restricted(model, best, [_fitting(model, variable, best, cost) for variable in variables])
    return _lazily(model, best, cost)


def _descents(model: Model, start: list[int]) -> tuple[list[int], float]:
    """Return the best solution of a few descents, and its cost."""
    found = {tuple(start): 0.0}
    for variable in range(len(start)):
        for row in np.argsort(model.unary[variable], kind="stable")[:STARTS].tolist():
            choice, bound = descend(model, variable, row)
            found[tuple(choice)] = bound
    promising = sorted(found, key=lambda choice: found[choice])[:STARTS]
    best = min(promising, key=model.total)
    return list(best), model.total(best)


def _restricted(model: Model, best: list[int], rows: list[Array]) -> list[int]:
    """Keep only some candidates; return a solution in the new numbering."""
    for variable, which in enumerate(rows):
        model.keep(variable, which)
    return [int(np.searchsorted(which, row)) for which, row in zip(rows, best, strict=True)]


def _promising(model: Model, variable: int, best: list[int], cost: float) -> Array:
    """Return the candidates that may be part of a better solution."""
    others = sum(float(costs.min()) for v, costs in enumerate(model.unary) if v != variable)
    rows = np.flatnonzero(model.unary[variable] + others <= cost * (1 + 1e-9))
    return np.union1d(rows, [best[variable]])


def _fitting(model: Model, variable: int, best: list[int], cost: float) -> Array:
    """Limit the number of candidates: keep those that fit the best solution or cost least by themselves."""
    rows = _promising(model, variable, best, cost)
    links = sum(variable in pair for pair in model.linked)
    limit = MAX_CANDIDATES if links < 3 else MAX_CANDIDATES // 8
    if len(rows) <= limit:
        return rows
    fitting = rows[np.argsort(model.given(variable, best)[rows], kind="stable")[: limit // 2]]
    cheapest = rows[np.argsort(model.unary[variable][rows], kind="stable")[: limit // 2]]
    return np.union1d(np.union1d(fitting, cheapest), [best[variable]])


def _lazily(model: Model, best: list[int], cost: float) -> list[int]:
    pairs: dict[Pair, np.ndarray] = {pair: model.pair_bounds(*pair) for pair in model.linked}
    known: set[tuple[int, int, int, int]] = set()
    for _ in range(MAX_ROUNDS):
        found = minimise(model.unary, pairs)
        if found is None or found[1] >= cost * (1 - 1e-12):
            break
        choice = found[0]
        if model.program.ranks > MAX_MATCHED_RANKS:
            return choice
        unknown = [pair for pair in pairs if (pair[0], choice[pair[0]], pair[1], choice[pair[1]]) not in known]
        for i, j in unknown:
            known.add((i, choice[i], j, choice[j]))
            pairs[i, j][choice[i], choice[j]] = model.exact(i, choice[i], j, choice[j])
        total = model.total(choice)
        if total < cost:
            best, cost = choice, total
    return best


def labelled(model: Model, choice: list[int], node_size: int | None = None) -> tuple[Walk, Walk]:
    """
    Assign ranks to the chosen groups.

    From the last group to the first, each gets the ranks with the largest self copies to and from the groups that
    have their ranks already. In a chain or a tree of groups this covers every pair. Ranks in order, 0, 1, 2, ..., are
    kept if that moves less.

    :param model: The model.
    :param choice: The candidate of each group.
    :param node_size: Ranks per node, numbered node by node; traffic between nodes then counts, too.
    :return: The program with node-aware ranks, and with node-unaware ranks.
    """
    program, plain = model.program, tuple(model.group(number, row) for number, row in enumerate(choice))
    tried = [Walk(program, groups, node_size) for groups in dict.fromkeys((relabelled(model, plain), plain))]
    best = min(tried, key=lambda walk: walk.bytes_per_rank)
    if node_size is None:
        return best, best
    aware = Walk(program, relabelled(model, plain, node_size), node_size)
    return min([best, aware], key=lambda walk: walk.preferred(best)), best


def on_nodes(model: Model, best: Walk, unaware: Walk, memory_bytes: float) -> Walk:
    """
    Return the best of three walks: the given ones, and one on grids chosen for little traffic between nodes.

    :param model: The model in which bytes between nodes count.
    :param best: The best walk on grids chosen without nodes.
    :param unaware: The best walk if neither grids nor ranks depend on nodes.
    :param memory_bytes: Memory per rank; walks that need more come last.
    """
    aware, _ = labelled(model, choose_grids(model), model.node_size)
    return min((best, aware, unaware), key=lambda walk: (walk.memory_bytes > memory_bytes, *walk.preferred(unaware)))


def relabelled(model: Model, groups: tuple[Group, ...], node_size: int | None = None) -> tuple[Group, ...]:
    """Renumber the ranks of each group to minimise traffic, between nodes first."""
    program = model.program
    known: dict[int, Group] = {}
    for number in reversed(range(len(groups))):
        group = groups[number]
        ends = [(edge, {edge.source[0], edge.target[0]} - {number}) for edge in model.edges]
        near = [edge for edge, others in ends if number in (edge.source[0], edge.target[0]) and _known(others, known)]
        overlaps = [model.overlap(edge, number, group, known) for edge in near]
        nodes = node_tiles(group, program.steps[number].extents, node_size) if node_size else None
        known[number] = group.with_ranks(best_ranks(overlaps, len(group.ranks), program.ranks, nodes))
    return tuple(known[number] for number in range(len(groups)))


def _known(others: set[int | None], known: dict[int, Group]) -> bool:
    return bool(others) and all(other is None or other in known for other in others)

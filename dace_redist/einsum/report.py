"""Report of a plan as text (``text``) and as data (``to_json``). Start reading at: text."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from dace_redist.einsum.placement import Given, Home
from dace_redist.einsum.program import Group, Move, PlannedProgram
from dace_redist.einsum.rates import BYTES_PER_SECOND, FLOPS_PER_SECOND
from dace_redist.einsum.statement import Statement
from dace_redist.report.units import count, format_bytes, in_units, table

_UNITS = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP")


def format_flops(count: float) -> str:
    """Return a number of operations with three digits and a decimal prefix, as in ``1.5 GFLOP``."""
    return in_units(count, 1000, _UNITS)


def grid_text(group: Group) -> str:
    """Return the split indices with their numbers of parts, as in ``i:2 k:4``."""
    if group.replicas > 1:
        return f"whole on {group.replicas} ranks"
    return " ".join(f"{index}:{parts}" for index, parts in group.parts.items() if parts > 1) or "one rank"


def operation_text(computed: Statement | Group) -> str:
    """Return the indices of an einsum, as in ``ij,jk->ik``, or with a verb before them: ``solve ij,ik->jk``."""
    verb = ("solve " if len(computed.operands) > 1 else "invert ") if computed.solves else ""
    equal = getattr(computed, "equal", ())
    where = f" where {', '.join(f'{place} = {index}' for place, index in equal)}" if equal else ""
    return f"{verb}{computed.einsum}{where}"


def reduction_text(group: Group) -> str:
    """Describe the reduction of partial results; empty without one."""
    if group.reduction is None:
        return ""
    over = f"summed over {', '.join(group.reduction.over)} on {group.reduction.ranks} ranks each"
    if group.sums_at is not None:
        return f"{over}, to {_placement_text(group.sums_at)}"
    if group.reduction.axis is None:
        return f"{over}, to the first of them"
    return f"{over}, scattered along {group.einsum.result[group.reduction.axis]}"


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as in ``64 x 32``."""
    return " x ".join(map(str, shape)) or "scalar"


def text(plan: PlannedProgram) -> str:
    """Return the report as text: order, groups, grids, bytes per rank and step, memory, share of communication."""
    lines = [_heading(plan), ""]
    for number, statement in enumerate(plan.statements):
        often = f", {statement.repeats} times" if statement.repeats > 1 else ""
        where = f"   ({statement.where})" if statement.where else ""
        lines.append(
            f"{statement.result} = {operation_text(statement)} of {', '.join(statement.operands)}{often}{where}"
        )
        rows = list(_rows(plan, number))
        lines += ["  " + line for line in (table(rows, left=3) if rows else [])]
        lines.append("")
    return "\n".join([*lines, *_totals(plan)])


def _heading(plan: PlannedProgram) -> str:
    on_nodes = f" on nodes of {plan.node_size}" if plan.node_size else ""
    ranks = count(plan.ranks, "rank")
    return f"plan for {ranks}{on_nodes}, {plan.itemsize} bytes per element; bytes and operations of the busiest rank"


def _rows(plan: PlannedProgram, statement: int) -> Iterator[tuple[str, ...]]:
    """Yield a table row for each move and group of a statement."""
    for number, group in enumerate(plan.groups):
        if group.statement != statement:
            continue
        yield from (_move_row(plan, move) for move in plan.moves if move.before_group <= number == move.group)
        cost, names = plan.costs[number], f"{group.result} = {', '.join(group.operands)}"
        yield (operation_text(group), names, grid_text(group), format_flops(group.flops))
        if cost.fetched:
            yield ("  operands", "", "fetched from replicas", format_bytes(cost.fetched))
        if group.reduction is not None:
            yield ("  result", "", reduction_text(group), format_bytes(cost.reduced))
        yield from (_move_row(plan, move) for move in plan.moves if move.group == number < move.before_group)


def _move_row(plan: PlannedProgram, move: Move) -> tuple[str, ...]:
    source, target = _placement_text(move.source), _placement_text(move.target)
    moved = format_bytes(move.bytes_per_rank) if move.bytes_total else "nothing sent"
    if move.repeats < plan.repeats(move.group):
        moved += f", {move.repeats} times" if move.repeats > 1 else ", once"
    return (f"move {move.tensor}", shape_text(plan.sizes[move.tensor]), f"{source} to {target}", moved)


def _placement_text(placement: Home) -> str:
    if isinstance(placement, Given):
        return f"given distribution, {placement.op} of replicas" if placement.op else "given distribution"
    words = " x ".join(map(str, placement.parts)) or "1"
    return f"{words} blocks" + (f" on {placement.replicas} ranks each" if placement.replicas > 1 else "")


def _totals(plan: PlannedProgram) -> Iterator[str]:
    fetched = sum(cost.fetched for cost in plan.costs)
    reduced = sum(plan.repeats(number) * cost.reduced for number, cost in enumerate(plan.costs))
    moved = sum(move.repeats * move.bytes_per_rank for move in plan.moves)
    yield (
        f"bytes per rank   {format_bytes(plan.bytes_per_rank)}: fetched {format_bytes(fetched)}, "
        f"reduced {format_bytes(reduced)}, moved {format_bytes(moved)}"
    )
    if plan.bound:
        by = ", the bounds of the groups added" if len(plan.groups) > 1 else " by any algorithm"
        ratio = plan.bytes_per_rank / plan.bound
        yield f"at least         {format_bytes(plan.bound)}{by}: the plan has {ratio:.3f} times that"
    yield f"operations       {format_flops(plan.flops)} per rank"
    yield f"memory           {format_bytes(plan.memory_bytes)} per rank at most, without the workspace of contractions"
    yield (
        f"communication    {100 * plan.communication_share:.1f} % of the time, at "
        f"{BYTES_PER_SECOND / 1e9:g} GB/s and {FLOPS_PER_SECOND / 1e9:g} GFLOP/s per rank"
    )
    if plan.internode_bytes is not None:
        aware, unaware = plan.internode_bytes
        yield f"between nodes    {format_bytes(aware)} in all; {format_bytes(unaware)} without knowledge of nodes"
        yield f"within nodes     {format_bytes(plan.intranode_bytes or 0.0)} in all, between ranks"
    if plan.remark:
        yield f"replicated       {plan.remark}"
    if plan.unused_ranks:
        yield f"unused           {count(len(plan.unused_ranks), 'rank')}: {_ranges(plan.unused_ranks)}"


def to_json(plan: PlannedProgram) -> dict[str, Any]:
    """
    Return the report as dictionaries, lists and numbers.

    Bytes and operations are those of one run of a group on its busiest rank, unless stated otherwise;
    ``bytes_per_rank``, ``flops`` and ``seconds`` are totals of the program. Source and target of a move are
    placements, see :class:`Placement`.
    """
    between_nodes, unaware = plan.internode_bytes or (None, None)
    return {
        "ranks": plan.ranks,
        "node_size": plan.node_size,
        "itemsize": plan.itemsize,
        "statements": [
            {"einsum": operation_text(one), "operands": one.operands, "result": one.result, "repeats": one.repeats}
            for one in plan.statements
        ],
        "groups": [_group_json(plan, number) for number in range(len(plan.groups))],
        "moves": [_move_json(plan, move) for move in plan.moves],
        "bytes_per_rank": plan.bytes_per_rank,
        "bytes_per_rank_bound": plan.bound,
        "flops": plan.flops,
        "memory_bytes": plan.memory_bytes,
        "seconds": plan.seconds,
        "communication_share": plan.communication_share,
        "bytes_between_nodes": between_nodes,
        "bytes_between_nodes_without_knowledge_of_nodes": unaware,
        "bytes_within_nodes": plan.intranode_bytes,
        "unused_ranks": plan.unused_ranks,
        "remark": plan.remark,
    }


def _move_json(plan: PlannedProgram, move: Move) -> dict[str, Any]:
    facts = {field.name: getattr(move, field.name) for field in dataclasses.fields(move)}
    return {
        **facts,
        "source": _home_json(move.source),
        "target": _home_json(move.target),
        "shape": plan.sizes[move.tensor],
        "loops": [loop.name for loop in move.loops],
        "repeats": move.repeats,
    }


def _home_json(home: Home) -> dict[str, Any]:
    if isinstance(home, Given):
        return {"distribution": home.whole.encoded_array.tolist(), "op": home.op}
    return dataclasses.asdict(home)


def _group_json(plan: PlannedProgram, number: int) -> dict[str, Any]:
    group, cost = plan.groups[number], plan.costs[number]
    reduction = group.reduction
    scattered = None if reduction is None or reduction.axis is None else group.einsum.result[reduction.axis]
    summed = None if reduction is None else {"over": reduction.over, "ranks": reduction.ranks, "scattered": scattered}
    if summed is not None and group.sums_at is not None:
        summed |= {"scattered": None, "to": _home_json(group.sums_at)}
    return {
        "statement": group.statement,
        "einsum": operation_text(group),
        "operands": group.operands,
        "result": group.result,
        "grid": group.parts,
        "multiples": dict(zip(group.einsum.indices, group.multiples, strict=True)),
        "replicas": group.replicas,
        "ranks": group.ranks,
        "reduction": summed,
        "bytes_fetched": cost.fetched,
        "bytes_reduced": cost.reduced,
        "flops": group.flops,
        "memory_bytes": cost.memory_bytes,
    }


def _ranges(ranks: Sequence[int]) -> str:
    """Return ascending ranks in short: ``3, 5-7``."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    words = [str(low) if low == high else f"{low}-{high}" for low, high in runs]
    return ", ".join(words[:8]) + (", ..." if len(words) > 8 else "")

"""Calls of ``einsum``, and the cache of their plans. Start reading at: evaluate."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from dace_redist.distribution import AnyDistribution, check_distribution
from dace_redist.einsum.executor import ExecutablePlan
from dace_redist.einsum.operands import Operand, described, is_number, path_of
from dace_redist.mpi.collective import check_congruent, checked_communicator, together
from dace_redist.native.contraction import ensure_contractions
from dace_redist.native.interface import agree, prepare
from dace_redist.redistribution.arrays import array_view
from dace_redist.redistribution.cache import PlanCache, plan_cache
from dace_redist.redistribution.distributed_array import DistributedArray, known_communicator, part_of
from dace_redist.redistribution.problem.agreement import compare_arguments
from dace_redist.transform import element_type

#: Maximum number of plans per communicator; the least recently used one is freed first.
_MAX_PLANS = 64


class _Settings(NamedTuple):
    """Arguments of a call besides operands and communicator."""

    expression: Any
    target: AnyDistribution | None
    out: DistributedArray | None
    optimize: Any
    memory_bytes: int | None
    overrides: Mapping[str, Any] | None
    options: Mapping[str, Any]


class _Known(NamedTuple):
    """Plan of earlier calls, a hash that is equal on all ranks, and objects whose ``id`` is part of the call's key."""

    plan: ExecutablePlan
    key: Any
    digest: int
    kept: Any


def evaluate(arrays: Sequence[Any], *settings: Any) -> DistributedArray:
    """Evaluate an einsum by the plan of an equal call; see :func:`dace_redist.einsum`."""
    how = _Settings(*settings)
    comm = checked_communicator(known_communicator(arrays))
    cache = plan_cache(comm)
    known = call = None
    try:
        call = _key(arrays, comm, how)
        known = None if call is None else cache.einsum_calls.get(call)
    except Exception:  # not hashable, or of a wrong type, which all ranks find below
        call = None
    if known is None:
        compare_arguments(comm)
    else:
        try:
            memory = known.plan.allocate(how.out, arrays)
            digest = known.digest ^ _digest([arrays[number] for number in known.plan.call.numbers])
        except MemoryError:  # all ranks take the way below, where one reports it to the others
            memory, digest = None, 0
        if agree(MPI._handleof(comm), digest):
            cache.einsums.move_to_end(known.key)
            return _run(cache, known, memory, arrays, how.out)
    return _evaluate_checked(cache, comm, arrays, how, call)


def _run(
    cache: PlanCache, known: _Known, memory: Any, arrays: Sequence[Any], out: DistributedArray | None
) -> DistributedArray:
    try:
        return known.plan.run(*known.plan.call.split(arrays), memory, out)
    except Exception:
        _drop(cache, known.key)
        raise


def _drop(cache: PlanCache, key: Any) -> None:
    cache.einsum_calls = {call: known for call, known in cache.einsum_calls.items() if known.key != key}
    cache.einsums.pop(key).free()


def _key(arrays: Sequence[Any], comm: MPI.Intracomm, how: _Settings) -> Any:
    """Return the key of a call; None if it needs the full check."""
    parts: list[Any] = []
    for one in arrays:
        if isinstance(one, DistributedArray) and isinstance(one.local, np.ndarray):
            of_comm = None if one.comm is comm else id(one.comm)
            parts.append((id(one.distribution), one.local.dtype, one.local.shape, one.op, of_comm))
        elif is_number(one):
            parts.append(np.asarray(one).dtype)
        else:
            return None
    if how.out is not None:
        if not isinstance(how.out, DistributedArray) or not isinstance(how.out.local, np.ndarray):
            return None
        local = how.out.local
        parts.append((id(how.out.distribution), local.dtype, local.shape, local.flags.writeable, id(how.out.comm)))
    path = how.optimize if isinstance(how.optimize, str | bool | tuple) else id(how.optimize)
    others = tuple((how.overrides or {}).items()), tuple(how.options.items())
    return (how.expression, *parts, _same(arrays), id(how.target), path, how.memory_bytes, *others)


def _same(arrays: Sequence[Any]) -> tuple[int, ...]:
    """Return for each operand the number of the first one that is the same array; a number is another one each time."""
    first: dict[int, int] = {}
    return tuple(n if is_number(one) else first.setdefault(id(one), n) for n, one in enumerate(arrays))


def _digest(values: Any) -> int:
    """Return a hash of 56 bits of values with equal ``repr`` on all ranks; 0 of none."""
    return int.from_bytes(hashlib.blake2b(repr(values).encode(), digest_size=7).digest(), "little") if values else 0


def _evaluate_checked(
    cache: PlanCache, comm: MPI.Intracomm, arrays: Sequence[Any], how: _Settings, call: Any
) -> DistributedArray:
    """Evaluate with all checks: the call is new to a rank, or the arguments of the ranks differ."""
    read = _read(arrays, comm, how)
    target = how.target
    with together(comm):
        if how.out is not None:
            target = _target_of(how.out, how.target, comm)
    operands = [Operand.of(one) if isinstance(one, DistributedArray) else one.dtype for one in read]
    known = _planned(cache, comm, operands, _same(arrays), how._replace(target=target, out=None))
    if call is not None:
        if len(cache.einsum_calls) > 16 * _MAX_PLANS:
            cache.einsum_calls.clear()
        kept = [(one.distribution, one.comm) for one in (*read, how.out) if isinstance(one, DistributedArray)]
        cache.einsum_calls[call] = known._replace(kept=(kept, how.target, how.optimize))
    with together(comm):
        if how.out is not None:
            _check_out(how.out, known.plan)
        memory = known.plan.allocate(how.out, read)
    return _run(cache, known, memory, read, how.out)


def _read(arrays: Sequence[Any], comm: MPI.Intracomm, how: _Settings) -> list[Any]:
    """Return distributed arrays of NumPy, and numbers as arrays; an error on one rank is raised on all."""
    kinds = ["a number" if is_number(one) else type(one).__name__ for one in arrays]
    numbers = [np.asarray(one) for one in arrays if is_number(one)]
    given = {"the expression": how.expression, "the kinds of the operands": kinds, "the numbers": numbers}
    same = {"which operands are one array": _same(arrays), "whether they pass out": how.out is not None}
    with together(comm, given | same):
        parts = [np.asarray(one) if is_number(one) else _part(number, one, comm) for number, one in enumerate(arrays)]
    of_others = [part for part in parts if not isinstance(part, np.ndarray) and callable(part.distribution)]
    told = iter(zip(*comm.allgather([part.local.shape for part in of_others]), strict=True)) if of_others else iter(())
    read: list[Any] = []
    with together(comm):
        for number, part in enumerate(parts):
            if isinstance(part, np.ndarray):
                read.append(part)
                continue
            whole = part.distribution(list(next(told))) if callable(part.distribution) else part.distribution
            view = array_view(f"operand {number}", part.local)
            if view.device != "cpu":
                raise TypeError(f"operand {number} lies on the GPU, where einsum does not compute: copy it first")
            read.append(DistributedArray(view.as_numpy(), whole, part.comm, op=part.op))
    return read


def _part(number: int, array: Any, comm: MPI.Intracomm) -> Any:
    if isinstance(array, np.ndarray | list | tuple):
        kind = "NumPy array" if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(
            f"operand {number} is a {kind}: pass DistributedArray(array, distribution) if it is this rank's part, "
            "or replicated(array) if every rank has all of it"
        )
    part = part_of(array, comm)
    check_congruent(part.comm, comm)
    return part


def _target_of(out: Any, target: AnyDistribution | None, comm: MPI.Intracomm) -> AnyDistribution:
    """Return the distribution of ``out``, checked."""
    if not isinstance(out, DistributedArray):
        raise TypeError(f"out must be a DistributedArray, got {type(out).__name__}")
    check_congruent(out.comm, comm)
    if target is not None and target != out.distribution:
        raise ValueError(f"target is the distribution of out, {out.distribution}: leave it out; got {target}")
    if not isinstance(out.local, np.ndarray) or not out.local.flags.writeable:
        raise ValueError("out must be a writeable NumPy array on every rank")
    return out.distribution


def _check_out(out: DistributedArray, plan: ExecutablePlan) -> None:
    if out.dtype != plan.dtype:
        raise TypeError(f"{plan.call.where}: out must have the type of the result, {plan.dtype}, got {out.dtype}")


def _planned(
    cache: PlanCache, comm: MPI.Intracomm, operands: Sequence[Any], same: Sequence[int], how: _Settings
) -> _Known:
    """Return the plan of a problem, made on first use. Collective."""
    facts: dict[str, Any] = {"operands": operands, "target": how.target, "memory_bytes": how.memory_bytes}
    facts |= {"overrides": how.overrides, "options": how.options}
    optimize = _path(comm, operands, how)
    with together(comm, facts | {"optimize": optimize}):
        call = described(
            how.expression,
            operands,
            same,
            comm.size,
            target=how.target,
            optimize=optimize,
            memory_bytes=how.memory_bytes,
            overrides=how.overrides,
        )
        key = call, repr(how.options)
    if key not in cache.einsums:
        prepare(comm, ensure_contractions)
        made = ExecutablePlan.of(call, comm, how.options)
        if len(cache.einsums) >= _MAX_PLANS:
            _drop(cache, next(iter(cache.einsums)))
        cache.einsums[key] = made
    cache.einsums.move_to_end(key)
    return _Known(cache.einsums[key], key, _digest((how.expression, facts, optimize, same)) or 1, None)


def _path(comm: MPI.Intracomm, operands: Sequence[Any], how: _Settings) -> Any:
    """Return ``optimize``, with the path of an optimizer, which runs on rank 0 as it may be random. Collective."""
    given = how.optimize
    kind = "a path" if isinstance(given, list | tuple) else given if isinstance(given, str | bool) else "an optimizer"
    found: Any = None
    with together(comm, {"optimize": kind}):
        if kind == "a path":
            found = tuple(tuple(int(number) for number in step) for step in given if step != "einsum_path")
        elif given in ("auto", True):
            found = "auto"
        elif comm.rank == 0:
            found = path_of(how.expression, operands, given)
    return found if kind == "a path" or found == "auto" else comm.bcast(found)


def planned_einsum(
    expression: str,
    distributions: Sequence[Any],
    dtype: Any,
    comm: MPI.Intracomm | None,
    *settings: Any,
) -> ExecutablePlan:
    """Plan an einsum; see :func:`dace_redist.einsum_plan`."""
    comm = checked_communicator(comm)
    target, *others = settings
    how = _Settings(expression, target, None, *others)
    operands: list[Any] = []
    with together(comm, {"the expression": expression}):
        types = list(dtype) if isinstance(dtype, list | tuple) else [dtype] * len(distributions)
        if len(types) != len(distributions):
            raise ValueError(f"dtype must have a type for each of {len(distributions)} operands, got {len(types)}")
        for number, (given, element) in enumerate(zip(distributions, types, strict=True)):
            if given is None:
                operands.append(element_type(element))
                continue
            whole, op = (given.distribution, given.op) if isinstance(given, DistributedArray) else (given, None)
            check_distribution(f"operand {number}", whole)
            operands.append(Operand(whole, element_type(element), op))
    once = PlanCache()  # the plan belongs to the caller
    return _planned(once, comm, operands, range(len(operands)), how).plan

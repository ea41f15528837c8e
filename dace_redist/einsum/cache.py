"""Calls of ``einsum``, and the cache of their plans. Start reading at: evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from dace_redist import interop
from dace_redist.distribution import BoxDistribution, TiledDistribution, check_distribution
from dace_redist.einsum.executor import ExecutablePlan
from dace_redist.einsum.operands import Array, Operand, Settings, described, is_number, path_of
from dace_redist.mpi.collective import check_congruent, checked_communicator, digest, together
from dace_redist.native.contraction import ensure_contractions
from dace_redist.native.interface import agree, prepare
from dace_redist.redistribution.arrays import array_view
from dace_redist.redistribution.cache import Known, PlanCache, plan_cache, typed
from dace_redist.redistribution.distributed_array import DistributedArray, known_communicator, part_of
from dace_redist.redistribution.problem.agreement import enter_without_plan
from dace_redist.transform import element_type


def evaluate(arrays: Sequence[Any], *settings: Any) -> DistributedArray:
    """Evaluate an einsum by the plan of an equal call; see :func:`dace_redist.einsum`."""
    how = Settings(*settings)
    if not isinstance(how.expression, str):
        arrays, how = _of_lists(arrays, how)
    given = known_communicator(arrays)
    comm = MPI.COMM_WORLD if given is None else given
    cache = plan_cache(comm)
    known = call = None
    try:
        call = _key(arrays, comm, how)
        known = None if call is None else cache.calls.get(call)
    except Exception:  # not hashable, or of a wrong type, which all ranks find below
        call = None
    same, memory = 0, None
    if known is None:
        enter_without_plan(checked_communicator(comm))
    else:
        try:
            memory = known.plan.allocate(how.out, arrays)
            numbers = [np.asarray(arrays[n]).tobytes() for n in known.plan.call.numbers]
            same = known.same ^ digest(numbers) if numbers else known.same
        except MemoryError:  # all ranks take the way below, where one reports it to the others
            same = 0
    if known is not None and agree(MPI._handleof(comm), same):
        cache.plans.move_to_end(known.key)
    else:
        known, memory, arrays = _checked(cache, comm, arrays, how, call)
    try:
        result: DistributedArray = known.plan.run(arrays, memory, how.out)
    except Exception:
        cache.drop(known.key)
        raise
    return result


def _of_lists(arrays: Sequence[Any], how: Settings) -> tuple[Sequence[Any], Settings]:
    """Return operands and expression of NumPy's other form, ``A, [0, 1], B, [1, 2], [0, 2]``; else what is given."""
    if not arrays or not isinstance(arrays[0], list | tuple):
        return arrays, how
    from opt_einsum.parser import convert_interleaved_input

    given = how.expression, *arrays
    try:
        text, operands = convert_interleaved_input(given)
    except Exception:  # not operands before lists of indices, which all ranks find below
        text, operands = list(arrays), tuple(one for one in given if not isinstance(one, list | tuple))
    return operands, how._replace(expression=text)


def _key(arrays: Sequence[Any], comm: MPI.Intracomm, how: Settings) -> Any:
    """Return the key of a call; None if it needs the full check."""
    parts: list[Any] = []
    first: dict[int, int] = {}  # number of the first operand that is the same array
    for number, one in enumerate(arrays):
        if isinstance(one, DistributedArray) and isinstance(one.local, np.ndarray):
            of_comm = None if one.comm is comm else (id(one.comm), bool(one.comm))  # False if it was freed
            same = first.setdefault(id(one), number)
            parts.append((id(one.distribution), one.local.dtype, one.local.shape, one.op, of_comm, same))
        elif is_number(one):
            parts.append(np.asarray(one).dtype)
        else:
            return None
    if how.out is not None:
        out, local = how.out, getattr(how.out, "local", how.out)
        if not isinstance(local, np.ndarray):
            return None
        of = (id(out.distribution), out.op, id(out.comm), bool(out.comm)) if local is not out else ()
        parts.append((*of, local.dtype, local.shape, local.flags.writeable))
    path = how.optimize if isinstance(how.optimize, str | bool | tuple) else id(how.optimize)
    key = how.expression, *parts, id(how.target), path, how.strategy
    if how.memory_bytes is None and not how.overrides and not how.options:
        return key
    return key + typed({"memory_bytes": how.memory_bytes, **(how.overrides or {}), **how.options})


def _same(arrays: Sequence[Any]) -> tuple[int, ...]:
    """Return for each operand the number of the first one that is the same array; a number is another one each time."""
    first: dict[int, int] = {}
    return tuple(n if is_number(one) else first.setdefault(id(one), n) for n, one in enumerate(arrays))


def _checked(
    cache: PlanCache, comm: MPI.Intracomm, arrays: Sequence[Any], how: Settings, call: Any
) -> tuple[Known, list[Array], list[Any]]:
    """Return plan, memory and operands, checked: the call is new to a rank, or the arguments of the ranks differ."""
    read = _read(arrays, comm, how)
    how, target = how.checked(), how.target
    with together(comm):
        if isinstance(how.out, DistributedArray):
            check_congruent(how.out.comm, comm)
            target = how.out.distribution
        if how.target not in (None, target):
            raise ValueError(f"target is the distribution of out, {target}: leave it out; got {how.target}")
        if how.out is not None and target is None:
            kind = type(how.out).__name__
            raise TypeError(f"out must be a DistributedArray, or a part with target, its distribution; got {kind}")
    operands = [Operand.of(one) if isinstance(one, DistributedArray) else one.dtype for one in read]
    known = _planned(cache, comm, operands, _same(arrays), how._replace(target=target, out=None))
    if call is not None:
        kept = [(one.distribution, one.comm) for one in (*read, how.out) if isinstance(one, DistributedArray)]
        cache.remember(call, known._replace(kept=(kept, how.target, how.optimize)))
    with together(comm):
        known.plan.check_out(how.out)
        memory = known.plan.allocate(how.out, read)
    return known, memory, read


def _read(arrays: Sequence[Any], comm: MPI.Intracomm, how: Settings) -> list[Any]:
    """Return distributed arrays of NumPy, and numbers as arrays; an error on one rank is raised on all."""
    kinds = ["a number" if is_number(one) else type(one).__name__ for one in arrays]
    numbers = [np.asarray(one)[()] for one in arrays if is_number(one)]  # whose repr is exact
    given = {"the expression": how.expression, "the kinds of the operands": kinds, "the numbers": numbers}
    same = {"which operands are one array": _same(arrays), "whether they pass out": how.out is not None}
    with together(comm, given | same):
        how.checked()
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
    if not isinstance(array, DistributedArray) and interop.module_of(array) is None:
        kind = "NumPy array" if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(
            f"operand {number} is a {kind}: pass DistributedArray(array, distribution) if it is this rank's part, "
            "or replicated(array) if every rank has all of it"
        )
    return part_of(array, comm)


def _planned(
    cache: PlanCache | None, comm: MPI.Intracomm, operands: Sequence[Any], same: Sequence[int], how: Settings
) -> Known:
    """Return the plan of a problem, made on first use, or without a cache now. Collective."""
    given = list(how.optimize) if isinstance(how.optimize, list | tuple) else how.optimize
    path: Any = None
    with together(comm, {"optimize": given if isinstance(given, list | str | bool) else "an optimizer"}):
        if comm.rank == 0:  # where an optimizer runs, as it may be random
            path = path_of(how.expression, operands, given)
    path = comm.bcast(path)
    sides = [how.target, *(one.distribution for one in operands if isinstance(one, Operand))]
    boxes = (side for side in sides if isinstance(side, TiledDistribution | BoxDistribution))
    facts: dict[str, Any] = {"operands": operands, "target": how.target, "memory_bytes": how.memory_bytes}
    facts |= {"overrides": how.overrides, "strategy": how.strategy, "options": how.options}
    facts["boxes"] = [hash(side.encoded) for side in boxes]  # their text may leave some out
    with together(comm, facts):
        call = described(how._replace(optimize=path), operands, same, comm.size)
    options = {"strategy": how.strategy, **how.options}
    key = call, *options.items()

    def make() -> ExecutablePlan:
        prepare(comm, ensure_contractions)
        return ExecutablePlan.of(call, comm, options)

    plan = make() if cache is None else cache.get(comm, key, make)
    return Known(plan, key, digest((how.expression, facts, path, same)) or 1)


def planned_einsum(
    distributions: Sequence[Any], dtype: Any, comm: MPI.Intracomm | None, *settings: Any
) -> ExecutablePlan:
    """Plan an einsum; see :func:`dace_redist.einsum_plan`."""
    comm = checked_communicator(known_communicator(distributions) if comm is None else comm)
    how = Settings(*settings)
    operands: list[Any] = []
    with together(comm, {"the expression": how.expression}):
        how.checked()
        known = [one.dtype for one in distributions if isinstance(one, DistributedArray)]
        usual = np.result_type(*known) if known else None
        types = list(dtype) if isinstance(dtype, list | tuple) else [dtype] * len(distributions)
        if len(types) != len(distributions):
            raise ValueError(f"dtype must have a type for each of {len(distributions)} operands, got {len(types)}")
        for number, (given, element) in enumerate(zip(distributions, types, strict=True)):
            element = getattr(given, "dtype", usual) if element is None else element
            if element is None:
                raise TypeError(f"dtype of operand {number} is missing: pass it, or a DistributedArray, which has it")
            if given is None:
                operands.append(element_type(element))
                continue
            whole, op = (given.distribution, given.op) if isinstance(given, DistributedArray) else (given, None)
            check_distribution(f"operand {number}", whole)
            operands.append(Operand(whole, element_type(element), op))
    made: ExecutablePlan = _planned(None, comm, operands, range(len(operands)), how.checked()).plan
    return made

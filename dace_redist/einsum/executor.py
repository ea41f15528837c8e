"""Execution of the plan of an einsum, by redistributions and contractions of local arrays. Start: ExecutablePlan."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import AnyDistribution
from dace_redist.einsum.operands import RESULT, EinsumCall, Operand
from dace_redist.einsum.pieces import pieces
from dace_redist.einsum.placement import Given, Home, ends_of
from dace_redist.einsum.plan import EinsumPlan
from dace_redist.einsum.planner import plan_einsums
from dace_redist.einsum.program import Group, Move
from dace_redist.einsum.statement import Statement
from dace_redist.mpi.collective import checked_communicator, together
from dace_redist.native.contraction import LocalContraction
from dace_redist.redistribution.arrays.new import new_array
from dace_redist.redistribution.distributed_array import DistributedArray
from dace_redist.redistribution.plan import plan
from dace_redist.redistribution.request import Freeable
from dace_redist.redistribution.tensor_plan import Plan

Array = npt.NDArray[Any]


@dataclasses.dataclass
class _Step:
    """
    Step of a run: ``compute(sources, target, alpha)``.

    :param shape, dtype: Of the target.
    :param last: Last step that uses the target.
    """

    compute: Callable[[list[Array], Array, Array], object]
    sources: list[int]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    last: int = 0


class ExecutablePlan(EinsumPlan, Freeable):
    """
    Plan of an einsum of distributed arrays, made by :func:`dace_redist.einsum_plan`.

    Calling it computes. Printed, it is a report of groups, grids and moves. It is a context manager that frees its
    redistributions at the end.

    :ivar distribution: Distribution of the result.
    :ivar dtype: Element type of the result.
    """

    comm: MPI.Intracomm
    call: EinsumCall
    dtype: np.dtype[Any]
    distribution: AnyDistribution
    _steps: _Steps

    @classmethod
    def of(cls, call: EinsumCall, comm: MPI.Intracomm, options: Mapping[str, Any]) -> ExecutablePlan:
        """Plan a call, on rank 0. Collective."""
        planned = None
        with together(comm):
            if comm.rank == 0:
                planned = plan_einsums(
                    [Statement(call.einsum, call.names, RESULT, where=call.where)],
                    call.shapes(),
                    comm.size,
                    itemsize=call.dtype.itemsize,
                    memory_bytes=call.memory_bytes,
                    placements=call.homes(),
                    overrides={0: dict(call.overrides)} if call.overrides else None,
                    optimize=call.optimize,
                )
        planned = comm.bcast(planned)
        made = cls(**{field.name: getattr(planned, field.name) for field in dataclasses.fields(planned)})
        result = call.target or made.homes[RESULT].distribution(made.sizes[RESULT])
        vars(made).update(comm=comm, call=call, dtype=call.result_dtype, distribution=result)
        vars(made)["_steps"] = _Steps(made, comm, call, options)
        try:
            made._steps.make()
        except Exception:
            made.free()
            raise
        return made

    def __call__(self, *arrays: Any, out: DistributedArray | Array | None = None) -> DistributedArray:
        """
        Compute the einsum. Collective.

        :param arrays: The operands, as for :func:`dace_redist.einsum`, with the distributions and types of the plan.
        :param out: Array for the result, with its distribution and type, or this rank's part. Default: a new one.
        :raises ValueError: On this rank only, if an operand does not fit, or the plan was freed; other ranks may wait
            for it.
        :raises TypeError: On this rank only, if an operand has another type.
        """
        checked_communicator(self.comm)
        self.call.check_operands(arrays, self.comm.rank)
        self.check_out(out)
        return self.run(arrays, self.allocate(out, arrays), out)

    def check_out(self, out: Any) -> None:
        """Check the array for the result, if any."""
        if out is not None:
            Operand(self.distribution, self.dtype).check(f"{self.call.where}: out", out, self.comm.rank)
            if not _local(out).flags.writeable:
                raise ValueError(f"{self.call.where}: out must be writeable on every rank")

    def allocate(self, out: DistributedArray | Array | None, operands: Sequence[Any]) -> list[Array]:
        """Return the arrays of a run, of which the last is the result."""
        steps = self._steps
        if steps.freed:
            raise ValueError("this plan was freed")
        result: Array | None = None if out is None else _local(out)
        if result is None or any(np.may_share_memory(result, _local(one)) for one in operands):
            last = steps.steps[-1]
            zeros = any(self.distribution.halo)  # margins at the ends of the tensor are not written
            result = new_array(None, last.shape, last.dtype, "cpu", shared=True, zeros=zeros)
        return [*(steps.new_buffers() if steps.kept is None else steps.kept), result]

    def run(
        self, operands: Sequence[Any], memory: list[Array], out: DistributedArray | Array | None
    ) -> DistributedArray:
        """Compute with checked operands, in memory of :meth:`allocate`."""
        call, made = self.call, memory[-1]
        alpha = call.factor(operands) if call.numbers else call.one
        local = [getattr(one, "local", one) for number, one in enumerate(operands) if number not in call.numbers]
        slots = [*local, *memory]
        for step, target in zip(self._steps.steps, memory, strict=True):
            step.compute([slots[source] for source in step.sources], target, alpha)
        if out is not None and made is not _local(out):
            _local(out)[...] = made
        if isinstance(out, DistributedArray):
            return out
        return DistributedArray.of_checked(made if out is None else out, self.distribution, self.comm)

    @property
    def _array_bytes(self) -> int:
        """Bytes of this rank's arrays between operands and result, and of those that are redistributed."""
        return sum(one.nbytes for one in self._steps.kept or ()) + sum(one._array_bytes for one in self._steps.plans)

    def free(self) -> None:
        """Free the plan; it cannot be called afterwards. Local."""
        self._steps.freed = True
        for one in self._steps.plans:
            one.free()


class _Steps:
    """Steps of a plan on this rank, and their memory."""

    def __init__(self, planned: EinsumPlan, comm: MPI.Intracomm, call: EinsumCall, options: Mapping[str, Any]) -> None:
        self.planned, self.comm, self.call, self.options = planned, comm, call, options
        self.plans: list[Plan] = []
        self.freed = False
        self.steps: list[_Step] = []
        self.count = len(call.names)  # slots of the operands
        self.copies: dict[str, dict[Home, int]] = {}
        self.kept: list[Array] | None = None

    def make(self) -> None:
        """Make the steps and their memory. Collective."""
        planned, call = self.planned, self.call
        for number, name in enumerate(call.names):
            self.copies[name] = {planned.homes[name]: self._converted(number, name)}
        for number, group in enumerate((*planned.groups, None)):
            for move in [move for move in planned.moves if move.before_group == number]:
                self._move(move)
            if group is not None:
                self._group(group)
        if call.dtype != call.result_dtype:
            convert = _not_zero if call.result_dtype.kind == "b" else _cast
            result = self._slot(RESULT, planned.homes[RESULT])
            self._step(convert, [result], self.steps[result - self.count].shape, call.result_dtype)
        for number, step in enumerate(self.steps):
            for source in step.sources:
                if source >= self.count:
                    self.steps[source - self.count].last = number
        with together(self.comm):
            if call.memory_bytes is None:
                self.kept = self.new_buffers()

    # Making steps

    def _step(
        self,
        compute: Callable[[list[Array], Array, Array], object],
        sources: list[int],
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> int:
        self.steps.append(_Step(compute, sources, shape, dtype, len(self.steps)))
        return self.count + len(self.steps) - 1

    def _local_shape(self, home: Home, tensor: str) -> tuple[int, ...]:
        return home.distribution(self.planned.sizes[tensor]).local_shape(self.comm.rank)

    def _converted(self, number: int, name: str) -> int:
        """Return the slot of an operand, of the type of the computation unless its move converts it."""
        dtype, home = self.call.dtypes[number], self.planned.homes[name]
        first = self.call.dtype if not isinstance(home, Given) else np.dtype("f4") if dtype == "f2" else dtype
        if first == dtype:
            return number
        return self._step(_cast, [number], self._local_shape(home, name), first)

    def _move(self, move: Move) -> None:
        slot = self._slot(move.tensor, move.source)
        self.copies[move.tensor][move.target] = self._moved(move.tensor, move.source, slot, move.target)

    def _slot(self, tensor: str, home: Home) -> int:
        """Return the slot that holds a tensor under a placement."""
        known, shape = self.copies[tensor], self.planned.sizes[tensor]
        return next(slot for other, slot in known.items() if other.is_equivalent_to(home, shape))

    def _moved(self, tensor: str, source: Home, slot: int, target: Home, op: str | None = None) -> int:
        """Add a redistribution, and return the slot of its result, which has the type of the computation."""
        shape, op = self._local_shape(target, tensor), op or getattr(source, "op", None)
        dtype, ends = self._type(slot), ends_of(source, target, self.planned.sizes[tensor])
        made = dtype if op is not None else self.call.dtype  # reduced before it is converted
        of_sums = ("accumulate", "reproducible") if op is None else ()
        how = {name: value for name, value in self.options.items() if name not in of_sums}
        moving = plan(*ends, dtype, comm=self.comm, op=op, target_dtype=made, **how)
        self.plans.append(moving)
        before, after = (end.local_shape(self.comm.rank) for end in ends)

        def compute(sources: list[Array], to: Array, _: Array) -> None:
            moving(sources[0].reshape(before), to.reshape(after))  # with other axes of one element

        moved = self._step(compute, [slot], shape, made)
        return moved if made == self.call.dtype else self._step(_cast, [moved], shape, self.call.dtype)

    def _type(self, slot: int) -> np.dtype[Any]:
        return self.call.dtypes[slot] if slot < self.count else self.steps[slot - self.count].dtype

    def _group(self, group: Group) -> None:
        slots = list(map(self._slot, group.operands, group.operand_placements))
        partial, home = group.partial_placement, group.result_placement
        compute = self._contraction(group)
        made = self._step(compute, slots, self._local_shape(partial, group.result), self.call.dtype)
        if group.reduction is not None:
            made = self._moved(group.result, partial, made, home, "sum")
        self.copies[group.result] = {home: made}

    def _contraction(self, group: Group) -> Callable[[list[Array], Array, Array], object]:
        if self.comm.rank not in group.ranks:
            return lambda *_: None
        expression, path = group.local_einsum
        contract, one = LocalContraction(expression, self.call.dtype, path), np.ones(1, self.call.dtype)
        final = group.result == RESULT
        cuts = _diagonal(group, self.comm.rank, self.planned.sizes[group.operands[0]])

        def compute(sources: list[Array], target: Array, alpha: Array) -> None:
            if cuts is not None:
                target[...] = 0  # other elements of a diagonal are on other ranks
                sources, target = [sources[0][cuts[0]]], target[cuts[1]]
            contract(sources, target, alpha if final else one)

        return compute

    def new_buffers(self) -> list[Array]:
        """Return memory for the results of all steps but the last; those with disjoint lifetimes share it."""
        steps = self.steps[:-1]
        nbytes = [math.prod(step.shape) * step.dtype.itemsize for step in steps]
        numbers = pieces(nbytes, [(number, step.last) for number, step in enumerate(steps)])
        sizes = [
            max(size for size, of in zip(nbytes, numbers, strict=True) if of == piece)
            for piece in range(len({*numbers}))
        ]
        memory = [new_array(None, (size,), np.dtype("u1"), "cpu", shared=True) for size in sizes]
        placed = zip(steps, nbytes, numbers, strict=True)
        return [memory[piece][:size].view(step.dtype).reshape(step.shape) for step, size, piece in placed]


def _local(array: Any) -> Any:
    return getattr(array, "local", array)


def _cast(sources: list[Array], target: Array, _: Array) -> None:
    np.copyto(target, sources[0], casting="same_kind")


def _not_zero(sources: list[Array], target: Array, _: Array) -> None:
    np.not_equal(sources[0], 0, out=target)


def _diagonal(group: Group, rank: int, shape: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
    """Return the ranges of the operand and of the result on a diagonal of which ranks hold parts; else None."""
    if not any(group.parts[letter] > 1 for pair in group.equal for letter in pair):
        return None
    (term,), (placement,) = group.einsum.operands, group.operand_placements
    low, high = placement.bounds_by_rank(shape, max(rank, *placement.ranks) + 1)[:, :, rank]
    ranges = {index: (int(low[axis]), int(high[axis])) for axis, index in enumerate(term)}
    cuts = {index: slice(0, end - begin) for index, (begin, end) in ranges.items()}
    for index in dict.fromkeys(index for _, index in group.equal):
        letters = [index, *(place for place, same in group.equal if same == index)]
        begin = max(ranges[letter][0] for letter in letters)
        end = max(begin, min(ranges[letter][1] for letter in letters))
        cuts |= {letter: slice(begin - ranges[letter][0], end - ranges[letter][0]) for letter in letters}
    return tuple(cuts[index] for index in term), tuple(cuts[index] for index in group.einsum.result)

"""Builds the program that every rank runs on its blocks, from the statements of a program and their plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import dace
from dace import SDFG, Memlet, SDFGState, symbolic
from dace.sdfg.state import ControlFlowRegion, LoopRegion

from dace_redist.distribution import Distribution
from dace_redist.einsum.placement import Placement
from dace_redist.einsum.plan import EinsumPlan, Group
from dace_redist.einsum.traffic import same_place
from dace_redist.library_nodes import Contraction, LinearSolve, Redistribute, SumReplicas
from dace_redist.library_nodes.contraction import RESULT, is_fused
from dace_redist.library_nodes.distributed_node import INPUT, OUTPUT
from dace_redist.transformations.einsum.reading import logical_shape
from dace_redist.transformations.einsum.steps import Body, Loop, Step, all_steps
from dace_redist.transformations.einsum.transient_memory import place_transients


def in_numbers(shape: Sequence[Any], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """A shape with the symbols' values."""
    return tuple(int(symbolic.evaluate(extent, dict(sizes))) for extent in shape)


@dataclass(frozen=True)
class LocalExtent:
    """What a symbol of a distributed program stands for: one extent of this rank's part of a tensor."""

    placement: Placement
    shape: tuple[Any, ...]
    axis: int

    def largest(self, sizes: Mapping[str, int]) -> int:
        """Its value on the rank that holds most."""
        shape = in_numbers(self.shape, sizes)
        return self.placement.distribution(shape).local_shape(self.placement.ranks[0])[self.axis]


@dataclass(frozen=True)
class DistributedArguments:
    """
    What a distributed program takes.

    :param inputs: Tensors that are read before they are surely written, by name: placement and global shape. Those
        that are written only in a loop which may run zero times are among them.
    :param outputs: Tensors that the caller gets.
    :param extents: What the symbols of local extents stand for.
    :param same: Pairs of placements, with the shape of a tensor, that the program takes for one: with these sizes
        every rank holds the same under both.
    """

    inputs: dict[str, tuple[Placement, tuple[Any, ...]]]
    outputs: dict[str, tuple[Placement, tuple[Any, ...]]]
    extents: dict[str, LocalExtent]
    same: tuple[tuple[Placement, Placement, tuple[Any, ...]], ...]

    def largest_extents(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """What the symbols of local extents are on the rank that holds most."""
        return {symbol: extent.largest(sizes) for symbol, extent in self.extents.items()}

    def hold_for(self, sizes: Mapping[str, int]) -> bool:
        """Whether the program is right for other sizes, too."""
        return all(same_place(first, second, in_numbers(shape, sizes)) for first, second, shape in self.same)


def build_distributed(
    target: SDFG, source: SDFG, body: Body, plan: EinsumPlan, sizes: Mapping[str, int], keep_transients: bool
) -> DistributedArguments:
    """
    Fills an empty SDFG with the distributed program.

    :param target: Gets arrays for this rank's parts, and the nodes that contract, add and redistribute them.
    :param source: The SDFG that ``body`` was read from.
    :param body: Its statements.
    :param plan: Grids and placements, one or more groups for each statement in the order of the program.
    :param sizes: Values of the program's symbols: they decide where nothing needs to be moved.
    :param keep_transients: Allocate transients once for all runs, not for the statements that need them.
    :return: What its arguments are.
    """
    builder = _Builder(target, source, body, plan, sizes)
    builder.emit(target, body)
    arguments = builder.arguments()
    if keep_transients:  # the first touch of new memory costs as much as its use
        place_transients(target, {**sizes, **arguments.largest_extents(sizes)})
    return arguments


class _Builder:
    def __init__(self, target: SDFG, source: SDFG, body: Body, plan: EinsumPlan, sizes: Mapping[str, int]) -> None:
        self._sdfg, self._source, self._plan, self._sizes = target, source, plan, sizes
        self._groups: dict[int, list[Group]] = {}
        for group in plan.groups:
            self._groups.setdefault(group.statement, []).append(group)
        self._numbers = {id(step): number for number, step in enumerate(all_steps(body))}
        self._shapes = {name: logical_shape(array) for name, array in source.arrays.items()}
        self._types = {name: array.dtype for name, array in source.arrays.items()}
        self._copies: dict[str, dict[Placement, str]] = {}  # arrays that hold a tensor, up to date
        self._arrays: dict[tuple[str, Placement], str] = {}  # arrays made for it, up to date or not
        self._same: dict[tuple[Placement, Placement, tuple[Any, ...]], bool] = {}
        self._extents: dict[LocalExtent, str] = {}
        self._last: dict[ControlFlowRegion, Any] = {}
        self._read_first: set[str] = set()
        self._written: set[str] = set()  # surely, even if loops run zero times
        self._results: set[str] = set()
        loops = source.all_control_flow_regions()
        self._taken = {*source.arrays, *source.symbols, *(getattr(loop, "loop_variable", "") for loop in loops)}
        for name, dtype in source.symbols.items():
            target.add_symbol(name, dace.float64 if dtype in dace.FLOAT_TYPES else dace.int64)
        for name, array in source.arrays.items():
            if not array.transient and name in plan.homes:
                home = plan.homes[name]
                self._arrays[name, home] = self._new_array(name, name, home, transient=False)
                self._copies[name] = {home: name}

    def arguments(self) -> DistributedArguments:
        """What the program takes, after all is emitted."""
        given = [
            name for name, array in self._source.arrays.items() if not array.transient and name in self._plan.homes
        ]
        ends = {name: (self._plan.homes[name], self._shapes[name]) for name in given}
        first = self._read_first | (self._results - self._written)
        return DistributedArguments(
            {name: end for name, end in ends.items() if name in first and not name.startswith("__return")},
            {name: end for name, end in ends.items() if name in self._results},
            {symbol: extent for extent, symbol in self._extents.items()},
            tuple(pair for pair, same in self._same.items() if same),
        )

    # Statements and loops

    def emit(self, region: ControlFlowRegion, body: Body) -> None:
        for item in body:
            if isinstance(item, Loop):
                self._loop(region, item)
                continue
            for group in self._groups[self._numbers[id(item)]]:
                self._group(region, group, item)

    def _loop(self, region: ControlFlowRegion, loop: Loop) -> None:
        groups = [group for step in all_steps(loop.body) for group in self._groups[self._numbers[id(step)]]]
        written = {group.result for group in groups}
        for group in groups:  # what the loop does not change is moved once, before it
            for number, name in enumerate(group.operands):
                if name not in written:
                    self._at(region, name, group.operand_placement(number))
        self._keep_homes(written)
        head = loop.region
        inner = LoopRegion(
            head.label,
            condition_expr=head.loop_condition.as_string,
            loop_var=head.loop_variable,
            initialize_expr=head.init_statement.as_string,
            update_expr=head.update_statement.as_string,
            inverted=head.inverted,
        )
        self._append(region, inner)
        before = set(self._written)
        self.emit(inner, loop.body)
        if not loop.certain:
            self._written = before
        self._keep_homes(written)

    def _keep_homes(self, names: Iterable[str]) -> None:
        """Forgets copies besides the one that is up to date whenever the loop is entered or left."""
        for name in names:
            copies = self._copies.get(name, {})
            if copies:
                home = self._known(name, self._plan.homes.get(name) or next(iter(copies)))
                self._copies[name] = {home: copies[home]}

    def _append(self, region: ControlFlowRegion, block: Any) -> None:
        last = self._last.get(region)
        region.add_node(block, is_start_block=last is None, ensure_unique_name=True)
        if last is not None:
            region.add_edge(last, block, dace.InterstateEdge())
        self._last[region] = block

    def _state(self, region: ControlFlowRegion, label: str) -> SDFGState:
        state = SDFGState(label, self._sdfg)
        self._append(region, state)
        return state

    # One group: operands to where they are wanted, the local computation, the sum of partial results

    def _group(self, region: ControlFlowRegion, group: Group, step: Step) -> None:
        read = group.operands[: len(step.inputs)] if group.elementwise else group.operands
        operands = [self._at(region, name, group.operand_placement(k)) for k, name in enumerate(read)]
        self._read_first |= set(read) - self._written
        self._written.add(group.result)
        self._results.add(group.result)
        if group.result not in self._shapes:
            extents = group.einsum.extents([self._shapes[name] for name in group.operands])
            self._shapes[group.result] = tuple(extents[index] for index in group.einsum.result)
            self._types[group.result] = self._types[step.statement.result]
        written = self._array_for(group.result, group.result_placement())
        if group.reduction is not None:
            partial = group.partial_placement()
            name = self._new_array(f"{group.result}_partial", group.result, partial)
            self._compute(region, group, step, operands, name)
            ends = (self._distribution(place, group.result) for place in (partial, group.result_placement()))
            node = SumReplicas(f"sum_{group.result}", *ends)
            self._connect(self._state(region, node.label), node, name, written)
        elif written in operands and _reads_elsewhere(group, operands, written):
            name = self._new_array(group.result, group.result, group.result_placement())
            self._compute(region, group, step, operands, name)
            state = self._state(region, f"copy_{group.result}")
            state.add_nedge(state.add_read(name), state.add_write(written), self._all_of(written))
        else:
            self._compute(region, group, step, operands, written)
        self._copies[group.result] = {self._known(group.result, group.result_placement()): written}
        self._at(region, group.result, self._plan.homes.get(group.result, group.result_placement()))

    def _compute(
        self, region: ControlFlowRegion, group: Group, step: Step, operands: Sequence[str], result: str
    ) -> None:
        if group.elementwise:
            self._elementwise(region, group, step, operands, result)
            return
        node = _solver(group, step) if group.solves else _contraction(group, step)
        state = self._state(region, node.label)
        state.add_node(node)
        for connector, name in zip(node.operand_connectors, operands, strict=True):
            state.add_edge(state.add_read(name), None, node, connector, self._all_of(name))
        state.add_edge(node, RESULT, state.add_write(result), None, self._all_of(result))

    def _elementwise(
        self, region: ControlFlowRegion, group: Group, step: Step, operands: Sequence[str], result: str
    ) -> None:
        state = self._state(region, f"compute_{group.result}")
        terms, extents = [*group.einsum.operands[: len(operands)], group.einsum.result], self._sdfg.arrays[result].shape
        if not group.einsum.result:  # scalars are vectors of one element, which not every rank has
            terms, extents = ["e"] * len(terms), [self._extent(LocalExtent(group.result_placement(), (), 0))]
        memlets = [
            Memlet(f"{name}[{', '.join(f'__{i}' for i in indices) or 0}]")
            for name, indices in zip([*operands, result], terms, strict=True)
        ]
        inputs = dict(zip(step.inputs, memlets[:-1], strict=True))
        ranges = {f"__{i}": f"0:{symbolic.symstr(n)}" for i, n in zip(terms[-1], extents, strict=True)}
        outputs = {step.output: memlets[-1]}
        state.add_mapped_tasklet(state.label, ranges, inputs, step.code, outputs, external_edges=True)

    # Arrays

    def _at(self, region: ControlFlowRegion, tensor: str, placement: Placement) -> str:
        """The array that holds a tensor under a placement; moves it there if need be."""
        placement = self._known(tensor, placement)
        copies = self._copies[tensor]
        if placement in copies:
            return copies[placement]
        origin, array = next(iter(copies.items()))
        moved = self._array_for(tensor, placement)
        node = Redistribute(
            f"redistribute_{tensor}", self._distribution(origin, tensor), self._distribution(placement, tensor)
        )
        self._connect(self._state(region, node.label), node, array, moved)
        copies[placement] = moved
        return moved

    def _array_for(self, tensor: str, placement: Placement) -> str:
        """The one array for this rank's part of a tensor under a placement."""
        key = (tensor, self._known(tensor, placement))
        if key not in self._arrays:
            self._arrays[key] = self._new_array(tensor, tensor, placement)
        return self._arrays[key]

    def _known(self, tensor: str, placement: Placement) -> Placement:
        """The placement under which there is an array of the tensor already, if every rank holds the same there."""
        for name, known in self._arrays:
            if name == tensor and self._are_same(known, placement, self._shapes[tensor]):
                return known
        return placement

    def _are_same(self, first: Placement, second: Placement, shape: tuple[Any, ...]) -> bool:
        if first == second:
            return True
        pair = (first, second, shape)
        if pair not in self._same:
            self._same[pair] = same_place(first, second, in_numbers(shape, self._sizes))
        return self._same[pair]

    def _new_array(self, name: str, tensor: str, placement: Placement, transient: bool = True) -> str:
        shape, dtype = self._local_shape(tensor, placement), self._types[tensor]
        if transient:
            name = re.sub(r"^__return", "result", name)  # which DaCe takes for what is returned
        made, _ = self._sdfg.add_array(name, shape, dtype, transient=transient, find_new_name=transient)
        return str(made)

    def _local_shape(self, tensor: str, placement: Placement) -> list[Any]:
        shape = self._shapes[tensor]
        if not shape:
            return [1]
        everywhere = len(placement.ranks) == self._plan.ranks
        return [
            extent if everywhere and placement.parts[axis] == 1 else self._local_extent(placement, shape, axis)
            for axis, extent in enumerate(shape)
        ]

    def _local_extent(self, placement: Placement, shape: tuple[Any, ...], axis: int) -> dace.symbol:
        """The symbol for one extent of this rank's part: the same for what is split alike."""
        alone = Placement(placement.grid, (placement.dims[axis],), (placement.multiples[axis],), placement.ranks)
        return self._extent(LocalExtent(alone, (shape[axis],), 0))

    def _extent(self, extent: LocalExtent) -> dace.symbol:
        if extent not in self._extents:
            name = next(name for name in map("n{}".format, count()) if name not in self._taken)
            self._taken.add(name)
            self._extents[extent] = name
            self._sdfg.add_symbol(name, dace.int64)
        return dace.symbol(self._extents[extent], dace.int64)

    def _distribution(self, placement: Placement, tensor: str) -> Distribution:
        return placement.distribution(self._shapes[tensor], symbolic.int_ceil)

    def _all_of(self, array: str) -> Memlet:
        return Memlet.from_array(array, self._sdfg.arrays[array])

    def _connect(self, state: SDFGState, node: Any, source: str, target: str) -> None:
        state.add_node(node)
        state.add_edge(state.add_read(source), None, node, INPUT, self._all_of(source))
        state.add_edge(node, OUTPUT, state.add_write(target), None, self._all_of(target))


def _contraction(group: Group, step: Step) -> Contraction:
    alpha = step.alpha if group.result == step.statement.result else 1
    path = () if is_fused(group.einsum.operands, group.einsum.result) else group.path
    return Contraction(f"contract_{group.result}", str(group.einsum), alpha=alpha, path=path)


def _solver(group: Group, step: Step) -> LinearSolve:
    return LinearSolve(f"solve_{group.result}", str(group.einsum), step.statement.label)


def _reads_elsewhere(group: Group, operands: Sequence[str], written: str) -> bool:
    """Whether the group reads elements of what it writes besides the one it is writing."""
    same = {indices for name, indices in zip(operands, group.einsum.operands, strict=False) if name == written}
    return not group.elementwise or same != {group.einsum.result}

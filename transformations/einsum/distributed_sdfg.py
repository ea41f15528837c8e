"""Builds the program that every rank runs on its parts, from the statements of a program and their plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dace
from dace import SDFG, Memlet, SDFGState, dtypes, symbolic
from dace.sdfg.state import ControlFlowRegion, LoopRegion

from dace_redist import _core
from dace_redist.einsum.placement import Placement
from dace_redist.einsum.plan import EinsumPlan, Group
from dace_redist.library_nodes import Contraction, LinearSolve, Redistribute, SumReplicas
from dace_redist.library_nodes.contraction import RESULT
from dace_redist.library_nodes.distributed_node import INPUT, OUTPUT
from dace_redist.transformations.einsum.local_arrays import LocalArrays
from dace_redist.transformations.einsum.steps import Body, Loop, Step, all_steps


def emit_program(
    target: SDFG, source: SDFG, body: Body, plan: EinsumPlan, sizes: Mapping[str, int]
) -> tuple[LocalArrays, tuple[str, ...], tuple[str, ...]]:
    """
    Fills an empty SDFG with what each rank runs.

    :param target: Gets arrays for this rank's parts, and the nodes that contract, add and redistribute them.
    :param source: The SDFG that ``body`` was read from.
    :param body: Its statements.
    :param plan: Grids and placements, one or more groups for each statement in the order of the program.
    :param sizes: Values of the program's symbols: they decide where nothing needs to be moved.
    :return: The arrays, and the names of the tensors that the program reads and writes.
    """
    for name, dtype in source.symbols.items():
        target.add_symbol(name, dace.float64 if dtype in dace.FLOAT_TYPES else dace.int64)
    arrays = LocalArrays(target, source, plan, sizes)
    builder = _Builder(target, body, plan, arrays)
    builder.emit(target, body)
    inputs = builder.read_first | (builder.results - builder.written)
    read = tuple(name for name in arrays.arguments if name in inputs and not name.startswith("__return"))
    return arrays, read, tuple(name for name in arrays.arguments if name in builder.results)


class _Builder:
    """
    Emits states and loops.

    :param sdfg: Gets them.
    :param body: The statements.
    :param plan: Their plan.
    :param arrays: This rank's parts.
    """

    def __init__(self, sdfg: SDFG, body: Body, plan: EinsumPlan, arrays: LocalArrays) -> None:
        self._sdfg, self._homes, self._arrays = sdfg, plan.homes, arrays
        self._groups: dict[int, list[Group]] = {id(step): [] for step in all_steps(body)}
        steps = list(self._groups)
        for group in plan.groups:
            self._groups[steps[group.statement]].append(group)
        #: The arrays that hold a tensor as it is now, by placement.
        self._copies = {name: {plan.homes[name]: name} for name in arrays.arguments}
        self._last: dict[ControlFlowRegion, Any] = {}
        self.read_first: set[str] = set()
        self.written: set[str] = set()  # surely, even if loops run zero times
        self.results: set[str] = set()

    # Statements and loops

    def emit(self, region: ControlFlowRegion, body: Body) -> None:
        """Adds statements and loops to a region."""
        for item in body:
            if isinstance(item, Loop):
                self._loop(region, item)
            else:
                for group in self._groups[id(item)]:
                    self._group(region, group, item)

    def _loop(self, region: ControlFlowRegion, loop: Loop) -> None:
        groups = [group for step in all_steps(loop.body) for group in self._groups[id(step)]]
        written = {group.result for group in groups}
        for group in groups:  # what the loop does not change is moved once, before it
            for number, name in enumerate(group.operands):
                if name not in written:
                    self._at(region, name, group.operand_placements[number])
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
        before = set(self.written)
        self.emit(inner, loop.body)
        if not loop.certain:
            self.written = before
        self._keep_homes(written)

    def _keep_homes(self, names: Iterable[str]) -> None:
        """Forgets copies besides the one that is up to date whenever the loop is entered or left."""
        for name in names:
            copies = self._copies.get(name, {})
            if copies:
                home = self._arrays.known(name, self._homes.get(name) or next(iter(copies)))
                self._copies[name] = {home: copies[home]}

    def _append(self, region: ControlFlowRegion, block: Any) -> None:
        last = self._last.get(region)
        region.add_node(block, is_start_block=last is None, ensure_unique_name=True)
        if last is not None:
            region.add_edge(last, block, dace.InterstateEdge())
        self._last[region] = block

    def _state(self, region: ControlFlowRegion, label: str) -> SDFGState:
        state = SDFGState(label, self._sdfg)
        state.set_default_lineinfo(dtypes.DebugInfo(0))  # else DaCe walks up the whole call stack for every node
        self._append(region, state)
        return state

    # One group: operands to where they are wanted, the local computation, the sum of partial results

    def _group(self, region: ControlFlowRegion, group: Group, step: Step) -> None:
        arrays, name = self._arrays, group.result
        read = group.operands[: len(step.inputs)] if group.elementwise else group.operands
        operands = [self._at(region, tensor, group.operand_placements[k]) for k, tensor in enumerate(read)]
        self.read_first |= set(read) - self.written
        self.written.add(name)
        self.results.add(name)
        if name not in arrays.shapes:
            extents = group.einsum.extents([arrays.shapes[tensor] for tensor in group.operands])
            arrays.shapes[name] = tuple(extents[index] for index in group.einsum.result)
            arrays.types[name] = arrays.types[step.statement.result]
        placement = group.result_placement
        written = arrays.of(name, placement)
        if group.reduction is not None:
            partial = group.partial_placement
            summands = arrays.new(f"{name}_partial", name, partial)
            self._compute(region, group, step, operands, summands)
            ends = (arrays.distribution(partial, name), arrays.distribution(placement, name))
            self._connect(region, SumReplicas(f"sum_{name}", *ends), summands, written)
        elif written in operands and _reads_elsewhere(group, operands, written):
            made = arrays.new(name, name, placement)
            self._compute(region, group, step, operands, made)
            state = self._state(region, f"copy_{name}")
            state.add_nedge(state.add_read(made), state.add_write(written), arrays.whole(written))
        else:
            self._compute(region, group, step, operands, written)
        self._copies[name] = {arrays.known(name, placement): written}
        self._at(region, name, self._homes.get(name, placement))

    def _compute(
        self, region: ControlFlowRegion, group: Group, step: Step, operands: Sequence[str], result: str
    ) -> None:
        if group.elementwise:
            self._elementwise(region, group, step, operands, result)
            return
        node = _solver(group, step) if group.solves else _contraction(group, step)
        terms = [*group.einsum.operands, group.einsum.result]
        ranges = self._diagonals(group) if group.equal else {}
        if any(index in ranges for index in group.einsum.result):  # the other elements are on other ranks
            self._fill_with_zeros(region, result)
        state = self._state(region, node.label)
        state.add_node(node)
        memlets = [self._part(name, term, ranges) for name, term in zip([*operands, result], terms, strict=True)]
        for connector, name, memlet in zip(node.operand_connectors, operands, memlets, strict=False):
            state.add_edge(state.add_read(name), None, node, connector, memlet)
        state.add_edge(node, RESULT, state.add_write(result), None, memlets[-1])

    def _diagonals(self, group: Group) -> dict[str, str]:
        """Ranges of this rank's block, by index, in which the elements of its diagonals are; none where it is whole."""
        (term,), (placement,), found = group.einsum.operands, group.operand_placements, {}
        for index in dict.fromkeys(index for _, index in group.equal):
            letters = [index, *(place for place, same in group.equal if same == index)]
            if any(group.parts[letter] > 1 for letter in letters):
                axes = [term.index(letter) for letter in letters]
                size, starts = self._arrays.diagonal(group.operands[0], placement, axes)
                found |= {letter: f"{at}:{at} + {size}" for letter, at in zip(letters, starts, strict=True)}
        return found

    def _part(self, name: str, indices: str, ranges: Mapping[str, str]) -> Memlet:
        """The memlet of an array, or of ranges of it under some indices."""
        if not any(index in ranges for index in indices):
            return self._arrays.whole(name)
        extents = self._sdfg.arrays[name].shape
        whole = [f"0:{symbolic.symstr(extent)}" for extent in extents]
        return Memlet(f"{name}[{', '.join(ranges.get(i, all_) for i, all_ in zip(indices, whole, strict=True))}]")

    def _fill_with_zeros(self, region: ControlFlowRegion, name: str) -> None:
        state = self._state(region, f"clear_{name}")
        ranges = {f"__{n}": f"0:{symbolic.symstr(extent)}" for n, extent in enumerate(self._sdfg.arrays[name].shape)}
        written = {"_out": Memlet(f"{name}[{', '.join(ranges)}]")}
        state.add_mapped_tasklet(state.label, ranges, {}, "_out = 0", written, external_edges=True)

    def _elementwise(
        self, region: ControlFlowRegion, group: Group, step: Step, operands: Sequence[str], result: str
    ) -> None:
        state = self._state(region, f"compute_{group.result}")
        terms, extents = [*group.einsum.operands[: len(operands)], group.einsum.result], self._sdfg.arrays[result].shape
        if not group.einsum.result:  # scalars are vectors of one element, which not every rank has
            terms, extents = ["e"] * len(terms), [self._arrays.scalar_extent(group.result_placement)]
        memlets = [
            Memlet(f"{name}[{', '.join(f'__{i}' for i in indices) or 0}]")
            for name, indices in zip([*operands, result], terms, strict=True)
        ]
        inputs = dict(zip(step.inputs, memlets[:-1], strict=True))
        ranges = {f"__{i}": f"0:{symbolic.symstr(n)}" for i, n in zip(terms[-1], extents, strict=True)}
        outputs = {step.output: memlets[-1]}
        state.add_mapped_tasklet(state.label, ranges, inputs, step.code, outputs, external_edges=True)

    def _at(self, region: ControlFlowRegion, tensor: str, placement: Placement) -> str:
        """The array that holds a tensor under a placement; moves it there if need be."""
        placement = self._arrays.known(tensor, placement)
        copies = self._copies[tensor]
        if placement not in copies:
            origin, array = next(iter(copies.items()))
            copies[placement] = self._arrays.of(tensor, placement)
            ends = (self._arrays.distribution(end, tensor) for end in (origin, placement))
            self._connect(region, Redistribute(f"redistribute_{tensor}", *ends), array, copies[placement])
        return copies[placement]

    def _connect(self, region: ControlFlowRegion, node: Any, source: str, target: str) -> None:
        state = self._state(region, node.label)
        state.add_node(node)
        state.add_edge(state.add_read(source), None, node, INPUT, self._arrays.whole(source))
        state.add_edge(node, OUTPUT, state.add_write(target), None, self._arrays.whole(target))


def _contraction(group: Group, step: Step) -> Contraction:
    alpha = step.alpha if group.result == step.statement.result else 1
    einsum = str(group.einsum).translate(str.maketrans(dict(group.equal)))
    path = () if _core.is_khatri_rao_product(einsum) else group.path
    return Contraction(f"contract_{group.result}", einsum, alpha=alpha, path=path)


def _solver(group: Group, step: Step) -> LinearSolve:
    return LinearSolve(f"solve_{group.result}", str(group.einsum), step.statement.label)


def _reads_elsewhere(group: Group, operands: Sequence[str], written: str) -> bool:
    """Whether the group reads elements of what it writes besides the one it is writing."""
    same = {indices for name, indices in zip(operands, group.einsum.operands, strict=False) if name == written}
    return not group.elementwise or same != {group.einsum.result}

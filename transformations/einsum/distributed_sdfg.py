"""Builds the program that every rank runs on its parts, from the statements of a program and their plan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import dace
from dace import SDFG, Memlet, symbolic
from dace.properties import CodeBlock
from dace.sdfg.state import ConditionalBlock, ControlFlowRegion, LoopRegion

from dace_redist import _core
from dace_redist.einsum.plan import EinsumPlan, Group
from dace_redist.library_nodes import Contraction, LinearSolve, Redistribute, SumReplicas
from dace_redist.library_nodes.contraction import RESULT
from dace_redist.transformations.einsum.emitter import Emitter
from dace_redist.transformations.einsum.local_arrays import LocalArrays
from dace_redist.transformations.einsum.reading import neutral_element
from dace_redist.transformations.einsum.steps import (
    Assignment,
    Body,
    Branch,
    Jump,
    Loop,
    Reshape,
    Slice,
    Step,
    all_steps,
)


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


class _Builder(Emitter):
    """
    Emits statements, loops and branches.

    :param sdfg: Gets them.
    :param body: The statements.
    :param plan: Their plan.
    :param arrays: This rank's parts.
    """

    def __init__(self, sdfg: SDFG, body: Body, plan: EinsumPlan, arrays: LocalArrays) -> None:
        super().__init__(sdfg, plan.homes, arrays)
        self._groups: dict[int, list[Group]] = {id(step): [] for step in all_steps(body)}
        steps = list(self._groups)
        for group in plan.groups:
            self._groups[steps[group.statement]].append(group)
        self.read_first: set[str] = set()
        self.written: set[str] = set()  # surely, even if loops run zero times
        self.results: set[str] = set()

    # Statements, loops and branches

    def emit(self, region: ControlFlowRegion, body: Body) -> None:
        """Adds what is in a body to a region."""
        for item in body:
            if isinstance(item, Step):
                for group in self._groups[id(item)]:
                    self._group(region, group, item)
            elif isinstance(item, Jump):
                self.append(region, item.kind(item.kind.__name__))
            elif isinstance(item, Assignment):
                self._read_scalars(item.scalars)
                values = {name: self.local_code(value, item.scalars) for name, value in item.values.items()}
                self.assign(region, values)
            else:
                self._blocks(region, item)

    def _blocks(self, region: ControlFlowRegion, item: Loop | Branch) -> None:
        """Adds a loop or branches, which may run or not."""
        self._read_scalars(item.scalars)
        groups = [group for step in all_steps([item]) for group in self._groups[id(step)]]
        written = {group.result for group in groups}
        for group in groups:  # what is not changed in there is moved once, before
            for number, name in enumerate(group.operands):
                if name not in written:
                    self.at(region, name, group.operand_placements[number])
        self.keep_homes(written)
        before = set(self.written)
        if isinstance(item, Loop):
            self._loop(region, item)
        else:
            self._branch(region, item, written)
        if not (isinstance(item, Loop) and item.certain):
            self.written = before
        self.keep_homes(written)

    def _loop(self, region: ControlFlowRegion, loop: Loop) -> None:
        head = loop.region
        inner = LoopRegion(
            head.label,
            condition_expr=self.local_code(head.loop_condition.as_string, loop.scalars),
            loop_var=head.loop_variable,
            initialize_expr=head.init_statement and head.init_statement.as_string,
            update_expr=head.update_statement and head.update_statement.as_string,
            inverted=head.inverted,
        )
        self.append(region, inner)
        self.emit(inner, loop.body)
        self.not_empty(inner)

    def _branch(self, region: ControlFlowRegion, branch: Branch, written: Iterable[str]) -> None:
        made = ConditionalBlock(branch.region.label)
        self.append(region, made)
        before = set(self.written)
        for (condition, old), body in zip(branch.region.branches, branch.bodies, strict=True):
            inner = ControlFlowRegion(old.label)
            text = condition and CodeBlock(self.local_code(condition.as_string, branch.scalars))
            made.add_branch(text, inner)
            self.written = set(before)
            self.emit(inner, body)
            self.not_empty(inner)
            self.keep_homes(written)

    def _read_scalars(self, scalars: Iterable[str]) -> None:
        self.read_first |= set(scalars) - self.written

    # One group: operands to where they are wanted, the local computation, the sum of partial results

    def _group(self, region: ControlFlowRegion, group: Group, step: Step) -> None:
        arrays, name = self.arrays, group.result
        if step.moved is not None:
            self._moved(region, group, step)
            return
        read = group.operands[: len(step.inputs)] if group.elementwise else group.operands
        operands = [self.at(region, tensor, group.operand_placements[k]) for k, tensor in enumerate(read)]
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
            combine = Redistribute(f"{step.reduction}_{name}", *ends, op=step.reduction) if step.reduction else None
            self.connect(region, combine or SumReplicas(f"sum_{name}", *ends), summands, written)
        elif written in operands and _reads_elsewhere(group, operands, written):
            made = arrays.new(name, name, placement)
            self._compute(region, group, step, operands, made)
            state = self.state(region, f"copy_{name}")
            state.add_nedge(state.add_read(made), state.add_write(written), arrays.whole(written))
        else:
            self._compute(region, group, step, operands, written)
        self.copies[name] = {arrays.known(name, placement): written}
        self.at(region, name, self.homes.get(name, placement))

    def _compute(
        self, region: ControlFlowRegion, group: Group, step: Step, operands: Sequence[str], result: str
    ) -> None:
        if group.elementwise:
            self._elementwise(region, group, step, operands, result)
            return
        if step.reduction:
            self._reduce(region, group, step, operands[0], result)
            return
        node = _solver(group, step) if group.solves else _contraction(group, step)
        terms = [*group.einsum.operands, group.einsum.result]
        ranges = self._diagonals(group) if group.equal else {}
        if any(index in ranges for index in group.einsum.result):  # the other elements are on other ranks
            self._fill_with_zeros(region, result)
        state = self.state(region, node.label)
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
                size, starts = self.arrays.diagonal(group.operands[0], placement, axes)
                found |= {letter: f"{at}:{at} + {size}" for letter, at in zip(letters, starts, strict=True)}
        return found

    def _part(self, name: str, indices: str, ranges: Mapping[str, str]) -> Memlet:
        """The memlet of an array, or of ranges of it under some indices."""
        if not any(index in ranges for index in indices):
            return self.arrays.whole(name)
        extents = self.sdfg.arrays[name].shape
        whole = [f"0:{symbolic.symstr(extent)}" for extent in extents]
        return Memlet(f"{name}[{', '.join(ranges.get(i, all_) for i, all_ in zip(indices, whole, strict=True))}]")

    def _fill_with_zeros(self, region: ControlFlowRegion, name: str) -> None:
        state = self.state(region, f"clear_{name}")
        ranges = {f"__{n}": f"0:{symbolic.symstr(extent)}" for n, extent in enumerate(self.sdfg.arrays[name].shape)}
        written = {"_out": Memlet(f"{name}[{', '.join(ranges)}]")}
        state.add_mapped_tasklet(state.label, ranges, {}, "_out = 0", written, external_edges=True)

    def _moved(self, region: ControlFlowRegion, group: Group, step: Step) -> None:
        """Elements of one tensor become those of another one, wherever both are."""
        self.read_first |= set(step.read) - self.written
        if isinstance(step.moved, Reshape):
            try:
                self.reshape(region, step.moved.source, group.result)
            except ValueError as error:
                raise ValueError(f"{step.statement.label}: {error}") from error
        elif isinstance(step.moved, Slice):
            self.part(region, step.moved)
            if step.moved.written and group.result not in self.written:
                self.read_first.add(group.result)  # the rest of it stays
                self.results.add(group.result)
                return
        self.written.add(group.result)
        self.results.add(group.result)

    def _reduce(self, region: ControlFlowRegion, group: Group, step: Step, operand: str, result: str) -> None:
        """The largest or smallest elements along the axes that the result lacks."""
        term, dtype = group.einsum.operands[0], self.sdfg.arrays[result].dtype
        state = self.state(region, f"{step.reduction}_{group.result}")
        axes = [axis for axis, index in enumerate(term) if index in group.einsum.summed]
        node = state.add_reduce(f"lambda a, b: {step.reduction}(a, b)", axes, neutral_element(step.reduction, dtype))
        state.add_edge(state.add_read(operand), None, node, None, self.arrays.whole(operand))
        state.add_edge(node, None, state.add_write(result), None, self.arrays.whole(result))

    def _elementwise(
        self, region: ControlFlowRegion, group: Group, step: Step, operands: Sequence[str], result: str
    ) -> None:
        state = self.state(region, f"compute_{group.result}")
        terms, extents = [*group.einsum.operands[: len(operands)], group.einsum.result], self.sdfg.arrays[result].shape
        if not group.einsum.result:  # scalars are vectors of one element, which not every rank has
            terms, extents = ["e"] * len(terms), [self.arrays.scalar_extent(group.result_placement)]
        code = step.code
        for index, (letter, begin) in step.indices.items():
            start = self.arrays.start(group.result_placement, group.einsum.result.index(letter), group.result)
            code = re.sub(rf"\b{index}\b", f"({symbolic.symstr(start + begin)} + __{letter})", code)
        memlets = [
            Memlet(f"{name}[{', '.join(f'__{i}' for i in indices) or 0}]")
            for name, indices in zip([*operands, result], terms, strict=True)
        ]
        inputs = dict(zip(step.inputs, memlets[:-1], strict=True))
        ranges = {f"__{i}": f"0:{symbolic.symstr(n)}" for i, n in zip(terms[-1], extents, strict=True)}
        outputs = {step.output: memlets[-1]}
        state.add_mapped_tasklet(state.label, ranges, inputs, code, outputs, external_edges=True)


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

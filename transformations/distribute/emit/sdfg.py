"""Emission of the program of a rank from the statements of a program and their plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import dace
from dace import SDFG, Memlet, SDFGState, symbolic
from dace.libraries.standard.nodes.reduce import Reduce
from dace.properties import CodeBlock
from dace.sdfg.state import ConditionalBlock, ControlFlowRegion, LoopRegion

from dace_redist.einsum.dataflow import Moves, operands_read
from dace_redist.einsum.placement import Home, is_everywhere
from dace_redist.einsum.plan import EinsumPlan
from dace_redist.einsum.program import Group
from dace_redist.einsum.program import Move as PlannedMove
from dace_redist.einsum.statement import Code, Statement
from dace_redist.library_nodes import Contraction, LinearSolve, Redistribute
from dace_redist.library_nodes.indexed import RESULT
from dace_redist.transformations.distribute.emit.arrays import LocalArrays, LocalSymbols
from dace_redist.transformations.distribute.emit.copies import Emitter
from dace_redist.transformations.distribute.emit.direct import box_memlet, direct_boxes, whole_box
from dace_redist.transformations.distribute.ir import (
    Assignment,
    Block,
    Body,
    Move,
    Operation,
    Slice,
    in_numbers,
    neutral_element,
    operations,
    renamed,
)


def emit_program(
    target: SDFG, source: SDFG, body: Body, plan: EinsumPlan, sizes: Mapping[str, int], device: str
) -> tuple[LocalSymbols, tuple[str, ...], tuple[str, ...]]:
    """
    Fill an empty SDFG with the program of a rank.

    :param source: The SDFG that ``body`` was read from.
    :param sizes: Values of the program's symbols: they determine which redistributions are redundant.
    :param device: ``"cpu"`` or ``"gpu"``.
    :return: The symbols, and the names of the tensors that the program reads and writes.
    """
    for name, dtype in source.symbols.items():
        target.add_symbol(name, dace.float64 if dtype in dace.FLOAT_TYPES else dace.int64)
    arrays = LocalArrays(target, source, body, plan, sizes)
    builder = _Builder(target, body, plan, arrays, device)
    builder.emit(target, body)
    inputs = builder.read_first | (builder.results - builder.written)
    read = tuple(name for name in arrays.arguments if name in inputs and not name.startswith("__return"))
    return arrays.symbols, read, tuple(name for name in arrays.arguments if name in builder.results)


class _Builder(Emitter):
    """Emitter of operations, loops and branches, and of the moves of a plan between them."""

    def __init__(self, sdfg: SDFG, body: Body, plan: EinsumPlan, arrays: LocalArrays, device: str) -> None:
        super().__init__(sdfg, arrays, device)
        #: Numbers of the groups of each operation.
        self._groups: dict[int, list[int]] = {id(operation): [] for operation in operations(body)}
        keys = list(self._groups)
        for number, group in enumerate(plan.groups):
            self._groups[keys[group.statement]].append(number)
        self._plan = plan
        self._before = defaultdict[tuple[int, int], list[PlannedMove]](list)  # by group, and the number of loops around
        self._after = defaultdict[int, list[PlannedMove]](list)  # moves of the result of a group
        for move in _moves(plan, arrays):
            if move.before_group > move.group:
                self._after[move.group].append(move)
            else:
                self._before[move.before_group, len(move.loops)].append(move)
        self.read_first: set[str] = set()
        self.written: set[str] = set()  # for certain, even if loops run zero times
        self.results: set[str] = set()
        self._direct = direct_boxes(body, arrays.arguments, self.local, self._computes_at_home)

    def _computes_at_home(self, statement: Statement, tensor: str) -> bool:
        """Return True if a statement is computed in one step that uses a tensor at home."""
        arrays, groups = self._arrays, self._groups_of(statement)
        if len(groups) != 1 or groups[0].reduction is not None:
            return False
        names = (*groups[0].operands, groups[0].result)
        places = zip(names, (*groups[0].operand_placements, groups[0].result_placement), strict=True)
        return all(arrays.known(tensor, place) == arrays.home(tensor) for name, place in places if name == tensor)

    def _groups_of(self, operation: Operation) -> list[Group]:
        return [self._plan.groups[number] for number in self._groups[id(operation)]]

    # Loops and branches

    def emit(self, region: ControlFlowRegion, body: Body, depth: int = 0) -> None:
        """
        Add the items of a body to a region.

        :param depth: Number of the loops around it in the plan.
        """
        for item in body:
            if isinstance(item, Statement):
                for number in self._groups[id(item)]:
                    self.redistribute(region, self._before[number, depth])
                    self._group(region, self._plan.groups[number], item)
                    self.redistribute(region, self._after[number])
            elif isinstance(item, Move):
                self._move(region, item)
            elif isinstance(item, type):  # a jump
                self.append(region, item(item.__name__))
            elif isinstance(item, Assignment):
                self._read(item.scalars)
                values = {name: self._named_here(value, item.scalars) for name, value in item.values.items()}
                self.state(region, "assign")
                self.append(region, SDFGState("assigned", self._sdfg), values)
            else:
                self._blocks(region, item, depth)

    def _blocks(self, region: ControlFlowRegion, item: Block, depth: int) -> None:
        """Add a loop or branches, which may run or not."""
        self._read(item.scalars)
        numbers = [number for operation in operations([item]) for number in self._groups[id(operation)]]
        if numbers:
            self.redistribute(region, self._before[numbers[0], depth])
        before = set(self.written)
        if isinstance(item.region, LoopRegion):
            self._loop(region, item.region, item, depth + 1)
        else:
            self._branch(region, item.region, item, depth + 2)
        if not item.certain:
            self.written = before

    def _loop(self, region: ControlFlowRegion, head: LoopRegion, loop: Block, depth: int) -> None:
        codes = (head.loop_condition, head.init_statement, head.update_statement)
        condition, start, update = (code and self._named_here(code.as_string, loop.scalars) for code in codes)
        inner = LoopRegion(head.label, condition, head.loop_variable, start, update, head.inverted)
        self.append(region, inner)
        self.emit(inner, loop.bodies[0], depth)
        self.not_empty(inner)

    def _branch(self, region: ControlFlowRegion, head: ConditionalBlock, branch: Block, depth: int) -> None:
        block = ConditionalBlock(head.label)
        self.append(region, block)
        before = set(self.written)
        for (condition, old), body in zip(head.branches, branch.bodies, strict=True):
            inner = ControlFlowRegion(old.label)
            block.add_branch(condition and CodeBlock(self._named_here(condition.as_string, branch.scalars)), inner)
            self.written = set(before)
            self.emit(inner, body, depth)
            self.not_empty(inner)

    def _named_here(self, code: str, scalars: Iterable[str]) -> str:
        """Return a condition or value with the arrays that hold its scalars on this rank."""
        return renamed(code, {name: f"{self._arrays.home_array(name)}[0]" for name in scalars})

    def _read(self, names: Iterable[str]) -> None:
        self.read_first |= set(names) - self.written

    def _write(self, name: str) -> None:
        self.written.add(name)
        self.results.add(name)

    # Operations

    def _move(self, region: ControlFlowRegion, move: Move) -> None:
        self._read(move.read)
        if isinstance(move, Slice):
            if not move.is_inside:
                self.check_box(region, move)
            if move.result in self._direct.read and not move.written:
                return
            if not (move.source in self._direct.written and move.written):
                self.slice(region, move)
            if move.written:  # the other elements are unchanged
                self._read([move.result])
                self.results.add(move.result)
                return
        else:
            try:
                self.reshape(region, move)
            except ValueError as error:
                raise ValueError(f"{move.label}: {error}") from error
        self._write(move.result)

    def _group(self, region: ControlFlowRegion, group: Group, statement: Statement) -> None:
        """Compute, and sum partial results."""
        arrays, name, placement = self._arrays, group.result, group.result_placement
        read = operands_read(statement, group)
        operands = [self._operand(tensor, group.operand_placements[k]) for k, tensor in enumerate(read)]
        self._read(read)
        self._write(name)
        if name not in arrays.shapes:
            shapes, result = (arrays.shapes, arrays.bounds), group.einsum.result
            extents = (group.einsum.extents([one[tensor] for tensor in group.operands]) for one in shapes)
            arrays.derive(name, statement.result, *([one[index] for index in result] for one in extents))
        if name in self._direct.written:
            whole = arrays.home_array(self._direct.written[name].result)
            self._compute(region, group, statement, operands, whole)
            return
        written = arrays.of(name, placement)
        if group.reduction is not None:
            partial = group.partial_placement
            summands = arrays.new(f"{name}_partial", name, partial)
            self._compute(region, group, statement, operands, summands)
            ends = (arrays.distribution(partial, name), arrays.distribution(placement, name))
            op = statement.reduction or "sum"
            self.connect(region, Redistribute(f"{op}_{name}", *ends, op=op), summands, written)
        elif written in operands and _reads_elsewhere(group, operands, written):
            result = arrays.new(name, name, placement)
            self._compute(region, group, statement, operands, result)
            state = self.state(region, f"copy_{written}")
            state.add_nedge(state.add_read(result), state.add_write(written), arrays.whole(written))
        else:
            self._compute(region, group, statement, operands, written)

    def _operand(self, tensor: str, placement: Home) -> str:
        """Return the array of an operand, or that of the box it is."""
        if tensor in self._direct.read:
            return self._arrays.home_array(self._direct.read[tensor].source)
        return self._arrays.of(tensor, placement)

    def _compute(
        self, region: ControlFlowRegion, group: Group, statement: Statement, operands: Sequence[str], result: str
    ) -> None:
        if statement.code is not None:
            self._elementwise(region, group, statement.code, operands, result)
        elif statement.reduction:
            self._reduce(region, group, statement.reduction, operands[0], result)
        else:
            self._contract(region, group, statement, operands, result)

    def _contract(
        self, region: ControlFlowRegion, group: Group, statement: Statement, operands: Sequence[str], result: str
    ) -> None:
        node, ranges = _node_of(group, statement), self._diagonals(group) if group.equal else {}
        if any(index in ranges for index in group.einsum.result):  # the other elements are on other ranks
            shape = {f"__{n}": extent for n, extent in enumerate(self._arrays.extents(result))}
            zeros = {"_out": Memlet(f"{result}[{', '.join(shape)}]")}
            self.map(region, f"clear_{result}", shape, {}, "_out = 0", zeros)
        named = zip(operands, group.einsum.operands, strict=True)
        parts = [self._part(name, indices, ranges) for name, indices in named]
        written = self._part(result, group.einsum.result, ranges)
        self.node(region, node, dict(zip(node.operand_connectors, parts, strict=True)), written, RESULT)

    def _diagonals(self, group: Group) -> dict[str, str]:
        """Return ranges of this rank's block, by index, with the elements of its diagonals; none where it is whole."""
        (term,), (placement,), found = group.einsum.operands, group.operand_placements, {}
        for index in dict.fromkeys(index for _, index in group.equal):
            letters = [index, *(place for place, same in group.equal if same == index)]
            if any(group.parts[letter] > 1 for letter in letters):
                axes = [term.index(letter) for letter in letters]
                size, starts = self._arrays.diagonal(group.operands[0], placement, axes)
                found |= {letter: f"{at}:{at} + {size}" for letter, at in zip(letters, starts, strict=True)}
        return found

    def _part(self, name: str, indices: str, ranges: Mapping[str, str]) -> Memlet:
        """Return the memlet of an array, or of ranges of it under some indices."""
        if not any(index in ranges for index in indices):
            return self._arrays.whole(name)
        whole = [f"0:{symbolic.symstr(extent)}" for extent in self._arrays.extents(name)]
        return Memlet(f"{name}[{', '.join(ranges.get(i, all_) for i, all_ in zip(indices, whole, strict=True))}]")

    def _reduce(self, region: ControlFlowRegion, group: Group, kind: str, operand: str, result: str) -> None:
        """Take the largest or smallest elements along the axes that the result lacks."""
        term, dtype = group.einsum.operands[0], self._sdfg.arrays[result].dtype
        axes = [axis for axis, index in enumerate(term) if index in group.einsum.summed]
        sign = {"max": ">=", "min": "<="}[kind]
        label, function = f"{kind}_{group.result}", f"lambda a, b: a if a != a or a {sign} b else b"  # NaN wins
        node = Reduce(label, function, axes, neutral_element(kind, dtype))
        node.implementation = "pure-seq"  # the others lock the result for each element
        self.node(region, node, {None: self._arrays.whole(operand)}, self._arrays.whole(result), None)

    def _elementwise(
        self, region: ControlFlowRegion, group: Group, code: Code, operands: Sequence[str], result: str
    ) -> None:
        arrays, placement = self._arrays, group.result_placement
        terms = [*group.einsum.operands[: len(operands)], group.einsum.result]
        written = self._direct.written.get(group.result)
        extents = written.box.shape if written else arrays.extents(result)
        if not group.einsum.result:  # scalars are vectors of one element, which some ranks lack
            held = is_everywhere(placement, arrays.ranks)
            terms, extents = [""] * len(terms) if held else ["e"] * len(terms), [arrays.scalar_extent(placement)]
        indices = {}
        for name, letter, begin in code.indices:
            indices[name] = symbolic.symstr(begin)  # of an array of one element, which is a scalar
            if group.einsum.result:
                start = arrays.start(placement, group.einsum.result.index(letter), group.result)
                indices[name] = f"{symbolic.symstr(start + begin)} + __{letter}"
        boxes = [*map(self._direct.read.get, group.operands[: len(operands)]), written]
        memlets = [
            box_memlet(name, box.box, term) if box else self._element(name, term, group.einsum.summed)
            for name, term, box in zip([*operands, result], terms, boxes, strict=True)
        ]
        inputs, outputs = dict(zip(code.inputs, memlets[:-1], strict=True)), {code.output: memlets[-1]}
        ranges = {f"__{index}": extent for index, extent in zip(terms[-1], extents, strict=False)}
        part = whole_box(result, written.box) if written else None
        self.map(region, f"compute_{group.result}", ranges, inputs, renamed(code.text, indices), outputs, part)

    def _element(self, array: str, indices: str, whole: str) -> Memlet:
        """Return the memlet of an element of an array, or along some indices of all of them."""
        ends = [f"0:{symbolic.symstr(extent)}" for extent in self._arrays.extents(array)]
        parts = [end if index in whole else f"__{index}" for index, end in zip(indices, ends, strict=False)]
        return Memlet(f"{array}[{', '.join(parts) or 0}]")


def _moves(plan: EinsumPlan, arrays: LocalArrays) -> Sequence[PlannedMove]:
    """Return the moves of a plan, made again if the sizes are not those that it was made for."""
    shapes = {name: in_numbers(bound, arrays.sizes) for name, bound in arrays.bounds.items()}
    for group in plan.groups:
        if group.result not in shapes:  # within a statement
            extents = group.einsum.extents([shapes[name] for name in group.operands])
            shapes[group.result] = tuple(extents[index] for index in group.einsum.result)
    if all(shapes[name] == shape for name, shape in plan.sizes.items()):
        return plan.moves
    return Moves(plan.statements, plan.groups, plan.homes, shapes, plan.itemsize).moves


def _node_of(group: Group, statement: Statement) -> LinearSolve | Contraction:
    if group.solves:
        return LinearSolve(f"solve_{group.result}", str(group.einsum), statement.label)
    alpha = statement.alpha if group.result == statement.result else 1
    einsum, path = group.local_einsum
    return Contraction(f"contract_{group.result}", einsum, alpha=alpha, path=path)


def _reads_elsewhere(group: Group, operands: Sequence[str], written: str) -> bool:
    """Return True if computing an element may read other elements of the array that is written."""
    same = {indices for name, indices in zip(operands, group.einsum.operands, strict=False) if name == written}
    return not group.elementwise or same != {group.einsum.result}

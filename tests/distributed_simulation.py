"""Simulation of the programs of all ranks with NumPy, in one process without MPI: oracle of distributed programs."""

from __future__ import annotations

import ast
import functools
import operator
import re
from typing import Any

import dace
import numpy as np
from dace import symbolic
from dace.sdfg import nodes
from dace.sdfg import utils as sdutil
from dace.sdfg.state import BreakBlock, ConditionalBlock, ContinueBlock, LoopRegion
from results import solved

from dace_redist.distribution import decode_distribution
from dace_redist.library_nodes.environment import MEMORY_PIECE

#: What tasklets and conditions may call.
FUNCTIONS = {name: getattr(np, name) for name in ("sqrt", "exp", "log", "tanh", "sin", "cos", "abs", "power", "where")}
FUNCTIONS |= {"max": np.maximum, "min": np.minimum, "pow": np.power, "math": np, "dace": dace, "Abs": np.abs}
FUNCTIONS |= {name: getattr(np, name) for name in ("logical_and", "logical_or", "logical_not", "conj", "real", "imag")}
FUNCTIONS |= {name: one for name, one in vars(np).items() if isinstance(one, np.ufunc)}
FUNCTIONS |= {f"numpy_{name}": one for name, one in vars(np).items() if isinstance(one, np.ufunc)}
FUNCTIONS |= {"numpy_clip": np.clip, "numpy_scalar_power": np.power, "int_floor": operator.floordiv}
FUNCTIONS["int_ceil"] = lambda a, b: -(-a // b)
FUNCTIONS["numpy_index"] = lambda index, length: np.where(index < 0, index + length, index)


def _check_box(begin, extent, length, statement):
    if begin < 0 or extent < 0 or begin + extent > length:
        raise IndexError(f"{statement}: it takes elements {begin} to {begin + extent} of {length}")


FUNCTIONS["numpy_check_box"] = _check_box


def _number(value, symbols):
    """Return the value of an expression for values of its symbols; cached, since SymPy is slow."""
    if not symbolic.issymbolic(value):
        return value
    return _evaluated(value, tuple(symbols[name] for name in _free_names(value)))


@functools.cache
def _free_names(value):
    return tuple(map(str, value.free_symbols))


@functools.cache
def _evaluated(value, numbers):
    return symbolic.evaluate(value, dict(zip(_free_names(value), numbers, strict=True)))


class SimulatedRanks:
    """
    All ranks of a distributed program. Elements that a rank does not own are NaN.

    :param program: The program.
    """

    def __init__(self, program):
        self.program, self.sdfg = program, program.sdfg
        self.symbols = [dict(program.local_extents(rank)) for rank in range(program.ranks)]
        self.arrays = [self._allocated(rank) for rank in range(program.ranks)]

    def run(self, **wholes):
        """Scatter the inputs, run, and gather all outputs by name."""
        self.sdfg.validate()
        self.program.recipe.captured.check()  # as a run does
        for name, tensor in self.program.inputs.items():
            whole = np.asarray(wholes[name], tensor.dtype).reshape(tensor.shape or 1)
            _scatter([arrays[name] for arrays in self.arrays], tensor.distribution, whole)
        for rank, arrays in enumerate(self.arrays):
            for name, part in self.program.closure_parts(rank).items():
                arrays[name][...] = part
        self._region(self.sdfg)
        tensors = self.program.outputs
        parts = {name: [arrays[name] for arrays in self.arrays] for name in tensors}
        return {n: _gather(parts[n], tensor.distribution).reshape(tensor.whole_shape) for n, tensor in tensors.items()}

    def _allocated(self, rank):
        """Allocate all arrays of a rank; those that share memory overwrite each other."""
        made = {}
        for name, array in self.sdfg.arrays.items():
            made[name] = _undefined(self._numbers(array.shape, rank), array.dtype)
        pieces = {}
        for name, array in self.sdfg.arrays.items():
            if MEMORY_PIECE in array.location:
                pieces.setdefault(array.location[MEMORY_PIECE], []).append(name)
        for names in pieces.values():
            piece = np.full(max(made[name].nbytes for name in names), 0xFF, np.uint8)  # not a number
            for name in names:
                made[name] = piece[: made[name].nbytes].view(made[name].dtype).reshape(made[name].shape)
        return made

    def _numbers(self, values, rank=0):
        return [int(_number(value, self.symbols[rank])) for value in values]

    def _parts(self, memlet):
        """Return what a memlet uses of each rank's array."""
        named = zip(self.arrays, self.symbols, strict=True)
        return [arrays[memlet.data][slices_of(memlet.subset, symbols)] for arrays, symbols in named]

    def _move(self, node, source, target):
        ends = [decode_distribution(self._numbers(side.encoded)) for side in node.distributions()]
        if getattr(node, "region", ()):
            self._move_region(node, source, target, ends)
            return
        _scatter(target, ends[1], _gather(source, ends[0], node.op))

    def _move_region(self, node, source, target, ends):
        region = np.reshape(self._numbers(node.region), (3, -1))
        take, put = (tuple(slice(a, a + n) for a, n in zip(offset, region[2], strict=True)) for offset in region[:2])
        kept = [part.copy() for part in target]
        whole = np.full(ends[1].shape, 0, target[0].dtype)
        mask = np.zeros(ends[1].shape, bool)
        whole[put], mask[put] = _gather(source, ends[0])[take], True
        _scatter(target, ends[1], whole)
        for rank, (part, old) in enumerate(zip(target, kept, strict=True)):
            moved = ends[1].local(mask, rank)
            if moved.size:
                part[...] = np.where(moved, part, old)

    def _region(self, region):
        block = region.start_block
        while block is not None:
            self._block(block)
            edges = region.out_edges(block)
            for edge in edges:
                for name, value in edge.data.assignments.items():
                    for rank, symbols in enumerate(self.symbols):
                        symbols[name] = self._value(value, rank)
            block = edges[0].dst if edges else None

    def _block(self, block):
        if isinstance(block, LoopRegion):
            self._loop(block)
        elif isinstance(block, ConditionalBlock):
            for condition, region in block.branches:
                if condition is None or self._holds(condition):
                    self._region(region)
                    return
        elif isinstance(block, BreakBlock | ContinueBlock):
            raise _JumpError(type(block))
        else:
            for node in sdutil.dfs_topological_sort(block, block.source_nodes()):
                self._node(node, block)

    def _loop(self, loop):
        self._execute(loop.init_statement)
        while self._holds(loop.loop_condition):
            try:
                self._region(loop)
            except _JumpError as jump:
                if jump.kind is BreakBlock:
                    break
            self._execute(loop.update_statement)

    def _holds(self, condition):
        """Evaluate a condition, and check that all ranks agree."""
        (value,) = {bool(self._value(condition.as_string, rank)) for rank in range(len(self.symbols))}
        return value

    def _value(self, code, rank):
        text = re.sub(r"&&", " and ", re.sub(r"\|\|", " or ", code))
        return eval(text, {**FUNCTIONS, **self.arrays[rank]}, self.symbols[rank])

    def _execute(self, code):
        for arrays, symbols in zip(self.arrays, self.symbols, strict=True) if code is not None else ():
            exec(code.as_string, dict(arrays), symbols)

    def _node(self, node, state):
        kind = type(node).__name__
        if kind in ("Redistribute", "JointRedistribute"):
            for tensor in getattr(node, "tensors", [node]):
                ends = (self._parts(tensor.memlet(connector, state)) for connector in ("_inp_buffer", "_out_buffer"))
                self._move(tensor, *ends)
        for arrays, symbols in zip(self.arrays, self.symbols, strict=True):
            if kind == "Contraction":
                _contract(node, state, arrays, symbols)
            elif kind == "LinearSolve":
                _solve(node, state, arrays, symbols)
            elif isinstance(node, nodes.Tasklet):
                _compute(node, state, arrays, symbols)
            elif kind == "Reduce":
                _reduce(node, state, arrays, symbols)
            elif isinstance(node, nodes.AccessNode):
                for edge in state.out_edges(node):
                    if isinstance(edge.dst, nodes.AccessNode):
                        if isinstance(self.sdfg.arrays[edge.dst.data], dace.data.View):
                            arrays[edge.dst.data] = arrays[node.data].reshape(arrays[edge.dst.data].shape)
                        else:
                            _result(arrays, edge.dst.data, [node.data])[...] = arrays[node.data]


def _scatter(parts, distribution, whole):
    for rank, mine in enumerate(parts):
        part = distribution.local(whole, rank)
        if part.size:
            assert part.shape == mine.shape
            mine[...] = part


def _gather(parts, distribution, op=""):
    whole = _undefined(distribution.shape, parts[0].dtype)
    known = np.zeros(distribution.shape, bool)
    for rank, part in enumerate(parts):
        index = distribution.global_index(rank)
        if all(len(along) for along in index):
            at = np.ix_(*index)
            combined = {"sum": np.add, "max": np.maximum, "min": np.minimum}.get(op, lambda old, new: new)
            whole[at] = np.where(known[at], combined(whole[at], part), part)
            known[at] = True
    return whole


class _JumpError(Exception):
    """Jump out of an iteration of a loop, or with BreakBlock out of the loop."""

    def __init__(self, kind):
        self.kind = kind


def _reduce(node, state, arrays, symbols):
    (source,), (target,) = state.in_edges(node), state.out_edges(node)
    kind = np.maximum if ">=" in node.wcr else np.minimum
    operand = arrays[source.data.data][slices_of(source.data.subset, symbols)]
    result = _result(arrays, target.data.data, [])[slices_of(target.data.subset, symbols)]
    result[...] = kind.reduce(operand, axis=tuple(node.axes), initial=node.identity).reshape(result.shape)


def _undefined(shape, dtype):
    kind = np.dtype(dtype.as_numpy_dtype() if hasattr(dtype, "as_numpy_dtype") else dtype)
    return np.full(shape, np.nan if kind.kind in "fc" else 0, kind)


def _result(arrays, name, operands):
    """Return an array to be written; no operand may share its memory, unless it is changed in place."""
    if name not in operands:
        arrays[name].view(np.uint8)[...] = 0xFF
    return arrays[name]


def _contract(node, state, arrays, symbols):
    memlets = [node.memlet(connector, state) for connector in node.operand_connectors]
    operands = [arrays[memlet.data][slices_of(memlet.subset, symbols)] for memlet in memlets]
    written = node.memlet("_result", state)
    if written.subset.num_elements() == state.sdfg.arrays[written.data].total_size:  # else zeros are around a part
        _result(arrays, written.data, [memlet.data for memlet in memlets])
    operands = [array if term else array[0] for array, term in zip(operands, node.terms, strict=False)]
    alpha = float(_number(node.alpha, symbols))
    arrays[written.data][slices_of(written.subset, symbols)] = alpha * np.einsum(node.einsum, *operands)


def slices_of(subset, symbols):
    """Return the subset of a memlet as slices."""
    ends = [[int(_number(end, symbols)) for end in ends] for *ends, _ in subset.ndrange()]
    return tuple(slice(low, high + 1) for low, high in ends)


def _solve(node, state, arrays, symbols):
    memlets, written = [node.memlet(one, state) for one in node.operand_connectors], node.memlet("_result", state)
    result = _result(arrays, written.data, [memlet.data for memlet in memlets])[slices_of(written.subset, symbols)]
    operands = [arrays[memlet.data][slices_of(memlet.subset, symbols)] for memlet in memlets]
    if not any(0 in array.shape for array in operands):
        result[...] = solved(node.einsum, *operands)


def _compute(tasklet, state, arrays, symbols):
    """Run a tasklet, alone or in a map over whole local arrays or over a box of one of them."""
    entry = state.entry_node(tasklet)
    params = zip(entry.params, entry.range.size(), strict=True) if entry else ()
    extents = {p: range(int(_number(n, symbols))) for p, n in params}

    grid = dict(zip(extents, np.ix_(*extents.values()), strict=True))
    starts = symbols | dict.fromkeys(grid, 0)

    def at(memlet: Any) -> Any:
        """Return element numbers along each axis, aligned by axes of the map; a slice where the code has an index."""
        ranges = [(begin, end) for begin, end, _ in memlet.subset.ndrange()]
        used = [grid.keys() & set(map(str, symbolic.symlist(begin))) for begin, _ in ranges]
        return tuple(
            sum((grid[p] for p in one), int(_number(b, starts))) if b == e else slice(int(_number(b, starts)), None)
            for one, (b, e) in zip(used, ranges, strict=True)
        )

    if not all(map(len, extents.values())):
        return
    if state.out_degree(tasklet) == 0:  # a check
        exec(_compiled(tasklet.code.as_string), dict(FUNCTIONS), dict(symbols))
        return
    (out,) = state.out_edges(tasklet)
    inputs = [edge.data.data for edge in state.in_edges(tasklet)]
    written = state.memlet_path(out)[-1].data.subset
    is_part = written.num_elements() != state.sdfg.arrays[out.data.data].total_size
    result = _result(arrays, out.data.data, [*inputs, *[out.data.data] * is_part])
    values: dict[str, Any] = {**symbols, **grid}
    for edge in state.in_edges(tasklet):
        if edge.data.data is not None:
            index = at(edge.data)
            indexed = any(isinstance(one, slice) for one in index)
            array = arrays[edge.data.data]
            values[edge.dst_conn] = _Indexed(array, index) if indexed else array[index]
    exec(_compiled(tasklet.code.as_string), dict(FUNCTIONS), values)
    result[at(out.data)] = values[out.src_conn]


class _Indexed:
    """Elements of an array, of which the code has the indices along some axes."""

    def __init__(self, array, index):
        self.array, self.index = array, index

    def __getitem__(self, index):
        given = iter(index if isinstance(index, tuple) else (index,))
        return self.array[tuple(next(given) + one.start if isinstance(one, slice) else one for one in self.index)]


@functools.cache
def _compiled(code):
    tree = ast.fix_missing_locations(_Vectorised().visit(ast.parse(code)))
    return compile(tree, "tasklet", "exec")


class _Vectorised(ast.NodeTransformer):
    """Translation of conditions to whole arrays."""

    def visit_IfExp(self, node):  # noqa: N802
        self.generic_visit(node)
        return ast.Call(ast.Name("where", ast.Load()), [node.test, node.body, node.orelse], [])

    def visit_BoolOp(self, node):  # noqa: N802
        self.generic_visit(node)
        name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        return functools.reduce(lambda a, b: ast.Call(ast.Name(name, ast.Load()), [a, b], []), node.values)

    def visit_UnaryOp(self, node):  # noqa: N802
        self.generic_visit(node)
        return (
            ast.Call(ast.Name("logical_not", ast.Load()), [node.operand], []) if isinstance(node.op, ast.Not) else node
        )

"""Runs the program of every rank with NumPy, in one process and without MPI: the oracle of distributed programs."""

from __future__ import annotations

from typing import Any

import dace
import numpy as np
from dace import symbolic
from dace.sdfg import nodes
from dace.sdfg import utils as sdutil
from dace.sdfg.state import LoopRegion
from linear_systems import solved

from dace_redist.distribution import decode_distribution
from dace_redist.library_nodes.environment import MEMORY_PIECE


class SimulatedRanks:
    """
    All ranks of a distributed program. What a rank has not got is not a number to it.

    :param program: The program.
    """

    def __init__(self, program):
        self.program, self.sdfg = program, program.sdfg
        self.sdfg.validate()
        self.symbols = [dict(program.local_extents(rank)) for rank in range(program.ranks)]
        self.arrays = [self._allocated(rank) for rank in range(program.ranks)]

    def run(self, **wholes):
        """Scatters the inputs, runs, and gathers all outputs by name."""
        for name, tensor in self.program.inputs.items():
            self._scatter(name, tensor.distribution, np.asarray(wholes[name], tensor.dtype).reshape(tensor.shape or 1))
        self._region(self.sdfg)
        tensors = self.program.outputs
        return {n: self._gather(n, tensor.distribution).reshape(tensor.shape) for n, tensor in tensors.items()}

    def _allocated(self, rank):
        """All arrays of a rank; those in one piece of memory overwrite each other."""
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
        return [int(symbolic.evaluate(value, self.symbols[rank])) for value in values]

    def _scatter(self, name, distribution, whole):
        for rank, arrays in enumerate(self.arrays):
            part = distribution.local(whole, rank)
            if part.size:
                assert part.shape == arrays[name].shape
                arrays[name][...] = part

    def _gather(self, name, distribution, add=False):
        dtype = self.arrays[0][name].dtype
        whole = np.zeros(distribution.shape, dtype) if add else _undefined(distribution.shape, dtype)
        for rank, arrays in enumerate(self.arrays):
            index = distribution.global_index(rank)
            if all(len(along) for along in index):
                held = arrays[name]
                whole[np.ix_(*index)] = whole[np.ix_(*index)] + held if add else held
        return whole

    def _region(self, region):
        for block in sdutil.dfs_topological_sort(region, [region.start_block]):
            if isinstance(block, LoopRegion):
                self._loop(block)
            else:
                for node in sdutil.dfs_topological_sort(block, block.source_nodes()):
                    self._node(node, block)

    def _loop(self, loop):
        self._execute(loop.init_statement)
        while eval(loop.loop_condition.as_string, {}, self.symbols[0]):
            self._region(loop)
            self._execute(loop.update_statement)

    def _execute(self, code):
        for symbols in self.symbols:
            exec(code.as_string, {}, symbols)

    def _node(self, node, state):
        kind = type(node).__name__
        if kind in ("Redistribute", "SumReplicas"):
            (source,), (target,) = state.in_edges(node), state.out_edges(node)
            ends = [decode_distribution(self._numbers(encoded)) for encoded in (node.source, node.target)]
            add = kind == "SumReplicas" or node.op == "sum"
            self._scatter(target.data.data, ends[1], self._gather(source.data.data, ends[0], add))
        for arrays, symbols in zip(self.arrays, self.symbols, strict=True):
            if kind == "Contraction":
                _contract(node, state, arrays, symbols)
            elif kind == "LinearSolve":
                _solve(node, state, arrays)
            elif isinstance(node, nodes.Tasklet):
                _compute(node, state, arrays, symbols)
            elif isinstance(node, nodes.AccessNode):
                for edge in state.out_edges(node):
                    if isinstance(edge.dst, nodes.AccessNode):
                        _result(arrays, edge.dst.data, [node.data])[...] = arrays[node.data]


def _undefined(shape, dtype):
    kind = np.dtype(dtype.as_numpy_dtype() if hasattr(dtype, "as_numpy_dtype") else dtype)
    return np.full(shape, np.nan if kind.kind in "fc" else 0, kind)


def _result(arrays, name, operands):
    """An array to be written, in whose memory no operand may lie, unless it is changed in place."""
    if name not in operands:
        arrays[name].view(np.uint8)[...] = 0xFF
    return arrays[name]


def _contract(node, state, arrays, symbols):
    memlets = [node.memlet(connector, state) for connector in node.operand_connectors]
    operands = [arrays[memlet.data][_part(memlet, symbols)] for memlet in memlets]
    written = node.memlet("_result", state)
    if written.subset.num_elements() == state.sdfg.arrays[written.data].total_size:  # else zeros are around a part
        _result(arrays, written.data, [memlet.data for memlet in memlets])
    operands = [array if term else array[0] for array, term in zip(operands, node.terms, strict=False)]
    alpha = float(symbolic.evaluate(node.alpha, symbols))
    arrays[written.data][_part(written, symbols)] = alpha * np.einsum(node.einsum, *operands)


def _part(memlet, symbols):
    """What a memlet covers of an array, as slices."""
    ends = [[int(symbolic.evaluate(end, symbols)) for end in ends] for *ends, _ in memlet.subset.ndrange()]
    return tuple(slice(low, high + 1) for low, high in ends)


def _solve(node, state, arrays):
    names = [node.memlet(connector, state).data for connector in node.operand_connectors]
    result = _result(arrays, node.memlet("_result", state).data, names)
    operands = [arrays[name] for name in names]
    if not any(0 in array.shape for array in operands):
        result[...] = solved(node.einsum, *operands)


def _compute(tasklet, state, arrays, symbols):
    """A tasklet in a map over whole local arrays."""
    entry = state.entry_node(tasklet)
    extents = {
        p: range(int(symbolic.evaluate(n, symbols))) for p, n in zip(entry.params, entry.range.size(), strict=True)
    }

    def at(memlet: Any) -> Any:
        """Element numbers along each axis, such that axes of the map are aligned."""
        grid = dict(zip(extents, np.ix_(*extents.values()), strict=True))
        return tuple(grid.get(str(begin), 0) for begin, _, _ in memlet.subset.ndrange())

    (out,) = state.out_edges(tasklet)
    inputs = [edge.data.data for edge in state.in_edges(tasklet)]
    result = _result(arrays, out.data.data, inputs)
    values: dict[str, Any] = dict(symbols)
    for edge in state.in_edges(tasklet):
        if edge.data.data is not None:
            values[edge.dst_conn] = arrays[edge.data.data][at(edge.data)]
    exec(tasklet.code.as_string, {"dace": dace, "sqrt": np.sqrt}, values)
    result[at(out.data)] = values[out.src_conn]

"""SDFGs on simulated ranks: nodes run in any order that edges allow, and undefined elements get random values."""

from __future__ import annotations

import functools
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
from cases import reduced
from dace.data import View
from dace.libraries.linalg import TensorTranspose, Transpose
from dace.sdfg import SDFG, SDFGState, nodes
from dace.sdfg import utils as sdutil
from distributed_simulation import FUNCTIONS, SimulatedRanks, slices_of
from distributions import moved
from random_sdfgs import OF_RANK

from dace_redist.distribution import decode_distribution
from dace_redist.library_nodes import JointRedistribute, Redistribute, RedistributeWait
from dace_redist.library_nodes.node import INPUT, OUTPUT, local_ndim
from dace_redist.library_nodes.redistribute import REQUEST

Arrays = dict[str, np.ndarray]

#: Further names in tasklets.
TYPES = {"dace": np, "float64": np.float64}


class SimulatedSDFG(SimulatedRanks):
    """
    All ranks of an SDFG. Results that differ between seeds are undefined.

    :param symbols: Values of the free symbols of each rank.
    :param seed: Seed of elements that are not written yet, of the order of nodes without a path between them, of the
        replica that is sent, and of the end of a non-blocking transfer: at once, or where it is waited for.
    :param nan: True if floating-point elements that are not written yet are NaN: times 0 they are not 0.
    """

    def __init__(self, sdfg: SDFG, symbols: list[dict[str, int]], seed: int, nan: bool = False) -> None:
        self._random, self._step, self._nan = np.random.default_rng(seed), 1 if seed % 2 else -1, nan
        self._started: dict[str, Any] = {}
        copies = [dict(values) for values in symbols]
        super().__init__(SimpleNamespace(sdfg=sdfg, ranks=len(symbols), local_extents=copies.__getitem__))

    def run(self, arguments: list[Arrays]) -> list[Arrays]:  # type: ignore[override]
        """Return the arrays of each rank that its caller sees, given its arguments."""
        for arrays, given in zip(self.arrays, arguments, strict=True):
            arrays |= {name: array.copy() for name, array in given.items()}
        with np.errstate(invalid="ignore"):  # NaN has no value as an integer
            self._region(self.sdfg)
        assert not self._started, "a transfer is not waited for"
        seen = [name for name, array in self.sdfg.arrays.items() if not array.transient]
        return [{name: arrays[name] for name in seen} for arrays in self.arrays]

    def _allocated(self, rank: int) -> Arrays:
        return {name: self._new(name) for name in self.sdfg.arrays}

    def _new(self, name: str) -> np.ndarray:
        array = self.sdfg.arrays[name]
        shape, dtype = self._numbers(array.shape), array.dtype.as_numpy_dtype()
        return np.zeros(shape, dtype) if name in self._cleared else self._undefined(shape, dtype)

    @functools.cached_property
    def _cleared(self) -> set[str]:
        return {node.data for state in self.sdfg.states() for node in state.data_nodes() if node.setzero}

    @functools.cached_property
    def _local(self) -> set[str]:
        """Arrays that DaCe allocates each time that their state begins."""
        own = {name for name, array in self.sdfg.arrays.items() if array.transient and not isinstance(array, View)}
        return own.difference(self.sdfg.shared_transients())

    def _undefined(self, shape: Any, dtype: Any) -> np.ndarray:
        if self._nan and np.dtype(dtype).kind in "fc":
            return np.full(shape, np.nan, dtype)
        return self._random.integers(-(2**20), 2**20, shape).astype(dtype)

    def _block(self, block: Any) -> None:
        if not isinstance(block, SDFGState):
            super()._block(block)
            return
        for name in sorted(self._local.intersection(node.data for node in block.data_nodes())):
            for arrays in self.arrays:
                arrays[name] = self._new(name)
        for node in block.data_nodes():
            self._bind(node, block)
        missing = {node: block.in_degree(node) for node in block.nodes()}
        while missing:
            ready = [node for node, degree in missing.items() if degree == 0]
            node = ready[self._random.integers(len(ready))]
            self._node(node, block)
            del missing[node]
            for edge in block.out_edges(node):
                missing[edge.dst] -= 1

    def _bind(self, node: nodes.AccessNode, state: SDFGState) -> None:
        """Let a view be all of what it views."""
        if isinstance(self.sdfg.arrays[node.data], View):
            viewed = sdutil.get_view_node(state, node)
            self._bind(viewed, state)
            for arrays in self.arrays:
                arrays[node.data] = arrays[viewed.data].reshape(self._numbers(self.sdfg.arrays[node.data].shape))

    def _nested(self, node: nodes.NestedSDFG, state: SDFGState) -> None:
        """Run a nested SDFG on the arrays at its connectors."""
        symbols = [dict(one) for one in self.symbols]
        inner = SimulatedSDFG(node.sdfg, symbols, int(self._random.integers(2**30)), self._nan)
        inner._step = self._step
        for edge in state.all_edges(node):
            for mine, its in zip(self.arrays, inner.arrays, strict=True):
                its[edge.dst_conn if edge.dst is node else edge.src_conn] = mine[edge.data.data]
        inner._region(inner.sdfg)

    def _node(self, node: Any, state: SDFGState) -> None:
        if isinstance(node, JointRedistribute):
            self._move(node.tensors, state)
        elif isinstance(node, RedistributeWait):
            self._move(self._started.pop(node.memlet(REQUEST, state).data), state)
        elif isinstance(node, Redistribute):
            late = getattr(node, "nonblocking", False) and self._random.integers(2)
            self._move([] if late else [node], state)
            if getattr(node, "nonblocking", False):
                self._started[node.memlet(REQUEST, state).data] = [node] if late else []
        elif isinstance(node, nodes.AccessNode):
            for edge in state.in_edges(node):
                copies = isinstance(edge.src, nodes.AccessNode) and "views" not in (edge.src_conn, edge.dst_conn)
                if copies and edge.data.data is not None:
                    self._copy((edge.src.data, edge.data.src_subset), (node.data, edge.data.dst_subset))
        elif isinstance(node, Transpose | TensorTranspose):
            (read,), (written,) = ([edge.data for edge in edges(node)] for edges in (state.in_edges, state.out_edges))
            self._copy((read.data, read.subset), (written.data, written.subset), _transposed, written.wcr is not None)
        elif isinstance(node, nodes.NestedSDFG):
            self._nested(node, state)
        elif isinstance(node, nodes.Tasklet):
            for arrays, symbols in zip(self.arrays, self.symbols, strict=True):
                _compute(node, state, arrays, symbols)
        else:
            assert isinstance(node, nodes.MapEntry | nodes.MapExit), f"{node} cannot be simulated"

    def _views(self, name: str, subset: Any) -> list[np.ndarray]:
        """Return a part of an array on each rank."""
        both = zip(self.arrays, self.symbols, strict=True)
        return [arrays[name][slices_of(subset, symbols)] for arrays, symbols in both]

    def _copy(self, source: Any, target: Any, change: Any = np.asarray, adds: bool = False) -> None:
        for read, written in zip(self._views(*source), self._views(*target), strict=True):
            written[...] = change(read).reshape(written.shape) + (written if adds else written.dtype.type(0))

    def _move(self, redistributions: list[Any], state: SDFGState) -> None:
        """Carry out redistributions, which read all inputs before they write an output."""
        for views, results in [self._transfer(node, state) for node in redistributions]:
            for view, result in zip(views, results, strict=True):
                view[...] = result

    def _transfer(self, node: Any, state: SDFGState) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return the output of a redistribution on each rank, and what it becomes."""
        source, target = (decode_distribution(self._numbers(side.encoded)) for side in node.distributions())
        memlets = [node.memlet(end, state) for end in (INPUT, OUTPUT)]
        reads, writes = (
            [_squeezed(view, local_ndim(side)) for view in self._views(memlet.data, memlet.subset)]
            for memlet, side in zip(memlets, (source, target), strict=True)
        )
        how: dict[str, Any] = {"alpha": 1, "conj": False, "op": "sum"}
        beta, mapped = 0, (None, None, None)
        if isinstance(node, Redistribute):
            alpha, beta = self._same(node.alpha), self._same(node.beta)
            how = {"alpha": alpha, "conj": node.conj, "op": node.op or None}
            mapped = node.index_map.axes, node.index_map.region, node.index_map.reshape
        owned = decode_distribution(source.encoded[2 + 2 * len(source.shape) :]) if any(source.halo) else source
        update = reduced(owned, self._wholes(source, owned, reads, how["op"]), how, writes[0].dtype)
        wanted = moved(update, np.zeros(target.shape, update.dtype), *mapped)
        written = moved(np.ones(source.shape, bool), np.zeros(target.shape, bool), *mapped)
        results = [view.copy() for view in writes]
        for rank, result in enumerate(results):
            part, mask = target.local(wanted, rank), target.local(written, rank)
            if part.size:
                old = result[tuple(map(slice, part.shape))]
                old[mask] = (part + old.dtype.type(beta) * old if beta else part)[mask]
        return writes, results

    def _same(self, factor: Any) -> Any:
        """Return the value of a factor, which must be equal on all ranks."""
        (value,) = {self._value(str(factor), rank) for rank in range(len(self.symbols))}
        return value

    def _wholes(self, source: Any, owned: Any, reads: list[np.ndarray], op: str | None) -> list[np.ndarray]:
        """Return the tensor of partial results of each rank, or the only one, whose elements any replica holds."""
        positions = np.arange(np.prod(source.shape)).reshape(source.shape)
        count = len(reads) if op else 1
        wholes = list(self._undefined((count, *source.shape), reads[0].dtype))
        for rank in range(len(reads))[:: self._step]:
            shape = source.local_shape(rank)
            if all(shape):
                part = reads[rank][tuple(map(slice, shape))]
                part = part[source.interior(rank)] if any(source.halo) else part
                wholes[rank if op else 0].flat[owned.local(positions, rank)] = part
        return wholes


def _squeezed(view: np.ndarray, ndim: int) -> np.ndarray:
    """Return a view without as many dimensions of one element as it has more than a number."""
    while view.ndim > ndim:
        view = view.squeeze(view.shape.index(1))
    return view


def _quotient(dividend: np.ndarray, divisor: int) -> np.ndarray:
    quotient = dividend / divisor
    return np.trunc(quotient).astype(dividend.dtype) if dividend.dtype.kind == "i" else quotient


def _transposed(matrix: np.ndarray) -> np.ndarray:
    """Return a tensor, of no extents of 1, with its axes in reverse order."""
    return matrix.squeeze().T


def _compute(tasklet: nodes.Tasklet, state: SDFGState, arrays: Arrays, symbols: dict[str, Any]) -> None:
    """
    Run the map of a tasklet; DaCe adds in the type of the array.

    In C++ sums of int8 are longer, literals are of type double, and an index times a float is a float, as with int16;
    quotients of integers are integers.
    """
    entry = state.entry_node(tasklet)
    ranges = [np.arange(int(low), int(high) + 1, dtype=np.int16) for low, high, _ in entry.map.range.ndrange()]
    values = {**symbols, **dict(zip(entry.params, np.ix_(*ranges), strict=True))}

    def at(memlet: Any) -> tuple[Any, ...]:
        return tuple(eval(str(begin), {}, values) for begin, _, _ in memlet.subset.ndrange())

    inputs = {edge.dst_conn: arrays[edge.data.data][at(edge.data)] for edge in state.in_edges(tasklet)}
    inputs = {name: one.astype(np.int64) if one.dtype == np.int8 else one for name, one in inputs.items()}
    (out,) = state.out_edges(tasklet)
    computed = values | inputs
    code = re.sub(rf"\b{OF_RANK}\b", f"({OF_RANK} + r)", tasklet.code.as_string)
    code = re.sub(r"\ba / (\d+)", r"quotient(a, \1)", re.sub(r"\d+\.\d+", r"float64(\g<0>)", code))
    exec(code, {**FUNCTIONS, **TYPES, "quotient": _quotient}, computed)
    array, result = arrays[out.data.data], np.asarray(computed[out.src_conn])
    added = result.astype(tasklet.out_connectors[out.src_conn].type or result.dtype).astype(array.dtype)
    array[at(out.data)] = added if out.data.wcr is None else array[at(out.data)] + added

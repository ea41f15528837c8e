"""Random SDFGs with redistributions and computations around them, without races. Start reading at: Writer."""

from __future__ import annotations

import copy
import random
from typing import Any, NamedTuple

import dace
import networkx as nx
import numpy as np
from dace.libraries.linalg import Transpose
from dace.properties import CodeBlock
from dace.sdfg import nodes
from dace.sdfg.state import ConditionalBlock, ControlFlowRegion, LoopRegion
from distributed_simulation import slices_of
from random_distributions import RANKS, first_replica, partial_results, random_distribution
from sdfgs import add_move

from dace_redist import Distribution
from dace_redist.library_nodes import Redistribute, SumReplicas
from dace_redist.library_nodes.node import INPUT, OUTPUT, DistributedNode
from dace_redist.transformations.fuse import transposed

SHAPES = ((6,), (4, 6), (5, 5), (2, 3, 4))
TYPES = (dace.float64, dace.float64, dace.float32, dace.complex128, dace.int8)

#: Elementwise computations of arrays a and b; the symbol r has another value on each rank.
EXPRESSIONS = ("2 * a", "a", "-a", "2 * a", "a + 1", "a + b", "a * b", "r * a", "r * a", "i0 * a")
#: Of floating-point numbers.
OF_FLOATS = ("a / 4", "0.5 * a", "dace.float32(a)", "conj(a)", "2 * conj(a)")
#: A program has one of these at most, and only without sums: else results may differ in the last digit.
ROUNDED = ("3 * a", "0.1 * a", "a / 3")


class Tensor(NamedTuple):
    """Array of an SDFG, and the distribution of the tensor of which each rank has a part in it."""

    name: str
    distribution: Any
    dtype: Any
    memlet: dace.Memlet

    @property
    def extents(self) -> tuple[int, ...]:
        """Shape of the part of the array that is used."""
        return tuple(map(int, self.memlet.subset.size()))

    def element(self, wcr: str | None = None) -> dace.Memlet:
        """Return the memlet of an element in a map over i0, i1, ..."""
        begins = enumerate(self.memlet.subset.min_element())
        index = [f"i{axis} + {begin}" if begin else f"i{axis}" for axis, begin in begins]
        return dace.Memlet(f"{self.name}[{', '.join(index)}]", wcr=wcr)


class Writer:
    """
    Writer of an SDFG.

    :ivar rounds: True if elements are rounded, so that results show the order of conversions and factors.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng, self.sdfg = rng, dace.SDFG("random")
        self._region: Any = self.sdfg
        self._state = self.sdfg.add_state(is_start_block=True)
        self._tensors: list[Tensor] = []
        self._prefixes = ("T",) * 6 + ("A", "__return")
        self.rounds = rng.random() < 0.5
        self._expressions = [*EXPRESSIONS, *(ROUNDED if self.rounds else ("99 * a",))]
        self._steps = [self._move] * 4 + [self._compute] * 3 + [self._transpose] * 2 + [self._end_state]
        if not self.rounds:
            self._steps += [self._add] * 2
        for _ in range(rng.randint(1, 2)):
            self._new("A", random_distribution(rng, rng.choice(SHAPES)), rng.choice(TYPES))

    def write(self, steps: int) -> dace.SDFG:
        """Write random steps, and one whose result the caller sees."""
        for _ in range(steps):
            self._rng.choice([*self._steps, *self._steps, self._loop, self._branch, self._read])()
        self._prefixes = ("A", "__return")
        self._move()
        if self._rarely():
            self._rng.choice((self._read, self._branch))()
        self.sdfg.validate()
        return self.sdfg

    def arguments(self) -> list[dict[str, np.ndarray]]:
        """Return arguments of each rank: parts of tensors, or partial results; random where a rank owns nothing."""
        rng, made = np.random.default_rng(0), [{} for _ in range(RANKS)]

        def values(shape: Any) -> np.ndarray:
            return rng.integers(-99, 100, shape) / (7 if self.rounds else 1)

        for tensor in (one for one in self._tensors if one.name.startswith("A")):
            whole, partial = values(tensor.distribution.shape), not self.rounds and self._rarely()
            for rank, arrays in enumerate(made):
                array = values(tuple(map(int, self.sdfg.arrays[tensor.name].shape)))
                part = tensor.distribution.local(whole, rank)
                if part.size and not partial:
                    array[slices_of(tensor.memlet.subset, {})][tuple(map(slice, part.shape))] = part
                arrays[tensor.name] = array.astype(tensor.dtype.as_numpy_dtype())
        return made

    def _rarely(self) -> bool:
        return self._rng.random() < 0.2

    def _source(self, tensors: list[Tensor] | None = None) -> Tensor:
        """Return an array, mostly the last one."""
        tensors = tensors or self._tensors
        return self._rng.choice(tensors) if self._rarely() else tensors[-1]

    def _type(self, source: Tensor) -> Any:
        """Return a type to which elements can be converted, mostly theirs."""
        possible = [one for one in TYPES if np.can_cast(source.dtype.type, one.type, "same_kind")]
        return self._rng.choice(possible) if self._rng.random() < 0.4 else source.dtype

    def _new(self, prefix: str, distribution: Any, dtype: Any, extents: Any = None) -> Tensor:
        """Add an array, rarely a larger one: an argument (A), a transient (T) or a result (__return)."""
        shapes = [shape for shape in map(distribution.local_shape, range(RANKS)) if any(shape)]
        extents = extents or [max(1, *lengths) for lengths in zip(*shapes, strict=True)]
        number = sum(tensor.name.startswith(prefix) for tensor in self._tensors)
        name, before, after = f"{prefix}_{number}", *(int(self._rng.random() < 0.07) for _ in range(2))
        self.sdfg.add_array(name, [before + n + after for n in extents], dtype, transient=prefix == "T")
        subset = ", ".join(f"{before}:{before + n}" for n in extents)
        self._tensors.append(Tensor(name, distribution, dtype, dace.Memlet(f"{name}[{subset}]")))
        return self._tensors[-1]

    def _result(self, distribution: Any, dtype: Any, extents: Any = None) -> Tensor:
        """Return a new array, or rarely one that can hold the result."""
        known = [t for t in self._tensors if t.distribution == distribution and t.dtype == dtype]
        known = [t for t in known if extents is None or t.extents == tuple(extents)]
        if known and self._rng.random() < 0.3:
            return self._rng.choice(known)
        return self._new(self._rng.choice(self._prefixes), distribution, dtype, extents)

    # Order

    def _last(self, tensor: Tensor) -> nodes.AccessNode | None:
        """Return the last access of an array in the state."""
        found = [node for node in self._state.data_nodes() if node.data == tensor.name]
        return found[-1] if found else None

    def _earlier(self, sources: list[Tensor], target: Tensor, may_order: bool = True) -> list[nodes.AccessNode]:
        """Return accesses that a step must follow; begin another state instead, mostly."""
        earlier = self._unordered(sources, target)
        if earlier and not (may_order and self._rng.random() < 0.5):
            self._end_state()
            return []
        return earlier

    def _unordered(self, sources: list[Tensor], target: Tensor) -> list[nodes.AccessNode]:
        """Return accesses of the target, and results of what reads it, from which no path leads to the sources."""
        graph = self._state.nx
        reads = [node for node in (self._last(tensor) for tensor in sources) if node is not None]
        before = set(reads).union(*(nx.ancestors(graph, node) for node in reads))
        accesses = [node for node in self._state.data_nodes() if node.data == target.name]
        later = set(accesses).union(*(nx.descendants(graph, node) for node in accesses))
        return [node for node in self._state.data_nodes() if node in later - before]

    def _connect(self, node: Any, source: Tensor, target: Tensor, ends: Any = (INPUT, OUTPUT), **may: bool) -> None:
        if target is source:
            return
        earlier = self._earlier([source], target, **may)
        add_move(self._state, node, copy.deepcopy(source.memlet), copy.deepcopy(target.memlet), ends)
        self._order(earlier, node)

    def _order(self, earlier: list[nodes.AccessNode], node: Any) -> None:
        """Let a node run after accesses, or after the redistributions that write there."""
        for access in earlier:
            writers = [edge.src for edge in self._state.in_edges(access) if isinstance(edge.src, DistributedNode)]
            self._state.add_nedge(self._rng.choice([access, *writers]), node, dace.Memlet())

    # Steps

    def _move(self) -> None:
        rng, source, count = self._rng, self._source(), len(self._tensors)
        shape, how = source.distribution.shape, {}
        if self._rarely():
            how["axes"] = axes = rng.sample(range(len(shape)), len(shape))
            shape = tuple(shape[axis] for axis in axes)
        elif rng.random() < 0.1:
            how["region"] = ([0] * len(shape), [0] * len(shape), [max(1, n - 1) for n in shape])
        known = [tensor.distribution for tensor in self._tensors if tensor.distribution.shape == shape]
        distribution = rng.choice(known) if known and rng.random() < 0.6 else random_distribution(rng, shape)
        target = self._result(distribution, self._type(source))
        if partial_results(source.distribution) > 1 and not self.rounds and self._rarely():
            how["op"] = "sum" if target.dtype == dace.complex128 else rng.choice(("sum", "max"))
        elif self._rarely():
            how["beta"] = rng.choice((1, 2))
        how |= {"alpha": rng.choice((1, 99) if target.dtype == dace.int8 else (1, 1, 2, -1)), "conj": self._rarely()}
        self._connect(Redistribute(f"move_{target.name}", source.distribution, distribution, **how), source, target)
        if "beta" in how and self._may_clear(count):
            self._last(target).setzero = True

    def _add(self) -> None:
        """Add partial results: on one of the ranks that hold them, or on all."""
        partial = [tensor for tensor in self._tensors if partial_results(tensor.distribution) > 1]
        if not partial or self._rarely():
            shape = self._rng.choice(SHAPES)
            halves = Distribution(shape, (2, 2), dims=[0, *[None] * (len(shape) - 1)])
            partial = [self._new("A", halves, self._rng.choice(TYPES))]
        source = self._source(partial)
        one = self._rng.choice((source.distribution, first_replica(source.distribution)))
        target = self._result(one, source.dtype)
        self._connect(SumReplicas(f"add_{target.name}", source.distribution, one), source, target)

    def _transpose(self) -> None:
        blocks = [tensor for tensor in self._tensors if isinstance(tensor.distribution, Distribution)]
        matrices = [tensor for tensor in blocks if len(tensor.extents) == 2 and 1 not in tensor.extents]
        if matrices:
            source = self._source(matrices)
            target = self._result(transposed(source.distribution), source.dtype, source.extents[::-1])
            self._connect(Transpose("transpose", source.dtype), source, target, ("_inp", "_out"), may_order=False)

    def _compute(self) -> None:
        """Compute elements of an array from those of one or two arrays; rarely not all, or added to zeros."""
        first, count = self._source(), len(self._tensors)
        expression = self._rng.choice([*self._expressions, *(OF_FLOATS if first.dtype != dace.int8 else ())])
        self._expressions = [one for one in self._expressions if expression not in ROUNDED or one not in ROUNDED]
        sources = {"a": first}
        if "b" in expression:
            sources["b"] = self._rng.choice(
                [t for t in self._tensors if (t.dtype, t.extents) == (first.dtype, first.extents)]
            )
        if "r" in expression.split():
            self.sdfg.symbols["r"] = dace.int64
        target = self._result(first.distribution, self._type(first), first.extents)
        earlier = self._earlier(list(sources.values()), target)
        reads = {one.name: self._last(one) or self._state.add_read(one.name) for one in sources.values()}
        write = self._state.add_write(target.name)
        write.setzero = self._may_clear(count) and self._rarely()
        ranges = {f"i{axis}": f"0:{n}" for axis, n in enumerate(first.extents)}
        if self._rarely():
            ranges["i0"] = f"0:{max(1, first.extents[0] - 1)}"
        _, entry, _ = self._state.add_mapped_tasklet(
            f"compute_{target.name}",
            ranges,
            {connector: tensor.element() for connector, tensor in sources.items()},
            f"out = {expression}",
            {"out": target.element("lambda old, new: old + new" if write.setzero else None)},
            external_edges=True,
            input_nodes=reads,
            output_nodes={target.name: write},
        )
        self._order(earlier, entry)

    def _may_clear(self, count: int) -> bool:
        """Return True if a step has a new output, which it writes once; the simulation clears arrays at the start."""
        return len(self._tensors) > count and self._region is self.sdfg

    def _any_element(self) -> str:
        name = self._rng.choice(self._tensors).name
        return f"{name}[{', '.join('0' * len(self.sdfg.arrays[name].shape))}]"

    def _end_state(self, **assignments: str) -> None:
        """Begin another state."""
        before, self._state = self._state, self._region.add_state()
        self._region.add_edge(before, self._state, dace.InterstateEdge(assignments=assignments))

    def _read(self) -> None:
        """Begin another state after a transition that reads an array."""
        self._end_state(first=self._any_element())

    def _loop(self) -> None:
        """Write a loop of two iterations."""
        loop = LoopRegion("loop", "k < 2", "k", "k = 0", "k = k + 1")
        self._enter(loop, loop)

    def _branch(self) -> None:
        """Write a branch with a condition that reads an array, and holds."""
        branch, body, value = ConditionalBlock("branch"), ControlFlowRegion("body", self.sdfg), self._any_element()
        branch.add_branch(CodeBlock(f"{value} == {value}"), body)
        self._enter(branch, body)

    def _enter(self, block: Any, body: Any) -> None:
        """Write steps into the body of a block, and begin a state after it."""
        self.sdfg.add_node(block, ensure_unique_name=True)
        self.sdfg.add_edge(self._state, block, dace.InterstateEdge())
        self._region, self._state = body, body.add_state(is_start_block=True)
        for _ in range(self._rng.randint(1, 3)):
            self._rng.choice(self._steps)()
        self._region, self._state = self.sdfg, self.sdfg.add_state()
        self.sdfg.add_edge(block, self._state, dace.InterstateEdge())

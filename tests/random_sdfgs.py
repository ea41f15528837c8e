"""Random SDFGs with redistributions and computations around them, without races. Start reading at: Writer."""

from __future__ import annotations

import copy
import math
import random
import re
from typing import Any, NamedTuple

import dace
import networkx as nx
import numpy as np
from dace.libraries.linalg import TensorTranspose, Transpose
from dace.properties import CodeBlock
from dace.sdfg import nodes
from dace.sdfg.state import ConditionalBlock, ControlFlowRegion, LoopRegion
from distributed_simulation import slices_of
from random_distributions import RANKS, first_replica, partial_results, random_distribution

from dace_redist import Distribution
from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.node import INPUT, OUTPUT
from dace_redist.transformations.fuse import transposed

SHAPES = ((6,), (4, 6), (5, 5), (4, 6), (2, 3, 4))
TYPES = (dace.float64, dace.float64, dace.float32, dace.complex128, dace.complex64, dace.int64, dace.int8)
INTEGERS, COMPLEX = (dace.int8, dace.int64), (dace.complex64, dace.complex128)

NOWHERE = dace.dtypes.DebugInfo(0)  # else DaCe looks through the stack

ADDED = "lambda old, new: old + new"

#: Literal that is larger by its number on each rank.
OF_RANK = 41

#: Elementwise computations of arrays a and b; the symbol r has another value on each rank.
EXPRESSIONS = ("2 * a", "a", "-a", "2 * a", "a + 1", "a + b", "a * b", "r * a", f"{OF_RANK} * a", "i0 * a")
#: Those that a redistribution can include; the symbol s has one value on all ranks.
FUSIBLE = ("2 * a", "-a", "a", "4 * a", "s * a")
#: Of floating-point numbers.
OF_FLOATS = ("a / 4", "0.5 * a", "dace.float32(a)", "conj(a)", "2 * conj(a)")
#: A program has one of these at most, and only without sums: else results may differ in the last digit.
ROUNDED = ("3 * a", "0.1 * a", "a / 3")


class Tensor(NamedTuple):
    """
    Array of an SDFG, and the distribution of the tensor of which each rank has a part in it.

    :ivar extents: Shape of the part of the array that is used; ``memlet`` has further dimensions for symbols.
    :ivar views: Arrays to go through from the first, which is no view, to the array itself.
    """

    name: str
    distribution: Any
    dtype: Any
    memlet: dace.Memlet
    extents: tuple[int, ...]
    views: tuple[str, ...]

    @property
    def memory(self) -> str:
        """Name of the array that is no view."""
        return self.views[0]

    def element(self, wcr: str | None = None) -> dace.Memlet:
        """Return the memlet of an element in a map over i0, i1, ..."""
        lows = self.memlet.subset.min_element()
        fixed = len(lows) - len(self.extents)
        index = [str(low) for low in lows[:fixed]]
        index += [f"i{axis} + {low}" if low else f"i{axis}" for axis, low in enumerate(lows[fixed:])]
        return dace.Memlet(f"{self.name}[{', '.join(index)}]", wcr=wcr)


class Writer:
    """
    Writer of an SDFG.

    :ivar rounds: True if elements are rounded, so that results show the order of conversions and factors.
    :ivar ranks: Number of ranks.
    """

    def __init__(self, rng: random.Random, ranks: int = RANKS) -> None:
        self._rng, self.sdfg, self.ranks = rng, dace.SDFG("random"), ranks
        self._region: Any = self.sdfg
        self._state = self.sdfg.add_state(is_start_block=True)
        self._tensors: list[Tensor] = []
        self._prefixes: tuple[str, ...] = ("T",) * 6 + ("A", "__return")
        self.rounds = rng.random() < 0.5
        self._expressions = [*EXPRESSIONS, *(ROUNDED if self.rounds else ("99 * a",))]
        self._plain, self._memory = False, dict[str, str]()
        self._steps = (
            [self._move] * 2 + [self._compute] * 3 + [self._transpose, self._copy, self._end_state, self._assign]
        )
        self._steps += [self._fusible] * 6
        if not self.rounds:
            self._steps += [self._add]
        for _ in range(rng.randint(1, 2)):
            self._new("A", self._distribution(rng.choice(SHAPES)), rng.choice(TYPES))

    def write(self, steps: int) -> dace.SDFG:
        """Write random steps, and one whose result the caller sees."""
        for _ in range(steps):
            self._rng.choice([*self._steps, *self._steps, self._loop, self._branch, self._read, self._nest])()
        self._prefixes = ("A", "__return")
        self._move()
        if self._rarely():
            self._rng.choice((self._read, self._branch))()
        self.sdfg.validate()
        return self.sdfg

    def arguments(self) -> list[dict[str, np.ndarray]]:
        """Return arguments of each rank: parts of tensors, or partial results; random where a rank owns nothing."""
        rng, made = np.random.default_rng(0), [{} for _ in range(self.ranks)]

        def values(shape: Any, dtype: Any) -> np.ndarray:
            parts = rng.integers(-99, 100, (2, *shape)) / (7 if self.rounds else 1)
            return parts[0] + 1j * parts[1] if dtype in COMPLEX else parts[0]

        for tensor in (one for one in self._tensors if one.memory.startswith("A") and one.memory not in made[0]):
            whole, partial = values(tensor.distribution.shape, tensor.dtype), not self.rounds and self._rarely()
            for rank, arrays in enumerate(made):
                array = values(tuple(map(int, self.sdfg.arrays[tensor.name].shape)), tensor.dtype)
                part = tensor.distribution.local(whole, rank)
                if part.size and not partial:
                    array[slices_of(tensor.memlet.subset, {"at": 0})][(..., *map(slice, part.shape))] = part
                shape = self.sdfg.arrays[tensor.memory].shape
                arrays[tensor.memory] = array.astype(tensor.dtype.as_numpy_dtype()).reshape(shape)
        return made

    def _distribution(self, shape: tuple[int, ...]) -> Any:
        return random_distribution(self._rng, shape, self.ranks)

    def _rarely(self) -> bool:
        return not self._plain and self._rng.random() < 0.2

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
        shapes = [shape for shape in map(distribution.local_shape, range(self.ranks)) if any(shape)]
        extents = extents or [max(1, *lengths) for lengths in zip(*shapes, strict=True)]
        number = sum(name.startswith(prefix) for name in set(self._memory.values()))
        name, before, after = f"{prefix}_{number}", *(int(self._rng.random() < 0.07) for _ in range(2))
        shape, subset = [before + n + after for n in extents], ", ".join(f"{before}:{before + n}" for n in extents)
        size, arrays = math.prod(shape), self.sdfg.arrays
        like = [one for one in self._tensors if one.dtype == dtype and arrays[one.memory].total_size == size]
        if not self._plain and self._rng.random() < 0.15:
            if like and prefix == "T":
                memory = self._rng.choice(like).memory
            else:
                self.sdfg.add_array(memory := name, [math.prod(shape)], dtype, transient=prefix == "T")
            views = [memory, *(f"V_{len(self._memory) + more}" for more in range(1, self._rng.randint(2, 3)))]
            for view in views[1:]:
                self.sdfg.add_view(view, shape if view is views[-1] else [math.prod(shape), 1], dtype)
        else:
            fixed = [2] if self._rarely() else []
            if fixed:
                subset, self.sdfg.symbols["at"] = f"at, {subset}", dace.int64
            self.sdfg.add_array(name, [*fixed, *shape], dtype, transient=prefix == "T")
            views = [name]
        self._memory |= dict.fromkeys(views, views[0])
        memlet = dace.Memlet(f"{views[-1]}[{subset}]")
        self._tensors.append(Tensor(views[-1], distribution, dtype, memlet, tuple(extents), tuple(views)))
        return self._tensors[-1]

    def _result(self, distribution: Any, dtype: Any, extents: Any = None) -> Tensor:
        """Return a new array, or rarely one that can hold the result."""
        known = [t for t in self._tensors if t.distribution == distribution and t.dtype == dtype]
        known = [t for t in known if extents is None or t.extents == tuple(extents)]
        if self._plain:
            return self._new("T", distribution, dtype, extents)
        if known and self._rng.random() < 0.3:
            return self._rng.choice(known)
        return self._new(self._rng.choice(self._prefixes), distribution, dtype, extents)

    # Order

    def _last(self, tensor: Tensor) -> nodes.AccessNode | None:
        """Return the last access of the memory of an array in the state."""
        found = [node for node in self._state.data_nodes() if node.data == tensor.memory]
        return found[-1] if found else None

    def _access(self, tensor: Tensor, writes: bool = False) -> nodes.AccessNode:
        """Return the access from which a step reads, or a new one to which it writes, next to what it views."""
        node = (None if writes else self._last(tensor)) or self._state.add_access(tensor.memory, NOWHERE)
        for name in tensor.views[1:]:
            view, memlet = (
                self._state.add_access(name, NOWHERE),
                dace.Memlet.from_array(node.data, self.sdfg.arrays[node.data]),
            )
            ends = (view, "views", node, None) if writes else (node, None, view, "views")
            self._state.add_edge(*ends, memlet)
            node = view
        return node

    def _earlier(
        self, sources: list[Tensor], target: Tensor, may_order: bool = True, reads: bool = True
    ) -> list[nodes.AccessNode]:
        """Return accesses that a step must follow; begin another state instead, mostly."""
        earlier = self._unordered(sources if reads else [], target)
        names = {self._memory[one.name]: one.memory for one in sources}
        for node in self._state.data_nodes():  # written by another name
            if self._state.in_degree(node) and names.get(self._memory[node.data], node.data) not in (
                node.data,
                self._memory[node.data],
            ):
                self._end_state()
                return []
        if earlier and not (may_order and self._rng.random() < 0.5):
            self._end_state()
            return []
        return earlier

    def _unordered(self, sources: list[Tensor], target: Tensor) -> list[nodes.AccessNode]:
        """Return accesses of the target, and results of what reads it, from which no path leads to the sources."""
        graph = self._state.nx
        reads = [node for node in (self._last(tensor) for tensor in sources) if node is not None]
        before = set(reads).union(*(nx.ancestors(graph, node) for node in reads))
        accesses = [node for node in self._state.data_nodes() if self._memory[node.data] == self._memory[target.name]]
        later = set(accesses).union(*(nx.descendants(graph, node) for node in accesses))
        found = [node for node in self._state.data_nodes() if node in later - before]
        return [
            node for node in found if not isinstance(node.desc(self.sdfg), dace.data.View)
        ]  # DaCe counts their edges

    def _connect(self, node: Any, source: Tensor, target: Tensor, ends: Any = (INPUT, OUTPUT), **may: bool) -> None:
        if self._memory[target.name] == self._memory[source.name]:
            return
        earlier, written = self._earlier([source], target, **may), copy.deepcopy(target.memlet)
        if ends != (INPUT, OUTPUT) and self._rarely():
            written.wcr = ADDED
        self._state.add_edge(self._access(source), None, node, ends[0], copy.deepcopy(source.memlet))
        self._state.add_edge(node, ends[1], self._access(target, writes=True), None, written)
        self._order(earlier, node)

    def _order(self, earlier: list[nodes.AccessNode], node: Any) -> None:
        """Let a node run after accesses, or after the redistributions that write there."""
        for access in earlier:
            writers = [edge.src for edge in self._state.in_edges(access) if isinstance(edge.src, Redistribute)]
            self._state.add_nedge(self._rng.choice([access, *writers]), node, dace.Memlet())

    # Steps

    def _fusible(self) -> None:
        """Take steps that a transformation can fuse, join or remove."""
        move, compute, before = self._move, self._compute, [self._transpose, *([] if self.rounds else [self._add])]
        pairs = [(move, move), (move, compute), (compute, move), *((one, move) for one in before)]
        pairs.append((move, self._transpose))
        self._plain = True
        for step in self._rng.choice([*pairs, (move,), (self._move_two,)]):
            step()
        self._plain = False

    def _move_two(self) -> None:
        for source in self._rng.sample(self._tensors, min(2, len(self._tensors))):
            self._move(source)

    def _move(self, source: Tensor | None = None) -> None:
        rng, source, count = self._rng, source or self._source(), len(self._tensors)
        shape, how = source.distribution.shape, {}
        if self._rarely():
            how["axes"] = axes = rng.sample(range(len(shape)), len(shape))
            shape = tuple(shape[axis] for axis in axes)
        elif not self._plain and rng.random() < 0.1:
            how["region"] = ([0] * len(shape), [0] * len(shape), [max(1, n - 1) for n in shape])
        known = [tensor.distribution for tensor in self._tensors[-3:] if tensor.distribution.shape == shape]
        distribution = rng.choice(known) if known and rng.random() < 0.6 else self._distribution(shape)
        target = self._result(distribution, self._type(source))
        if partial_results(source.distribution) > 1 and not self.rounds and self._rarely():
            how["op"] = "sum" if target.dtype in COMPLEX else rng.choice(("sum", "max"))
        elif self._rarely():
            how["beta"] = rng.choice((1, 2))
        how["alpha"] = rng.choice((1, 99) if target.dtype == dace.int8 else (1, 1, 2, -1))
        how["conj"] = not self._plain and rng.random() < (0.5 if source.dtype in COMPLEX else 0.1)
        if self._rng.random() < 0.1:
            how["alpha"], self.sdfg.symbols["s"] = dace.symbol("s"), dace.int64
        self._connect(Redistribute(f"move_{target.name}", source.distribution, distribution, **how), source, target)
        if "beta" in how and self._may_clear(count):
            self._last(target).setzero = True

    def _add(self) -> None:
        """Add partial results: on one of the ranks that hold them, or on all."""
        partial = [tensor for tensor in self._tensors if partial_results(tensor.distribution) > 1]
        partial = [tensor for tensor in partial if tensor.dtype != dace.int8]  # Open MPI's sum of those does not wrap
        if not partial or self._rarely():
            shape = self._rng.choice(SHAPES)
            halves = Distribution(shape, (self.ranks // 2, 2), dims=[0, *[None] * (len(shape) - 1)])
            partial = [self._new(self._prefixes[-2], halves, self._rng.choice(TYPES[:-1]))]
        source = self._source(partial)
        one = self._rng.choice((source.distribution, first_replica(source.distribution)))
        target = self._result(one, source.dtype)
        self._connect(Redistribute(f"add_{target.name}", source.distribution, one, op="sum"), source, target)

    def _transpose(self) -> None:
        """Transpose a matrix, or reverse the axes of a tensor."""
        blocks = [one for one in self._tensors if isinstance(one.distribution, Distribution) and 1 not in one.extents]
        blocks = [one for one in blocks if len(one.extents) > 1]
        if blocks:
            source = self._source(blocks)
            target = self._result(transposed(source.distribution), source.dtype, source.extents[::-1])
            node, ends = Transpose("transpose", source.dtype), ("_inp", "_out")
            if len(source.extents) == 3:
                node, ends = TensorTranspose("reverse", [2, 1, 0]), ("_inp_tensor", "_out_tensor")
            shapes = [self.sdfg.arrays[one.name].shape for one in (source, target)]
            if shapes[0] == shapes[1][::-1] or (len(source.extents) == 2 == len(shapes[0]) == len(shapes[1])):
                self._connect(node, source, target, ends, may_order=False)

    def _copy(self) -> None:
        source = self._source()
        target = self._result(source.distribution, source.dtype, source.extents)
        if self._memory[target.name] != self._memory[source.name]:
            self._earlier([source], target, may_order=False)
            ends, subsets = (
                (self._access(source), None, self._access(target, writes=True), None),
                copy.deepcopy((source.memlet.subset, target.memlet.subset)),
            )
            self._state.add_edge(*ends, dace.Memlet(data=source.name, subset=subsets[0], other_subset=subsets[1]))

    def _compute(self) -> None:
        """Compute elements of an array from those of one or two arrays; rarely not all, in two maps, or added."""
        first, count = self._source(), len(self._tensors)
        possible = FUSIBLE if self._plain else [*self._expressions, *(OF_FLOATS if first.dtype not in INTEGERS else ())]
        expression = self._rng.choice(possible)
        if first.dtype in COMPLEX and {"/", "1", "0.1", "0.5", "dace.float32(a)"} & set(expression.split()):
            expression = "-a"  # others do not compile, or DaCe makes the factor an integer
        self._expressions = [one for one in self._expressions if expression not in ROUNDED or one not in ROUNDED]
        alike = [t for t in self._tensors if (t.dtype, t.extents) == (first.dtype, first.extents)]
        sources = {"a": first, **({"b": self._rng.choice(alike)} if "b" in expression else {})}
        self.sdfg.symbols |= dict.fromkeys({"r", "s"} & set(expression.replace(str(OF_RANK), "r").split()), dace.int64)
        target = self._result(first.distribution, self._type(first), first.extents)
        cut = self._rng.randint(1, first.extents[0] - 1) if first.extents[0] > 1 and self._rarely() else 0
        others = {**sources, "a": self._rng.choice(alike)} if cut else {}
        read = [*sources.values(), *others.values()]
        if any(self._memory[one.name] == self._memory[target.name] and one is not target for one in read) or (
            others and target in read
        ):
            return
        earlier, adds = self._earlier(read, target, reads=not cut), target not in read and self._rarely()
        inputs = {one.name: self._access(one) for one in read}
        write, clears = self._access(target, writes=True), self._may_clear(count)
        write.setzero = adds and clears and len(target.views) == 1
        last = first.extents[0] - (1 if self._rarely() and not cut else 0)
        for begin, end, operands in [(0, cut, others), (cut, max(last, 1), sources)][0 if cut else 1 :]:
            ranges = {f"i{axis}": f"0:{n}" for axis, n in enumerate(first.extents)} | {"i0": f"{begin}:{end}"}
            tasklet, entry, _ = self._state.add_mapped_tasklet(
                f"compute_{target.name}",
                ranges,
                {connector: tensor.element() for connector, tensor in operands.items()},
                f"out = {expression}",
                {"out": target.element(ADDED if adds else None)},
                external_edges=True,
                input_nodes=inputs,
                output_nodes={target.name: write},
            )
            if self._rarely() and first.dtype not in COMPLEX:
                tasklet.out_connectors["out"] = self._rng.choice((dace.float32, dace.int64))
            self._order(earlier, entry)

    def _may_clear(self, count: int) -> bool:
        """Return True if a step has a new output, which it writes once; the simulation clears arrays at the start."""
        new = len(self._tensors) > count and self._region is self.sdfg
        return new and [one.memory for one in self._tensors].count(self._tensors[-1].memory) == 1

    def _any_element(self) -> str:
        """Return an element of an array, or a number: C++ has no symbols and conditions of complex ones."""
        name = self._rng.choice(self._tensors).memory
        shape = self.sdfg.arrays[name].shape
        return "1" if self.sdfg.arrays[name].dtype in COMPLEX else f"{name}[{', '.join('0' * len(shape))}]"

    def _end_state(self, **assignments: str) -> None:
        """Begin another state."""
        before, self._state = self._state, self._region.add_state()
        self._region.add_edge(before, self._state, dace.InterstateEdge(assignments=assignments))

    def _assign(self) -> None:
        """Begin another state with other values of the symbols that select slices of arrays, and are factors."""
        values = {"at": "(at + 1) % 2", "s": "6 - s"}
        self._end_state(**{name: value for name, value in values.items() if name in self.sdfg.symbols})

    def _read(self) -> None:
        """Begin another state after a transition that reads an array."""
        self._end_state(first=self._any_element())

    def _nest(self) -> None:
        """Write a nested SDFG, in which an array may have two names."""
        inner, outer, outside = dace.SDFG("inner"), self.sdfg, (self._tensors, self._prefixes)
        self._end_state()
        state, self._tensors, self._prefixes = self._state, [t for t in self._tensors if len(t.views) == 1], ("T", "T")
        if self._tensors:
            one = self._rng.choice(self._tensors)
            alias = dace.Memlet(data="again", subset=copy.deepcopy(one.memlet.subset))
            self._tensors.append(one._replace(name="again", memlet=alias, views=("again",)))
            self._memory["again"] = one.name
            names = {tensor.name: self._memory[tensor.name] for tensor in self._tensors}
            for name, array in names.items():
                inner.arrays[inner.add_datadesc(name, copy.deepcopy(outer.arrays[array]))].transient = False
            self.sdfg, self._region, self._state = inner, inner, inner.add_state(is_start_block=True)
            for _ in range(self._rng.randint(1, 3)):
                self._rng.choice(self._steps)()
            accesses = [(node, where.in_degree(node)) for where in inner.states() for node in where.data_nodes()]
            used = [name for name in names if any(node.data == name for node, _ in accesses)]
            written = [name for name in used if any(node.data == name and degree for node, degree in accesses)]
            for name in names.keys() - used:
                inner.remove_data(name)
            outer.symbols |= inner.symbols
            nested = state.add_nested_sdfg(inner, set(used), set(written))
            for name in used:
                memlet = dace.Memlet.from_array(names[name], outer.arrays[names[name]])
                state.add_edge(state.add_read(names[name]), None, nested, name, memlet)
                if name in written:
                    state.add_edge(nested, name, state.add_write(names[name]), None, copy.deepcopy(memlet))
        self.sdfg, self._region, self._state, (self._tensors, self._prefixes) = outer, outer, state, outside
        self._end_state()

    def _loop(self) -> None:
        """Write a loop of two iterations, whose index may select slices of arrays."""
        loop, index = LoopRegion("loop", "k < 2", "k", "k = 0", "k = k + 1"), self._rng.choice(("at", "k"))
        self._select("at", index)
        self._enter(loop, loop)
        self._select(index, "at")

    def _select(self, before: str, after: str) -> None:
        """Let another symbol select slices of arrays."""
        for number, one in enumerate(self._tensors):
            subset = re.sub(rf"\b{before}\b", after, str(one.memlet.subset))
            self._tensors[number] = one._replace(memlet=dace.Memlet(f"{one.memlet.data}[{subset}]"))

    def _branch(self) -> None:
        """Write a branch with a condition that reads an array, and holds, also for what is not a number."""
        branch, body, value = ConditionalBlock("branch"), ControlFlowRegion("body", self.sdfg), self._any_element()
        branch.add_branch(CodeBlock(f"{value} == {value} or {value} != {value}"), body)
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

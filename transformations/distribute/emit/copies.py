"""Emission of states, redistributions, and copies of boxes and of reshaped tensors. Start reading at: Emitter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from string import ascii_letters
from typing import Any

import dace
from dace import SDFG, Memlet, SDFGState, dtypes, symbolic
from dace.sdfg.state import ControlFlowRegion

from dace_redist.distribution import Distribution
from dace_redist.einsum.placement import Placement, is_everywhere
from dace_redist.einsum.program import Move as PlannedMove
from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.environment import NumpyEnvironment
from dace_redist.library_nodes.node import INPUT, OUTPUT
from dace_redist.transformations.distribute.emit.arrays import LocalArrays
from dace_redist.transformations.distribute.emit.direct import box_memlet, whole_box
from dace_redist.transformations.distribute.ir import Box, Move, Slice, equal, in_numbers

#: Number of units that are split, the axis in either shape, and the elements per unit along it.
_Split = tuple[Any, tuple[int, int], tuple[Any, Any]]


class Emitter:
    """Emitter of blocks in the regions of an SDFG, and of moves between the arrays of a rank."""

    def __init__(self, sdfg: SDFG, arrays: LocalArrays, device: str) -> None:
        self._sdfg, self._arrays, self._device = sdfg, arrays, device
        self._last: dict[ControlFlowRegion, Any] = {}

    def append(self, region: ControlFlowRegion, block: Any, assignments: Mapping[str, str] | None = None) -> None:
        """Add a block after the last one of a region."""
        last = self._last.get(region)
        region.add_node(block, is_start_block=last is None, ensure_unique_name=True)
        if last is not None:
            region.add_edge(last, block, dace.InterstateEdge(assignments=assignments))
        self._last[region] = block

    def state(self, region: ControlFlowRegion, label: str) -> SDFGState:
        """Add a state after the last block of a region."""
        state = SDFGState(label, self._sdfg)
        state.set_default_lineinfo(dtypes.DebugInfo(0))  # without it DaCe inspects the whole call stack for every node
        self.append(region, state)
        return state

    def not_empty(self, region: ControlFlowRegion) -> None:
        """Add a state to a region without blocks, which DaCe does not support."""
        if region not in self._last:
            self.state(region, "nothing")

    def node(
        self, region: ControlFlowRegion, node: Any, sources: Mapping[Any, Memlet], target: Memlet, output: str | None
    ) -> None:
        """Add a node that reads memlets, by connector, and writes one."""
        state = self.state(region, node.label)
        state.add_node(node)
        for connector, memlet in sources.items():
            state.add_edge(state.add_read(memlet.data), None, node, connector, memlet)
        state.add_edge(node, output, state.add_write(target.data), None, target)

    def connect(self, region: ControlFlowRegion, node: Any, source: str, target: str) -> None:
        """Add a node that moves the contents of one array to another."""
        self.node(region, node, {INPUT: self._arrays.whole(source)}, self._arrays.whole(target), OUTPUT)

    def map(
        self,
        region: ControlFlowRegion,
        label: str,
        extents: Mapping[str, Any],
        inputs: Mapping[str, Memlet],
        code: str,
        output: Mapping[str, Memlet],
        written: Memlet | None = None,
    ) -> None:
        """
        Add a map of a tasklet, or for no indices the tasklet alone, which on the GPU needs a map of one iteration.

        :param extents: Extents of its indices.
        :param inputs: Memlets by connectors; likewise ``output``.
        :param written: What all its iterations write; default: the whole array.
        """
        state = self.state(region, label)
        if not extents and self._device == "gpu":
            extents = {"__e": 1}
        if not extents:
            tasklet = state.add_tasklet(state.label, dict.fromkeys(inputs), dict.fromkeys(output), code)
            for connector, memlet in inputs.items():
                state.add_edge(state.add_read(memlet.data), None, tasklet, connector, memlet)
            ((connector, memlet),) = output.items()
            state.add_edge(tasklet, connector, state.add_write(memlet.data), None, memlet)
        else:
            ranges = {index: f"0:{symbolic.symstr(extent)}" for index, extent in extents.items()}
            tasklet, entry, end = state.add_mapped_tasklet(
                state.label, ranges, inputs, code, output, external_edges=True, propagate=False
            )
            for edge in state.in_edges(entry):  # DaCe's propagation takes longer than all else here
                edge.data = self._arrays.whole(edge.data.data)
            for edge in state.out_edges(end):
                edge.data = written or self._arrays.whole(edge.data.data)
        tasklet.environments = {NumpyEnvironment.full_class_path()}

    def redistribute(self, region: ControlFlowRegion, moves: Iterable[PlannedMove]) -> None:
        """Move tensors from one placement to another."""
        for move in moves:
            name, ends = move.tensor, (move.source, move.target)
            between = (self._arrays.distribution(end, name) for end in ends)
            source, target = (self._arrays.of(name, end) for end in ends)
            self.connect(region, Redistribute(f"redistribute_{name}", *between), source, target)

    def slice(self, region: ControlFlowRegion, move: Slice) -> None:
        """
        Copy a box of a tensor to another tensor, or from it; both are at home.

        The box is redistributed as an array with all axes of its own tensor, under the placement of the other tensor;
        axes of one element are then dropped or added on each rank. A rank that has its part of the box copies it. Along
        axes that are not split, the box is one of the local array: offsets that change in a loop need no other plan.
        """
        arrays, box, zeros = self._arrays, move.box, (0,) * len(move.box.extents)
        tensor, inner = move.whole, move.part
        whole, other, place = arrays.home_array(tensor), arrays.home_array(inner), arrays.home(inner)
        local = self.local(move)
        if local is not None:
            self._copy_box(region, local, whole, other)
            return
        lifted, name = place.with_axes(box.kept, len(box.extents)), f"{inner}_box"
        arrays.derive(name, inner, box.extents, move.extents(arrays.bounds))
        array = arrays.new(name, name, lifted)
        of_box, (of_tensor, part, offsets) = arrays.distribution(lifted, name), self._around(tensor, box, whole)
        if move.written:
            self._copy_axes(region, (other, array), array, box.kept, place)
            node = Redistribute(f"write_part_of_{tensor}", of_box, of_tensor, region=(zeros, offsets, box.extents))
            self.node(region, node, {INPUT: arrays.whole(array)}, part, OUTPUT)
        else:
            node = Redistribute(f"read_part_of_{tensor}", of_tensor, of_box, region=(offsets, zeros, box.extents))
            self.node(region, node, {INPUT: part}, arrays.whole(array), OUTPUT)
            self._copy_axes(region, (array, other), array, box.kept, place)

    def check_box(self, region: ControlFlowRegion, move: Slice) -> None:
        """End the program if a box does not lie in its tensor: its place is known only when the program runs."""
        ends = zip(move.box.offsets, move.box.extents, self._arrays.shapes[move.whole] or (1,), strict=True)
        texts = (", ".join(map(symbolic.symstr, three)) for three in ends)
        code = "\n".join(f"numpy_check_box({text}, {move.label!r})" for text in texts)
        tasklet = self.state(region, f"check_{move.whole}").add_tasklet("check", {}, {}, code, side_effects=True)
        tasklet.environments = {NumpyEnvironment.full_class_path()}

    def _around(self, tensor: str, box: Box, whole: str) -> tuple[Any, Memlet, tuple[Any, ...]]:
        """Return distribution and memlet of the part of a tensor around a box, and the offsets of the box in it."""
        home, shape = self._arrays.home(tensor), self._arrays.shapes[tensor]
        extents, offsets = list(shape), list(box.offsets)
        ranges = [(0, extent) for extent in self._arrays.extents(whole)]
        for axis in range(len(shape)):
            if home.parts[axis] == 1 and len(home.ranks) == self._arrays.ranks:  # on each rank
                ranges[axis] = (box.offsets[axis], box.extents[axis])
                extents[axis], offsets[axis] = box.extents[axis], 0
        part = whole_box(whole, Box(*zip(*ranges, strict=True), ()))
        return home.distribution(extents, symbolic.int_ceil), part, tuple(offsets)

    def _copy_axes(
        self, region: ControlFlowRegion, ends: tuple[str, str], box: str, kept: tuple[int, ...], place: Placement
    ) -> None:
        """
        Copy source to target: a box with all axes, and an array with the axes ``kept``, at ``place``.

        To read row i of a matrix, of which ``kept=(1,)``, it copies a box of shape (1, n) to an array of shape (n,) by
        ``array[__0] = box[0, __0]``.
        """
        (array,) = (name for name in ends if name != box)
        # A scalar is a vector of one element, which not every rank has.
        shape = self._arrays.extents(array) if kept else (self._arrays.scalar_extent(place),)
        indices = [f"__{number}" for number in range(len(shape))]
        of_box = dict.fromkeys(range(len(self._sdfg.arrays[box].shape)), "0") | dict(zip(kept, indices, strict=False))
        parts = {box: of_box.values(), array: indices if kept else ["0"]}
        read, written = (Memlet(f"{name}[{', '.join(parts[name])}]") for name in ends)
        extents = dict(zip(indices, shape, strict=True))
        self.map(region, f"copy_{ends[0]}", extents, {"_in": read}, "_out = _in", {"_out": written})

    def local(self, move: Slice) -> Slice | None:
        """Return a slice with the box of the rank's array that it needs; None if others have parts of it."""
        home, box, shape = self._arrays.home(move.whole), move.box, self._arrays.shapes[move.whole]
        place = self._arrays.home(move.part)
        if all(is_everywhere(one, self._arrays.ranks) for one in (home, place)):
            return move
        assert isinstance(home, Placement) and isinstance(place, Placement)
        dims, multiples = (tuple(of[axis] for axis in box.kept) for of in (home.dims, home.multiples))
        if (home.grid, home.ranks, dims, multiples) != (place.grid, place.ranks, place.dims, place.multiples):
            return None
        if len(home.ranks) < self._arrays.ranks:
            return None
        split = [axis for axis, dim in enumerate(home.dims) if dim is not None]
        if not all(axis in box.kept and equal(box.extents[axis], shape[axis]) for axis in split):
            return None
        local = self._sdfg.arrays[self._arrays.home_array(move.whole)].shape
        extents = tuple(local[n] if n in split else extent for n, extent in enumerate(box.extents))
        return replace(move, box=box._replace(extents=extents))

    def _copy_box(self, region: ControlFlowRegion, move: Slice, whole: str, other: str) -> None:
        """Copy a box of an array to another array or, if ``move.written``, from it."""
        box = move.box
        letters = ascii_letters[: len(box.kept)]
        indices = [f"__{letter}" for letter in letters]
        ends = [box_memlet(whole, box, letters), Memlet(f"{other}[{', '.join(indices) or 0}]")]
        read, written = reversed(ends) if move.written else ends
        extents = dict(zip(indices, box.shape, strict=True))
        part = whole_box(whole, box) if move.written else None
        self.map(region, f"copy_{read.data}", extents, {"_in": read}, "_out = _in", {"_out": written}, part)

    def reshape(self, region: ControlFlowRegion, move: Move) -> None:
        """Reshape a tensor whose split gives each rank the same elements under both shapes."""
        arrays, ends = self._arrays, (move.source, move.result)
        if all(is_everywhere(arrays.home(name), arrays.ranks) for name in ends):
            self._view(region, move.source, *map(arrays.home_array, ends))
            return
        extent, axes, inners = splittable(*(arrays.shapes[name] for name in ends), arrays.sizes)
        block = symbolic.int_ceil(extent, arrays.ranks)
        everyone = Placement((arrays.ranks,), (0,), (1,), tuple(range(arrays.ranks)))
        held = arrays.local_extent(everyone, 0, extent)
        cuts, local = [], []
        for name, axis, inner in zip(ends, axes, inners, strict=True):
            shape = arrays.shapes[name] or (1,)
            split = [number == axis for number in range(len(shape))]
            dims, blocks = [0 if on else None for on in split], [block * inner if on else "ceil" for on in split]
            cuts.append(Distribution(shape, (arrays.ranks,), dims=dims, block=blocks))
            extents = [held * inner if on else n for on, n in zip(split, shape, strict=True)]
            local.append(arrays.add_transient(f"{name}_cut", extents, arrays.types[move.source]))
        homes = [arrays.distribution(arrays.home(name), name) for name in ends]
        there = Redistribute(f"split_{move.source}", homes[0], cuts[0])
        self.connect(region, there, arrays.home_array(move.source), local[0])
        self._view(region, move.source, local[0], local[1])
        back = Redistribute(f"join_{move.result}", cuts[1], homes[1])
        self.connect(region, back, local[1], arrays.home_array(move.result))

    def _view(self, region: ControlFlowRegion, tensor: str, source: str, target: str) -> None:
        state, like = self.state(region, f"reshape_{tensor}"), self._sdfg.arrays[target]
        name = f"view_of_{source}"  # DaCe treats names that begin as those of return values as such
        view, descriptor = self._sdfg.add_view(name, like.shape, like.dtype, find_new_name=True)
        descriptor.lifetime = dtypes.AllocationLifetime.Scope
        node = state.add_access(view)
        state.add_edge(state.add_read(source), None, node, "views", self._arrays.whole(source))
        state.add_nedge(node, state.add_write(target), self._arrays.whole(target))


def splittable(source: Sequence[Any], target: Sequence[Any], sizes: Mapping[str, int]) -> _Split:
    """
    Return the axes to split such that each rank has the same elements under both shapes.

    These are the first axes of groups of adjacent axes with equal products in both shapes. From (4, 6) to (4, 2, 3) the
    groups are axes 0 and 0, and axes 1 and (1, 2): a rank gets some of 4 rows, or some of 2 units, each of 3 elements
    along axis 1 of the source and of 1 along axis 1 of the target. There are more rows, so these are split.

    :return: The number of units that are split, the axis in either shape, and the elements per unit along it.
    :raises ValueError: If no such axes exist.
    """
    chain = [(0, 0)]  # axes up to which both shapes have equally many elements
    for i, j in product(range(len(source) + 1), range(len(target) + 1)):
        if i > chain[-1][0] and j > chain[-1][1] and equal(math.prod(source[:i]), math.prod(target[:j])):
            chain.append((i, j))
    groups = [_group(source, target, range(i, k), range(j, m)) for (i, j), (k, m) in pairwise(chain)]
    found = [group for group in groups if group is not None]
    if not found and equal(math.prod(source), 1):
        return 1, (0, 0), (1, 1)
    if not found:
        raise ValueError(
            f"no axis can be split such that a rank has the same elements under the shapes {tuple(source)} and "
            f"{tuple(target)}: merge or divide whole axes, as in A.reshape(I, J * K)"
        )
    return max(found, key=lambda group: in_numbers(group[:1], sizes)[0])


def _group(source: Sequence[Any], target: Sequence[Any], first: range, second: range) -> _Split | None:
    mine = [axis for axis in first if not equal(source[axis], 1)] or [first[0]]
    theirs = [axis for axis in second if not equal(target[axis], 1)] or [second[0]]
    if len(mine) > 1 < len(theirs):
        return None
    rows = source[mine[0]] if len(mine) > 1 else target[theirs[0]]
    inner = math.prod(source[axis] for axis in mine[1:])
    outer = math.prod(target[axis] for axis in theirs[1:])
    return rows, (mine[0], theirs[0]), (outer, inner)

"""Emits states of a distributed program, and what moves tensors and their parts in it. Start reading at: Emitter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import dace
from dace import SDFG, Memlet, SDFGState, dtypes, symbolic
from dace.sdfg.state import ControlFlowRegion

from dace_redist.distribution import Distribution
from dace_redist.einsum.placement import Placement
from dace_redist.library_nodes import Redistribute
from dace_redist.library_nodes.distributed_node import INPUT, OUTPUT
from dace_redist.transformations.einsum.local_arrays import LocalArrays
from dace_redist.transformations.einsum.reshapes import splittable
from dace_redist.transformations.einsum.steps import Slice


class Emitter:
    """
    Appends blocks to the regions of an SDFG, and knows where tensors are.

    :param sdfg: The SDFG.
    :param homes: By name, where a tensor is after each time it was written.
    :param arrays: This rank's parts.
    """

    def __init__(self, sdfg: SDFG, homes: Mapping[str, Placement], arrays: LocalArrays) -> None:
        self.sdfg, self.homes, self.arrays = sdfg, homes, arrays
        #: The arrays that hold a tensor as it is now, by placement.
        self.copies = {name: {homes[name]: name} for name in arrays.arguments}
        self._last: dict[ControlFlowRegion, Any] = {}

    # Blocks

    def append(self, region: ControlFlowRegion, block: Any, assignments: Mapping[str, str] | None = None) -> None:
        """Adds a block after the last one of a region."""
        last = self._last.get(region)
        region.add_node(block, is_start_block=last is None, ensure_unique_name=True)
        if last is not None:
            region.add_edge(last, block, dace.InterstateEdge(assignments=assignments))
        self._last[region] = block

    def state(self, region: ControlFlowRegion, label: str) -> SDFGState:
        """A new state after the last block of a region."""
        state = SDFGState(label, self.sdfg)
        state.set_default_lineinfo(dtypes.DebugInfo(0))  # else DaCe walks up the whole call stack for every node
        self.append(region, state)
        return state

    def assign(self, region: ControlFlowRegion, values: Mapping[str, str]) -> None:
        """Gives values to symbols."""
        self.state(region, "assign")
        self.append(region, SDFGState("assigned", self.sdfg), values)

    def not_empty(self, region: ControlFlowRegion) -> None:
        """Adds a state to a region without blocks, which DaCe does not know."""
        if region not in self._last:
            self.state(region, "nothing")

    def local_code(self, code: str, scalars: Iterable[str]) -> str:
        """A condition or value with the arrays that hold its scalars on this rank."""
        for name in scalars:
            code = re.sub(rf"\b{name}\b(\[0\])?", f"{self.copies[name][self._home(name)]}[0]", code)
        return code

    # Where tensors are

    def _home(self, tensor: str) -> Placement:
        return self.arrays.known(tensor, self.homes[tensor])

    def keep_homes(self, names: Iterable[str]) -> None:
        """Forgets copies besides the one that is up to date whenever a loop or branch is entered or left."""
        for name in names:
            copies = self.copies.get(name, {})
            if copies:
                home = self.arrays.known(name, self.homes.get(name) or next(iter(copies)))
                self.copies[name] = {home: copies[home]}

    def at(self, region: ControlFlowRegion, tensor: str, placement: Placement) -> str:
        """The array that holds a tensor under a placement; moves it there if need be."""
        placement = self.arrays.known(tensor, placement)
        copies = self.copies[tensor]
        if placement not in copies:
            origin, array = next(iter(copies.items()))
            copies[placement] = self.arrays.of(tensor, placement)
            ends = (self.arrays.distribution(end, tensor) for end in (origin, placement))
            self.connect(region, Redistribute(f"redistribute_{tensor}", *ends), array, copies[placement])
        return copies[placement]

    def connect(self, region: ControlFlowRegion, node: Any, source: str, target: str) -> None:
        """Adds a node that moves what one array holds to another one."""
        state = self.state(region, node.label)
        state.add_node(node)
        state.add_edge(state.add_read(source), None, node, INPUT, self.arrays.whole(source))
        state.add_edge(node, OUTPUT, state.add_write(target), None, self.arrays.whole(target))

    def _written_at_home(self, tensor: str) -> str:
        """The array of a tensor at home, which is written now, in part or as a whole."""
        home = self._home(tensor)
        array = self.arrays.of(tensor, home)
        self.copies[tensor] = {home: array}
        return array

    # Parts and other shapes

    def part(self, region: ControlFlowRegion, part: Slice) -> None:
        """Copies a box of a tensor to another tensor, or from it; both at home."""
        arrays = self.arrays
        if part.written:
            place, other = next(iter(self.copies[part.other].items()))
        else:
            place, other = self._home(part.other), self._written_at_home(part.other)
        box = f"{part.other}_box"  # the other tensor with all axes of this one
        arrays.shapes[box], arrays.types[box] = part.extents, arrays.types[part.other]
        axes = {axis: number for number, axis in enumerate(part.kept)}
        lifted = Placement(
            place.grid,
            tuple(place.dims[axes[axis]] if axis in axes else None for axis in range(len(part.extents))),
            tuple(place.multiples[axes[axis]] if axis in axes else 1 for axis in range(len(part.extents))),
            place.ranks,
        )
        whole, zeros = self._written_at_home(part.tensor) if part.written else "", (0,) * len(part.extents)
        made = arrays.new(box, box, lifted)
        placed, boxed = (self._home(part.tensor), part.tensor), (lifted, box)
        if part.written:
            self._copy_axes(region, other, made, part.kept, place)
            ends, offsets = (boxed, placed), (zeros, part.offsets)
        else:
            whole = self.copies[part.tensor][placed[0]]
            ends, offsets = (placed, boxed), (part.offsets, zeros)
        label = f"{'write' if part.written else 'read'}_part_of_{part.tensor}"
        distributions = (arrays.distribution(*end) for end in ends)
        node = Redistribute(label, *distributions, region=(*offsets, part.extents))
        self.connect(region, node, *((made, whole) if part.written else (whole, made)))
        if not part.written:
            self._copy_axes(region, made, other, part.kept, place)

    def _copy_axes(
        self, region: ControlFlowRegion, source: str, target: str, kept: tuple[int, ...], place: Placement
    ) -> None:
        """Copies an array to one with more or fewer axes of one element."""
        state = self.state(region, f"copy_{source}")
        boxes = [len(self.sdfg.arrays[name].shape) > max(1, len(kept)) for name in (source, target)]
        extents = dict(enumerate(self.sdfg.arrays[target if boxes[0] or not boxes[1] else source].shape))
        if not kept:
            extents = {0: self.arrays.scalar_extent(place)}
        short = [f"__{axis}" for axis in extents]
        names = dict(zip(kept, short, strict=False))
        long = [
            names.get(axis, "0") for axis in range(max(len(self.sdfg.arrays[name].shape) for name in (source, target)))
        ]
        memlets = [
            Memlet(f"{name}[{', '.join(long if box else short if kept else '0')}]")
            for name, box in zip((source, target), boxes, strict=True)
        ]
        ranges = {f"__{axis}": f"0:{symbolic.symstr(n)}" for axis, n in extents.items()}
        state.add_mapped_tasklet(
            state.label, ranges, {"_in": memlets[0]}, "_out = _in", {"_out": memlets[1]}, external_edges=True
        )

    def reshape(self, region: ControlFlowRegion, source: str, target: str) -> None:
        """Gives the elements of a tensor another shape, on ranks that have the same of them under both shapes."""
        arrays = self.arrays
        shapes = [arrays.shapes[name] for name in (source, target)]
        group = splittable(*shapes, arrays.sizes)
        block = symbolic.int_ceil(group.extent, arrays.ranks)
        cut = [
            Distribution(
                shape or (1,),
                (arrays.ranks,),
                dims=[0 if axis == at else None for axis in range(len(shape) or 1)],
                block=[block * inner if axis == at else None for axis in range(len(shape) or 1)],
            )
            for shape, at, inner in zip(shapes, group.axes, group.inner, strict=True)
        ]
        local = arrays.local_extent(Placement((arrays.ranks,), (0,), (1,), tuple(range(arrays.ranks))), 0, group.extent)
        made = [
            arrays.add_transient(
                f"{name}_cut",
                [local * inner if axis == at else n for axis, n in enumerate(shape)] or [local],
                arrays.types[source],
            )
            for name, shape, at, inner in zip((source, target), shapes, group.axes, group.inner, strict=True)
        ]
        place, array = next(iter(self.copies[source].items()))
        self.connect(
            region, Redistribute(f"redistribute_{source}", arrays.distribution(place, source), cut[0]), array, made[0]
        )
        state = self.state(region, f"reshape_{source}")
        view, _ = self.sdfg.add_view(
            f"{made[0]}_view", self.sdfg.arrays[made[1]].shape, arrays.types[source], find_new_name=True
        )
        node = state.add_access(view)
        self.sdfg.arrays[view].lifetime = dtypes.AllocationLifetime.Scope
        state.add_edge(state.add_read(made[0]), None, node, "views", arrays.whole(made[0]))
        state.add_nedge(node, state.add_write(made[1]), arrays.whole(made[1]))
        written = self._written_at_home(target)
        self.connect(
            region,
            Redistribute(f"redistribute_{target}", cut[1], arrays.distribution(self._home(target), target)),
            made[1],
            written,
        )

"""Boxes that an elementwise statement reads and writes in their arrays, without copies. Start: direct_boxes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from dace import Memlet, symbolic

from dace_redist.einsum.statement import Statement
from dace_redist.transformations.distribute.ir import Body, Box, Move, Slice, operations, written_by


@dataclass(frozen=True)
class Direct:
    """
    Boxes in use without copies.

    :param read: Slices by the tensor of their box, each of which one statement reads.
    :param written: Slices by the tensor of their box, each of which one statement writes.
    """

    read: dict[str, Slice] = field(default_factory=dict)
    written: dict[str, Slice] = field(default_factory=dict)


def direct_boxes(
    body: Body,
    arguments: Collection[str],
    is_local: Callable[[Slice], bool],
    is_whole: Callable[[Statement], bool],
) -> Direct:
    """
    Return the slices of a program whose copies can be left out.

    :param arguments: Tensors that are used outside of the program.
    :param is_local: Returns True if every rank has both tensors of a slice as a whole.
    :param is_whole: Returns True if each rank computes the whole of a statement, in one step.
    """
    uses = Counter(name for operation in operations(body) for name in (*operation.read, operation.result))
    found = Direct()
    for items in _blocks(body):
        for number, item in enumerate(items):
            if not isinstance(item, Slice) or not is_local(item):
                continue
            alone = item.part
            if uses[alone] != 2 or alone in arguments:
                continue
            if item.written:
                maker = items[number - 1] if number else None
                if isinstance(maker, Statement) and maker.code and maker.result == alone and is_whole(maker):
                    views = [found.read.get(name) for name in maker.read]
                    same = all(v is None or v.source != item.result or v.box == item.box for v in views)
                    if same and item.result not in maker.read:
                        found.written[alone] = item
            else:
                reader = _reader(items[number + 1 :], item)
                if reader is not None and reader.code and is_whole(reader) and reader.result != item.source:
                    found.read[alone] = item
    return found


def _blocks(body: Body) -> Iterator[Body]:
    yield body
    for item in body:
        for inner in getattr(item, "bodies", ()):
            yield from _blocks(inner)


def _reader(after: Body, item: Slice) -> Statement | None:
    """Return the statement that reads a box; None if the box may have changed by then, or indices in its offsets."""
    for other in after:
        if not isinstance(other, Statement | Move):
            return None
        if item.result in other.read:
            return other if isinstance(other, Statement) else None
        if item.source in written_by(other):
            return None
    return None


def box_memlet(array: str, box: Box, indices: str) -> Memlet:
    """Return the memlet of one element of a box of an array, under the indices of the tensor of the box."""
    names = dict(zip(box.kept, indices, strict=True))
    starts = map(symbolic.symstr, box.offsets)
    return Memlet(f"{array}[{', '.join(f'{s} + __{names[n]}' if n in names else s for n, s in enumerate(starts))}]")


def whole_box(array: str, box: Box) -> Memlet:
    """Return the memlet of a box of an array."""
    ends = zip(map(symbolic.symstr, box.offsets), map(symbolic.symstr, box.extents), strict=True)
    return Memlet(f"{array}[{', '.join(f'{start}:{start} + ({extent})' for start, extent in ends)}]")

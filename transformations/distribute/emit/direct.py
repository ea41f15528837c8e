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
    local: Callable[[Slice], Slice | None],
    computes_at_home: Callable[[Statement, str], bool],
) -> Direct:
    """
    Return the slices of a program whose copies can be left out, with boxes of the arrays of a rank.

    :param arguments: Tensors that are used outside of the program.
    :param local: Returns a slice with the box of a rank's array; None if it lacks some of the elements.
    :param computes_at_home: Returns True if a statement is computed in one step that uses a tensor at home.
    """
    uses = Counter(name for operation in operations(body) for name in (*operation.read, operation.result))
    found = Direct()
    for items in _blocks(body):
        for number, item in enumerate(items):
            alone = item.part if isinstance(item, Slice) else ""
            if uses[alone] != 2 or alone in arguments or (here := local(item)) is None:
                continue
            if item.written:
                maker = items[number - 1] if number else None
                if (
                    isinstance(maker, Statement)
                    and maker.code
                    and maker.result == alone
                    and computes_at_home(maker, alone)
                ):
                    views = [found.read.get(name) for name in maker.read]
                    same = all(v is None or v.source != item.result or v.box == here.box for v in views)
                    if same and item.result not in maker.read:
                        found.written[alone] = here
            else:
                reader = _reader(items[number + 1 :], item)
                fits = reader is not None and reader.code and reader.result != item.source
                fits = fits and not reader.einsum.summed  # of which any elements may be read
                if fits and computes_at_home(reader, alone):
                    found.read[alone] = here
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

"""A statement of a program over whole tensors, as the planner takes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from dace_redist.einsum.expression import Einsum


@dataclasses.dataclass(frozen=True)
class Statement:
    """
    An einsum, an elementwise expression, or a linear system, on whole tensors.

    :param einsum: Indices of the operands and of the result.
    :param operands: Name of each operand's tensor; one tensor may stand there twice.
    :param result: Name of the tensor that is written.
    :param where: For errors: file, line and text of the statement.
    :param elementwise: It is not a product but an expression such as ``2 * A + B``; no index is summed over.
    :param solves: It is not a product but the solution of a linear system: ``ij,ik->jk`` or ``ij,i->j`` is the X of
        ``G X = B``, ``ij->ji`` the inverse of G.
    :param repeats: How often it runs, for loops around it: the weight of its bytes and operations.
    :param loops: Names of the loops around it, the outermost first: a copy made before a loop that writes the tensor is
        out of date in the second iteration.
    :raises ValueError: If the names do not fit the einsum, an elementwise statement sums, or the indices are those of
        no linear system.
    """

    einsum: Einsum
    operands: tuple[str, ...]
    result: str
    where: str = ""
    elementwise: bool = False
    repeats: int = 1
    loops: tuple[str, ...] = ()
    solves: bool = False

    def __post_init__(self) -> None:
        if len(self.operands) != len(self.einsum.operands):
            raise ValueError(
                f"{self.label}: the einsum has {len(self.einsum.operands)} operands, got {len(self.operands)} tensors"
            )
        if self.elementwise and (self.einsum.summed or self.einsum.repeated):
            raise ValueError(
                f"{self.label}: an elementwise statement neither sums nor takes a diagonal, "
                f"but this one does over {self.einsum.summed or self.einsum.repeated!r}"
            )
        if self.solves and (self.elementwise or not _is_linear_system(self.einsum)):
            raise ValueError(
                f"{self.label}: expected a linear system, as ij,ik->jk, ij,i->j or ij->ji, got {self.einsum}"
            )
        if self.repeats < 1:
            raise ValueError(f"{self.label}: repeats must be at least 1, got {self.repeats}")

    @property
    def label(self) -> str:
        """What errors call the statement."""
        return self.where or f"{self.result} = einsum '{self.einsum}'"

    def extents(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """
        Size of every index, those of ``einsum.distinct`` too.

        :param shapes: Shape of every tensor by name; that of the result, if given, is checked too.
        :raises ValueError: If a shape is missing, has negative sizes, or does not fit; names the statement.
        """
        missing = [name for name in self.operands if name not in shapes]
        if missing:
            raise ValueError(f"{self.label}: the shape of {missing[0]!r} is missing")
        try:
            extents = self.einsum.extents([shapes[name] for name in self.operands])
        except ValueError as error:
            raise ValueError(f"{self.label}: {error}" if self.where else str(error)) from None
        for index, size in extents.items():
            if size < 0:
                raise ValueError(f"{self.label}: index {index!r} has size {size}, expected at least 0")
        if self.solves and len({extents[index] for index in self.einsum.operands[0]}) > 1:
            raise ValueError(f"{self.label}: {self.operands[0]!r} must be square, got {shapes[self.operands[0]]}")
        expected = tuple(extents[index] for index in self.einsum.result)
        if tuple(shapes.get(self.result, expected)) != expected:
            raise ValueError(
                f"{self.label}: the result {self.result!r} has shape {tuple(shapes[self.result])}, expected {expected}"
            )
        return extents | {place: extents[index] for place, index in self.einsum.distinct[1].items()}


def _is_linear_system(einsum: Einsum) -> bool:
    """Whether it can be ``G X = B``, or the inverse of G, whatever the order of each tensor's indices."""
    matrix, *right = einsum.operands
    if len(matrix) != 2 or len(set(matrix)) != 2 or len(right) > 1:
        return False
    if not right:
        return set(einsum.result) == set(matrix)
    rows, columns = set(matrix) & set(right[0]), set(right[0]) - set(matrix)
    if len(rows) != 1 or len(columns) > 1 or len(right[0]) != 1 + len(columns):
        return False
    return set(einsum.result) == (set(matrix) - rows) | columns

"""Base class of nodes that compute with local arrays by the indices of an einsum."""

from __future__ import annotations

from typing import Any

from dace import properties
from dace.sdfg import SDFG, SDFGState

from dace_redist.einsum.expression import Einsum
from dace_redist.library_nodes.node import RedistNode, differ, dimensions_of

RESULT = "_result"


@properties.make_properties
class IndexedNode(RedistNode):
    """
    Node with an index for each dimension of its operands, at ``_0``, ``_1``, ..., and of its result, at ``_result``.

    Arrays may have any strides and extents, including 0, known at run time.

    :param name: Label.
    :param einsum: The indices; the arrow may be left out as in NumPy.
    """

    einsum = properties.Property(dtype=str, default="", category="Semantics", desc="The indices, with an arrow")

    def __init__(self, name: str, einsum: str) -> None:
        super().__init__(name, outputs={RESULT})
        try:
            self.einsum = str(Einsum.parse(einsum))
        except ValueError as error:
            raise ValueError(f"{self.title}: {error}") from error
        for connector in self.operand_connectors:
            self.add_in_connector(connector)

    @property
    def terms(self) -> list[str]:
        """Indices of each operand, then of the result."""
        operands, result = self.einsum.split("->")
        return [*operands.split(","), result]

    @property
    def operand_connectors(self) -> list[str]:
        """Connectors of the operands, in order."""
        return [f"_{position}" for position in range(len(self.terms) - 1)]

    def dimensions(self, sdfg: SDFG, state: SDFGState) -> list[list[tuple[Any, Any]]]:
        """
        Return (extent, stride in elements) of each dimension of each operand, then of the result.

        :raises ValueError: If the dimensions of an array do not match its indices.
        """
        found = []
        for connector, indices in zip([*self.operand_connectors, RESULT], self.terms, strict=True):
            memlet = self.memlet(connector, state)
            array = sdfg.arrays[memlet.data]
            dimensions = dimensions_of(memlet.subset, array.strides, len(indices))
            if len(dimensions) != len(indices):
                raise ValueError(
                    f'{self.title}: {connector} has indices "{indices}" in {self.einsum}, but its '
                    f"array {memlet.data} has shape {tuple(memlet.subset.size())}"
                )
            found.append(dimensions)
        return found

    def _validate_extents(self, sdfg: SDFG, state: SDFGState) -> None:
        first: dict[str, Any] = {}
        for indices, dimensions in zip(self.terms, self.dimensions(sdfg, state), strict=True):
            for index, (extent, _) in zip(indices, dimensions, strict=True):
                if differ([first.setdefault(index, extent)], [extent]):
                    raise ValueError(
                        f"{self.title}: index {index} of {self.einsum} has extents {first[index]} and {extent}"
                    )

"""What the nodes that compute with local arrays by the indices of an einsum have in common."""

from __future__ import annotations

from typing import Any, ClassVar

from dace import Memlet, data, dtypes, properties, subsets
from dace.sdfg import SDFG, SDFGState, nodes

from dace_redist.einsum.expression import Einsum
from dace_redist.library_nodes.distributed_node import differ, dimensions_of

RESULT = "_result"


@properties.make_properties
class IndexedNode(nodes.LibraryNode):
    """
    A node with an index for each dimension of its operands, at ``_0``, ``_1``, ..., and of its result, at ``_result``.

    Arrays may have any strides and extents, 0 too, known when the program runs.

    :param name: Label.
    :param einsum: The indices; the arrow may be left out as in NumPy.
    :cvar element_types: Possible types of elements, one and the same for all arrays of a node.
    """

    element_types: ClassVar[tuple[dtypes.typeclass, ...]] = ()

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
    def title(self) -> str:
        """Kind and label, for error messages."""
        return f'{type(self).__name__} "{self.label}"'

    @property
    def terms(self) -> list[str]:
        """Indices of each operand, then of the result."""
        operands, result = self.einsum.split("->")
        return [*operands.split(","), result]

    @property
    def operand_connectors(self) -> list[str]:
        """Connectors of the operands, in order."""
        return [f"_{position}" for position in range(len(self.terms) - 1)]

    def memlet(self, connector: str, state: SDFGState) -> Memlet:
        """
        The memlet of a connector.

        :raises ValueError: If it is not connected exactly once.
        """
        edges = [e for e in state.in_edges(self) if e.dst_conn == connector]
        edges += [e for e in state.out_edges(self) if e.src_conn == connector]
        if len(edges) != 1 or edges[0].data.data is None:
            raise ValueError(f"{self.title}: connector {connector} needs exactly one edge, got {len(edges)}")
        return edges[0].data

    def dimensions(self, sdfg: SDFG, state: SDFGState) -> list[list[tuple[Any, Any]]]:
        """
        (extent, stride in elements) of each dimension of each operand, then of the result.

        :raises ValueError: If an array has not got a dimension for each index.
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

    def validate_types(self, sdfg: SDFG, state: SDFGState) -> None:
        """
        Checks that all arrays lie in main memory and hold one type of elements, a possible one.

        :raises ValueError: If not.
        """
        arrays = [sdfg.arrays[self.memlet(c, state).data] for c in (*self.operand_connectors, RESULT)]
        types = [array.dtype for array in arrays]
        if any(dtype != types[0] for dtype in types):
            raise ValueError(
                f"{self.title}: operands and result need one element type, got {', '.join(map(str, types))}"
            )
        if types[0] not in self.element_types:
            known = ", ".join(t.to_string() for t in self.element_types)
            raise ValueError(f"{self.title}: cannot compute with elements of {types[0]}; possible: {known}")
        for array in arrays:
            if not isinstance(array, (data.Array, data.Scalar)):
                raise ValueError(f"{self.title}: needs arrays, got {type(array).__name__}")
            if array.storage in (dtypes.StorageType.GPU_Global, dtypes.StorageType.GPU_Shared):
                raise ValueError(f"{self.title}: arrays must lie in main memory, got {array.storage}")

    def _validate_extents(self, sdfg: SDFG, state: SDFGState) -> None:
        first: dict[str, Any] = {}
        for indices, dimensions in zip(self.terms, self.dimensions(sdfg, state), strict=True):
            for index, (extent, _) in zip(indices, dimensions, strict=True):
                if differ([first.setdefault(index, extent)], [extent]):
                    raise ValueError(
                        f"{self.title}: index {index} of {self.einsum} has extents {first[index]} and {extent}"
                    )

    def _validate_overlap(self, state: SDFGState) -> None:
        result = self.memlet(RESULT, state)
        for connector in self.operand_connectors:
            operand = self.memlet(connector, state)
            if operand.data == result.data and subsets.intersects(operand.subset, result.subset) is not False:
                raise ValueError(f"{self.title}: operand {operand} and result {result} overlap; write to another array")

"""The library node that evaluates an einsum of local arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
from dace import Memlet, data, dtypes, library, properties, subsets, symbolic
from dace.sdfg import SDFG, SDFGState, nodes

from dace_redist.einsum.expression import Einsum
from dace_redist.library_nodes.distributed_node import differ, dimensions_of

RESULT = "_result"
PREVIOUS = "_cin"  #: input connector that the result has besides where beta is not 0, as of DaCe's own Gemm

#: Element types that can be contracted; those that are no floating-point numbers by plain loops.
ELEMENT_TYPES = (
    *(dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128),
    *(dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64),
    *(dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64),
)


@library.node
class Contraction(nodes.LibraryNode):
    """
    ``_result = alpha * einsum(_0, _1, ...) + beta * _result`` on arrays in memory, as ``np.einsum`` defines it.

    Arrays may have any strides and extents, 0 too, known when the program runs. Where beta is not 0 the result is also
    an input, at the connector ``_cin``: the same part of the same array.

    :param name: Label, for error messages.
    :param einsum: Indices as letters, such as ``"ijk,ja,ka->ia"``; the arrow may be left out as in NumPy.
    :param alpha: Factor of the einsum: a real number or an expression of real symbols.
    :param beta: Factor of what the result holds before, likewise; 0: it is not read.
    :param path: Positions of the operands that each step takes, as opt_einsum's; empty: all in one step. A step of
        three and more operands goes from left to right, or is fused if they are a tensor and a matrix for each of its
        indices that the result lacks, which all share one index of the result (MTTKRP).
    :raises ValueError: If the einsum or the path is wrong.
    :raises TypeError: If a factor is a complex number, which DaCe's symbolic properties do not hold.
    """

    implementations: dict[str, Any] = {}
    default_implementation = "BLAS"

    einsum = properties.Property(dtype=str, default="", category="Semantics", desc="The einsum, with an arrow")
    alpha = properties.SymbolicProperty(default=1, category="Semantics", desc="Factor of the einsum")
    beta = properties.SymbolicProperty(default=0, category="Semantics", desc="Factor of the result's earlier value")
    path = properties.ListProperty(tuple, default=[], category="Semantics", desc="Operands of each step")

    def __init__(
        self,
        name: str,
        einsum: str = "->",
        alpha: Any = 1,
        beta: Any = 0,
        path: Sequence[Sequence[int]] = (),
    ) -> None:
        try:
            self.einsum = str(Einsum.parse(einsum))
        except ValueError as error:
            raise ValueError(f'Contraction "{name}": {error}') from error
        for factor in (alpha, beta):
            if isinstance(factor, complex) or sympy.sympify(factor).has(sympy.I):
                raise TypeError(f'Contraction "{name}": a factor is a real number or expression, got {factor}')
        self.alpha, self.beta = alpha, beta
        self.path = [tuple(int(position) for position in step) for step in path]
        inputs = {*self.operand_connectors, *((PREVIOUS,) if self.reads_result else ())}
        super().__init__(name, inputs=inputs, outputs={RESULT})
        self._validate_path()

    @property
    def terms(self) -> list[str]:
        """Indices of each operand, then of the result."""
        operands, result = self.einsum.split("->")
        return [*operands.split(","), result]

    @property
    def operand_connectors(self) -> list[str]:
        """Connectors of the operands, in order."""
        return [f"_{position}" for position in range(len(self.terms) - 1)]

    @property
    def reads_result(self) -> bool:
        """Whether the result's earlier value counts: beta is not surely 0."""
        return self.beta != 0

    @property
    def free_symbols(self) -> set[str]:
        """Symbols of the factors, besides those of any node."""
        factors = (self.alpha, self.beta)
        return super().free_symbols | {str(s) for factor in factors for s in symbolic.symlist(factor).values()}

    def memlet(self, connector: str, state: SDFGState) -> Memlet:
        """
        The memlet of a connector.

        :raises ValueError: If it is not connected exactly once.
        """
        edges = [e for e in state.in_edges(self) if e.dst_conn == connector]
        edges += [e for e in state.out_edges(self) if e.src_conn == connector]
        if len(edges) != 1 or edges[0].data.data is None:
            raise ValueError(
                f'Contraction "{self.label}": connector {connector} needs exactly one edge, got {len(edges)}'
            )
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
                    f'Contraction "{self.label}": {connector} has indices "{indices}" in {self.einsum}, but its '
                    f"array {memlet.data} has shape {tuple(memlet.subset.size())}"
                )
            found.append(dimensions)
        return found

    def validate(self, sdfg: SDFG, state: SDFGState) -> None:
        """
        Checks what can be known before the program runs.

        :raises ValueError: If something does not fit; names the node, what was expected and what was given.
        """
        self._validate_path()
        self._validate_types(sdfg, state)
        self._validate_extents(sdfg, state)
        self._validate_overlap(state)
        unknown = self.free_symbols - state.symbols_defined_at(self).keys() - sdfg.constants.keys()
        if unknown:
            raise ValueError(
                f'Contraction "{self.label}": the program does not know {", ".join(sorted(unknown))}, of which its '
                "factors are made; declare symbols with sdfg.add_symbol"
            )

    def _validate_path(self) -> None:
        left = len(self.operand_connectors)
        for step in self.path:
            if not step or len(set(step)) != len(step) or not all(0 <= position < left for position in step):
                raise ValueError(f'Contraction "{self.label}": the path takes operands {tuple(step)} of {left}')
            left -= len(step) - 1
        if self.path and left != 1:
            raise ValueError(f'Contraction "{self.label}": the path {self.path} ends with {left} operands, not one')

    def _validate_types(self, sdfg: SDFG, state: SDFGState) -> None:
        arrays = [sdfg.arrays[self.memlet(c, state).data] for c in (*self.operand_connectors, RESULT)]
        types = [array.dtype for array in arrays]
        if any(dtype != types[0] for dtype in types):
            raise ValueError(
                f'Contraction "{self.label}": operands and result need one element type, '
                f"got {', '.join(map(str, types))}"
            )
        if types[0] not in ELEMENT_TYPES:
            known = ", ".join(t.to_string() for t in ELEMENT_TYPES)
            raise ValueError(f'Contraction "{self.label}": cannot contract {types[0]}; possible: {known}')
        for array in arrays:
            if not isinstance(array, (data.Array, data.Scalar)):
                raise ValueError(f'Contraction "{self.label}": needs arrays, got {type(array).__name__}')
            if array.storage in (dtypes.StorageType.GPU_Global, dtypes.StorageType.GPU_Shared):
                raise ValueError(f'Contraction "{self.label}": arrays must lie in main memory, got {array.storage}')

    def _validate_extents(self, sdfg: SDFG, state: SDFGState) -> None:
        first: dict[str, Any] = {}
        for indices, dimensions in zip(self.terms, self.dimensions(sdfg, state), strict=True):
            for index, (extent, _) in zip(indices, dimensions, strict=True):
                if differ([first.setdefault(index, extent)], [extent]):
                    raise ValueError(
                        f'Contraction "{self.label}": index {index} of {self.einsum} has extents {first[index]} '
                        f"and {extent}"
                    )

    def _validate_overlap(self, state: SDFGState) -> None:
        result = self.memlet(RESULT, state)
        for connector in self.operand_connectors:
            operand = self.memlet(connector, state)
            if operand.data == result.data and subsets.intersects(operand.subset, result.subset) is not False:
                raise ValueError(
                    f'Contraction "{self.label}": operand {operand} and result {result} overlap; write to another array'
                )
        if self.reads_result:
            previous = self.memlet(PREVIOUS, state)
            if previous.data != result.data or previous.subset != result.subset:
                raise ValueError(
                    f'Contraction "{self.label}": with beta {self.beta}, {PREVIOUS} must be the result {result}, '
                    f"got {previous}"
                )


def is_fused(operands: Sequence[str], result: str) -> bool:
    """
    Whether three or more operands are evaluated at once, so that no intermediate exists as a whole (MTTKRP).

    One is a tensor; the others are a matrix for each of its indices that the result lacks, and share an index of the
    result that the tensor has not got.

    :param operands: Indices of each operand.
    :param result: Indices of the result.
    """
    for position, tensor in enumerate(operands):
        matrices = [indices for other, indices in enumerate(operands) if other != position]
        summed = [index for index in tensor if index not in result]
        columns = set(result) - set(tensor)
        if len(columns) == 1 and len(set(tensor)) == len(tensor) and len(matrices) >= 2:
            expected = sorted(sorted((index, *columns)) for index in summed)
            if sorted(sorted(indices) for indices in matrices) == expected:
                return True
    return False

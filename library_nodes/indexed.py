"""Library nodes that compute with local arrays by the indices of an einsum: contractions and linear systems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dace import library, properties
from dace.sdfg import SDFG, SDFGState

from dace_redist.einsum.expression import Einsum
from dace_redist.library_nodes.node import NUMBERS, RedistNode, differ, dimensions_of, lies_on_gpu

RESULT = "_result"

#: The implementation of contractions for arrays on the GPU.
CUBLAS = "cuBLAS"

PREVIOUS = "_cin"  #: further input connector, of the result, if beta is not 0; as of DaCe's own Gemm


@properties.make_properties
class IndexedNode(RedistNode):
    """
    Node with an index for each dimension of its operands, at ``_0``, ``_1``, ..., and of its result, at ``_result``.

    Arrays may have any strides and extents, including 0, known at run time.

    :param einsum: The indices; the arrow may be left out as in NumPy.
    """

    einsum = properties.Property(dtype=str, default="", category="Semantics", desc="The indices, with an arrow")

    def __init__(self, name: str, einsum: str) -> None:
        super().__init__(name, outputs={RESULT})
        with self.naming():
            self.einsum = str(Einsum.parse(einsum))
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

    def validate(self, sdfg: SDFG, state: SDFGState) -> None:
        """Check extents, too: see :meth:`RedistNode.validate`."""
        super().validate(sdfg, state)
        self._validate_overlap(state)
        first: dict[str, Any] = {}
        for indices, dimensions in zip(self.terms, self.dimensions(sdfg, state), strict=True):
            for index, (extent, _) in zip(indices, dimensions, strict=True):
                if differ([first.setdefault(index, extent)], [extent]):
                    raise ValueError(
                        f"{self.title}: index {index} of {self.einsum} has extents {first[index]} and {extent}"
                    )


@library.node
class Contraction(IndexedNode):
    """
    ``_result = alpha * einsum(_0, _1, ...) + beta * _result`` on arrays in memory, as ``np.einsum`` defines it.

    If beta is not 0, the result is also an input, at the connector ``_cin``: the same part of the same array. Arrays on
    the GPU need the implementation ``cuBLAS``, which accepts only them, and only real or complex numbers.

    :param einsum: Indices as letters, such as ``"ijk,ja,ka->ia"``; the arrow may be left out as in NumPy.
    :param alpha: Factor of the einsum: a real number or an expression of real symbols.
    :param beta: Factor of the previous result, likewise; if 0, it is not read.
    :param path: Positions of the operands of each step, as opt_einsum's; empty: one step. A step of three or more
        operands is evaluated from left to right, or fused if it is an MTTKRP: a tensor and, for each of its indices
        that the result lacks, a matrix; all matrices share one index of the result.
    :raises ValueError: If the einsum or the path is wrong.
    :raises TypeError: If a factor is a complex number, which DaCe's symbolic properties do not hold.
    """

    implementations: dict[str, Any] = {}
    default_implementation = "BLAS"
    collective = False
    gpu_remedy = f'set the implementation of the node to "{CUBLAS}"'

    alpha = properties.SymbolicProperty(default=1, category="Semantics", desc="Factor of the einsum")
    beta = properties.SymbolicProperty(default=0, category="Semantics", desc="Factor of the result's earlier value")
    path = properties.ListProperty(tuple, default=[], category="Semantics", desc="Operands of each step")

    def __init__(
        self, name: str, einsum: str = "->", alpha: Any = 1, beta: Any = 0, path: Sequence[Sequence[int]] = ()
    ) -> None:
        super().__init__(name, einsum)
        self._set_factors(alpha, beta)
        self.path = [tuple(int(position) for position in step) for step in path]
        if self.beta != 0:
            self.add_in_connector(PREVIOUS)
        self._validate_path()

    def validate(self, sdfg: SDFG, state: SDFGState) -> None:
        """Check the path, types and extents, too: see :meth:`RedistNode.validate`."""
        self._validate_path()
        self.validate_types(sdfg, state)
        super().validate(sdfg, state)
        if self.beta != 0:
            result, previous = self.memlet(RESULT, state), self.memlet(PREVIOUS, state)
            if previous.data != result.data or previous.subset != result.subset:
                raise ValueError(
                    f"{self.title}: with beta {self.beta}, {PREVIOUS} must be the result {result}, got {previous}"
                )

    def _validate_memory(self, sdfg: SDFG, state: SDFGState) -> None:
        if self.implementation != CUBLAS:
            super()._validate_memory(sdfg, state)
            return
        for connector in (*self.operand_connectors, RESULT):
            name = self.memlet(connector, state).data
            array = sdfg.arrays[name]
            if not lies_on_gpu(array):
                raise ValueError(
                    f"{self.title}: {CUBLAS} takes arrays with StorageType.GPU_Global, but {name} has {array.storage}: "
                    "copy it to the GPU before, or take the implementation BLAS"
                )
            if array.dtype not in NUMBERS[:4]:
                known = ", ".join(number.to_string() for number in NUMBERS[:4])
                raise ValueError(f"{self.title}: {CUBLAS} multiplies {known}, but {name} holds {array.dtype}")

    def _validate_path(self) -> None:
        left = len(self.operand_connectors)
        for step in self.path:
            if not step or len(set(step)) != len(step) or not all(0 <= position < left for position in step):
                raise ValueError(f"{self.title}: the path takes operands {tuple(step)} of {left}")
            left -= len(step) - 1
        if self.path and left != 1:
            raise ValueError(f"{self.title}: the path {self.path} ends with {left} operands, not one")


@library.node
class LinearSolve(IndexedNode):
    """
    Solution X of ``G X = B`` at ``_result`` for ``ij,ik->jk`` or ``ij,i->j``; for ``ij->ji`` the inverse of G.

    Each rank computes its own columns of X; a rank without G has extents 0. Collective over the communicator at the
    ``_comm`` connector (an integer that holds an ``MPI_Comm``), else the world: if G is singular on any rank, all raise
    the error.

    :param einsum: The indices, those of each tensor in any order.
    :param statement: Name of the node in error messages; empty: its kind and label.
    """

    implementations: dict[str, Any] = {}
    default_implementation = "LAPACK"
    element_types = NUMBERS[:4]

    statement = properties.Property(dtype=str, default="", category="Semantics", desc="What errors call the node")

    def __init__(self, name: str, einsum: str = "ij->ji", statement: str = "") -> None:
        super().__init__(name, einsum)
        self.statement = statement

    @property
    def title(self) -> str:
        """Name of the node in error messages."""
        return self.statement or super().title

    def validate(self, sdfg: SDFG, state: SDFGState) -> None:
        """Check extents, but not types, since distributing a program converts them: see :meth:`RedistNode.validate`."""
        super().validate(sdfg, state)
        rows, columns = (extent for extent, _ in self.dimensions(sdfg, state)[0])
        if differ([rows], [columns]):
            raise ValueError(f"{self.title}: the matrix must be square, got {rows} x {columns}")

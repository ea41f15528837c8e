"""Library node that solves a linear system whose matrix is replicated on all ranks."""

from __future__ import annotations

from typing import Any

from dace import library, properties
from dace.sdfg import SDFG, SDFGState

from dace_redist.library_nodes.indexed_node import IndexedNode
from dace_redist.library_nodes.node import NUMBERS, differ


@library.node
class LinearSolve(IndexedNode):
    """
    Solution X of ``G X = B`` at ``_result`` for ``ij,ik->jk`` or ``ij,i->j``; for ``ij->ji`` the inverse of G.

    Each rank computes its own columns of X; a rank without G has extents 0. Collective over the communicator at the
    ``_comm`` connector (an integer that holds an ``MPI_Comm``), else the world: if G is singular on any rank, all raise
    the error.

    :param name: Label.
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

    @property
    def rows(self) -> str:
        """Index of the rows of G and of B."""
        matrix, right = self.terms[:2]  # for an inverse ``right`` is the result: any index of G
        return next(index for index in matrix if index in right)

    @property
    def unknowns(self) -> str:
        """Index of the columns of G and of the rows of X."""
        return self.terms[0].replace(self.rows, "")

    @property
    def columns(self) -> str:
        """Index of the columns of X; empty if it is a vector."""
        return self.terms[-1].replace(self.unknowns, "")

    def validate(self, sdfg: SDFG, state: SDFGState) -> None:
        """
        Check what is known before the program runs, except types: distributing a program converts different types.

        :raises ValueError: If a check fails; names the statement, the expected and the given value.
        """
        self._validate_extents(sdfg, state)
        self._validate_overlap(state)
        rows, columns = (extent for extent, _ in self.dimensions(sdfg, state)[0])
        if differ([rows], [columns]):
            raise ValueError(f"{self.title}: the matrix must be square, got {rows} x {columns}")
        self._validate_communicator(sdfg, state)

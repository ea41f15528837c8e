"""The library node that solves a linear system whose matrix every rank has as a whole."""

from __future__ import annotations

from typing import Any

from dace import library, properties
from dace.sdfg import SDFG, SDFGState

from dace_redist.library_nodes.indexed_node import IndexedNode
from dace_redist.library_nodes.node import NUMBERS, differ


@library.node
class LinearSolve(IndexedNode):
    """
    The X of ``G X = B`` at ``_result`` for ``ij,ik->jk`` or ``ij,i->j``; for ``ij->ji`` the inverse of G.

    Each rank computes the columns of X that it has; one that has none of G has extents 0. Collective over the
    communicator at the ``_comm`` connector (an integer that holds an ``MPI_Comm``), else the world: if G is singular on
    any rank, all get the error.

    :param name: Label.
    :param einsum: The indices, those of each tensor in any order.
    :param statement: What errors call the node; empty: its kind and label.
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
        """What errors call the node."""
        return self.statement or super().title

    @property
    def rows(self) -> str:
        """Index of the rows of G, which B has, too."""
        matrix, right = self.terms[:2]  # of an inverse, which has the indices of G, any of them
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
        Checks what can be known before the program runs, but for the types: a program that is to be distributed may
        have different ones, which are converted then.

        :raises ValueError: If something does not fit; names the statement, what was expected and what was given.
        """
        self._validate_extents(sdfg, state)
        self._validate_overlap(state)
        rows, columns = (extent for extent, _ in self.dimensions(sdfg, state)[0])
        if differ([rows], [columns]):
            raise ValueError(f"{self.title}: the matrix must be square, got {rows} x {columns}")
        self._validate_communicator(sdfg, state)

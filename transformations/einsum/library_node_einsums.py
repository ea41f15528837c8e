"""What DaCe's library nodes for linear algebra compute, as einsums."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from string import ascii_letters
from typing import Any, NamedTuple

from dace import dtypes, symbolic
from dace.frontend.operations import detect_reduction_type
from dace.libraries.blas.nodes.batched_matmul import BatchedMatMul
from dace.libraries.blas.nodes.dot import Dot
from dace.libraries.blas.nodes.einsum import Einsum as EinsumNode
from dace.libraries.blas.nodes.gemm import Gemm
from dace.libraries.blas.nodes.gemv import Gemv
from dace.libraries.blas.nodes.ger import Ger
from dace.libraries.blas.nodes.matmul import MatMul
from dace.libraries.linalg.nodes.inv import Inv
from dace.libraries.linalg.nodes.solve import Solve
from dace.libraries.linalg.nodes.tensordot import TensorDot
from dace.libraries.linalg.nodes.transpose import Transpose
from dace.libraries.linalg.nodes.ttranspose import TensorTranspose
from dace.libraries.standard.nodes.reduce import Reduce
from dace.sdfg import nodes

from dace_redist.einsum.expression import Einsum
from dace_redist.library_nodes.linear_solve import LinearSolve

#: Reductions that are known, as :attr:`~dace_redist.transformations.einsum.steps.Step.reduction` names them.
_REDUCTIONS = {
    dtypes.ReductionType.Sum: "",
    dtypes.ReductionType.Max: "max",
    dtypes.ReductionType.Min: "min",
}


class NodeEinsum(NamedTuple):
    """
    ``result = alpha * einsum(operands) + beta * result``.

    :param connectors: Input connector of each operand.
    :param added: Input connector of what is multiplied by beta; None where that is the output's own array.
    :param solves: Whether it solves a linear system with these indices, see ``Statement``, and is not a product.
    :param reduction: ``"max"`` or ``"min"``: what is taken of the operand's elements instead of their sum.
    """

    einsum: Einsum
    connectors: tuple[str, ...]
    alpha: Any = 1
    beta: Any = 0
    added: str | None = None
    solves: bool = False
    reduction: str = ""


def einsum_of(node: nodes.LibraryNode, shapes: dict[str, Sequence[Any]]) -> NodeEinsum | None:
    """
    What a library node computes.

    :param node: The node.
    :param shapes: Shape of the array at each input connector.
    :return: The einsum; None if nodes of this kind are not known here.
    :raises ValueError: If the node is known but what it computes is not an einsum; says why.
    """
    readers: dict[type, Callable[..., NodeEinsum]] = {
        EinsumNode: _einsum,
        MatMul: _matmul,
        BatchedMatMul: _matmul,
        Gemm: _matmul,
        Gemv: lambda node, shapes: NodeEinsum(
            Einsum(("ji" if node.transA else "ij", "j"), "i"),
            ("_A", "_x"),
            node.alpha,
            node.beta,
            "_y" if "_y" in shapes else None,
        ),
        Dot: _dot,
        Ger: lambda node, _: NodeEinsum(Einsum(("i", "j"), "ij"), ("_x", "_y"), node.alpha, 1, "_A"),
        TensorDot: _tensordot,
        Transpose: lambda *_: NodeEinsum(Einsum(("ij",), "ji"), ("_inp",)),
        TensorTranspose: _tensor_transpose,
        Reduce: _reduce,
        Inv: lambda *_: NodeEinsum(Einsum(("ij",), "ji"), ("_ain",), solves=True),
        Solve: lambda *_: NodeEinsum(Einsum(("ij", "ik"), "jk"), ("_ain", "_bin"), solves=True),
        LinearSolve: lambda node, _: NodeEinsum(Einsum.parse(node.einsum), tuple(node.operand_connectors), solves=True),
    }
    reader = readers.get(type(node))
    return None if reader is None else reader(node, shapes)


def _einsum(node: EinsumNode, shapes: dict[str, Sequence[Any]]) -> NodeEinsum:
    connectors = tuple(sorted(shapes, key=_operand_number))
    einsum = Einsum.parse(node.einsum_str, [len(shapes[connector]) for connector in connectors])
    return NodeEinsum(einsum, connectors, node.alpha, node.beta)


def _operand_number(connector: str) -> tuple[int, str]:
    """Operands of DaCe's node come in the order of their connectors' names; ``_10`` comes after ``_9``."""
    digits = connector.lstrip("_")
    return (int(digits) if digits.isdigit() else 0, connector)


def _matmul(node: Any, shapes: dict[str, Sequence[Any]]) -> NodeEinsum:
    left, right = shapes["_a"], shapes["_b"]
    letters = iter(ascii_letters)
    m, k, n = next(letters), next(letters), next(letters)
    a = [k] if len(left) == 1 else [k, m] if node.transA else [m, k]
    b = [k] if len(right) == 1 else [n, k] if node.transB else [k, n]
    left_batch, right_batch, batch = _batch(left[:-2], right[:-2], letters)
    rows, columns = [m] * (len(left) > 1), [n] * (len(right) > 1)
    einsum = Einsum(("".join(left_batch + a), "".join(right_batch + b)), "".join(batch + rows + columns))
    added = "_cin" if "_cin" in shapes else None
    return NodeEinsum(einsum, ("_a", "_b"), node.alpha, node.beta, added)


def _batch(left: Sequence[Any], right: Sequence[Any], letters: Iterator[str]) -> tuple[list[str], list[str], list[str]]:
    """Indices of the leading dimensions, which are aligned at their ends; a dimension of length 1 is repeated."""
    count = max(len(left), len(right))
    padded = [[None] * (count - len(side)) + list(side) for side in (left, right)]
    indices: tuple[list[str], list[str], list[str]] = ([], [], [])
    for a, b in zip(*padded, strict=True):
        shared = next(letters)
        indices[2].append(shared)
        for side, own, other in ((indices[0], a, b), (indices[1], b, a)):
            if own is not None:
                repeated = own == 1 and other is not None and other != 1
                side.append(next(letters) if repeated else shared)
    return indices


def _dot(node: Dot, shapes: dict[str, Sequence[Any]]) -> NodeEinsum:
    if node.conjugate:
        raise ValueError("a dot product with a conjugated operand is not an einsum")
    return NodeEinsum(Einsum(("i", "i"), ""), ("_x", "_y"))


def _tensordot(node: TensorDot, shapes: dict[str, Sequence[Any]]) -> NodeEinsum:
    letters = iter(ascii_letters)
    left = [next(letters) for _ in shapes["_left_tensor"]]
    right = [next(letters) for _ in shapes["_right_tensor"]]
    for a, b in zip(node.left_axes, node.right_axes, strict=True):
        right[b] = left[a]
    kept = [i for axis, i in enumerate(left) if axis not in node.left_axes]
    kept += [i for axis, i in enumerate(right) if axis not in node.right_axes]
    result = [kept[axis] for axis in node.permutation] if node.permutation else kept
    einsum = Einsum(("".join(left), "".join(right)), "".join(result))
    return NodeEinsum(einsum, ("_left_tensor", "_right_tensor"))


def _tensor_transpose(node: TensorTranspose, shapes: dict[str, Sequence[Any]]) -> NodeEinsum:
    indices = ascii_letters[: len(node.axes)]
    einsum = Einsum((indices,), "".join(indices[axis] for axis in node.axes))
    return NodeEinsum(einsum, ("_inp_tensor",), node.alpha, node.beta)


def _reduce(node: Reduce, shapes: dict[str, Sequence[Any]]) -> NodeEinsum:
    kind = _REDUCTIONS.get(detect_reduction_type(node.wcr))
    if kind is None or (kind and node.identity is None):
        raise ValueError(
            f"it reduces by {ast.unparse(ast.parse(node.wcr))}; only sums, np.max and np.min are supported"
        )
    connector, shape = next(iter(shapes.items()))
    indices = ascii_letters[: len(shape)]
    axes = range(len(shape)) if node.axes is None else node.axes
    kept = "".join(index for axis, index in enumerate(indices) if axis not in axes)
    # A sum that starts from nothing in particular adds to what is there.
    beta = 0 if node.identity is not None and symbolic.equal_valued(0, node.identity) else 1
    return NodeEinsum(Einsum((indices,), kept), (connector,), 1, beta, reduction=kind)

"""Translation of DaCe's library nodes for linear algebra to statements."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from string import ascii_letters
from typing import Any

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
from dace_redist.einsum.statement import Statement
from dace_redist.library_nodes.indexed import RESULT, LinearSolve
from dace_redist.transformations.distribute.read.location import BY_ARRAYS, INSTEAD

#: Shape of the array at each input connector.
Shapes = dict[str, Sequence[Any]]

_REDUCTIONS = {dtypes.ReductionType.Sum: "", dtypes.ReductionType.Max: "max", dtypes.ReductionType.Min: "min"}


def statement_of(node: nodes.LibraryNode, shapes: Shapes) -> Statement:
    """
    Return the statement of a library node, with connectors instead of tensors.

    :return: The statement. If ``added`` is empty and ``beta`` is not 0, the product is added to the result.
    :raises ValueError: If the computation of the node is not an einsum; gives the reason.
    """
    reader = _READERS.get(type(node))
    if reader is None:
        name = type(node).__name__
        instead = INSTEAD.get(name.lower(), BY_ARRAYS)
        raise ValueError(f"DaCe's {name} is neither an einsum nor a linear system nor elementwise; {instead}")
    return reader(node, shapes)


def _of(terms: tuple[str, ...], result: str, connectors: tuple[str, ...], **facts: Any) -> Statement:
    return Statement(Einsum(terms, result), connectors, RESULT, **facts)


def _einsum(node: EinsumNode, shapes: Shapes) -> Statement:
    connectors = tuple(sorted(shapes, key=_operand_number))
    einsum = Einsum.parse(node.einsum_str, [len(shapes[connector]) for connector in connectors])
    return Statement(einsum, connectors, RESULT, alpha=node.alpha, beta=node.beta)


def _operand_number(connector: str) -> tuple[int, str]:
    """Sort key of connectors in the order of the operands: ``_10`` comes after ``_9``."""
    digits = connector.lstrip("_")
    return (int(digits) if digits.isdigit() else 0, connector)


def _matmul(node: Any, shapes: Shapes) -> Statement:
    left, right = shapes["_a"], shapes["_b"]
    letters = iter(ascii_letters)
    m, k, n = next(letters), next(letters), next(letters)
    a = [k] if len(left) == 1 else [k, m] if node.transA else [m, k]
    b = [k] if len(right) == 1 else [n, k] if node.transB else [k, n]
    left_batch, right_batch, batch = _batch(left[:-2], right[:-2], letters)
    rows, columns = [m] * (len(left) > 1), [n] * (len(right) > 1)
    terms = ("".join(left_batch + a), "".join(right_batch + b))
    added = next((name for name in ("_cin", "_c") if name in shapes), "")  # of a MatMul, of a Gemm
    facts = {"alpha": node.alpha, "beta": node.beta, "added": added}
    return _of(terms, "".join(batch + rows + columns), ("_a", "_b"), **facts)


def _batch(left: Sequence[Any], right: Sequence[Any], letters: Iterator[str]) -> tuple[list[str], list[str], list[str]]:
    """Return indices of the leading dimensions, aligned at their ends; a dimension of length 1 is repeated."""
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


def _gemv(node: Gemv, shapes: Shapes) -> Statement:
    facts = {"alpha": node.alpha, "beta": node.beta, "added": "_y" if "_y" in shapes else ""}
    return _of(("ji" if node.transA else "ij", "j"), "i", ("_A", "_x"), **facts)


def _dot(node: Dot, _: Shapes) -> Statement:
    if node.conjugate:
        raise ValueError("a dot product with a conjugated operand is not an einsum")
    return _of(("i", "i"), "", ("_x", "_y"))


def _tensordot(node: TensorDot, shapes: Shapes) -> Statement:
    letters = iter(ascii_letters)
    left = [next(letters) for _ in shapes["_left_tensor"]]
    right = [next(letters) for _ in shapes["_right_tensor"]]
    for a, b in zip(node.left_axes, node.right_axes, strict=True):
        right[b] = left[a]
    kept = [i for axis, i in enumerate(left) if axis not in node.left_axes]
    kept += [i for axis, i in enumerate(right) if axis not in node.right_axes]
    result = [kept[axis] for axis in node.permutation] if node.permutation else kept
    return _of(("".join(left), "".join(right)), "".join(result), ("_left_tensor", "_right_tensor"))


def _tensor_transpose(node: TensorTranspose, _: Shapes) -> Statement:
    indices = ascii_letters[: len(node.axes)]
    result = "".join(indices[axis] for axis in node.axes)
    return _of((indices,), result, ("_inp_tensor",), alpha=node.alpha, beta=node.beta)


def _reduce(node: Reduce, shapes: Shapes) -> Statement:
    kind = _REDUCTIONS.get(detect_reduction_type(node.wcr))
    if kind is None or (kind and node.identity is None):
        raise ValueError(
            f"it reduces by {ast.unparse(ast.parse(node.wcr))}; only sums, np.max and np.min are supported"
        )
    connector, shape = next(iter(shapes.items()))
    indices = ascii_letters[: len(shape)]
    axes = range(len(shape)) if node.axes is None else node.axes
    kept = "".join(index for axis, index in enumerate(indices) if axis not in axes)
    # A sum without an initial value adds to its result.
    beta = 0 if node.identity is not None and symbolic.equal_valued(0, node.identity) else 1
    return _of((indices,), kept, (connector,), beta=beta, reduction=kind)


_READERS: dict[type, Callable[..., Statement]] = {
    EinsumNode: _einsum,
    MatMul: _matmul,
    BatchedMatMul: _matmul,
    Gemm: _matmul,
    Gemv: _gemv,
    Dot: _dot,
    Ger: lambda node, _: _of(("i", "j"), "ij", ("_x", "_y"), alpha=node.alpha, beta=1, added="_A"),
    TensorDot: _tensordot,
    Transpose: lambda *_: _of(("ij",), "ji", ("_inp",)),
    TensorTranspose: _tensor_transpose,
    Reduce: _reduce,
    Inv: lambda *_: _of(("ij",), "ji", ("_ain",), solves=True),
    Solve: lambda *_: _of(("ij", "ik"), "jk", ("_ain", "_bin"), solves=True),
    LinearSolve: lambda node, _: Statement(
        Einsum.parse(node.einsum), tuple(node.operand_connectors), RESULT, solves=True
    ),
}

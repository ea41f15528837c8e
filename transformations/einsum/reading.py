"""What all readers of an SDFG need: statements with their location in the program, and refusals that name it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from dace import SDFG, SDFGState, data, dtypes, symbolic
from dace.sdfg import nodes

from dace_redist.einsum.expression import Einsum
from dace_redist.einsum.statement import Statement
from dace_redist.library_nodes.node import simplified
from dace_redist.transformations.einsum.steps import Step, source_line


def logical_shape(descriptor: data.Data) -> tuple[Any, ...]:
    """Shape of a tensor; none for a scalar, which DaCe may hold in an array of one element."""
    shape = tuple(descriptor.shape)
    return () if isinstance(descriptor, data.Scalar) or shape == (1,) else shape


@dataclass(frozen=True)
class SourceLocation:
    """
    Where something that is read stands in the program.

    :param node: The node of the SDFG.
    :param state: Its state.
    :param loops: Label of each loop around it, the outermost first, and how often it runs.
    """

    node: nodes.Node
    state: SDFGState
    loops: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        """The statement the node comes from, as far as DaCe knows."""
        return source_line(getattr(self.node, "debuginfo", None)) or f"{self.state.label}: {self.node.label}"

    def refuse(self, why: str) -> NoReturn:
        """
        Say that the statement cannot be distributed.

        :raises ValueError: Always.
        """
        raise ValueError(f"{self}: cannot be distributed: {why}")

    def statement(
        self,
        operands: tuple[str, ...],
        names: tuple[str, ...],
        indices: str,
        result: str,
        *,
        elementwise: bool = False,
        solves: bool = False,
    ) -> Statement:
        """
        A statement that stands here.

        :param operands: Indices of each operand.
        :param names: Name of each operand.
        :param indices: Those of the result.
        :param result: Its name.
        :param elementwise: Whether it is an elementwise expression, not an einsum.
        :param solves: Whether it solves a linear system, and is not an einsum.
        :raises ValueError: If the indices do not fit.
        """
        try:
            einsum = Einsum(operands, indices)
        except ValueError as error:
            self.refuse(str(error))
        repeats, loops = math.prod(count for _, count in self.loops), tuple(label for label, _ in self.loops)
        return Statement(einsum, names, result, str(self), elementwise, repeats, loops, solves)


def einsum_steps(
    sdfg: SDFG, statement: Statement, alpha: Any, beta: Any, added: str, indices: str | None = None
) -> Iterator[Step]:
    """
    ``result = alpha * einsum(operands) + beta * added``.

    :param sdfg: Gets an array for the product, if something is added to it.
    :param statement: The einsum.
    :param alpha: Its factor.
    :param beta: Factor of what is added.
    :param added: Name of the tensor that is added.
    :param indices: Those of the result, if the einsum lacks some of them and is added along these, too.
    """
    if symbolic.equal_valued(0, beta):
        yield Step(statement, alpha)
        return
    kept = statement.einsum.result
    indices = kept if indices is None else indices
    array = sdfg.arrays[statement.result]
    shape = [extent for index, extent in zip(indices, logical_shape(array), strict=True) if index in kept]
    product = sdfg.add_temp_transient(shape or [1], array.dtype)[0]
    yield Step(replace(statement, result=product), alpha)
    both = Einsum((kept, indices), indices)
    sum_ = replace(statement, einsum=both, operands=(product, added), elementwise=True)
    code = f"_out = _product + {symbolic.symstr(beta)} * _added"
    yield Step(sum_, 1, code, ("_product", "_added"), "_out")


def neutral_element(reduction: str, dtype: dtypes.typeclass) -> Any:
    """
    What changes nothing in a reduction: elements may be infinite.

    :param reduction: ``"max"`` or ``"min"``.
    :param dtype: Type of the elements.
    """
    if dtype in dtypes.FLOAT_TYPES:
        return -math.inf if reduction == "max" else math.inf
    return (dtypes.min_value if reduction == "max" else dtypes.max_value)(dtype)


def equal(a: Any, b: Any) -> bool:
    """Whether two sizes are the same whatever the symbols; those of one name may be different objects."""
    difference = symbolic.pystr_to_symbolic(f"({symbolic.symstr(a)}) - ({symbolic.symstr(b)})")
    return bool(simplified(difference) == 0)


def common_type(types: Sequence[dtypes.typeclass]) -> dtypes.typeclass:
    """The type that NumPy computes with if it is given arrays of these."""
    return dtypes.typeclass(np.result_type(*(dtype.as_numpy_dtype() for dtype in types)).type)

"""Library node that evaluates an einsum of local arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
from dace import library, properties
from dace.sdfg import SDFG, SDFGState

from dace_redist.library_nodes.indexed_node import RESULT, IndexedNode
from dace_redist.library_nodes.node import NUMBERS, lies_on_gpu

#: The implementation for arrays on the GPU.
CUBLAS = "cuBLAS"

PREVIOUS = "_cin"  #: further input connector, of the result, if beta is not 0; as of DaCe's own Gemm


@library.node
class Contraction(IndexedNode):
    """
    ``_result = alpha * einsum(_0, _1, ...) + beta * _result`` on arrays in memory, as ``np.einsum`` defines it.

    If beta is not 0, the result is also an input, at the connector ``_cin``: the same part of the same array. Arrays on
    the GPU need the implementation ``cuBLAS``, which accepts only them, and only real or complex numbers.

    :param name: Label, for error messages.
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
        for factor in (alpha, beta):
            if isinstance(factor, complex) or sympy.sympify(factor).has(sympy.I):
                raise TypeError(f"{self.title}: a factor is a real number or expression, got {factor}")
        self.alpha, self.beta = alpha, beta
        self.path = [tuple(int(position) for position in step) for step in path]
        if self.reads_result:
            self.add_in_connector(PREVIOUS)
        self._validate_path()

    @property
    def reads_result(self) -> bool:
        """True unless beta is known to be 0: the previous result is then read."""
        return self.beta != 0

    def validate(self, sdfg: SDFG, state: SDFGState) -> None:
        """
        Check what is known before the program runs.

        :raises ValueError: If a check fails; names the node, the expected and the given value.
        """
        self._validate_path()
        self.validate_types(sdfg, state)
        self._validate_extents(sdfg, state)
        self._validate_overlap(state)
        self._validate_previous(state)
        self._validate_symbols(sdfg, state)

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

    def _validate_previous(self, state: SDFGState) -> None:
        if self.reads_result:
            result, previous = self.memlet(RESULT, state), self.memlet(PREVIOUS, state)
            if previous.data != result.data or previous.subset != result.subset:
                raise ValueError(
                    f"{self.title}: with beta {self.beta}, {PREVIOUS} must be the result {result}, got {previous}"
                )

"""Expansions of nodes to tasklets; importing this module registers them."""

from __future__ import annotations

from typing import Any

from dace import dtypes, library
from dace.codegen.common import sym2cpp
from dace.libraries.blas.environments.cublas import cuBLAS
from dace.libraries.comm.nodes.node import mpi_communicator
from dace.sdfg import SDFG, SDFGState, nodes
from dace.transformation.transformation import ExpandTransformation

from dace_redist.library_nodes.environment import (
    BlasEnvironment,
    CublasEnvironment,
    DeviceEnvironment,
    RuntimeEnvironment,
)
from dace_redist.library_nodes.indexed import CUBLAS, RESULT, Contraction, LinearSolve
from dace_redist.library_nodes.joint import JointRedistribute
from dace_redist.library_nodes.node import lies_on_gpu
from dace_redist.library_nodes.redistribute import ORDER_OUTPUT, REQUEST, Redistribute, RedistributeWait
from dace_redist.library_nodes.tasklets import (
    STREAM,
    braced,
    element_name,
    field_name,
    number,
    numbers,
    plan_tasklet,
    pointers,
    stateful_tasklet,
    string_literal,
)
from dace_redist.strategies import STRATEGIES


class LibraryExpansion(ExpandTransformation):
    """Expansion to a call of the library; a program with arrays on the GPU is linked with the library for GPUs."""

    environments = [RuntimeEnvironment]

    @staticmethod
    def postprocessing(sdfg: SDFG, state: SDFGState, tasklet: nodes.CodeNode) -> None:
        """Add the environment of GPUs to a tasklet that uses a GPU stream."""
        if isinstance(tasklet, nodes.Tasklet) and STREAM in tasklet.code.as_string:
            tasklet.environments = {*tasklet.environments, DeviceEnvironment.full_class_path()}


class StrategyExpansion(LibraryExpansion):
    """Expansion by the strategy that its class is named after."""

    @classmethod
    def expansion(cls, node: Redistribute, state: SDFGState, sdfg: SDFG) -> nodes.Tasklet:
        """Return the tasklet that redistributes by a plan."""
        return plan_tasklet(node, state, sdfg, cls.__name__.removeprefix("ExpandRedistribute"))


@library.register_expansion(Redistribute, "Datatype")
class ExpandRedistributeDatatype(StrategyExpansion):
    """Redistributes by MPI derived datatypes."""


@library.register_expansion(Redistribute, "Pack")
class ExpandRedistributePack(StrategyExpansion):
    """Redistributes by one packed message per pair of ranks."""


@library.register_expansion(Redistribute, "Threaded")
class ExpandRedistributeThreaded(StrategyExpansion):
    """Redistributes by packed messages, which threads copy."""


@library.register_expansion(Redistribute, "Pipelined")
class ExpandRedistributePipelined(StrategyExpansion):
    """Redistributes by chunks of messages."""


@library.register_expansion(Redistribute, "RMA")
class ExpandRedistributeRMA(StrategyExpansion):
    """Redistributes by packed messages in a window."""


@library.register_expansion(Redistribute, "Hierarchical")
class ExpandRedistributeHierarchical(StrategyExpansion):
    """Redistributes by copies within a node and chunks between nodes."""


@library.expansion
class ExpandJointRedistribute(LibraryExpansion):
    """Redistributes several tensors by the strategy of the node."""

    expansion = staticmethod(plan_tasklet)


for _name in STRATEGIES:
    JointRedistribute.register_implementation(_name, ExpandJointRedistribute)


@library.register_expansion(RedistributeWait, "MPI")
class ExpandRedistributeWaitMPI(LibraryExpansion):
    """Waits for a non-blocking redistribution."""

    @staticmethod
    def expansion(node: RedistributeWait, state: SDFGState, sdfg: SDFG) -> nodes.Tasklet:
        """Return the tasklet that waits."""
        node.validate(sdfg, state)
        stream = f", {STREAM}" if lies_on_gpu(node.array(ORDER_OUTPUT, state)) else ""
        code = f"dace_redist::program::wait({REQUEST}{stream});"
        return nodes.Tasklet(node.name, *pointers(node, state), code, language=dtypes.Language.CPP, side_effects=True)


class ContractionExpansion(ExpandTransformation):
    """Expansion of an einsum, by BLAS or by DaCe's handle of cuBLAS."""

    implementation = ""

    @classmethod
    def expansion(cls, node: Contraction, state: SDFGState, sdfg: SDFG) -> nodes.Tasklet:
        """Return the tasklet that contracts arrays in main memory, or on the GPU."""
        node.implementation = cls.implementation  # the node derives the supported devices from it
        node.validate(sdfg, state)
        field, element = field_name("__contraction", sdfg), node.array(RESULT, state).dtype.ctype
        on_gpu = cls.implementation == CUBLAS
        kind, function = ("DeviceContraction", "contract") if on_gpu else ("Contraction", f"contract<{element}>")
        layouts = [n for dimensions in node.dimensions(sdfg, state) for n in zip(*dimensions, strict=True)]
        path = braced(numbers(step) for step in node.path)
        made = f'{kind}({string_literal(node.label)}, "{node.einsum}", "{element_name(node, state)}", {path})'
        arguments = [f"*__state->{field}", numbers([n for one in layouts for n in one])]
        arguments += [braced(node.operand_connectors), RESULT]
        arguments += [f"{element}({sym2cpp(factor)})" for factor in (node.alpha, node.beta)]
        arguments += ["__dace_cublas_handle", STREAM] if on_gpu else []
        call = f"dace_redist::program::{function}({', '.join(arguments)});"
        return stateful_tasklet(node, state, field, made, (cuBLAS.handle_setup_code(node) if on_gpu else "") + call)


@library.register_expansion(Contraction, "BLAS")
class ExpandContractionBLAS(ContractionExpansion):
    """Contracts arrays in main memory."""

    implementation, environments = "BLAS", [BlasEnvironment]


@library.register_expansion(Contraction, CUBLAS)
class ExpandContractionCuBLAS(ContractionExpansion):
    """Contracts arrays on the GPU."""

    implementation, environments = CUBLAS, [CublasEnvironment]


@library.register_expansion(LinearSolve, "LAPACK")
class ExpandLinearSolveLAPACK(ExpandTransformation):
    """Solves a linear system by LAPACK."""

    environments = [BlasEnvironment]

    @staticmethod
    def expansion(node: LinearSolve, state: SDFGState, sdfg: SDFG) -> nodes.Tasklet:
        """Return the tasklet that solves a linear system."""
        node.validate(sdfg, state)
        node.validate_types(sdfg, state)
        field = field_name("__solver", sdfg)
        terms = node.terms
        rows = next(index for index in terms[0] if index in terms[1])  # for an inverse any index of the matrix
        unknowns = terms[0].replace(rows, "")
        columns = terms[-1].replace(unknowns, "")  # "" if the solution is a vector
        indices = zip(terms, node.dimensions(sdfg, state), strict=True)
        # An extent and a stride for each index.
        matrix, *right, solution = ({"": (1, 1)} | dict(zip(*both, strict=True)) for both in indices)

        def layout(array: str, known: dict[str, tuple[Any, Any]], rows: str, columns: str) -> str:
            return braced([array, number(known[rows][1]), number(known[columns][1])])

        extents = numbers([matrix[rows][0], matrix[unknowns][0], solution[columns][0]])
        matrices = [
            layout("_0", matrix, rows, unknowns),
            layout("_1", right[0], rows, columns) if right else "{}",
            layout(RESULT, solution, unknowns, columns),
        ]
        made = f'LinearSolver({string_literal(node.title)}, "{element_name(node, state)}")'
        arguments = ", ".join([mpi_communicator(node, state), extents, *matrices])
        return stateful_tasklet(node, state, field, made, f"__state->{field}->run({arguments});")

"""Tasklets that replace nodes, the only C++ that Python generates; importing this module registers the expansions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dace import dtypes, library
from dace.codegen.common import sym2cpp
from dace.libraries.blas.environments.cublas import cuBLAS
from dace.libraries.comm.nodes.node import mpi_communicator
from dace.libraries.standard.helper import CURRENT_STREAM_NAME as _STREAM
from dace.sdfg import SDFG, SDFGState, nodes
from dace.transformation.transformation import ExpandTransformation

from dace_redist.library_nodes.environment import (
    BlasEnvironment,
    CublasEnvironment,
    DeviceEnvironment,
    RuntimeEnvironment,
    braced,
    element_name,
    field_name,
    number,
    numbers,
    pointers,
    stateful_tasklet,
    string_literal,
)
from dace_redist.library_nodes.indexed import CUBLAS, RESULT, Contraction, LinearSolve
from dace_redist.library_nodes.joint import JointRedistribute, SumReplicas
from dace_redist.library_nodes.node import (
    INPUT,
    OUTPUT,
    DistributedNode,
    dimensions_of,
    lies_on_gpu,
    local_ndim,
    symbols_of,
)
from dace_redist.library_nodes.redistribute import (
    ORDER_OUTPUT,
    PROGRESS,
    REQUEST,
    Redistribute,
    RedistributeWait,
    StrategicNode,
)
from dace_redist.strategies import OPTIONS, STRATEGIES, default_options, find_strategy, host_strategies

#: Maximum length of a list of numbers in a call; longer ones become constants of the program.
_LONGEST_INLINE_LIST = 256

#: ``dr_operation`` of elements that are only moved.
_ONLY_MOVED = "{DR_OPAQUE, DR_OPAQUE, {1, 0}, {0, 0}, 0, DR_NO_OP}"


# Redistributions: a plan of the library in the program's state


def plan_tasklet(node: Any, state: SDFGState, sdfg: SDFG, strategy: str) -> nodes.Tasklet:
    """
    Return the tasklet that redistributes one or several tensors, or adds partial sums.

    The plan is made when the program starts if all its arguments are known then, else at the first run.
    """
    node.validate(sdfg, state)
    tensors = node.tensors if isinstance(node, JointRedistribute) else [node]
    field, communicator = field_name("__redist", sdfg), mpi_communicator(node, state)
    taken = find_strategy(strategy).options if isinstance(node, StrategicNode) else ()
    values = default_options() | {name: getattr(node, name) for name in taken}
    options = braced(
        number(value) if isinstance(OPTIONS[name].default, int) else f"double({sym2cpp(value)})"
        for name, value in values.items()
    )
    constants, described = "", []
    for position, tensor in enumerate(tensors):
        constant, arguments = _arguments(tensor, state, f"{field}_{position}", options)
        constants += constant
        described.append(arguments)
    init = ""
    if "_comm" not in node.in_connectors and all(_known_at_start(tensor, node, state) for tensor in tensors):
        grid = next((edge.data.data for edge in state.in_edges(node) if edge.dst_conn == "_grid"), "")
        at_start = communicator.replace("_grid", f"__state->{grid}")
        init = f"__state->{field}->make({braced(braced([at_start, one]) for one in described)});\n"
    plans = [braced([communicator, one]) for one in described]
    if isinstance(node, JointRedistribute):
        arrays = [braced(f"{end}_{position}" for position in range(len(tensors))) for end in (INPUT, OUTPUT)]
        call = f"__state->{field}->run({braced(plans)}, {', '.join(arrays)});"
    else:
        starts = isinstance(node, Redistribute) and node.nonblocking
        request = [str(PROGRESS.index(node.progress)), REQUEST] if starts else []
        stream = [_STREAM] if any(node.on_gpu(sdfg, state)) else []
        listed = ", ".join([f"*__state->{field}", *plans, INPUT, OUTPUT, *request, *stream])
        call = f"dace_redist::program::{'start' if starts else 'redistribute'}({listed});"
    made = f'Plan("{type(node).__name__}", {string_literal(node.label)}, "{strategy}")'
    return stateful_tasklet(node, state, field, made, call, code_init=init, code_global=constants)


def _arguments(node: DistributedNode, state: SDFGState, field: str, options: str) -> tuple[str, str]:
    """Return global constants, and the members of ``dace_redist::program::Arguments`` after the communicator."""
    constants, members = "", []
    ends = zip(("source", "target"), node.distributions(), node.arrays(state.sdfg, state), strict=True)
    for side, distribution, (array, subset) in ends:
        encoded = numbers(distribution.encoded)
        if len(distribution.encoded) > _LONGEST_INLINE_LIST and not distribution.is_symbolic:
            constants += f"static const std::int64_t {field}_{side}[] = {encoded};\n"
            encoded = f"{field}_{side}"
        extents, strides = zip(*dimensions_of(subset, array.strides, local_ndim(distribution)), strict=True)
        members += [braced([encoded]), braced([numbers([*extents, *strides])])]
    members += [number(node.array(INPUT, state).dtype.bytes), options, *_moved(node, state)]
    on_gpu = node.on_gpu(state.sdfg, state)
    members += ["DR_DEVICE_MEMORY" if side else "DR_MAIN_MEMORY" for side in on_gpu] if any(on_gpu) else []
    return constants, ", ".join(members)


def _moved(node: DistributedNode, state: SDFGState) -> tuple[str, str]:
    """Return the index map and the ``dr_operation`` of a node."""
    if isinstance(node, SumReplicas):
        element = f"DR_{element_name(node, state).upper()}"
        return "{}", braced([element, element, "{1, 0}", "{0, 0}", "0", "DR_SUM"])
    if not isinstance(node, Redistribute):
        return "{}", _ONLY_MOVED
    encoded, operation = node.index_map.encoded, node.operation(state.sdfg, state)
    index_map = braced([numbers(encoded)] if encoded else [])
    if operation.is_copy:
        return index_map, _ONLY_MOVED
    source, target, *_, conj, op = operation.encoded_operation
    factors = (braced([f"double({sym2cpp(factor)})", "0"]) for factor in (node.alpha, node.beta))
    return index_map, braced([str(source), str(target), *factors, str(int(conj)), str(op)])


def changing_symbols(sdfg: SDFG) -> set[str]:
    """Return the symbols that the program changes: variables of loops, and those that are assigned."""
    changing = {getattr(region, "loop_variable", "") for region in sdfg.all_control_flow_regions()}
    return changing.union(*(edge.data.assignments for edge in sdfg.all_interstate_edges()))


def are_known_at_start(symbols: set[str], sdfg: SDFG) -> bool:
    """Return True if symbols are known when the program is initialised: constants, or its own that never change."""
    # To ask DaCe for the program's free symbols takes a walk over all its nodes.
    symbols = symbols - set(sdfg.constants)
    return not symbols or (sdfg.parent_sdfg is None and symbols.isdisjoint({*changing_symbols(sdfg), *sdfg.arrays}))


def _known_at_start(tensor: DistributedNode, node: nodes.Node, state: SDFGState) -> bool:
    """
    Return True if all symbols of the plan are known when the program is initialised: they are the program's own.

    :param tensor: What a tensor of ``node`` is moved by: ``node`` itself, or a part of a joint node.
    """
    sdfg, used = state.sdfg, {*node.free_symbols, *tensor.free_symbols}
    for array, subset in tensor.arrays(sdfg, state):
        used |= symbols_of((*array.strides, *subset.size()))
    scope, of_maps = node, set[str]()
    while (scope := state.entry_node(scope)) is not None:
        of_maps |= scope.new_symbol_names(sdfg, state)
    return used.isdisjoint(of_maps) and are_known_at_start(used, sdfg)


def wait_tasklet(node: RedistributeWait, state: SDFGState, sdfg: SDFG, _: str) -> nodes.Tasklet:
    """Return the tasklet that waits for a non-blocking redistribution."""
    node.validate(sdfg, state)
    stream = f", {_STREAM}" if lies_on_gpu(node.array(ORDER_OUTPUT, state)) else ""
    code = f"dace_redist::program::wait({REQUEST}{stream});"
    return nodes.Tasklet(node.name, *pointers(node, state), code, language=dtypes.Language.CPP, side_effects=True)


# Computations with local arrays


def contraction_tasklet(node: Contraction, state: SDFGState, sdfg: SDFG, name: str) -> nodes.Tasklet:
    """Return the tasklet that evaluates an einsum by BLAS, or by DaCe's cuBLAS handle for arrays on the GPU."""
    node.implementation = name  # the node derives the supported devices from it
    node.validate(sdfg, state)
    field, element = field_name("__contraction", sdfg), node.array(RESULT, state).dtype.ctype
    on_gpu = name == CUBLAS
    kind, function = ("DeviceContraction", "contract") if on_gpu else ("Contraction", f"contract<{element}>")
    layouts = [n for dimensions in node.dimensions(sdfg, state) for n in zip(*dimensions, strict=True)]
    path = braced(numbers(step) for step in node.path)
    made = f'{kind}({string_literal(node.label)}, "{node.einsum}", "{element_name(node, state)}", {path})'
    arguments = [f"*__state->{field}", numbers([n for one in layouts for n in one])]
    arguments += [braced(node.operand_connectors), RESULT]
    arguments += [f"{element}({sym2cpp(factor)})" for factor in (node.alpha, node.beta)]
    arguments += ["__dace_cublas_handle", _STREAM] if on_gpu else []
    call = f"dace_redist::program::{function}({', '.join(arguments)});"
    return stateful_tasklet(node, state, field, made, (cuBLAS.handle_setup_code(node) if on_gpu else "") + call)


def linear_solve_tasklet(node: LinearSolve, state: SDFGState, sdfg: SDFG, _: str) -> nodes.Tasklet:
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


# The table


def register(
    node: type[nodes.LibraryNode],
    name: str,
    expand: Callable[[Any, SDFGState, SDFG, str], nodes.CodeNode],
    environment: type = RuntimeEnvironment,
    stem: str = "",
) -> None:
    """
    Register an implementation of a node.

    :param expand: Function of node, state, SDFG and ``name`` that returns the tasklet.
    :param stem: Name of the node in that of the expansion; default: the name of its class.
    """
    members = {
        "__doc__": f"Expands {node.__name__} by {name}.",
        "__module__": __name__,
        "environments": [environment],
        "expansion": staticmethod(lambda node, state, sdfg: expand(node, state, sdfg, name)),
    }
    if environment is RuntimeEnvironment:
        members["postprocessing"] = staticmethod(_add_device_environment)
    made = type(f"Expand{stem or node.__name__}{name}", (ExpandTransformation,), members)
    globals()[made.__name__] = library.register_expansion(node, name)(made)


def _add_device_environment(sdfg: SDFG, state: SDFGState, tasklet: nodes.CodeNode) -> None:
    """Link the program with the library for GPUs if a tasklet uses a GPU stream."""
    if isinstance(tasklet, nodes.Tasklet) and _STREAM in tasklet.code.as_string:
        tasklet.environments = {*tasklet.environments, DeviceEnvironment.full_class_path()}


for _name in STRATEGIES:
    register(Redistribute, _name, plan_tasklet)
for _name in host_strategies():
    register(JointRedistribute, _name, plan_tasklet)
register(RedistributeWait, "pure", wait_tasklet)
register(SumReplicas, "MPI", lambda node, state, sdfg, _: plan_tasklet(node, state, sdfg, "SumReplicas"))
register(Contraction, "BLAS", contraction_tasklet, BlasEnvironment)
register(Contraction, CUBLAS, contraction_tasklet, CublasEnvironment)
register(LinearSolve, "LAPACK", linear_solve_tasklet, BlasEnvironment)

"""Tasklets that replace nodes; the only module that generates C++."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dace import dtypes, symbolic
from dace.codegen.common import sym2cpp
from dace.libraries.blas.environments.cublas import cuBLAS
from dace.libraries.comm.nodes.node import mpi_communicator
from dace.libraries.standard.helper import CURRENT_STREAM_NAME
from dace.properties import CodeBlock
from dace.sdfg import SDFG, SDFGState, nodes

from dace_redist.library_nodes.contraction import Contraction
from dace_redist.library_nodes.distributed_node import INPUT, OUTPUT, DistributedNode, local_dimensions
from dace_redist.library_nodes.environment import DeviceEnvironment
from dace_redist.library_nodes.indexed_node import RESULT
from dace_redist.library_nodes.joint_redistribute import JointRedistribute
from dace_redist.library_nodes.linear_solve import LinearSolve
from dace_redist.library_nodes.node import COMMUNICATORS, RedistNode, lies_on_gpu, plain_number, symbols_of
from dace_redist.library_nodes.redistribute import PROGRESS, REQUEST, RUN_TIME_CONNECTORS, Redistribute
from dace_redist.library_nodes.redistribute_wait import ORDER_OUTPUT, RedistributeWait
from dace_redist.library_nodes.sum_replicas import SumReplicas
from dace_redist.strategies import OPTIONS, default_options, find_strategy

#: Maximum length of a list of numbers in a call; longer ones become constants of the program.
_LONGEST_INLINE_LIST = 256

#: DaCe's name of the GPU stream of a tasklet that is connected to arrays on the GPU.
_STREAM = CURRENT_STREAM_NAME

#: ``dr_operation`` of elements that are only moved.
_NO_OPERATION = "{DR_OPAQUE, DR_OPAQUE, {1, 0}, {0, 0}, 0, DR_NO_OP}"


def add_device_environment(sdfg: SDFG, state: SDFGState, tasklet: nodes.Tasklet) -> None:
    """Link the program with the library for GPUs if a tasklet uses a GPU stream."""
    if isinstance(tasklet, nodes.Tasklet) and _STREAM in tasklet.code.as_string:
        tasklet.environments = {*tasklet.environments, DeviceEnvironment.full_class_path()}


def plan_tasklet(node: Redistribute, state: SDFGState, sdfg: SDFG, strategy: str) -> nodes.Tasklet:
    """
    Return the tasklet that redistributes by a plan of the library, stored in the program's state.

    The plan is made when the program starts if all its arguments are known then, else at the first run.
    """
    taken = find_strategy(strategy).options
    options = {name: getattr(node, name) if name in taken else option.default for name, option in OPTIONS.items()}
    further = _index_map_and_operation(node, state) + _memories(node, state)
    return _plan_tasklet(node, state, strategy, options, further)


def sum_replicas_tasklet(node: SumReplicas, state: SDFGState, sdfg: SDFG, _: str) -> nodes.Tasklet:
    """Return the tasklet that adds partial sums, see :func:`plan_tasklet`."""
    return _plan_tasklet(node, state, f"SumReplicas {_element_name(node, state)}", default_options())


def _plan_tasklet(
    node: DistributedNode, state: SDFGState, strategy: str, options: Mapping[str, Any], further: str = ""
) -> nodes.Tasklet:
    node.validate(state.sdfg, state)
    field = _field_name("__redist", state.sdfg)
    element_bytes = node.element_bytes if node.element_bytes != 0 else _array_type(node, INPUT, state).bytes
    listed = ", ".join(_option(name, value) for name, value in options.items())
    sizes = f"{_number(element_bytes)}, {{{listed}}}{further}"
    communicator = mpi_communicator(node, state)
    constants, arguments = _arguments(node, state, field)
    init = ""
    if _known_at_start(node, state):
        at_start = communicator.replace("_grid", f"__state->{_grid(node, state)}")
        init = f"__state->{field}->make({{{at_start}, {arguments}, {sizes}}});\n"
    values = f"*__state->{field}, {{{communicator}, {arguments}, {sizes}}}, {INPUT}, {OUTPUT}"
    stream = f", {_STREAM}" if any(node.on_gpu(state.sdfg, state)) else ""
    call = f"dace_redist::program::redistribute({values}{stream});"
    if isinstance(node, Redistribute) and node.nonblocking:
        call = f"dace_redist::program::start({values}, {PROGRESS.index(node.progress)}, {REQUEST}{stream});"
    made = f'Plan({_string(node.label)}, "{strategy}")'
    return _tasklet(node, state, field, made, call, code_init=init, code_global=constants)


def _index_map_and_operation(node: Redistribute, state: SDFGState) -> str:
    """Return the last members of ``dace_redist::program::Arguments``, unless they have their defaults."""
    encoded, operation = node.index_map.encoded, node.operation(state.sdfg, state)
    if operation.is_copy:
        return f", {{{{{_numbers(encoded)}}}}}" if encoded else ""
    source, target, *_, conj, op = operation.encoded_operation
    factors = ", ".join(f"{{double({sym2cpp(factor)}), 0}}" for factor in (node.alpha, node.beta))
    mapped = f"{{{{{_numbers(encoded)}}}}}" if encoded else "{}"
    return f", {mapped}, {{{source}, {target}, {factors}, {int(conj)}, {op}}}"


def _memories(node: Redistribute, state: SDFGState) -> str:
    """Return the members after those of :func:`_index_map_and_operation`, if an array lies on the GPU."""
    on_gpu = node.on_gpu(state.sdfg, state)
    if not any(on_gpu):
        return ""
    before = ""
    if node.operation(state.sdfg, state).is_copy:  # earlier members must be written out, even with their defaults
        before = f"{'' if node.index_map.encoded else ', {}'}, {_NO_OPERATION}"
    source, target = ("DR_DEVICE_MEMORY" if side else "DR_MAIN_MEMORY" for side in on_gpu)
    return f"{before}, {source}, {target}"


def wait_tasklet(node: RedistributeWait, state: SDFGState, sdfg: SDFG, _: str) -> nodes.Tasklet:
    """Return the tasklet that waits for a non-blocking redistribution."""
    node.validate(sdfg, state)
    connectors = [
        {name: dtypes.pointer(_array_type(node, name, state)) for name in ends}
        for ends in (node.in_connectors, node.out_connectors)
    ]
    stream = f", {_STREAM}" if lies_on_gpu(sdfg.arrays[node.memlet(ORDER_OUTPUT, state).data]) else ""
    code = f"dace_redist::program::wait({REQUEST}{stream});"
    return nodes.Tasklet(node.name, *connectors, code, language=dtypes.Language.CPP, side_effects=True)


def joint_tasklet(node: JointRedistribute, state: SDFGState, sdfg: SDFG, strategy: str) -> nodes.Tasklet:
    """Return the tasklet that redistributes several tensors, see :func:`plan_tasklet`."""
    node.validate(sdfg, state)
    field, communicator = _field_name("__redist", sdfg), mpi_communicator(node, state)
    defaults = ", ".join(_option(name, option.default) for name, option in OPTIONS.items())
    constants, described = "", []
    for number, tensor in enumerate(node.tensors):
        constant, arguments = _arguments(tensor, state, f"{field}_{number}")
        element_bytes = _number(_array_type(tensor, INPUT, state).bytes)
        further = _index_map_and_operation(tensor, state)
        constants += constant
        described.append(f"{arguments}, {element_bytes}, {{{defaults}}}{further}")
    init = ""
    if "_comm" not in node.in_connectors and all(_known_at_start(tensor, state) for tensor in node.tensors):
        at_start = communicator.replace("_grid", f"__state->{_grid(node, state)}")
        init = f"__state->{field}->make({{{', '.join(f'{{{at_start}, {one}}}' for one in described)}}});\n"
    tensors = ", ".join(f"{{{communicator}, {one}}}" for one in described)
    arrays = [", ".join(f"{end}_{number}" for number in range(len(described))) for end in (INPUT, OUTPUT)]
    call = f"__state->{field}->run({{{tensors}}}, {{{arrays[0]}}}, {{{arrays[1]}}});"
    made = f'JointPlan({_string(node.label)}, "{strategy}")'
    return _tasklet(node, state, field, made, call, code_init=init, code_global=constants)


def contraction_tasklet(node: Contraction, state: SDFGState, sdfg: SDFG, name: str) -> nodes.Tasklet:
    """Return the tasklet that evaluates an einsum, with its plan and workspace in the program's state."""
    node.implementation = name  # the node derives the supported devices from it
    node.validate(sdfg, state)
    element = _array_type(node, RESULT, state)
    return _contraction_tasklet(node, state, sdfg, "Contraction", f"contract<{element.ctype}>", "")


def cublas_tasklet(node: Contraction, state: SDFGState, sdfg: SDFG, name: str) -> nodes.Tasklet:
    """Return the tasklet that evaluates an einsum of arrays on the GPU, with DaCe's cuBLAS handle."""
    node.implementation = name
    node.validate(sdfg, state)
    tasklet = _contraction_tasklet(
        node, state, sdfg, "DeviceContraction", "contract", f", __dace_cublas_handle, {_STREAM}"
    )
    tasklet.code = CodeBlock(cuBLAS.handle_setup_code(node) + tasklet.code.as_string, dtypes.Language.CPP)
    return tasklet


def _contraction_tasklet(
    node: Contraction, state: SDFGState, sdfg: SDFG, kind: str, function: str, last: str
) -> nodes.Tasklet:
    """
    Return the tasklet that evaluates an einsum.

    :param kind: Class of the object in the program's state.
    :param function: Function of the library that it calls.
    :param last: Further arguments of that function.
    """
    field, element = _field_name("__contraction", sdfg), _array_type(node, RESULT, state)
    layouts = ", ".join(
        _numbers([*(extent for extent, _ in dimensions), *(stride for _, stride in dimensions)])
        for dimensions in node.dimensions(sdfg, state)
        if dimensions
    )
    path = ", ".join(f"{{{_numbers(step)}}}" for step in node.path)
    factors = ", ".join(f"{element.ctype}({sym2cpp(factor)})" for factor in (node.alpha, node.beta))
    operands = ", ".join(node.operand_connectors)
    made = f'{kind}({_string(node.label)}, "{node.einsum}", "{_element_name(node, state)}", {{{path}}})'
    call = f"dace_redist::program::{function}(*__state->{field}, {{{layouts}}}, {{{operands}}}, "
    return _tasklet(node, state, field, made, f"{call}{RESULT}, {factors}{last});")


def linear_solve_tasklet(node: LinearSolve, state: SDFGState, sdfg: SDFG, _: str) -> nodes.Tasklet:
    """Return the tasklet that solves a linear system."""
    node.validate(sdfg, state)
    node.validate_types(sdfg, state)
    field = _field_name("__solver", sdfg)
    indices = zip(node.terms, node.dimensions(sdfg, state), strict=True)
    matrix, *right, solution = ({"": (1, 1)} | dict(zip(*both, strict=True)) for both in indices)  # "": a vector
    extents = _numbers([matrix[node.rows][0], matrix[node.unknowns][0], solution[node.columns][0]])
    matrices = [
        _matrix("_0", matrix[node.rows], matrix[node.unknowns]),
        _matrix("_1", right[0][node.rows], right[0][node.columns]) if right else "{}",
        _matrix(RESULT, solution[node.unknowns], solution[node.columns]),
    ]
    made = f'LinearSolver({_string(node.title)}, "{_element_name(node, state)}")'
    arguments = f"{mpi_communicator(node, state)}, {{{extents}}}, {', '.join(matrices)}"
    return _tasklet(node, state, field, made, f"__state->{field}->run({arguments});")


def _tasklet(
    node: RedistNode, state: SDFGState, field: str, made: str, call: str, *, code_init: str = "", code_global: str = ""
) -> nodes.Tasklet:
    """
    Return a tasklet with an object of the library in a field of the program's state.

    Arrays are pointers, even arrays of a single element.

    :param made: Class of the object, with the arguments of its constructor.
    :param call: Code of the tasklet.
    :param code_init: Code at program start, after construction of the object.
    """

    def pointer(connector: str) -> Any:
        return dtypes.pointer(_array_type(node, connector, state))

    inputs = {name: kind if name in COMMUNICATORS else pointer(name) for name, kind in node.in_connectors.items()}
    return nodes.Tasklet(
        node.name,
        inputs,
        {name: pointer(name) for name in node.out_connectors},
        call,
        language=dtypes.Language.CPP,
        state_fields=[f"dace_redist::program::{made[: made.index('(')]} *{field};"],
        code_global=code_global,
        code_init=f"__state->{field} = new dace_redist::program::{made};\n{code_init}",
        code_exit=f"delete __state->{field};\n",
        side_effects=node.collective or None,
    )


def _string(text: str) -> str:
    """Return a C++ string literal."""
    return json.dumps(text, ensure_ascii=False)


def _array_type(node: RedistNode, connector: str, state: SDFGState) -> dtypes.typeclass:
    return state.sdfg.arrays[node.memlet(connector, state).data].dtype


def _element_name(node: RedistNode, state: SDFGState) -> str:
    """Return the name of a node's element type in the library, as in NumPy."""
    return str(np.dtype(_array_type(node, node.output_connector, state).as_numpy_dtype()).name)


def _matrix(array: str, rows: tuple[Any, Any], columns: tuple[Any, Any]) -> str:
    """Return a ``dace_redist::program::Matrix`` of two dimensions, each an extent and a stride."""
    return f"{{{array}, {_numbers([rows[1], columns[1]])}}}"


def _field_name(stem: str, sdfg: SDFG) -> str:
    """Return a field name that is unique in the program: all tasklets share one state struct."""
    taken = {field for n, _ in sdfg.root_sdfg.all_nodes_recursive() for field in getattr(n, "state_fields", ())}
    number = 0
    while any(f"*{stem}_{number};" in field for field in taken):
        number += 1
    return f"{stem}_{number}"


def _arguments(node: DistributedNode, state: SDFGState, field: str) -> tuple[str, str]:
    """Return global constants, and ``dace_redist::program::Arguments`` without the communicator."""
    if node.given_at_run_time:
        lengths = {e.dst_conn: _number(e.data.subset.num_elements_exact()) for e in state.in_edges(node)}
        spans = [f"{{{connector}, {lengths[connector]}}}" for connector in RUN_TIME_CONNECTORS]
        return "", ", ".join(spans)
    constants, spans = "", []
    for side, distribution, (array, subset) in zip(
        ("source", "target"), node.distributions(), node.arrays(state.sdfg, state), strict=True
    ):
        if len(distribution.encoded) > _LONGEST_INLINE_LIST and not distribution.is_symbolic:
            constants += f"static const std::int64_t {field}_{side}[] = {{{_numbers(distribution.encoded)}}};\n"
            spans.append(f"{{{field}_{side}}}")
        else:
            spans.append(f"{{{{{_numbers(distribution.encoded)}}}}}")
        dimensions = local_dimensions(subset, array.strides, distribution)
        local = [extent for extent, _ in dimensions] + [stride for _, stride in dimensions]
        spans.append(f"{{{{{_numbers(local)}}}}}")
    return constants, ", ".join(spans)


def _numbers(values: Sequence[Any]) -> str:
    return ", ".join(_number(value) for value in values)


def _number(value: Any) -> str:
    """Return a number as an item of a list of 64-bit integers; symbols, often ``int``, are widened before products."""
    value = plain_number(value)
    if isinstance(value, int):
        return str(value)
    expression, names = sym2cpp(value), "|".join(map(re.escape, symbolic.symlist(value)))
    if not names:
        return f"std::int64_t({expression})"
    widened = re.sub(rf"\b({names})\b", r"std::int64_t(\1)", expression)
    return widened if expression in symbolic.symlist(value) else f"std::int64_t({widened})"


def _option(name: str, value: Any) -> str:
    return _number(value) if isinstance(OPTIONS[name].default, int) else f"double({sym2cpp(value)})"


def _grid(node: RedistNode, state: SDFGState) -> str:
    return next((e.data.data for e in state.in_edges(node) if e.dst_conn == "_grid"), "")


def _known_at_start(node: DistributedNode, state: SDFGState) -> bool:
    """
    Return True if all arguments of the plan are known when the program is initialised.

    That excludes communicators and distributions among the arguments, and symbols other than the program's own.
    """
    if node.given_at_run_time or "_comm" in node.in_connectors:
        return False
    sdfg, used = state.sdfg, set(node.free_symbols)
    for array, subset in node.arrays(sdfg, state):
        used |= symbols_of((*array.strides, *subset.size()))
    used -= set(sdfg.constants)
    return not used or (sdfg.parent_sdfg is None and used <= set(sdfg.free_symbols) - _assigned_symbols(sdfg))


def _assigned_symbols(sdfg: SDFG) -> set[str]:
    """Return the symbols that change while the program runs."""
    return {name for edge in sdfg.all_interstate_edges() for name in edge.data.assignments}

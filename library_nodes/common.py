"""What the expansions share: the only place that writes C++."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dace import dtypes, symbolic
from dace.codegen.common import sym2cpp
from dace.libraries.comm.nodes.node import mpi_communicator
from dace.sdfg import SDFG, SDFGState, nodes

from dace_redist.library_nodes.contraction import RESULT, Contraction
from dace_redist.library_nodes.distributed_node import INPUT, OUTPUT, DistributedNode, local_dimensions, plain_number
from dace_redist.library_nodes.linear_solve import LinearSolve
from dace_redist.library_nodes.redistribute import RUN_TIME_CONNECTORS, Redistribute
from dace_redist.library_nodes.sum_replicas import SumReplicas
from dace_redist.native.library import ensure_library
from dace_redist.native.toolchain import INTEGERS
from dace_redist.strategies import OPTIONS, find_strategy

#: Numbers lists longer than this become constants of the program instead of standing in each call.
_LONGEST_INLINE_LIST = 256


def redistribute_tasklet(node: Redistribute, state: SDFGState, sdfg: SDFG, strategy: str) -> nodes.Tasklet:
    """
    The tasklet that redistributes: it keeps its plan in the program's state, makes it when the program starts if all it
    depends on is known then, else at its first run, and runs it by one call.

    :param node: The library node.
    :param state: State that holds it.
    :param sdfg: SDFG that holds the state.
    :param strategy: Name of the strategy, which is that of the expansion.
    :return: The tasklet to put in its place.
    """
    taken = find_strategy(strategy).options
    options = {name: getattr(node, name) if name in taken else option.default for name, option in OPTIONS.items()}
    return _plan_tasklet(node, state, sdfg, strategy, options)


def sum_replicas_tasklet(node: SumReplicas, state: SDFGState, sdfg: SDFG) -> nodes.Tasklet:
    """The tasklet that adds partial sums; parameters as for :func:`redistribute_tasklet`."""
    (array, _), _ = node.arrays(sdfg, state)
    defaults = {name: option.default for name, option in OPTIONS.items()}
    return _plan_tasklet(node, state, sdfg, f"SumReplicas {_element_type(array.dtype)}", defaults)


def _element_type(dtype: dtypes.typeclass) -> str:
    """Name of an element type in the library, as in NumPy."""
    return str(np.dtype(dtype.as_numpy_dtype()).name)


def _plan_tasklet(
    node: DistributedNode, state: SDFGState, sdfg: SDFG, strategy: str, options: Mapping[str, Any]
) -> nodes.Tasklet:
    node.validate(sdfg, state)
    field = _field_name("__redist", sdfg)
    (source_array, _), _ = node.arrays(sdfg, state)
    element_bytes = node.element_bytes if node.element_bytes != 0 else source_array.dtype.bytes
    listed = ", ".join(_option(name, value) for name, value in options.items())
    sizes = f"{_word(element_bytes)}, {{{listed}}}"
    communicator = mpi_communicator(node, state)
    code_global, arguments = _arguments(node, state, sdfg, field)
    init = f'__state->{field} = new dace_redist::program::Plan("{node.label}", "{strategy}");\n'
    if _known_at_start(node, state, sdfg):
        at_start = communicator.replace("_grid", f"__state->{_grid(node, state)}")
        init += f"__state->{field}->make({{{at_start}, {arguments}, {sizes}}});\n"
    values = f"{{{communicator}, {arguments}, {sizes}}}"
    return nodes.Tasklet(
        node.name,
        _connector_types(node, state, sdfg),
        {OUTPUT: dtypes.pointer(source_array.dtype)},
        f"dace_redist::program::redistribute(*__state->{field}, {values}, {INPUT}, {OUTPUT});",
        language=dtypes.Language.CPP,
        state_fields=[f"dace_redist::program::Plan *{field};"],
        code_global=code_global,
        code_init=init,
        code_exit=f"delete __state->{field};\n",
        side_effects=True,  # takes part in communication even where this rank's output is not used
    )


def contraction_tasklet(node: Contraction, state: SDFGState, sdfg: SDFG) -> nodes.Tasklet:
    """
    The tasklet that evaluates an einsum: it keeps its plan and its workspace in the program's state.

    :param node: The library node.
    :param state: State that holds it.
    :param sdfg: SDFG that holds the state.
    :return: The tasklet to put in its place.
    """
    node.validate(sdfg, state)
    field, element = _field_name("__contraction", sdfg), sdfg.arrays[node.memlet(RESULT, state).data].dtype
    if np.issubdtype(element.as_numpy_dtype(), np.integer):
        ensure_library(INTEGERS)  # loaded when the program starts
    kept = "dace_redist::program::Contraction"
    named = f'"{node.label}", "{node.einsum}", "{_element_type(element)}"'
    layouts = ", ".join(
        _words([*(extent for extent, _ in dimensions), *(stride for _, stride in dimensions)])
        for dimensions in node.dimensions(sdfg, state)
        if dimensions
    )
    path = ", ".join(f"{{{_words(step)}}}" for step in node.path)
    factors = ", ".join(f"{element.ctype}({sym2cpp(factor)})" for factor in (node.alpha, node.beta))
    operands = ", ".join(node.operand_connectors)
    call = f"dace_redist::program::contract<{element.ctype}>(*__state->{field}, {{{layouts}}}, {{{operands}}}, "
    return nodes.Tasklet(
        node.name,
        {connector: dtypes.pointer(element) for connector in node.in_connectors},
        {RESULT: dtypes.pointer(element)},
        f"{call}{RESULT}, {factors});",
        language=dtypes.Language.CPP,
        state_fields=[f"{kept} *{field};"],
        code_init=f"__state->{field} = new {kept}({named}, {{{path}}});\n",
        code_exit=f"delete __state->{field};\n",
    )


def linear_solve_tasklet(node: LinearSolve, state: SDFGState, sdfg: SDFG) -> nodes.Tasklet:
    """The tasklet that solves a linear system; parameters as for :func:`contraction_tasklet`."""
    node.validate(sdfg, state)
    node.validate_types(sdfg, state)
    field, element = _field_name("__solver", sdfg), sdfg.arrays[node.memlet(RESULT, state).data].dtype
    solver = "dace_redist::program::LinearSolver"
    indices = zip(node.terms, node.dimensions(sdfg, state), strict=True)
    matrix, *right, solution = ({"": (1, 1)} | dict(zip(*both, strict=True)) for both in indices)  # "": of a vector
    extents = _words([matrix[node.rows][0], matrix[node.unknowns][0], solution[node.columns][0]])
    matrices = [
        _matrix("_0", matrix[node.rows], matrix[node.unknowns]),
        _matrix("_1", right[0][node.rows], right[0][node.columns]) if right else "{}",
        _matrix(RESULT, solution[node.unknowns], solution[node.columns]),
    ]
    statement = json.dumps(node.title, ensure_ascii=False)
    return nodes.Tasklet(
        node.name,
        dict(node.in_connectors) | {connector: dtypes.pointer(element) for connector in node.operand_connectors},
        {RESULT: dtypes.pointer(element)},
        f"__state->{field}->run({mpi_communicator(node, state)}, {{{extents}}}, {', '.join(matrices)});",
        language=dtypes.Language.CPP,
        state_fields=[f"{solver} *{field};"],
        code_init=f'__state->{field} = new {solver}({statement}, "{_element_type(element)}");\n',
        code_exit=f"delete __state->{field};\n",
        side_effects=True,  # takes part in communication even where this rank's output is not used
    )


def _matrix(array: str, rows: tuple[Any, Any], columns: tuple[Any, Any]) -> str:
    """``dace_redist::program::Matrix`` of two dimensions, each an extent and a stride."""
    return f"{{{array}, {_words([rows[1], columns[1]])}}}"


def _field_name(stem: str, sdfg: SDFG) -> str:
    """A name no other tasklet of the program has for its field: all share one state struct."""
    taken = {field for n, _ in sdfg.root_sdfg.all_nodes_recursive() for field in getattr(n, "state_fields", ())}
    number = 0
    while any(f"*{stem}_{number};" in field for field in taken):
        number += 1
    return f"{stem}_{number}"


def _connector_types(node: DistributedNode, state: SDFGState, sdfg: SDFG) -> dict[str, Any]:
    """Arrays are pointers, also where they hold a single element."""
    connectors = dict(node.in_connectors)
    for edge in state.in_edges(node):
        if edge.dst_conn == INPUT or edge.dst_conn in RUN_TIME_CONNECTORS:
            connectors[edge.dst_conn] = dtypes.pointer(sdfg.arrays[edge.data.data].dtype)
    return connectors


def _arguments(node: DistributedNode, state: SDFGState, sdfg: SDFG, field: str) -> tuple[str, str]:
    """Constants that go before the program, and ``dace_redist::program::Arguments`` without the communicator."""
    if node.given_at_run_time:
        lengths = {e.dst_conn: _word(e.data.subset.num_elements_exact()) for e in state.in_edges(node)}
        spans = [f"{{{connector}, {lengths[connector]}}}" for connector in RUN_TIME_CONNECTORS]
        return "", ", ".join(spans)
    constants, spans = "", []
    for side, distribution, (array, subset) in zip(
        ("source", "target"), node.distributions(), node.arrays(sdfg, state), strict=True
    ):
        if len(distribution.encoded) > _LONGEST_INLINE_LIST and not distribution.is_symbolic:
            constants += f"static const std::int64_t {field}_{side}[] = {{{_words(distribution.encoded)}}};\n"
            spans.append(f"{{{field}_{side}}}")
        else:
            spans.append(f"{{{{{_words(distribution.encoded)}}}}}")
        dimensions = local_dimensions(subset, array.strides, distribution)
        local = [extent for extent, _ in dimensions] + [stride for _, stride in dimensions]
        spans.append(f"{{{{{_words(local)}}}}}")
    return constants, ", ".join(spans)


def _words(values: Sequence[Any]) -> str:
    return ", ".join(_word(value) for value in values)


def _word(value: Any) -> str:
    """A number as it stands in a list of 64-bit integers. Symbols, often ``int``, are widened before any product of
    them can overflow.
    """
    value = plain_number(value)
    if isinstance(value, int):
        return str(value)
    expression, names = sym2cpp(value), "|".join(map(re.escape, symbolic.symlist(value)))
    widened = re.sub(rf"\b({names})\b", r"std::int64_t(\1)", expression)
    return widened if expression in symbolic.symlist(value) else f"std::int64_t({widened})"


def _option(name: str, value: Any) -> str:
    return _word(value) if isinstance(OPTIONS[name].default, int) else f"double({sym2cpp(value)})"


def _grid(node: DistributedNode, state: SDFGState) -> str:
    return next((e.data.data for e in state.in_edges(node) if e.dst_conn == "_grid"), "")


def _known_at_start(node: DistributedNode, state: SDFGState, sdfg: SDFG) -> bool:
    """Whether everything the plan depends on is known when the program is initialised: no communicator or
    distribution that arrives with the arguments, no symbol but the program's own.
    """
    if node.given_at_run_time or any(e.dst_conn == "_comm" for e in state.in_edges(node)):
        return False
    used = set(node.free_symbols)
    for array, subset in node.arrays(sdfg, state):
        used |= {str(s) for value in (*array.strides, *subset.size()) for s in symbolic.symlist(value).values()}
    used -= set(sdfg.constants)
    return not used or (sdfg.parent_sdfg is None and used <= set(sdfg.free_symbols) - _assigned_symbols(sdfg))


def _assigned_symbols(sdfg: SDFG) -> set[str]:
    """Symbols that change while the program runs."""
    return {name for edge in sdfg.all_interstate_edges() for name in edge.data.assignments}

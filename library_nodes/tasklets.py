"""Tasklets that call the library, the only C++ that Python generates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import count
from typing import Any

import numpy as np
from dace import SDFG, dtypes, symbolic
from dace.codegen.common import sym2cpp
from dace.libraries.comm.nodes.node import input_descriptor_name, mpi_communicator
from dace.libraries.standard.helper import CURRENT_STREAM_NAME as STREAM
from dace.sdfg import SDFGState, nodes

from dace_redist.library_nodes.node import (
    COMMUNICATORS,
    INPUT,
    OUTPUT,
    RedistNode,
    dimensions_of,
    local_ndim,
    plain_number,
    symbols_of,
)
from dace_redist.library_nodes.redistribute import PROGRESS, REQUEST, Redistribute
from dace_redist.strategies import OPTIONS, default_options, find_strategy

#: Maximum length of a list of numbers in a call; longer ones become constants of the program.
_LONGEST_INLINE_LIST = 256


# Objects in the program's state


def stateful_tasklet(
    node: RedistNode, state: SDFGState, field: str, made: str, call: str, **code: str
) -> nodes.Tasklet:
    """
    Return a tasklet with an object of the library in a field of the program's state.

    :param made: Class of the object, with the arguments of its constructor.
    :param call: Code of the tasklet.
    :param code: Global code, and code at program start, after construction of the object.
    """
    if node.collective:
        _make_maps_sequential(node, state)
    code["code_init"] = f"__state->{field} = new dace_redist::program::{made};\n{code.get('code_init', '')}"
    return nodes.Tasklet(
        node.name,
        *pointers(node, state),
        call,
        language=dtypes.Language.CPP,
        state_fields=[f"dace_redist::program::{made[: made.index('(')]} *{field};"],
        code_exit=f"delete __state->{field};\n",
        side_effects=node.collective or None,
        **code,
    )


def _make_maps_sequential(node: nodes.Node, state: SDFGState) -> None:
    """Let one thread run the iterations around a collective node, in equal order on all ranks."""
    while node is not None:
        scope = node
        while (scope := state.entry_node(scope)) is not None:
            if scope.schedule in (dtypes.ScheduleType.Default, *dtypes.CPU_SCHEDULES):
                scope.schedule = dtypes.ScheduleType.Sequential
        node, state = state.sdfg.parent_nsdfg_node, state.sdfg.parent


def pointers(node: RedistNode, state: SDFGState) -> list[dict[str, Any]]:
    """Return input and output connectors, with pointers to arrays, even to arrays of a single element."""
    return [
        {name: kind if name in COMMUNICATORS else dtypes.pointer(node.array(name, state).dtype) for name, kind in ends}
        for ends in (node.in_connectors.items(), node.out_connectors.items())
    ]


def string_literal(text: str) -> str:
    """Return a C++ string literal."""
    return json.dumps(text, ensure_ascii=False)


def element_name(node: RedistNode, state: SDFGState) -> str:
    """Return the name of a node's element type in the library, as in NumPy."""
    return str(np.dtype(node.array(node.output_connector, state).dtype.as_numpy_dtype()).name)


def field_name(stem: str, sdfg: SDFG) -> str:
    """Return a field name that is unique in the program: all tasklets share one state struct."""
    taken = {field for n, _ in sdfg.root_sdfg.all_nodes_recursive() for field in getattr(n, "state_fields", ())}
    return next(f"{stem}_{n}" for n in count() if not any(f"*{stem}_{n};" in field for field in taken))


def braced(parts: Iterable[str]) -> str:
    """Return a braced list."""
    return f"{{{', '.join(parts)}}}"


def numbers(values: Iterable[Any]) -> str:
    """Return a braced list of 64-bit integers."""
    return braced(map(number, values))


def number(value: Any) -> str:
    """Return a number as an item of a list of 64-bit integers; symbols, often ``int``, are widened before products."""
    value = value if isinstance(value, int) else plain_number(value)
    if isinstance(value, int):
        return str(value)
    expression, names = sym2cpp(value), "|".join(map(re.escape, symbolic.symlist(value)))
    if not names:
        return f"std::int64_t({expression})"
    widened = re.sub(rf"\b({names})\b", r"std::int64_t(\1)", expression)
    return widened if expression in symbolic.symlist(value) else f"std::int64_t({widened})"


# Redistributions: a plan of the library in the program's state


def plan_tasklet(node: Any, state: SDFGState, sdfg: SDFG, strategy: str = "") -> nodes.Tasklet:
    """
    Return the tasklet that redistributes one or several tensors.

    Tensors without symbols are passed once, when the program starts. The plan is made then, unless the communicator is
    an input. Tensors with symbols are passed to each run, of which the first makes the plan.

    :param strategy: Default: that of the node.
    """
    node.validate(sdfg, state)
    strategy = strategy or node.strategy
    field, communicator = field_name("__redist", sdfg), mpi_communicator(node, state)
    values = default_options() | {name: getattr(node, name) for name in find_strategy(strategy).options}
    options = braced(
        number(value) if isinstance(OPTIONS[name].default, int) else f"double({sym2cpp(value)})"
        for name, value in values.items()
    )
    constants, described, symbols = "", [], node.free_symbols
    for position, tensor in enumerate(node.tensors):
        constant, arguments, used = _arguments(tensor, state, f"{field}_{position}", options)
        constants, symbols = constants + constant, symbols | used
        described.append(arguments)
    init, passed = "", braced(described)
    if not symbols - set(sdfg.constants):
        grid = f"__state->{input_descriptor_name(node, state, '_grid')}"
        comm = "MPI_COMM_NULL" if "_comm" in node.in_connectors else communicator.replace("_grid", grid)
        init, passed = f"__state->{field}->make({comm}, {passed});\n", "{}"
    starts = isinstance(node, Redistribute) and node.nonblocking
    arrays = [braced(one.replace(INPUT, end) for one in node.operand_connectors) for end in (INPUT, OUTPUT)]
    listed = [communicator, passed, *arrays]
    listed += [str(PROGRESS.index(node.progress)), REQUEST] if starts else []
    listed += [STREAM] if any(any(tensor.on_gpu(sdfg, state)) for tensor in node.tensors) else []
    call = f"__state->{field}->{'start' if starts else 'run'}({', '.join(listed)});"
    made = f'Plan("{type(node).__name__}", {string_literal(node.label)}, "{strategy}")'
    return stateful_tasklet(node, state, field, made, call, code_init=init, code_global=constants)


def _arguments(node: Redistribute, state: SDFGState, field: str, options: str) -> tuple[str, str, set[str]]:
    """Return global constants, the ``dace_redist::program::Arguments`` of a tensor, and the symbols in them."""
    constants, members, symbols = "", dict[str, str](), node.free_symbols
    ends = zip(("source", "target"), node.distributions(), node.arrays(state.sdfg, state), strict=True)
    for side, distribution, (array, subset) in ends:
        encoded = numbers(distribution.encoded)
        if len(distribution.encoded) > _LONGEST_INLINE_LIST and not distribution.is_symbolic:
            constants += f"static const std::int64_t {field}_{side}[] = {encoded};\n"
            encoded = f"{field}_{side}"
        extents, strides = zip(*dimensions_of(subset, array.strides, local_ndim(distribution)), strict=True)
        members |= {side: braced([encoded]), f"{side}_local": braced([numbers([*extents, *strides])])}
        symbols |= symbols_of([*extents, *strides])
    members |= {"element_bytes": number(node.array(INPUT, state).dtype.bytes), "options": options}
    members |= {"index_map": braced([numbers(node.index_map.encoded)] if node.index_map.encoded else [])}
    members |= {"operation": _operation(node, state)}
    if any(on_gpu := node.on_gpu(state.sdfg, state)):
        memories = ["DR_DEVICE_MEMORY" if side else "DR_MAIN_MEMORY" for side in on_gpu]
        members |= dict(zip(("source_memory", "target_memory"), memories, strict=True))
    return constants, braced(f"/*{name}*/ {value}" for name, value in members.items()), symbols


def _operation(node: Redistribute, state: SDFGState) -> str:
    """Return the ``dr_operation`` of a node."""
    source, target, _, _, *rest = node.operation(state.sdfg, state).encoded_operation
    factors = (braced([f"double({sym2cpp(factor)})", "0"]) for factor in (node.alpha, node.beta))
    return braced([str(source), str(target), *factors, *(str(int(value)) for value in rest)])


def changing_symbols(sdfg: SDFG) -> set[str]:
    """Return the symbols that the program changes: variables of loops, and those that are assigned."""
    changing = {getattr(region, "loop_variable", "") for region in sdfg.all_control_flow_regions()}
    return changing.union(*(edge.data.assignments for edge in sdfg.all_interstate_edges()))

"""Distribution of a program of einsums: the program that every rank runs on its parts of the tensors."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import astuple, replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from dace import SDFG, properties
from dace.frontend.python.astutils import function_to_ast
from dace.frontend.python.parser import DaceProgram
from dace.transformation import pass_pipeline

from dace_redist.distribution import AnyDistribution, decode_distribution
from dace_redist.einsum.placement import Given, Home, Placement, everywhere, home_of
from dace_redist.einsum.plan import EinsumPlan
from dace_redist.einsum.planner import plan_einsums
from dace_redist.einsum.statement import Statement
from dace_redist.integers import AnyBytes, checked_memory_bytes
from dace_redist.transform import checked_precision
from dace_redist.transformations.distribute.choice import choose
from dace_redist.transformations.distribute.emit import Recipe
from dace_redist.transformations.distribute.emit.storage import check_for_gpu
from dace_redist.transformations.distribute.fuse_code import fuse_elementwise
from dace_redist.transformations.distribute.homes import homes_of_boxes, in_blocks
from dace_redist.transformations.distribute.ir import (
    Body,
    Item,
    Move,
    changing_axes,
    check_sizes,
    operations,
    scalars_of,
    shapes_of,
)
from dace_redist.transformations.distribute.kept import kept
from dace_redist.transformations.distribute.read import read_statements
from dace_redist.transformations.distribute.read.captured import Captured
from dace_redist.transformations.distribute.read.simplify import CPP_KEYWORDS, simplify
from dace_redist.transformations.distribute.rewrite import (
    check_copies,
    equal_types,
    fold_transposes,
    fuse_reductions,
    rewrite,
    share_subexpressions,
)
from dace_redist.transformations.distribute.runtime import DistributedProgram


def distribute(
    program: Any,
    ranks: int,
    sizes: Mapping[Any, int] | None = None,
    *,
    memory_bytes: AnyBytes | None = None,
    node_size: int | None = None,
    placements: Mapping[str, Placement | AnyDistribution] | None = None,
    overrides: Mapping[str, Mapping[str, int]] | None = None,
    device: str = "cpu",
    arguments: str = "cpu",
    reproducible: bool = False,
) -> DistributedProgram:
    """
    Distribute a program of einsums over MPI ranks. Not collective; needs no MPI.

    Order, grouping and process grids of the contractions are chosen for little communication, as in Ziogas et al.,
    Deinsum (SC'22); the redistributions between them count, too.

    :param program: A ``@dace.program`` or SDFG of the statements that the manual lists.
    :param ranks: Number of ranks to run on.
    :param sizes: Values of symbols, by symbol or name. The plan is made for them; the program keeps its symbols, see
        :meth:`DistributedProgram.with_sizes`.
    :param memory_bytes: Maximum bytes per rank, also as ``"4GiB"``. None: no limit, and intermediates stay allocated
        between runs.
    :param node_size: Ranks per node.
    :param placements: Distributions of inputs or outputs, by name. One that no process grid has, such as a block-cyclic
        one, costs a move, and fixes the sizes of the tensor.
    :param overrides: Process grids, by the tensor that is computed: ``{"T": {"i": 2, "k": 4}}``. Here and in
        ``placements``, the return value is called ``__return`` or as the variable that is returned.
    :param device: ``"cpu"`` or ``"gpu"``. Not supported there: reductions other than
        sums, linear systems, products of integers, conditions on scalars. A rank uses its first visible GPU; on nodes
        with several GPUs the launcher assigns one to each rank (``CUDA_VISIBLE_DEVICES``).
    :param arguments: Device of inputs and outputs; ``"gpu"`` only with ``device="gpu"``. Scalars are always in main
        memory.
    :param reproducible: True to add partial results in the order of the process grid: the bits of a sum do not depend
        on the nodes on which ranks run. They depend on the grid, which ``overrides`` fixes.
    :raises ValueError: If an argument is invalid, or a statement cannot be distributed. Names the statement, the reason
        and a remedy.
    :raises MemoryError: If a rank needs more than ``memory_bytes``. Names the bytes and the statement.
    :raises TypeError: If ``program`` is neither a program nor an SDFG, or another argument has the wrong type.
    """
    _check_arguments(program, ranks, sizes, placements, overrides)
    _check_devices(device, arguments)
    limits = {"memory_bytes": checked_memory_bytes(memory_bytes), "node_size": node_size, "overrides": overrides}
    values, devices = _by_name(sizes or {}), (device, arguments)
    order = checked_precision(reproducible=reproducible)["reproducible"]
    options = {"ranks": int(ranks), "sizes": values, "devices": devices, "placements": placements, **limits}
    make = partial(_distributed, program, int(ranks), values, placements or {}, limits, devices, order)
    return kept(program, options | {"reproducible": order}, make)


def _distributed(
    program: Any,
    ranks: int,
    sizes: dict[str, int],
    placements: Mapping[str, Placement | AnyDistribution],
    limits: Mapping[str, Any],
    devices: tuple[str, str],
    reproducible: bool,
) -> DistributedProgram:
    """Read, plan and emit a program."""
    sdfg = _simplified(program)
    check_sizes(sdfg, sizes)
    _check_names(sdfg)
    returned = _returned_names(program.f) if isinstance(program, DaceProgram) else {}
    placed, overrides = (_by_tensor(given or {}, sdfg, returned) for given in (placements, limits["overrides"]))
    body = rewritten(read_statements(sdfg, sizes), sdfg, {*placed, *overrides}, fuse=devices[0] == "cpu")
    if not any(operations(body)):
        raise ValueError(
            f'"{sdfg.name}" computes nothing that could be distributed: return a result, or write it to an argument'
        )
    if devices[0] == "gpu":
        check_for_gpu(sdfg, body)
    limits = {**limits, "overrides": overrides}
    shapes = shapes_of(sdfg, sizes, body)
    free = devices[0] == "cpu" and not overrides
    plan = choose(body, shapes, partial(_planned, sdfg, body, shapes, ranks, placed, limits), free)
    known = program.__sdfg_closure__() if isinstance(program, DaceProgram) else {}
    closure = {name: np.asarray(value) for name, value in known.items() if name in sdfg.arrays}
    recipe = Recipe(
        sdfg, body, plan, limits["memory_bytes"] is None, closure, *devices, Captured(program), reproducible
    )
    target = SDFG(f"{sdfg.name}_on_{ranks}_ranks" if devices[0] == "cpu" else f"{sdfg.name}_on_{ranks}_gpus")
    return DistributedProgram(recipe, dict(sizes), *recipe.build(target, sizes))


def rewritten(body: Body, sdfg: SDFG, named: Collection[str] = (), *, fuse: bool = True) -> tuple[Item, ...]:
    """
    Return statements with types supported by BLAS, without transposed copies, unused products and repetitions.

    :param fuse: True to fuse elementwise statements. On the GPU the compiler would contract their operations.
    :raises ValueError: If a statement cannot be computed with its types; names it.
    """
    check_copies(body, sdfg)
    kept = {*named, *scalars_of(body), *_arguments(sdfg)}
    rules = [equal_types(sdfg), fold_transposes, fuse_reductions, share_subexpressions(sdfg)]
    return rewrite(body, [*rules, *[fuse_elementwise(sdfg)] * fuse], kept)


def _arguments(sdfg: SDFG) -> list[str]:
    return [name for name, array in sdfg.arrays.items() if not array.transient]


def _planned(
    sdfg: SDFG,
    body: Body,
    shapes: Mapping[str, tuple[int, ...]],
    ranks: int,
    placed: Mapping[str, Home | AnyDistribution],
    limits: Mapping[str, Any],
    whole: Collection[int] = (),
) -> EinsumPlan:
    """
    Return the plan of a program, with homes for all its tensors.

    :param whole: Numbers of the operations that each rank computes as a whole: it holds all that they write, and all
        of which they use parts.
    """
    ops, shared, changing = list(operations(body)), _from_scalars(body, shapes), changing_axes(sdfg)
    statements = []
    for number, operation in enumerate(ops):
        one = operation if isinstance(operation, Statement) else operation.planned(len(shapes[operation.result]))
        ends = zip((*one.operands, one.result), (*one.einsum.operands, one.einsum.result), strict=True)
        unsplit = one.whole + "".join(term[axis] for name, term in ends for axis in sorted(changing[name]))
        statements.append(replace(one, replicated=number in whole or one.result in shared, whole=unsplit))
    held = {name for number in whole for name in (ops[number].names if isinstance(ops[number], Move) else ())}
    held |= {ops[number].result for number in whole}
    known = {name for statement in statements for name in statement.names}
    written, scalars = {statement.result for statement in statements}, scalars_of(body)
    fixed = {name: _home(name, given, shapes) for name, given in placed.items()}
    # Scalars of conditions are replicated. The planner takes the homes of tensors of which only parts are used.
    fixed |= {name: everywhere(0, ranks) for name in sorted(scalars)}
    fixed |= {name: everywhere(len(shapes[name]), ranks) for name in sorted(held - {*fixed})}
    fixed = homes_of_boxes(body, shapes, changing, ranks, {*fixed, *limits["overrides"]}) | fixed
    used = {name for operation in operations(body) for name in operation.read} | scalars
    for name in {name for one in operations(body) if isinstance(one, Move) for name in one.names} | scalars:
        if isinstance(fixed.get(name), Given):
            raise ValueError(
                f"placements: parts of {name} are read or written, or it is reshaped, or a condition, so each rank "
                f"must have one block, got {fixed[name].distribution(())}"
            )
    fixed |= {name: in_blocks(shapes[name], ranks) for name in sorted(used - known - {*fixed})}
    alone = scalars - {name for statement in statements for name in (*statement.names, *statement.at_home)}
    plan = plan_einsums(
        statements,
        shapes,
        ranks,
        itemsize=max(array.dtype.bytes for array in sdfg.arrays.values()),
        placements={name: home for name, home in fixed.items() if name not in alone},
        outputs=[name for name in _arguments(sdfg) if name in written],
        **limits,
    )
    return replace(plan, homes=plan.homes | {name: fixed[name] for name in sorted(alone)})


def _from_scalars(body: Body, shapes: Mapping[str, tuple[int, ...]]) -> set[str]:
    """Return the scalars that are computed from scalar arguments alone: each rank computes them."""
    found = {name for name, shape in shapes.items() if not shape}
    while others := {
        one.result
        for one in operations(body)
        if one.result in found and not (getattr(one, "elementwise", False) and found.issuperset(one.read))
    }:
        found -= others
    return found


def _home(name: str, given: Home | AnyDistribution, shapes: Mapping[str, tuple[int, ...]]) -> Home:
    if isinstance(given, Home):
        return given
    if not isinstance(given, AnyDistribution):
        raise TypeError(f"placements: {name}: expected a distribution or a Placement, got {type(given).__name__}")
    if given.is_symbolic or getattr(given, "in_lists", False):
        raise ValueError(f"placements: {name} needs sizes in numbers, and no lists of boxes, got {given}")
    if name in shapes and tuple(given.shape) != (shapes[name] or (1,)):
        raise ValueError(f"placements: {name} has shape {shapes[name]}, but its distribution is of {given.shape}")
    return home_of(given)


def _simplified(program: Any) -> SDFG:
    if isinstance(program, DaceProgram):
        # DaCe's private methods are checked when a program is parsed, not when this package is imported.
        from dace_redist.transformations.distribute.read.frontend import parse

        return parse(program)
    sdfg = copy.deepcopy(program)
    simplify(sdfg)
    return sdfg


def _returned_names(function: Callable[..., Any]) -> dict[str, str]:
    """Return the SDFG's names of return values by variable: ``__return``, or ``__return_0`` and so on."""
    last = function_to_ast(function)[0].body[0].body[-1]
    value = last.value if isinstance(last, ast.Return) else None
    if isinstance(value, ast.Name):
        return {value.id: "__return"}
    parts = value.elts if isinstance(value, ast.Tuple) else []
    return {part.id: f"__return_{number}" for number, part in enumerate(parts) if isinstance(part, ast.Name)}


def _check_devices(device: Any, arguments: Any) -> None:
    for name, value in {"device": device, "arguments": arguments}.items():
        if value not in ("cpu", "gpu"):
            raise ValueError(f'distribute: {name} must be "cpu" or "gpu", got {value!r}')
    if (device, arguments) == ("cpu", "gpu"):
        raise ValueError('distribute: arguments="gpu" is for programs that compute there: pass device="gpu", too')


def _check_arguments(program: Any, ranks: Any, sizes: Any, placements: Any, overrides: Any) -> None:
    if not isinstance(program, DaceProgram | SDFG):
        raise TypeError(
            f"distribute: expected a @dace.program or an SDFG, got {type(program).__name__}; an array is distributed "
            "by dace_redist.scatter(array, distribution)"
        )
    if isinstance(ranks, bool) or not isinstance(ranks, Integral) or ranks < 1:
        raise ValueError(f"distribute: ranks must be an integer of at least 1, got {ranks!r}")
    mappings = {"sizes": sizes, "placements": placements, "overrides": overrides}
    grids = {f"overrides[{key!r}]": grid for key, grid in overrides.items()} if isinstance(overrides, Mapping) else {}
    for name, value in {**mappings, **grids}.items():
        if value is not None and not isinstance(value, Mapping):
            raise TypeError(f"distribute: {name} must be a dict, got {value!r}")


def _by_name(sizes: Mapping[Any, int]) -> dict[str, int]:
    named = {str(symbol): sizes[symbol] for symbol in sorted(sizes, key=str)}  # a set has another order on each rank
    if len(named) < len(sizes):
        raise ValueError(f"distribute: sizes has a symbol twice: {', '.join(map(repr, sizes))}")
    return named


def _by_tensor(given: Mapping[str, Any], sdfg: SDFG, returned: Mapping[str, str]) -> dict[str, Any]:
    """Translate user-facing tensor names to those of the SDFG, where return values have other names."""
    named = {name if name in sdfg.arrays else returned.get(name, name): value for name, value in given.items()}
    if len(named) < len(given):
        raise ValueError(f"two of {', '.join(given)} are one tensor: give one of them")
    return named


def _check_names(sdfg: SDFG) -> None:
    """Check the names of arguments: they become names in C++, and keywords next to those of methods."""
    if "comm" in sdfg.arrays and not sdfg.arrays["comm"].transient:
        raise ValueError(
            f'"{sdfg.name}": an argument cannot be called comm, as the communicator that scatter and run take is; '
            "give it another name"
        )
    reserved = sorted({*CPP_KEYWORDS, "errno"} & {*sdfg.symbols})
    reserved += [name for name in _arguments(sdfg) if re.match("__(?!return|g_)", name)]
    if reserved:
        raise ValueError(
            f'"{sdfg.name}": {", ".join(reserved)} cannot be the name of a size or argument: it has another meaning in '
            f"the compiled program; call it {reserved[0].strip('_')}_, or the like"
        )


def _encoded(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for JSON, where a placement is the list of its fields, or the encoded distribution."""
    places = {name: home_of(place) for name, place in (options.get("placements") or {}).items()}
    encoded = {
        name: [place.whole.encoded_array.tolist()] if isinstance(place, Given) else astuple(place)
        for name, place in places.items()
    }
    return {**options, "placements": encoded}


def _decoded(options: Mapping[str, Any], _: Any = None) -> dict[str, Any]:
    places = {
        name: decode_distribution(fields[0]) if len(fields) == 1 else Placement(*map(tuple, fields))
        for name, fields in options["placements"].items()
    }
    return {**options, "placements": places}


@properties.make_properties
class DistributeEinsum(pass_pipeline.Pass):
    """
    Turn a program of einsums into the program of a rank, in place; see :func:`dace_redist.distribute`.

    After :meth:`apply_pass` the attribute ``distributed`` holds the result of :func:`dace_redist.distribute`.

    :param options: Further arguments of :func:`dace_redist.distribute`.
    """

    CATEGORY = "Simplification"
    #: Distributed program; None before the pass was applied.
    distributed: DistributedProgram | None = None

    ranks = properties.Property(dtype=int, default=1, desc="Number of ranks")
    sizes = properties.DictProperty(key_type=str, value_type=int, desc="Values of symbols")
    options = properties.Property(dtype=dict, default={}, to_json=_encoded, from_json=_decoded, desc="Other arguments")

    def __init__(self, ranks: int = 1, sizes: Mapping[Any, int] | None = None, **options: Any) -> None:
        super().__init__()
        self.ranks, self.sizes, self.options = ranks, _by_name(sizes or {}), options

    def modifies(self) -> pass_pipeline.Modifies:
        """Return everything."""
        return pass_pipeline.Modifies.Everything

    def should_reapply(self, modified: pass_pipeline.Modifies) -> bool:
        """Return False: a distributed program cannot be distributed again."""
        return False

    def apply_pass(self, sdfg: SDFG, _: dict[str, Any]) -> int:
        """Rewrite the SDFG; return the number of groups of contractions."""
        made = distribute(sdfg, self.ranks, self.sizes, **self.options)  # raises before anything is changed
        for node in list(sdfg.nodes()):
            sdfg.remove_node(node)
        for name in list(sdfg.arrays):
            sdfg.remove_data(name, validate=False)
        for name in list(sdfg.symbols):
            sdfg.remove_symbol(name)
        self.distributed = made.built_in(sdfg, made.sizes)
        return len(made.plan.groups)

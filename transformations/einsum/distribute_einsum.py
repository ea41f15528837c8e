"""Turns a program of einsums into the program that every rank runs on its blocks."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from dace import FLOAT_TYPES, SDFG, properties, symbolic
from dace.transformation import pass_pipeline

from dace_redist.distribution import Distribution
from dace_redist.einsum.placement import Placement
from dace_redist.einsum.planner import plan_einsums
from dace_redist.transformations.einsum.distributed_program import DistributedProgram
from dace_redist.transformations.einsum.distributed_sdfg import build_distributed, in_numbers
from dace_redist.transformations.einsum.reading import logical_shape
from dace_redist.transformations.einsum.statements import read_statements
from dace_redist.transformations.einsum.steps import all_steps
from dace_redist.transformations.einsum.transposed_operands import without_transposes


def distribute_sdfg(
    sdfg: SDFG,
    ranks: int,
    sizes: Mapping[str, int],
    *,
    memory_bytes: int | None = None,
    node_size: int | None = None,
    placements: Mapping[str, Placement | Distribution] | None = None,
    overrides: Mapping[str, Mapping[str, int]] | None = None,
) -> DistributedProgram:
    """
    Plans and builds the distributed twin of a program.

    :param sdfg: The program, simplified; it stays as it is.
    :param ranks: Number of ranks to plan for.
    :param sizes: Values of the symbols in the shapes. The plan is made for them; the program keeps the symbols.
    :param memory_bytes: What a rank may hold at most; None: no limit, and transients are kept from run to run.
    :param node_size: Ranks per node, if several share one.
    :param placements: Where inputs and outputs are, by name, if that is not free.
    :param overrides: Grids by the name of the tensor that is computed: parts of each index.
    :raises ValueError: If something cannot be distributed; names the statement.
    """
    sdfg = copy.deepcopy(sdfg)
    kept = [name for name, array in sdfg.arrays.items() if not array.transient]
    body = without_transposes(read_statements(sdfg, dict(sizes)), kept)
    steps = list(all_steps(body))
    if not steps:
        raise ValueError(
            f'"{sdfg.name}" computes nothing that could be distributed: return a result, or write it to an argument'
        )
    shapes = shapes_of(sdfg, sizes)
    plan = plan_einsums(
        [step.statement for step in steps],
        shapes,
        ranks,
        itemsize=max(array.dtype.bytes for array in sdfg.arrays.values()),
        memory_bytes=memory_bytes,
        node_size=node_size,
        placements={name: _placement(name, place, shapes) for name, place in (placements or {}).items()},
        outputs=[name for name in kept if any(step.statement.result == name for step in steps)],
        overrides=None if overrides is None else dict(overrides),
    )
    target, keep = SDFG(f"{sdfg.name}_on_{ranks}_ranks"), memory_bytes is None
    arguments = build_distributed(target, sdfg, body, plan, sizes, keep)
    return DistributedProgram(sdfg, body, plan, target, arguments, keep, dict(sizes))


def shapes_of(sdfg: SDFG, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Shapes in numbers.

    :raises ValueError: If a size is missing, not known to the program, no number, or makes an extent that is none.
    """
    used = {str(s) for array in sdfg.arrays.values() for n in array.shape for s in symbolic.symlist(n).values()}
    used |= {str(s) for s in sdfg.free_symbols}
    missing, unknown = sorted(used - set(sizes)), sorted(set(sizes) - used)
    if missing:
        raise ValueError(
            f'"{sdfg.name}": sizes of {", ".join(missing)} are missing; the plan depends on them: give '
            f"sizes=dict({', '.join(f'{name}=...' for name in missing)})"
        )
    if unknown:
        raise ValueError(f'"{sdfg.name}" has no size {", ".join(unknown)}; it has {", ".join(sorted(used)) or "none"}')
    for name, size in sizes.items():
        whole = sdfg.symbols.get(name) not in FLOAT_TYPES
        if isinstance(size, bool) or not isinstance(size, Integral if whole else Real):
            kind = "an integer" if whole else "a number"
            raise ValueError(f'"{sdfg.name}": size {name} must be {kind}, got {size!r}')
    shapes = {}
    for name, array in sdfg.arrays.items():
        shapes[name] = in_numbers(logical_shape(array), sizes)
        if any(n < 1 for n in shapes[name]):
            raise ValueError(
                f'"{sdfg.name}": {name} has shape {shapes[name]} with these sizes; extents must be at least 1'
            )
    return shapes


def _placement(name: str, place: Placement | Distribution, shapes: Mapping[str, tuple[int, ...]]) -> Placement:
    if isinstance(place, Placement):
        return place
    if not isinstance(place, Distribution):
        raise TypeError(f"placements: {name}: expected a Distribution or a Placement, got {type(place).__name__}")
    if name in shapes and tuple(place.shape) != (shapes[name] or (1,)):
        raise ValueError(f"placements: {name} has shape {shapes[name]}, but its distribution is of {place.shape}")
    try:
        return Placement.of(place)
    except ValueError as error:
        raise ValueError(f"placements: {name}: {error}") from error


@properties.make_properties
class DistributeEinsum(pass_pipeline.Pass):
    """
    Makes a program of einsums the one that every rank runs on its blocks, in place; see :func:`distribute_sdfg`.

    After :meth:`apply_pass` the attribute ``distributed`` is the program, as :func:`dace_redist.distribute` returns it.

    :param ranks: Number of ranks.
    :param sizes: Values of the symbols in the shapes.
    :param options: Those of :func:`distribute_sdfg`.
    """

    CATEGORY = "Simplification"

    def __init__(self, ranks: int = 1, sizes: Mapping[str, int] | None = None, **options: Any) -> None:
        super().__init__()
        self._ranks, self._sizes, self._options = ranks, dict(sizes or {}), options
        self._distributed: DistributedProgram | None = None

    @property
    def distributed(self) -> DistributedProgram | None:
        """What was made; None before the pass was applied."""
        return self._distributed

    def modifies(self) -> pass_pipeline.Modifies:
        """Everything."""
        return pass_pipeline.Modifies.Everything

    def should_reapply(self, modified: pass_pipeline.Modifies) -> bool:
        """Never: a distributed program is none of einsums."""
        return False

    def apply_pass(self, sdfg: SDFG, _: dict[str, Any]) -> int:
        """Rewrites the SDFG; returns the number of groups of contractions."""
        made = distribute_sdfg(sdfg, self._ranks, self._sizes, **self._options)  # raises before anything is changed
        for node in list(sdfg.nodes()):
            sdfg.remove_node(node)
        for name in list(sdfg.arrays):
            sdfg.remove_data(name, validate=False)
        for name in list(sdfg.symbols):
            sdfg.remove_symbol(name)
        self._distributed = made.built_in(sdfg, self._sizes)
        return len(made.plan.groups)

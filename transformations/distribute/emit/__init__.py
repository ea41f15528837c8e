"""Construction of the SDFG of a rank from the statements of a program and their plan."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
from dace import SDFG, SDFGState, dtypes, symbolic
from dace.sdfg import nodes
from dace.sdfg.state import ConditionalBlock, ControlFlowRegion, LoopRegion
from dace.transformation.passes.analysis import loop_analysis

from dace_redist.einsum.plan import EinsumPlan
from dace_redist.library_nodes.redistribute import StrategicNode
from dace_redist.strategies import OPTIONS
from dace_redist.transformations.distribute.emit.arrays import LocalSymbols
from dace_redist.transformations.distribute.emit.joined import join_exchanges
from dace_redist.transformations.distribute.emit.sdfg import emit_program
from dace_redist.transformations.distribute.emit.storage import place_on_gpu, place_transients
from dace_redist.transformations.distribute.ir import Body, in_numbers, logical_shape
from dace_redist.transformations.distribute.read.captured import Captured
from dace_redist.transformations.patterns import redistributions

#: Iterations of a map from which on threads share it.
MIN_PARALLEL = 4096


@dataclass(frozen=True)
class Recipe:
    """
    Planned program, from which the SDFG of a rank is built for any sizes.

    :param source: The SDFG that the statements were read from.
    :param keep_transients: True to allocate transients once for all runs.
    :param closure: Whole arrays in the closure of the Python function, by their names in the SDFG. They are replicated;
        each run uses this rank's parts of them.
    :param device: ``"cpu"`` or ``"gpu"``, where the program computes.
    :param arguments: ``"cpu"`` or ``"gpu"``, the device of this rank's parts of inputs and outputs. Scalars and the
        closure are in main memory.
    :param captured: Values from outside the Python function that are constants of the program.
    :param reproducible: True if partial results are added in the order of the process grid.
    """

    source: SDFG
    body: Body
    plan: EinsumPlan
    keep_transients: bool = True
    closure: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict, repr=False)
    device: str = "cpu"
    arguments: str = "cpu"
    captured: Captured = field(default_factory=Captured, repr=False)
    reproducible: bool = False

    def on_gpu(self, names: Iterable[str]) -> frozenset[str]:
        """Return the inputs and outputs whose local parts lie on the GPU."""
        there = names if self.arguments == "gpu" else ()
        return frozenset(name for name in there if logical_shape(self.source.arrays[name]))

    def build(
        self, target: SDFG, sizes: Mapping[str, int], strategies_of: SDFG | None = None
    ) -> tuple[SDFG, LocalSymbols, tuple[str, ...], tuple[str, ...]]:
        """
        Build the SDFG of a rank.

        :param target: An empty SDFG.
        :param strategies_of: SDFG for other sizes, whose redistributions have the strategies and options to use.
        :return: The target, the meaning of its symbols, and the names of the tensors that it reads and writes.
        :raises ValueError: If it writes to an array of the closure, or a statement is not for the GPU.
        """
        symbols, read, written = emit_program(target, self.source, self.body, self.plan, sizes, self.device)
        for node, _ in redistributions(target):
            node.reproducible = self.reproducible and node.op != ""
        changed = [name.removeprefix("__g_") for name in written if name in self.closure]
        if changed:
            raise ValueError(
                f'"{self.source.name}" writes to {", ".join(changed)}, which is none of its arguments; make it one'
            )
        given = tuple(name for name in read if name not in self.closure)
        if self.device == "gpu":
            place_on_gpu(target, read, written, self.keep_transients, self.on_gpu((*given, *written)))
        else:
            values = symbols.values(sizes, None)
            if self.keep_transients:  # the first touch of new memory costs as much as its use
                join_exchanges(target, values)
                place_transients(target, values)
            _take_one_thread(target, [values])
        if strategies_of is not None:
            _take_strategies(target, strategies_of)
        return target, symbols, given, written


def _take_one_thread(region: ControlFlowRegion, values: Sequence[Mapping[str, int]]) -> None:
    """
    Compute maps of few iterations without OpenMP, whose parallel region takes 0.2 us even on one thread.

    :param values: Values of all symbols, on the rank with the largest parts, at the ends of the loops around.
    """
    for block in region.nodes():
        for node in block.nodes() if isinstance(block, SDFGState) else ():
            if isinstance(node, nodes.MapEntry):
                most = _largest(math.prod(node.map.range.size()), values)
                if most is not None and most < MIN_PARALLEL:
                    node.map.schedule = dtypes.ScheduleType.Sequential
        if isinstance(block, LoopRegion):
            ends = [read(block) for read in (loop_analysis.get_init_assignment, loop_analysis.get_loop_end)]
            found = [(one, _largest(end, [one])) for one in values for end in ends]
            known = [{**one, block.loop_variable: end} for one, end in found if end is not None]
            _take_one_thread(block, known if len(known) == len(found) else values)
        elif isinstance(block, ConditionalBlock):
            for _, body in block.branches:
                _take_one_thread(body, values)


def _largest(expression: Any, values: Sequence[Mapping[str, int]]) -> int | None:
    """Return the largest value of an expression; None if it has none, or reads an array."""
    if expression is None or not {*symbolic.symlist(expression)} <= set(values[0]):
        return None
    try:
        return max(in_numbers([expression], one)[0] for one in values)
    except TypeError:  # an element of an array is not among the symbols
        return None


def _take_strategies(target: SDFG, source: SDFG) -> None:
    """
    Copy strategies and options of redistributions from one SDFG to another.

    A redistribution without a counterpart gets them if they are equal for all others.
    """
    known: dict[Any, list[dict[str, Any]]] = {}
    for node in _strategic_nodes(source):
        known.setdefault(_key(node), []).append({name: getattr(node, name) for name in ("implementation", *OPTIONS)})
    every = [chosen for choices in known.values() for chosen in choices]
    common = every[:1] if all(chosen == every[0] for chosen in every) else []
    for node in _strategic_nodes(target):
        choices = known.get(_key(node), common)
        chosen = choices.pop(0) if len(choices) > 1 else next(iter(choices), {})
        for name, value in chosen.items():
            setattr(node, name, value)


def _strategic_nodes(sdfg: SDFG) -> list[StrategicNode]:
    """Return redistributions, joint ones too."""
    return [node for node, _ in sdfg.all_nodes_recursive() if isinstance(node, StrategicNode)]


def _key(node: Any) -> tuple[str, ...]:
    """Return the label of a redistribution and its ends: alike in programs for several sizes."""
    ends = [end for one in node.tensors for end in (one.source, one.target)]
    return (node.label, *map(str, ends))

"""Distributed programs with timed steps, and with a strategy that is chosen at each run."""

import copy
from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any

import dace
import numpy as np
from clocks import add_clocks, new_clock, read_clock
from dace.properties import CodeBlock
from dace.sdfg.state import ConditionalBlock, ControlFlowRegion

from dace_redist import DistributedProgram
from dace_redist.einsum.placement import Placement
from dace_redist.library_nodes import Redistribute
from dace_redist.transformations.distribute.runtime import DistributedTensor

_CHOICE = "strategy_number"


class _ClockedProgram(DistributedProgram):
    """A program with clocks, whose SDFG has the array ``clock``: a row for each rank."""

    @cached_property
    def outputs(self) -> dict[str, DistributedTensor]:
        """Outputs of the program, and the clock."""
        rows = Placement((self.ranks,), (0, None), (1, 1), tuple(range(self.ranks)))
        shape = (self.ranks, int(self.built.arrays["clock"].shape[1]))
        clock = DistributedTensor("clock", rows, shape, np.dtype(np.float64))
        return {name: self._tensor(name) for name in self.output_names} | {"clock": clock}


class TimedProgram:
    """
    A distributed program with clocks, which is compiled once for several strategies; on GPUs without clocks.

    :param program: The program; not changed.
    :param device: ``"cpu"`` or ``"gpu"``.
    :param strategies: Names of the strategies for its runs; on GPUs only ``"Auto"``.
    :raises ValueError: For other strategies on GPUs.
    """

    def __init__(self, program: DistributedProgram, device: str, strategies: Sequence[str]) -> None:
        self._on_gpu, self.steps = device == "gpu", []
        if self._on_gpu:
            if [*strategies] != ["Auto"]:
                raise ValueError("--device gpu: the strategy is Auto")
            self.by_strategy = {"Auto": program}
            return
        sdfg = copy.deepcopy(program.built)
        sdfg.add_symbol(_CHOICE, dace.int64)
        for state in [s for s in sdfg.states() if any(isinstance(n, Redistribute) for n in s.nodes())]:
            _choose_at_run(state, strategies)
        self.steps = add_clocks(sdfg)
        known = {field.name: getattr(program, field.name) for field in fields(program)} | {"built": sdfg}
        self.by_strategy = {
            name: _ClockedProgram(**known | {"sizes": {**program.sizes, _CHOICE: number}})
            for number, name in enumerate(strategies)
        }

    def compile(self) -> None:
        """Compile and load the program. Collective."""
        for program in self.by_strategy.values():
            program.compile()

    def run(self, strategy: str, local: dict[str, Any], barrier: bool) -> tuple[dict[str, Any], np.ndarray]:
        """
        Run once, and wait for the GPU. Collective.

        :param barrier: True for a barrier between steps.
        :return: This rank's parts of the outputs, by name, and seconds of each of ``steps``.
        """
        program = self.by_strategy[strategy]
        clock = {} if self._on_gpu else {"clock": new_clock(program.built, barrier)}
        result = program.run(**local, **clock)
        if self._on_gpu:
            import cupy

            cupy.cuda.get_current_stream().synchronize()
        # Inputs that are written in place are outputs, too.
        outputs = {name: result if name == "__return" else local[name] for name in program.outputs if name != "clock"}
        return outputs, read_clock(clock["clock"]) if clock else np.zeros(0)


def _choose_at_run(state: dace.SDFGState, strategies: Sequence[str]) -> None:
    """Put a state with a redistribution into the branches of a choice, one for each strategy."""
    region, sdfg = state.parent_graph, state.sdfg
    choice = ConditionalBlock(state.label, sdfg, region)
    region.add_node(choice, is_start_block=region.start_block is state)
    for number, name in enumerate(strategies):
        branch = ControlFlowRegion(f"{state.label}_{name}", sdfg)
        choice.add_branch(CodeBlock(f"{_CHOICE} == {number}"), branch)
        inner = copy.deepcopy(state)
        inner.label = f"{state.label}_{name}_move"
        branch.add_node(inner, is_start_block=True)
        for node in inner.nodes():
            if isinstance(node, Redistribute):
                node.set_strategy(name)
    for edge in region.in_edges(state):
        region.add_edge(edge.src, choice, edge.data)
    for edge in region.out_edges(state):
        region.add_edge(choice, edge.dst, edge.data)
    region.remove_node(state)

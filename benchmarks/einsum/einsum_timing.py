"""Distributed programs with clocks between their steps, and with a strategy that is chosen at each run."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any

import dace
import numpy as np
from dace.libraries import comm
from dace.properties import CodeBlock
from dace.sdfg import nodes
from dace.sdfg.state import ConditionalBlock, ControlFlowBlock, ControlFlowRegion, LoopRegion

from dace_redist import DistributedProgram
from dace_redist.einsum.placement import Placement
from dace_redist.library_nodes import Contraction, LinearSolve, Redistribute
from dace_redist.transformations.distribute.emit.arrays import DistributedTensor

_CHOICE = "strategy_number"
_STEPS = (Contraction, LinearSolve, Redistribute)
_HEAD = 2  # of the clock: when the last step ended, and whether there is a barrier between steps


def add_clocks(sdfg: dace.SDFG) -> list[str]:
    """
    Put a clock between the steps of a program, and return their names, such as ``redistribute T`` or ``local 1``.

    The program gets an argument ``clock``, float64 [1, 2 + steps]. A step in a loop adds up.
    """
    chain = list(_chain(sdfg))
    sdfg.add_array("clock", [1, _HEAD + len(chain)], dace.float64)
    kinds, names = [kind for kind, _ in chain], []
    for number, (kind, blocks) in enumerate(chain):
        seen = kinds[: number + 1].count(kind)
        names.append(f"{kind}_{seen}" if seen > 1 or kind == "local" else kind)
        last = blocks[-1]
        _add_clock(last.parent_graph.add_state_after(last), f"clock_{names[number]}", number)
    first = chain[0][1][0]
    _add_clock(sdfg.add_state_before(first if first.parent_graph is sdfg else sdfg.start_block), "clock_start", None)
    return [name.replace("_", " ", 1) for name in names]


def _chain(region: ControlFlowRegion) -> Iterator[tuple[str, list[ControlFlowBlock]]]:
    """Yield the steps of a region and of its loops in order: label of the node or ``local``, and their blocks."""
    local: list[ControlFlowBlock] = []
    for block in region.bfs_nodes(region.start_block):
        code = [node for node, _ in block.all_nodes_recursive() if isinstance(node, nodes.CodeNode)]
        label = next((node.label for node in code if isinstance(node, _STEPS)), None)
        if local and (label is not None or isinstance(block, LoopRegion)):
            yield "local", local
            local = []
        if isinstance(block, LoopRegion):
            yield from _chain(block)
        elif label is not None:
            yield label, [block]
        elif code:
            local.append(block)
    if local:
        yield "local", local


def _add_clock(state: dace.SDFGState, name: str, number: int | None) -> None:
    """Add the time since the last clock to a step; None: only start the clock."""
    step = "" if number is None else f"_clock[{_HEAD + number}] += MPI_Wtime() - _clock[0]; "
    code = f"{step}if (_clock[1] != 0) MPI_Barrier(MPI_COMM_WORLD); _clock[0] = MPI_Wtime();"
    tasklet = state.add_tasklet(name, {}, {"_clock"}, code, language=dace.Language.CPP, side_effects=True)
    tasklet.environments = {comm.environments.mpi.MPI.full_class_path()}
    memlet = dace.Memlet.from_array("clock", state.sdfg.arrays["clock"])
    state.add_edge(tasklet, "_clock", state.add_write("clock"), None, memlet)


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

    def run(self, strategy: str, local: dict[str, Any], barrier: bool) -> tuple[dict[str, Any], np.ndarray]:
        """
        Run once, and wait for the GPU. Collective.

        :param barrier: True for a barrier after each step, outside of all times, so that none includes waiting.
        :return: This rank's parts of the outputs, by name, and seconds of each of ``steps``.
        """
        program = self.by_strategy[strategy]
        clock = {} if self._on_gpu else {"clock": np.zeros((1, _HEAD + len(self.steps)))}
        for one in clock.values():
            one[0, 1] = barrier
        result = program.run(**local, **clock)
        if self._on_gpu:
            import cupy

            cupy.cuda.get_current_stream().synchronize()
        # Inputs that are written in place are outputs, too.
        outputs = {name: result if name == "__return" else local[name] for name in program.outputs if name != "clock"}
        return outputs, clock["clock"][0, _HEAD:] if clock else np.zeros(0)


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

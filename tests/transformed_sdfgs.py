"""Random SDFGs before and after random transformations, on simulated ranks, or many of them in one program."""

from __future__ import annotations

import copy
import random
from typing import Any, NamedTuple

import dace
import numpy as np
from dace.data import View
from dace.libraries.linalg import TensorTranspose, Transpose
from dace.sdfg import nodes
from dace.sdfg import utils as sdutil
from dace.sdfg.state import ConditionalBlock
from dace.transformation.passes.pattern_matching import match_patterns
from random_sdfgs import OF_RANK, RANKS, Writer
from simulated_sdfgs import Arrays, SimulatedSDFG

from dace_redist import transformations
from dace_redist.transformations.optimization import OF_CODE, hashes

NAMES = [name for name in transformations.__all__ if name.startswith(("Fuse", "Join", "Overlap", "Remove"))]
#: Values of symbols that are equal on all ranks.
SYMBOLS = {"s": 2, "at": 0}


class Expected(NamedTuple):
    """Argument, and wanted elements where they are defined."""

    given: np.ndarray
    wanted: np.ndarray
    defined: np.ndarray
    tolerance: float
    message: str

    def check(self, got: np.ndarray, key: str = "") -> None:
        got, wanted = got[self.defined], self.wanted[self.defined]
        np.testing.assert_allclose(got, wanted, 0, self.tolerance, err_msg=f"{key} {self.message}")


class Draw(NamedTuple):
    """
    Random SDFG and what transformations made of it.

    :ivar names: The transformations in order, of which ``applied`` changed the SDFG.
    """

    number: int
    writer: Writer
    before: dace.SDFG
    after: dace.SDFG
    names: list[str]
    applied: int

    @staticmethod
    def of(number: int, ranks: int = RANKS, comm: Any = None, for_one_program: bool = False) -> Draw:
        """
        Return the draw of a number.

        :param comm: Communicator for ``optimize``; default: the world.
        :param for_one_program: True for :func:`one_program`: DaCe compiles the SDFG, with equal literals on all ranks.
        """
        rng = random.Random(number)
        writer = Writer(rng, ranks)
        before = writer.write(steps=rng.randint(1, 6))
        if for_one_program:
            for tasklet in tasklets(before):
                tasklet.out_connectors["out"] = dace.typeclass(None)  # C++ does not convert what a map writes
                tasklet.code.as_string = tasklet.code.as_string.replace(str(OF_RANK), f"({OF_RANK - 1} + r + 1)")
            for edge, _ in before.all_edges_recursive():
                if isinstance(edge.src, Transpose | TensorTranspose):
                    edge.data.wcr = None  # DaCe's code does not add
        equal = have_equal_code(before)
        possible = [name for name in NAMES if equal or getattr(transformations, name) not in OF_CODE]
        first = [name for name in possible if any(match_patterns(before, getattr(transformations, name)))]
        names = {*rng.sample(first, k=rng.randint(min(1, len(first)), len(first))), *rng.sample(possible, k=2)}
        before.validate()
        after, names = copy.deepcopy(before), rng.sample(sorted(names), k=len(names))
        if rng.random() < 0.8:  # what is joined or started is not fused
            names.sort(key=lambda name: name.startswith(("Join", "Overlap")))
        with dace.config.set_temporary("optimizer", "match_exception", value=True):  # else they count as no match
            applied = [bool(after.apply_transformations_repeated(getattr(transformations, name))) for name in names]
            if equal and rng.random() < 0.3:
                names.append("optimize")
                applied.append(bool(transformations.optimize(after, comm=comm)))
        after.validate()
        return Draw(number, writer, before, after, names, sum(applied))

    def expected(self, arguments: list[Arrays]) -> list[dict[str, Expected]]:
        """Return what the SDFG before gives on each rank, by name of the array."""
        results = [self.simulated(self.before, arguments, seed) for seed in range(4)]
        made = []
        for rank, arrays in enumerate(results[0]):
            made.append({})
            for name, wanted in arrays.items():
                defined = np.logical_and.reduce([wanted == other[rank][name] for other in results])
                given = arguments[rank].get(name, np.zeros_like(wanted))
                tolerance = 0 if self.writer.rounds else 1e-5 * np.max(np.abs(wanted[defined]), initial=0)
                message = f"{name} of rank {rank} in SDFG {self.number} after {', '.join(self.names)}"
                made[-1][name] = Expected(given, wanted, defined, tolerance, message)
        return made

    def simulated(self, sdfg: dace.SDFG, arguments: list[Arrays], seed: int) -> list[Arrays]:
        """Return the results of one of the SDFGs on each rank."""
        symbols = [{"r": rank + 1, **SYMBOLS} for rank in range(self.writer.ranks)]
        return SimulatedSDFG(sdfg, symbols, seed, nan=seed == 3).run(arguments)


def tasklets(sdfg: dace.SDFG) -> list[nodes.Tasklet]:
    """Return the tasklets of an SDFG and of its nested SDFGs."""
    return [node for node, _ in sdfg.all_nodes_recursive() if isinstance(node, nodes.Tasklet)]


def have_equal_code(sdfg: dace.SDFG) -> bool:
    """Return True if the programs of two ranks have one hash; they always do without the code of tasklets."""
    other = copy.deepcopy(sdfg)
    found = [node for node in tasklets(other) if str(OF_RANK) in node.code.as_string]
    for node in found:
        node.code.as_string = node.code.as_string.replace(str(OF_RANK), str(OF_RANK + 1))
    if not found:
        return True
    (bare, whole), (other_bare, other_whole) = hashes(sdfg), hashes(other)
    assert bare == other_bare and whole != other_whole
    return False


def clears_arrays(sdfg: dace.SDFG) -> bool:
    """Return True if transients are cleared in each run: `auto_optimize` makes them persistent, which are so once."""
    return any(node.setzero and node.desc(sdfg).transient for state in sdfg.states() for node in state.data_nodes())


def has_views_of_views(sdfg: dace.SDFG) -> bool:
    """Return True if an array is viewed through another view, which DaCe's own simplification mistakes."""
    accesses = [(node, where) for node, where in sdfg.all_nodes_recursive() if isinstance(node, nodes.AccessNode)]
    views = [(node, where) for node, where in accesses if isinstance(node.desc(where.sdfg), View)]
    return any(isinstance(sdutil.get_view_node(where, node).desc(where.sdfg), View) for node, where in views)


def one_program(draws: list[Draw]) -> dace.SDFG:
    """Return a program that runs the SDFGs before and after transformations, each on arrays of its own."""
    program = dace.SDFG("random_sdfgs")
    for symbol in ("r", *SYMBOLS):
        program.add_symbol(symbol, dace.int64)
    state = program.add_state(is_start_block=True)
    for draw in draws:
        for when, sdfg in (("before", copy.deepcopy(draw.before)), ("after", copy.deepcopy(draw.after))):
            state = program.add_state_after(state)
            used = {node.data for where in sdfg.states() for node in where.data_nodes()} | sdfg.arrays.keys() & {
                name for edge in sdfg.all_interstate_edges() for name in edge.data.free_symbols
            }
            blocks = [one for one in sdfg.all_control_flow_blocks() if isinstance(one, ConditionalBlock)]
            used |= {memlet.data for block in blocks for memlet in block.get_meta_read_memlets()}
            outside = {name: array for name, array in sdfg.arrays.items() if not array.transient}
            for name in outside.keys() - used:
                sdfg.remove_data(name)
            inside = {name: name.replace("__return", "result") for name in outside if name in used}
            sdfg.replace_dict({name: renamed for name, renamed in inside.items() if renamed != name})
            nested = state.add_nested_sdfg(sdfg, dict.fromkeys(inside.values()), dict.fromkeys(inside.values()))
            for name, renamed in inside.items():
                program.add_datadesc(copied := f"{when}_{draw.number}_{name}", copy.deepcopy(outside[name]))
                state.add_edge(state.add_read(copied), None, nested, renamed, program.make_array_memlet(copied))
                state.add_edge(nested, renamed, state.add_write(copied), None, program.make_array_memlet(copied))
    return program

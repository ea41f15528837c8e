"""Random SDFGs before and after random transformations, on simulated ranks, or many of them in one program."""

from __future__ import annotations

import copy
import random
from typing import Any, NamedTuple

import dace
import numpy as np
from dace.sdfg import nodes
from dace.transformation.passes.pattern_matching import match_patterns
from random_sdfgs import OF_RANK, RANKS, Writer
from simulated_sdfgs import Arrays, SimulatedSDFG

from dace_redist import transformations
from dace_redist.transformations.optimization import OF_CODE, hashes

NAMES = [name for name in transformations.__all__ if name.startswith(("Fuse", "Join", "Overlap", "Remove"))]
#: Values of symbols that are equal on all ranks.
SYMBOLS = {"s": 2, "at": 0}


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
    def of(number: int, ranks: int = RANKS, comm: Any = None, one_program: bool = False) -> Draw:
        """
        Return the draw of a number.

        :param comm: Communicator for ``optimize``; default: the world.
        :param one_program: True for an SDFG for :func:`one_program`: ranks have equal literals, and DaCe compiles it.
        """
        rng = random.Random(number)
        writer = Writer(rng, ranks)
        before = writer.write(steps=rng.randint(1, 6))
        if one_program:
            for tasklet in tasklets(before):
                tasklet.out_connectors["out"] = dace.typeclass(None)  # C++ does not convert what a map writes
                tasklet.code.as_string = tasklet.code.as_string.replace(str(OF_RANK), f"({OF_RANK - 1} + r + 1)")
        equal = have_equal_code(before)
        possible = [name for name in NAMES if equal or getattr(transformations, name) not in OF_CODE]
        first = [name for name in possible if any(match_patterns(before, getattr(transformations, name)))]
        names = {*rng.sample(first, k=rng.randint(min(1, len(first)), len(first))), *rng.sample(possible, k=2)}
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

    def wanted(self) -> tuple[list[Arrays], list[Arrays], list[Arrays]]:
        """Return arguments, results of the SDFG before, and where they are defined, of each rank by name."""
        arguments = self.writer.arguments()
        results = [self.simulated(self.before, arguments, seed) for seed in range(4)]
        defined = [
            {name: np.logical_and.reduce([every[rank][name] == one for every in results]) for name, one in arrays.items()}
            for rank, arrays in enumerate(results[0])
        ]
        return arguments, results[0], defined

    def simulated(self, sdfg: dace.SDFG, arguments: list[Arrays], seed: int) -> list[Arrays]:
        """Return the results of one of the SDFGs on each rank."""
        symbols = [{"r": rank + 1, **SYMBOLS} for rank in range(self.writer.ranks)]
        return SimulatedSDFG(sdfg, symbols, seed).run(arguments)

    def check(self, name: str, got: np.ndarray, wanted: np.ndarray, defined: np.ndarray) -> None:
        """Compare an array of a rank with what it was before the transformations."""
        tolerance = 0 if self.writer.rounds else 1e-5 * np.max(np.abs(wanted[defined]), initial=0)
        message = f"{name} in SDFG {self.number} after {', '.join(self.names)}"
        np.testing.assert_allclose(got[defined], wanted[defined], 0, tolerance, err_msg=message)


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


def one_program(draws: list[Draw]) -> dace.SDFG:
    """Return a program that runs the SDFGs before and after transformations, each on arrays of its own."""
    whole = dace.SDFG("random")
    for name in ("r", *SYMBOLS):
        whole.add_symbol(name, dace.int64)
    for draw in draws:
        for when, sdfg in (("before", copy.deepcopy(draw.before)), ("after", copy.deepcopy(draw.after))):
            state, prefix = whole.add_state_after((whole.sink_nodes() or [None])[0]) if whole.nodes() else whole.add_state(), f"{when}_{draw.number}"
            accesses = [(node.data, where.in_degree(node)) for where in sdfg.states() for node in where.data_nodes()]
            used = {name for name, _ in accesses if not sdfg.arrays[name].transient}
            used |= {name for name in named_by_edges(sdfg) if not sdfg.arrays[name].transient}
            written = {name for name in used if any(data == name and degree for data, degree in accesses)}
            for name in [name for name, array in sdfg.arrays.items() if not array.transient and name not in used]:
                sdfg.remove_data(name)
            nested = state.add_nested_sdfg(sdfg, dict.fromkeys(sorted(used)), dict.fromkeys(sorted(written)))
            nested.no_inline = True
            for name in sorted(used):
                outside = f"{prefix}_{name}"
                whole.add_datadesc(outside, copy.deepcopy(sdfg.arrays[name]))
                memlet = whole.make_array_memlet(outside)
                state.add_edge(state.add_read(outside), None, nested, name, memlet)
                if name in written:
                    state.add_edge(nested, name, state.add_write(outside), None, copy.deepcopy(memlet))
    return whole


def named_by_edges(sdfg: dace.SDFG) -> set[str]:
    """Return the arrays that interstate edges and conditions read."""
    names = set().union(*(edge.data.free_symbols for edge in sdfg.all_interstate_edges()))
    blocks = [one for one in sdfg.all_control_flow_blocks() if hasattr(one, "get_meta_read_memlets")]
    return (names | {memlet.data for one in blocks for memlet in one.get_meta_read_memlets()}) & sdfg.arrays.keys()


def run(program: Any, draws: list[tuple[int, Any]], rank: int) -> None:
    pass

"""Extents of 0, and random programs with loops that no frontend wrote, give what NumPy gives on simulated ranks."""

from typing import Any

import dace
import numpy as np
import pytest
from dace.libraries.blas.nodes.einsum import Einsum
from dace.sdfg.state import LoopRegion
from distributed_simulation import SimulatedRanks
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from programs import PROGRAMS
from programs.einsums import N
from programs.program import simulate
from results import check

from dace_redist import distribute

pytestmark = pytest.mark.usefixtures("small_transients_share_memory")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mttkrp", "sweeps", "in_place", "linear_systems"])
def test_extents_of_0(name):
    """Each symbol in turn, and all: a sum over nothing is zero, as in NumPy."""
    one = PROGRAMS[name]
    for empty in [*one.sizes, tuple(one.sizes)]:
        simulate(one.program, 4, one.sizes | dict.fromkeys(empty, 0))


PRODUCTS = ("ij,jk->ik", "ij,kj->ki", "ij->ji", "ij,ij->ij", "ij,jk,kl->il", "ii,ij->ij", "ij,k->ki")
MATRICES = ("A", "B", "C", "D")
STATEMENTS = st.tuples(st.sampled_from(PRODUCTS), st.lists(st.sampled_from(MATRICES), min_size=4, max_size=4))
BLOCKS = st.tuples(st.sampled_from([None, None, 0, 1, 2]), st.lists(STATEMENTS, min_size=1, max_size=3))


def operands_of(einsum: str, names: list[str]) -> list[str]:
    terms = einsum.split("->")[0].split(",")
    return ["x" if len(term) == 1 else name for term, name in zip(terms, names, strict=False)]


def contraction(sdfg: dace.SDFG, einsum: str, names: list[str]) -> dace.SDFGState:
    """A state that writes half an einsum to the last tensor."""
    state, operands = dace.SDFGState("contract", sdfg), operands_of(einsum, names)
    node = Einsum("einsum", inputs={f"_{k}" for k in range(len(operands))}, outputs={"_result"})
    node.einsum_str, node.alpha = einsum, 0.5
    state.add_node(node)
    for number, name in enumerate(operands):
        memlet = dace.Memlet.from_array(name, sdfg.arrays[name])
        state.add_edge(state.add_read(name), None, node, f"_{number}", memlet)
    result = dace.Memlet.from_array(names[-1], sdfg.arrays[names[-1]])
    state.add_edge(node, "_result", state.add_write(names[-1]), None, result)
    return state


def in_a_row(region: Any, blocks: list[Any]) -> Any:
    for number, block in enumerate(blocks):
        region.add_node(block, is_start_block=number == 0, ensure_unique_name=True)
        if number:
            region.add_edge(blocks[number - 1], block, dace.InterstateEdge())
    return region


CHAIN = "ij,jk,kl->il"
#: The loop writes an operand of an intermediate that the statement before it has, too.
STALE = [(None, [(CHAIN, [*"ABDC"])]), (2, [(CHAIN, [*"ABDA"]), ("ij->ji", [*"AAAB"])]), (None, [(CHAIN, [*"ABDD"])])]


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.lists(BLOCKS, min_size=1, max_size=3), st.integers(1, 6), st.sampled_from([1, 2, 3, 4, 5, 10]))
@example(STALE, 3, 10)
def test_random_programs_with_loops(blocks, ranks, size):
    sdfg = dace.SDFG("random")
    wholes = {name: np.random.default_rng(k).uniform(-1, 1, (size, size)) for k, name in enumerate(MATRICES)}
    wholes["x"] = np.linspace(-1, 1, size)
    for name, array in wholes.items():
        sdfg.add_array(name, [N] * array.ndim, dace.float64)
    after, items = {name: np.copy(array) for name, array in wholes.items()}, []
    terms = {name: np.abs(array) for name, array in wholes.items()}  # sums of the terms' absolute values
    for number, (rounds, statements) in enumerate(blocks):
        states = [contraction(sdfg, *statement) for statement in statements]
        index = f"t{number}"
        loop = LoopRegion(f"loop{number}", f"{index} < {rounds}", index, f"{index} = 0", f"{index} = {index} + 1")
        items += states if rounds is None else [in_a_row(loop, states)]
        for einsum, names in statements * (1 if rounds is None else rounds):
            for values in (after, terms):
                values[names[-1]] = 0.5 * np.einsum(einsum, *(values[name] for name in operands_of(einsum, names)))
    only_rounding = [name for name in after if np.max(np.abs(after[name])) < 1e-6 * np.max(terms[name])]
    assume(not only_rounding)
    results = SimulatedRanks(distribute(in_a_row(sdfg, items), ranks, dict(N=size))).run(**wholes)
    check(results, after, wholes)

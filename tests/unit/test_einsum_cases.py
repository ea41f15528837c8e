"""The kernels of the benchmarks: results, sizes, and plans that move no more than Deinsum's published grids do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from deinsum import kernels
from einsum_cases import CASES, PRESETS, elements, everything, numpy_result

from dace_redist.einsum import Statement
from dace_redist.einsum.grids import MAX_GRIDS, candidates
from dace_redist.einsum.groupings import contraction_trees
from dace_redist.einsum.problem import EinsumProblem

#: Numbers of ranks that are compared.
RANKS = (1, 2, 4, 8, 16, 27, 32, 64, 125, 128, 256, 512)
#: Larger ones, and TTMc on more ranks than this, take seconds each.
QUICK_RANKS = [ranks for ranks in RANKS if ranks <= 64]
PUBLISHED = {name: case for name, case in CASES.items() if case.published and name not in ("tucker", "cp")}


def shapes(name: str, sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
    inputs = CASES[name].program.f.__annotations__
    return {key: tuple(sizes[str(extent)] for extent in array.shape) for key, array in inputs.items()}


def whole(name: str, shape: tuple[int, ...]) -> np.ndarray:
    return elements(name, everything(shape), shape)


@pytest.mark.parametrize("name", PUBLISHED)
def test_computes_what_is_published(name: str) -> None:
    case = CASES[name]
    sizes = dict(zip(case.symbols, range(2, 12), strict=False))
    operands = {key: whole(key, shape) for key, shape in shapes(name, sizes).items()}
    expected = np.einsum(str(kernels()[case.published].einsum), *operands.values())
    np.testing.assert_allclose(numpy_result(case.program, operands), expected, rtol=1e-13)


@pytest.mark.parametrize("name", PUBLISHED)
def test_paper_sizes_are_those_published(name: str) -> None:
    kernel = kernels()[CASES[name].published]
    for ranks in (1, 4, 512):
        wanted = kernel.shapes(kernel.extents(ranks))
        assert list(shapes(name, CASES[name].sizes("paper", ranks)).values()) == list(wanted.values())


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", CASES)
def test_every_preset_sizes_every_symbol(name: str, preset: str) -> None:
    for ranks in (1, 3, 12):
        case = CASES[name]
        if preset == "paper" and case.published is None and case.paper is None:
            with pytest.raises(ValueError, match="no sizes in a paper"):
                case.sizes(preset, ranks)
            continue
        sizes = case.sizes(preset, ranks)
        assert sorted(sizes) == case.symbols and min(sizes.values()) >= 1


def test_sweeps_find_a_tensor_of_low_rank() -> None:
    """Tucker and CP sweeps find the factors that a tensor is made of, not positive ones: these are nearly parallel."""
    factors = {key: whole(key, (9, 2)) - 0.5 for key in "ABC"}
    tensor = np.einsum("ia,ja,ka->ijk", *factors.values())
    start = {key: whole(key + "0", (9, 2)) - 0.5 for key in "ABC"}
    for name, operands in (("cp", "XBC"), ("tucker", "XABC")):
        given = {"X": tensor} | {key: array.copy() for key, array in start.items()}
        errors = []
        for _ in range(5):
            core = numpy_result(CASES[name].program, {key: given[key] for key in operands})
            if name == "cp":
                given["A"], core = core, np.einsum("ap,aq,ar->pqr", *(np.eye(2),) * 3)
            found = [given[key] for key in "ABC"]
            errors.append(np.linalg.norm(tensor - np.einsum("pqr,ip,jq,kr->ijk", core, *found)))
        assert errors[-1] < 1e-8, (name, errors)


def test_data():
    assert len(kernels()) == 10
    for kernel in kernels().values():
        assert set(RANKS) <= set(kernel.lengths)
        assert kernel.groups[-1][0].result == kernel.einsum.result
        for indices, table in kernel.grids.items():
            assert all(math.prod(table[ranks]) == ranks and len(table[ranks]) == len(indices) for ranks in RANKS)
    assert kernels()["1MM"].shapes(kernels()["1MM"].extents(8)) == {"M_ij": (8192, 8192), "M_jk": (8192, 8192)}


@pytest.mark.slow
@pytest.mark.parametrize("name", kernels())
def test_bytes_are_never_more_than_with_published_grids(name):
    kernel = kernels()[name]
    for ranks in [*QUICK_RANKS, *([] if "TTMc" in name or "O5" in name else [512])]:
        plan = kernel.plan(ranks)
        assert plan.bytes_per_rank <= kernel.published_plan(ranks).bytes_per_rank * (1 + 1e-9)


def step_of(kernel, extents):
    """Return all contractions of a kernel as one step."""
    problem = EinsumProblem((Statement(kernel.einsum, kernel.operands, "out"),), kernel.shapes(extents), 1)
    (tree,) = contraction_trees(problem.statements, problem.extents)
    return min(tree.groupings(), key=len)[0]


def test_planned_seconds_are_bounded_by_few_candidates():
    """Planning time is benchmarked, not tested; what it depends on is bounded here."""
    kernel = kernels()["MTTKRP-O5-M0"]
    found = candidates(step_of(kernel, kernel.extents_of(409, 163)), 100_000)
    assert 0 < len(found) <= 2 * MAX_GRIDS

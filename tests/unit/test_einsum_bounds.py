"""Proven bounds of communication: formulas of papers, and no plan below them."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dace_redist import Distribution
from dace_redist.einsum.bounds import least_elements
from dace_redist.einsum.expression import Einsum
from dace_redist.einsum.planner import plan_einsums
from dace_redist.einsum.rates import BYTES_PER_SECOND, FLOPS_PER_SECOND
from dace_redist.einsum.statement import Statement

RANKS = st.sampled_from([1, 2, 3, 4, 7, 8, 12, 30, 64])


def of_product(sides: list[int], ranks: int) -> float:
    """Return the three cases of Al Daas et al., SPAA'22, theorem 3."""
    m, n, k = sorted(sides, reverse=True)
    if ranks <= m / n:
        return (m * n + m * k) / ranks + n * k
    if ranks <= m * n / k**2:
        return 2 * math.sqrt(m * n * k * k / ranks) + m * n / ranks
    return 3 * (m * n * k / ranks) ** (2 / 3)


@given(st.lists(st.integers(1, 20_000), min_size=3, max_size=3), st.integers(1, 2000))
def test_products_have_the_tight_bound(sides: list[int], ranks: int) -> None:
    if ranks <= math.prod(sides):
        found = least_elements(["ij", "jk", "ik"], dict(zip("ijk", sides, strict=True)), ranks)
        assert found == pytest.approx(of_product(sides, ranks), rel=1e-9)


@pytest.mark.parametrize(("size", "rank", "ranks"), [(1024, 24, 2), (1724, 42, 8), (2900, 68, 64), (4872, 120, 512)])
def test_mttkrp_has_the_cost_of_the_stationary_tensor(size: int, rank: int, ranks: int) -> None:
    extents = dict(zip("ijka", [size, size, size, rank], strict=True))
    found = least_elements(["ijk", "ja", "ka", "ia"], extents, ranks) - size**3 / ranks
    assert found == pytest.approx(3 * size * rank / ranks ** (1 / 3), rel=1e-6)


@st.composite
def planned(draw: st.DrawFn) -> Any:
    """Draw a plan, of tensors of which some have given distributions."""
    expression = draw(
        st.sampled_from(
            [
                "ij,jk->ik",
                "ij,kj->ik",
                "ijk,ja,ka->ia",
                "bij,bjk->bik",
                "ij,ij->",
                "ij,j->i",
                "ijk,ja,kb->iab",
                "i,j->ij",
                "ij->j",
            ]
        )
    )
    einsum, ranks = Einsum.parse(expression), draw(RANKS)
    extents = {index: draw(st.sampled_from([1, 2, 3, 7, 16, 40, 100, 257])) for index in einsum.indices}
    names = [f"T{number}" for number in range(len(einsum.operands))]
    if expression == "ij,kj->ik":
        extents["k"], names = extents["i"], ["T0", "T0"]
    shapes = {n: tuple(extents[i] for i in term) for n, term in zip(names, einsum.operands, strict=True)}
    placements = {}
    for name, shape in {**shapes, "R": tuple(extents[i] for i in einsum.result)}.items():
        if shape and draw(st.booleans()):
            axis = draw(st.integers(0, len(shape) - 1))
            grids = (Distribution.split(shape, axis, ranks), Distribution(shape, (ranks,), dims=(None,) * len(shape)))
            placements[name] = draw(st.sampled_from(grids))
    statement, how = Statement(einsum, tuple(names), "R"), draw(st.sampled_from(["auto", False]))
    return plan_einsums([statement], shapes, ranks, placements=placements, optimize=how)


@settings(max_examples=100)
@given(planned())
def test_no_plan_is_below_its_bound(plan: Any) -> None:
    if len(plan.groups) == 1:
        assert plan.bound <= plan.bytes_per_rank * (1 + 1e-9)
    assert plan.to_json()["bytes_per_rank_bound"] == plan.bound
    assert ("at least" in str(plan)) == (plan.bound > 0)


def grids(ranks: int, axes: int) -> Iterator[tuple[int, ...]]:
    """Yield all grids of at most so many ranks."""
    if not axes:
        yield ()
        return
    for parts in range(1, ranks + 1):
        yield from ((parts, *rest) for rest in grids(ranks // parts, axes - 1))


def seconds_at_least(einsum: Einsum, extents: dict[str, int], grid: tuple[int, ...]) -> float:
    """Return the time of the first step's work on a grid, and of fetching the operands."""
    parts = dict(zip(einsum.indices, grid, strict=True))
    blocks = {index: -(-extents[index] // parts[index]) for index in einsum.indices}
    work, words = 2 * math.prod(blocks.values()), 0.0
    for term in (*einsum.operands, einsum.result):  # partial results are reduced as operands are fetched
        alike = math.prod(count for index, count in parts.items() if index not in term)
        words += math.prod(blocks[index] for index in term) * (1 - 1 / alike)
    return work / FLOPS_PER_SECOND + 8 * words / BYTES_PER_SECOND


@pytest.mark.parametrize("ranks", [2, 3, 7, 13, 17, 36, 61, 64, 100])
@pytest.mark.parametrize(
    ("expression", "sizes"),
    [
        ("ij,jk->ik", (8192, 8192, 8192)),
        ("ij,jk->ik", (1024, 1024, 1024)),
        ("ij,jk->ik", (65536, 1024, 1024)),
        ("ij,jk->ik", (1024, 65536, 1024)),
        ("ij,jk->ik", (1000, 3000, 17)),
        ("ijk,ja,ka->ia", (1024, 1024, 1024, 24)),
    ],
)
def test_no_grid_of_integers_is_faster(expression: str, sizes: tuple[int, ...], ranks: int) -> None:
    """Of the grids that may be faster some are planned, too; ranks are idle only where that is faster."""
    einsum = Einsum.parse(expression)
    extents = dict(zip(einsum.indices, sizes, strict=True))
    names = [f"T{number}" for number in range(len(einsum.operands))]
    statement = Statement(einsum, tuple(names), "R")
    shapes = {n: tuple(extents[i] for i in term) for n, term in zip(names, einsum.operands, strict=True)}
    plan = plan_einsums([statement], shapes, ranks)
    fitting = [grid for grid in grids(ranks, len(sizes)) if all(map(operator.le, grid, sizes))]
    for grid in sorted(fitting, key=lambda one: seconds_at_least(einsum, extents, one))[:8]:
        other = plan_einsums([statement], shapes, ranks, overrides={0: dict(zip(einsum.indices, grid, strict=True))})
        assert plan.seconds <= 1.001 * other.seconds, grid


def test_a_plan_of_cubes_is_at_its_bound() -> None:
    statement = Statement(Einsum.parse("ij,jk->ik"), ("A", "B"), "C")
    words = str(plan_einsums([statement], {"A": (8192, 8192), "B": (8192, 8192)}, 64))
    assert "at least         72 MiB by any algorithm: the plan has 1.000 times that" in words

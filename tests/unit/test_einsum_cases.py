"""The kernels of the benchmarks: they compute what is published, and their sizes are those of the presets."""

from __future__ import annotations

import deinsum
import numpy as np
import pytest
from einsum_cases import CASES, PRESETS, elements, everything, numpy_result

PUBLISHED = {name: case for name, case in CASES.items() if case.published and name not in ("tucker", "cp")}


def shapes(name: str, sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
    inputs = CASES[name].program.f.__annotations__
    return {key: tuple(sizes[str(extent)] for extent in array.shape) for key, array in inputs.items()}


def whole(name: str, shape: tuple[int, ...]) -> np.ndarray:
    return elements(name, everything(shape), shape)


@pytest.mark.parametrize("name", PUBLISHED)
def test_computes_what_is_published(name: str) -> None:
    case = CASES[name]
    operands = {
        key: whole(key, shape)
        for key, shape in shapes(name, dict(zip(case.symbols, range(2, 12), strict=False))).items()
    }
    expected = np.einsum(str(deinsum.kernels()[case.published].einsum), *operands.values())
    np.testing.assert_allclose(numpy_result(case.program, operands), expected, rtol=1e-13)


@pytest.mark.parametrize("name", PUBLISHED)
def test_paper_sizes_are_those_published(name: str) -> None:
    kernel = deinsum.kernels()[CASES[name].published]
    for ranks in (1, 4, 512):
        wanted = kernel.shapes(kernel.extents(ranks))
        assert list(shapes(name, CASES[name].sizes("paper", ranks)).values()) == list(wanted.values())


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", CASES)
def test_every_preset_sizes_every_symbol(name: str, preset: str) -> None:
    for ranks in (1, 3, 12):
        sizes = CASES[name].sizes(preset, ranks)
        assert sorted(sizes) == CASES[name].symbols and min(sizes.values()) >= 1


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

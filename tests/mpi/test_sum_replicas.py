"""Nodes with op="sum": partial sums are added, whatever the grid, the element type and who gets the sums."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from builds import built
from results import raise_anywhere

import dace_redist
from dace_redist import Distribution, RedistributionError

pytestmark = [pytest.mark.compile, pytest.mark.dace]

SHAPE = (7, 5)
PARTIAL = Distribution(SHAPE, (2, 2), dims=[0, None])  # grid axis 1 holds the partial sums
DTYPES = ("float64", "float32", "complex128", "complex64", "int32", "int64", "uint8")


def targets(partial: Distribution) -> dict[str, Distribution]:
    """Who gets the sums, of two blocks of rows: of the first one ranks 0 and 1 have partial sums."""
    shape = partial.shape
    return {
        "scattered rows": Distribution(shape, (4,), dims=[0, None], block=[-(-shape[0] // 4), None]),
        "scattered columns": Distribution(shape, (2, 2), dims=[0, 1]),
        "one each": Distribution(shape, (2,), dims=[0, None], ranks=[1, 2]),
        "all": partial,
    }


#: Three partial sums of everything on ranks 3, 1, 0; the sums go to one of them, or nearly all to one.
OTHER = Distribution(SHAPE, (3,), dims=[None, None], ranks=[3, 1, 0])
OTHER_TARGETS = {
    "single": Distribution(SHAPE, (1,), ranks=[1]),
    "last is empty": Distribution(SHAPE, (3,), dims=[0, None], block=[5, None], ranks=[3, 1, 0]),
    "last has no columns": Distribution(SHAPE, (3,), dims=[None, 0], block=[None, 3], ranks=[3, 1, 0]),
}


#: Partial sums so large that they are reduced in node-shared memory.
LARGE = Distribution((92, 301), (2, 2), dims=[0, None])


def cases(block: Any) -> list[tuple[str, Distribution, Distribution, str]]:
    """Name, source, target and element type; the last target has ``block`` rows on a rank, which may be a symbol."""
    return [
        *((f"partial {name}", PARTIAL, target, "float64") for name, target in targets(PARTIAL).items()),
        *((f"other {name}", OTHER, target, "float64") for name, target in OTHER_TARGETS.items()),
        *((f"type {dtype}", PARTIAL, targets(PARTIAL)["scattered columns"], dtype) for dtype in DTYPES),
        *((f"large {name}", LARGE, target, "float64") for name, target in targets(LARGE).items()),
        ("by block", PARTIAL, Distribution(SHAPE, (4,), dims=[0, None], block=[block, None]), "float64"),
    ]


def sums_sdfg() -> Any:
    import dace
    from sdfgs import add_move

    from dace_redist.library_nodes import Redistribute

    sdfg, block = dace.SDFG("sums"), dace.symbol("block", dace.int64)
    sdfg.add_symbol("block", dace.int64)
    state = sdfg.add_state(is_start_block=True)
    for number, (name, source, target, dtype) in enumerate(cases(block)):
        for end in ("from", "to"):
            sdfg.add_array(
                f"{end}_{number}", [dace.symbol(f"{end}_{number}_{axis}", dace.int64) for axis in (0, 1)],
                dace.dtypes.dtype_to_typeclass(np.dtype(dtype).type),
            )  # fmt: skip
        add_move(state, Redistribute(name, source, target, op="sum"), f"from_{number}", f"to_{number}")
    return sdfg


def summand(source: Distribution, rank: int, dtype: str) -> np.ndarray:
    """Return the summand of a rank as a whole tensor, of which the rank holds its part."""
    values = (np.arange(np.prod(source.shape)).reshape(source.shape) % 35 + 1) * (rank + 1)
    return (values * (1 + 2j if dtype.startswith("complex") else 1)).astype(dtype)


def total(source: Distribution, dtype: str) -> np.ndarray:
    """Return the sum of each element over the ranks that hold a partial sum of it."""
    whole = np.zeros(source.shape, dtype)
    for rank in range(source.ranks_needed):
        if math.prod(source.local_shape(rank)):
            whole[np.ix_(*source.global_index(rank))] += source.local(summand(source, rank, dtype), rank)
    return whole


def arguments_of(comm: Any, shared: bool) -> dict[str, Any]:
    """Return the arguments of the program, for two rows on a rank."""
    made: dict[str, Any] = {"block": 2}
    for number, (_, source, target, dtype) in enumerate(cases(2)):
        part = source.local(summand(source, comm.rank, dtype), comm.rank)
        given = (dace_redist.shared_empty if shared else np.empty)(part.shape, dtype)
        given[...] = part
        made |= {f"from_{number}": given, f"to_{number}": np.full(target.local_shape(comm.rank), 99, dtype)}
        for end in ("from", "to"):
            made |= {f"{end}_{number}_{axis}": made[f"{end}_{number}"].shape[axis] for axis in (0, 1)}
    return made


def check(comm: Any, program: Any, shared: bool) -> None:
    """Run the program, with the partial sums of this rank in node-shared memory or not, and compare all sums."""
    import dace

    arguments = arguments_of(comm, shared)
    with dace.config.set_temporary("compiler", "allow_view_arguments", value=True):
        program(**arguments)
    wrong = []
    for number, (name, source, target, dtype) in enumerate(cases(2)):
        want, got = target.local(total(source, dtype), comm.rank), arguments[f"to_{number}"]
        wrong += [] if np.array_equal(got, want) else [f"{name}, shared {shared}: {got} instead of {want}"]
    raise_anywhere(comm, wrong)


@pytest.mark.mpi(ranks=[5], full=[4], timeout=150)
def test_sums(comm):
    program = built(comm, "sums", sums_sdfg)
    for shared in (True, False, comm.rank != 0, True):
        check(comm, program, shared)
    last, name = len(cases(2)) - 1, '^Redistribute "by block": '
    larger = {f"to_{last}": np.zeros((4, 5)), f"to_{last}_0": 4, f"to_{last}_1": 5}
    arguments = arguments_of(comm, False) | larger
    program(**{**arguments, "block": 3})  # by another plan
    differ = r"the ranks differ: target block\[0\] is 4 on .* and 2 on rank 1"
    with pytest.raises(RedistributionError, match=name + differ):
        program(**{**arguments, "block": 4 if comm.rank == 0 else 2})
    check(comm, program, False)
    short = {f"to_{last}": np.zeros((0, 5)), f"to_{last}_0": 0}
    wrong = pytest.raises(RedistributionError, match=name + "the local target array of rank")
    with wrong if comm.rank < 4 else nullcontext():  # the last rank owns nothing
        program(**arguments_of(comm, False) | short)
    check(comm, program, False)  # the plan keeps the arrays that it had

"""The node SumReplicas: partial sums are added, whatever the grid, the element type and who gets the sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dace_redist import Distribution, RedistributionError

SHAPE = (7, 5)
PARTIAL = Distribution(SHAPE, (2, 2), dims=[0, None])  # grid axis 1 holds the partial sums
DTYPES = ("float64", "float32", "complex128", "complex64", "int32", "int64", "uint8")

#: Who gets the sums of PARTIAL, whose parts are rows 0:4 (ranks 0 and 1) and 4:7 (ranks 2 and 3).
TARGETS = {
    "scattered rows": Distribution(SHAPE, (4,), dims=[0, None], block=[2, None]),
    "scattered columns": Distribution(SHAPE, (2, 2), dims=[0, 1]),
    "one each": Distribution(SHAPE, (2,), dims=[0, None], ranks=[1, 2]),
    "all": PARTIAL,
}
#: Three partial sums of everything on ranks 3, 1, 0; the sums go to one of them, or nearly all to one.
OTHER = Distribution(SHAPE, (3,), dims=[None, None], ranks=[3, 1, 0])
OTHER_TARGETS = {
    "single": Distribution(SHAPE, (1,), ranks=[1]),
    "last is empty": Distribution(SHAPE, (3,), dims=[0, None], block=[5, None], ranks=[3, 1, 0]),
    "last has no columns": Distribution(SHAPE, (3,), dims=[None, 0], block=[None, 3], ranks=[3, 1, 0]),
}


def cases() -> list[tuple[str, Distribution, Distribution, str]]:
    made = [(f"partial {name}", PARTIAL, target, "float64") for name, target in TARGETS.items()]
    made += [(f"other {name}", OTHER, target, "float64") for name, target in OTHER_TARGETS.items()]
    made += [(f"type {dtype}", PARTIAL, TARGETS["scattered columns"], dtype) for dtype in DTYPES]
    return made


def sums_sdfg() -> Any:
    import dace
    from sdfgs import add_move

    from dace_redist.library_nodes import SumReplicas

    sdfg = dace.SDFG("sums")
    state = sdfg.add_state(is_start_block=True)
    for number, (name, source, target, dtype) in enumerate(cases()):
        for end in ("from", "to"):
            sdfg.add_array(
                f"{end}_{number}", [dace.symbol(f"{end}_{number}_{axis}", dace.int64) for axis in (0, 1)],
                dace.dtypes.dtype_to_typeclass(np.dtype(dtype).type),
            )  # fmt: skip
        add_move(state, SumReplicas(name, source, target), f"from_{number}", f"to_{number}")
    return sdfg


def partial(rank: int, dtype: str) -> np.ndarray:
    """Return the summand of a rank as a whole tensor, of which the rank holds its part."""
    values = (np.arange(35).reshape(SHAPE) + 1) * (rank + 1)
    return (values * (1 + 2j if dtype.startswith("complex") else 1)).astype(dtype)


def added(source: Distribution, index: tuple[int, int], dtype: str) -> Any:
    """Return the sum of an element over the ranks that hold a partial sum of it."""
    holders = [r for r in range(4) if all(i in g for i, g in zip(index, source.global_index(r), strict=True))]
    return sum((partial(r, dtype)[index] for r in holders), start=np.dtype(dtype).type(0))


@pytest.mark.compile
@pytest.mark.mpi_matrix
@pytest.mark.dace
@pytest.mark.mpi(ranks=[5], full=[4], timeout=150)
def test_sums(comm):
    from builds import built

    program = built(comm, "sums", sums_sdfg)
    arguments, expected = {}, {}
    for number, (_, source, target, dtype) in enumerate(cases()):
        arguments[f"from_{number}"] = source.local(partial(comm.rank, dtype), comm.rank)
        arguments[f"to_{number}"] = np.full(target.local_shape(comm.rank), 99, dtype)
        for end in ("from", "to"):
            arguments |= {f"{end}_{number}_{axis}": arguments[f"{end}_{number}"].shape[axis] for axis in (0, 1)}
        sums = np.array([[added(source, (i, j), dtype) for j in range(SHAPE[1])] for i in range(SHAPE[0])])
        expected[number] = target.local(sums.astype(dtype), comm.rank)
    wrong = []
    for _ in range(2):
        program(**arguments)
        wrong += [
            f"{cases()[number][0]}: {arguments[f'to_{number}']} instead of {want}"
            for number, want in expected.items()
            if not np.array_equal(arguments[f"to_{number}"], want)
        ]
    everywhere = [text for texts in comm.allgather(wrong) for text in texts]
    assert not everywhere, "\n".join(everywhere)


def symbolic_sdfg() -> Any:
    import dace
    from sdfgs import add_move

    from dace_redist.library_nodes import SumReplicas

    block = dace.symbol("block", dace.int64)
    sdfg = dace.SDFG("sums_by_block")
    sdfg.add_symbol("block", dace.int64)
    target = Distribution(SHAPE, (4,), dims=[0, None], block=[block, None])
    for name in ("A", "B"):
        sdfg.add_array(name, (4, 5), dace.float64)
    add_move(sdfg.add_state(is_start_block=True), SumReplicas("by_block", PARTIAL, target), "A", "B")
    return sdfg


@pytest.mark.compile
@pytest.mark.dace
@pytest.mark.mpi(ranks=[4], timeout=120)
def test_a_target_that_does_not_fit_is_refused_everywhere(comm):
    from builds import built

    program = built(comm, "sums_by_block", symbolic_sdfg)
    A, B = np.ones((4, 5)), np.zeros((4, 5))
    program(A=A, B=B, block=2)
    name = '^SumReplicas "by_block": '
    with pytest.raises(RedistributionError, match=name + r".*the target must hold each of the partial sums"):
        program(A=A, B=B, block=3)
    with pytest.raises(
        RedistributionError, match=name + r"the ranks differ: target block\[0\] is 3 on .* and 2 on rank 1"
    ):
        program(A=A, B=B, block=3 if comm.rank == 0 else 2)
    B[:] = 0
    program(A=A, B=B, block=2)
    assert B.sum() == 2 * 5 * (1 if comm.rank == 3 else 2)  # rows of twos: the last rank has one, the others two


NODE_SHAPE = (92, 301)
NODE_PARTIAL = Distribution(NODE_SHAPE, (2, 2), dims=[0, None])
NODE_TARGETS = {
    "rows": Distribution(NODE_SHAPE, (4,), dims=[0, None], block=[23, None]),
    "columns": Distribution(NODE_SHAPE, (2, 2), dims=[0, 1]),
    "one each": Distribution(NODE_SHAPE, (2,), dims=[0, None], ranks=[1, 2]),
    "all": NODE_PARTIAL,
}


def node_sdfg() -> Any:
    import dace
    from sdfgs import add_move

    from dace_redist.library_nodes import SumReplicas

    sdfg = dace.SDFG("node_sums")
    state = sdfg.add_state(is_start_block=True)
    for number, (name, target) in enumerate(NODE_TARGETS.items()):
        for end in ("from", "to"):
            extents = [dace.symbol(f"{end}_{number}_{axis}", dace.int64) for axis in (0, 1)]
            sdfg.add_array(f"{end}_{number}", extents, dace.float64)
        add_move(state, SumReplicas(name, NODE_PARTIAL, target), f"from_{number}", f"to_{number}")
    return sdfg


@pytest.mark.compile
@pytest.mark.mpi_matrix
@pytest.mark.dace
@pytest.mark.mpi(ranks=[4], timeout=150)
def test_sums_on_a_node(comm):
    """Large partial sums, in shared memory on all ranks or on some."""
    import dace
    from builds import built

    import dace_redist

    program = built(comm, "node_sums", node_sdfg)
    wholes = [np.random.default_rng(rank).integers(0, 99, NODE_SHAPE).astype(float) for rank in range(4)]
    mine = NODE_PARTIAL.local(wholes[comm.rank], comm.rank).copy()
    sums = wholes[0] + wholes[1]
    sums[46:] = (wholes[2] + wholes[3])[46:]
    shared = dace_redist.empty(mine.shape)
    shared[...] = mine
    for given in (shared, mine, shared if comm.rank else mine, shared):
        arguments = {}
        for number, target in enumerate(NODE_TARGETS.values()):
            arguments |= {f"from_{number}": given, f"to_{number}": np.full(target.local_shape(comm.rank), 99.0)}
            for end in ("from", "to"):
                arguments |= {f"{end}_{number}_{axis}": n for axis, n in enumerate(arguments[f"{end}_{number}"].shape)}
        with dace.config.set_temporary("compiler", "allow_view_arguments", value=True):
            program(**arguments)
        right = [
            np.array_equal(arguments[f"to_{number}"], target.local(sums, comm.rank))
            for number, target in enumerate(NODE_TARGETS.values())
        ]
        assert comm.allgather(all(right)) == [True] * 4, right

"""Distributions and the planner against brute force: the owners of every element, by global index."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dace_redist import _core
from dace_redist.distribution import Distribution, TiledDistribution, decode_distribution

MOST = {1: 40, 2: 12, 3: 7, 4: 4, 5: 3, 6: 3, 7: 2, 8: 2}  # largest extent by number of dimensions
CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

#: Mostly tensors with elements; of 0 dimensions, or with extents of 0, one in a few.
shapes = st.one_of(
    *[st.integers(1, 8).flatmap(lambda n: st.lists(st.integers(1, MOST[n]), min_size=n, max_size=n).map(tuple))] * 4,
    st.lists(st.integers(0, 4), max_size=4).map(tuple),
)


@st.composite
def grids(draw, axes):
    grid = []
    for _ in range(axes):
        grid.append(draw(st.integers(1, min(4, 16 // math.prod(grid)))))
    return tuple(grid)


@st.composite
def blocked(draw, shape):
    grid = draw(grids(draw(st.integers(0, len(shape) + 2))))
    axes = draw(st.permutations(range(len(grid))))
    padded = [*axes, *[None] * len(shape)][: len(shape)]
    dims = [axis if axis is None or draw(st.booleans()) else None for axis in draw(st.permutations(padded))]
    block = [draw(st.one_of(st.none(), st.just("balanced"), st.integers(1, extent or 2))) for extent in shape]
    pins = [None if g in dims or draw(st.booleans()) else draw(st.integers(0, p - 1)) for g, p in enumerate(grid)]
    size = math.prod(grid)
    ranks = draw(st.one_of(st.none(), st.permutations(range(size + 3)).map(lambda ranks: ranks[:size])))
    return Distribution(shape, grid, dims=dims, block=block, ranks=ranks, pins=pins)


@st.composite
def tiled(draw, shape):
    tile = tuple(draw(st.integers(max(1, extent // 4), extent or 2)) for extent in shape)
    tiles = tuple(-(-n // t) for n, t in zip(shape, tile, strict=True))
    seed = draw(st.integers(0, 2**32 - 1))
    owners = np.random.default_rng(seed).integers(0, draw(st.integers(1, 7)), tiles)
    return TiledDistribution(shape, tile, owners)


def distributions(shape):
    return st.one_of(blocked(shape), blocked(shape), blocked(shape), tiled(shape))


one = shapes.flatmap(distributions)
pairs = shapes.flatmap(lambda shape: st.tuples(distributions(shape), distributions(shape)))


# Brute force ------------------------------------------------------------------------------------------------------


def coordinate(distribution, axis, index):
    """The grid coordinate along a tensor axis that owns a global index, straight from the definition."""
    dim, block = distribution.dims[axis], distribution.block[axis]
    extent, parts = distribution.shape[axis], 1 if dim is None else distribution.grid[dim]
    if block == "balanced":
        quotient, longer = divmod(extent, parts)
        lengths = [quotient + 1] * longer + [quotient] * (parts - longer)
        return next(part for part in range(parts) if index < sum(lengths[: part + 1]))
    return index // (block or -(-extent // parts)) % parts


def owners_of(distribution, index):
    """Every rank that holds an element; the first is the one with coordinate 0 along all replica axes."""
    if isinstance(distribution, TiledDistribution):
        tile = tuple(i // t for i, t in zip(index, distribution.tile, strict=True))
        return [int(distribution.owner_of_tile[tile])]
    places = [range(p) if pin is None else [pin] for p, pin in zip(distribution.grid, distribution.pins, strict=True)]
    for axis, dim in enumerate(distribution.dims):
        if dim is not None:
            places[dim] = [coordinate(distribution, axis, index[axis])]
    positions = [int(np.ravel_multi_index(at, distribution.grid)) for at in itertools.product(*places)]
    return positions if distribution.ranks is None else [distribution.ranks[position] for position in positions]


def whole(shape):
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


def parts(distribution, array, ranks):
    return [distribution.local(array, rank) for rank in range(ranks)]


@CALM
@given(one)
def test_owners_of_every_element(distribution):
    shape, ranks = distribution.shape, distribution.ranks_needed
    held = [set(part.ravel().tolist()) for part in parts(distribution, whole(shape), ranks)]
    replicas = distribution.core.replicas
    for number, index in enumerate(np.ndindex(*shape)):
        owners = owners_of(distribution, index)
        assert distribution.owner(index) == owners[0]
        assert len(owners) == len(set(owners)) == replicas
        assert sorted(owners) == [rank for rank in range(ranks) if number in held[rank]]


@CALM
@given(one)
def test_local_shape_and_global_index_are_those_of_the_local_array(distribution):
    array = whole(distribution.shape)
    for rank in range(distribution.ranks_needed + 2):
        part = distribution.local(array, rank)
        assert part.shape == distribution.local_shape(rank)
        assert part.flags.c_contiguous
        assert len(set(part.ravel().tolist())) == part.size
        if isinstance(distribution, Distribution):
            index = distribution.global_index(rank)
            assert all(np.all(np.diff(along) > 0) for along in index)
            np.testing.assert_array_equal(part, array[np.ix_(*index)])


@CALM
@given(one)
def test_encoded_it_makes_the_same_distribution(distribution):
    again = decode_distribution(distribution.encoded)
    assert again == distribution
    assert hash(again) == hash(distribution)
    assert again.encoded == distribution.encoded
    assert all(type(number) is int for number in distribution.encoded)
    assert not distribution.is_symbolic


def test_tiles_lie_one_after_another():
    distribution = TiledDistribution((3, 5), (2, 2), [[0, 1, 0], [1, 0, 0]])
    array = whole((3, 5))
    tiles = [array[:2, :2], array[:2, 4:], array[2:, 2:4], array[2:, 4:]]
    np.testing.assert_array_equal(distribution.local(array, 0), np.concatenate([tile.ravel() for tile in tiles]))
    assert distribution.local(array, 7).shape == distribution.local_shape(7) == (0,)


def test_extents_of_zero():
    for block in (None, "balanced", (2, 3)):
        made = Distribution((0, 5), (2, 2), block=block)
        assert [made.local_shape(rank) for rank in range(5)] == [(0, 3), (0, 2), (0, 3), (0, 2), (0, 0)]
        assert [index.tolist() for index in made.global_index(1)] == [[], [3, 4]]
        with pytest.raises(ValueError, match=r"index \(0, 0\) is outside the tensor in dimension 0"):
            made.owner((0, 0))
        assert made.core.block_begins(0) == []
    assert made.core.uniform_block(0) == 0
    tiles = TiledDistribution((0, 5), (2, 2), np.empty((0, 3)))
    assert tiles == TiledDistribution((0, 5), (2, 2), np.empty((0, 3), np.int8)) == decode_distribution(tiles.encoded)
    assert tiles.ranks_needed == 1  # a communicator has one at least
    assert tiles.local_shape(0) == tiles.local(np.empty((0, 5)), 0).shape == (0,)
    with pytest.raises(ValueError, match=r"TiledDistribution: index \(0, 0\) is outside the tensor in dimension 0"):
        tiles.owner((0, 0))


@pytest.mark.parametrize(
    "made, owners",
    [
        (Distribution((), (1,)), [0]),
        (Distribution((), (4,)), [0, 1, 2, 3]),
        (Distribution((), (2, 2), pins=(None, 1)), [1, 3]),
        (Distribution((), ()), [0]),
        (Distribution((), (), ranks=(3,)), [3]),
        (TiledDistribution((), (), owner=np.array(2)), [2]),
    ],
    ids=str,
)
def test_tensors_of_no_dimensions_have_one_element(made, owners):
    assert made.core.replicas == len(owners)
    assert made.owner(()) == owners[0]
    assert made.ranks_needed == owners[-1] + 1
    array, tiled = np.array(7.5), isinstance(made, TiledDistribution)
    for rank in range(5):
        part = made.local(array, rank)
        shape = (0,) if rank not in owners else (1,) if tiled else ()
        assert part.shape == made.local_shape(rank) == shape
        assert np.all(part == 7.5)
    with pytest.raises(ValueError, match=r"index \(0,\) needs 0 entries"):
        made.owner((0,))
    with pytest.raises(ValueError, match=r"the whole tensor has shape \(\), got \(1,\)"):
        made.local(np.zeros(1), 0)


def test_one_rank_without_a_grid():
    made = Distribution((3, 4), (), ranks=(2,))
    assert [made.local_shape(rank) for rank in range(3)] == [(0, 0), (0, 0), (3, 4)]
    assert made.owner((2, 3)) == 2


@CALM
@given(one)
def test_blocks_begin_where_owners_change(distribution):
    for axis, extent in enumerate(distribution.shape):
        begins = distribution.core.block_begins(axis)
        assert begins == sorted(set(begins))
        assert begins[:1] == [0][:extent]
        if isinstance(distribution, Distribution) and 0 not in distribution.shape:
            along = [coordinate(distribution, axis, index) for index in range(extent)]
            assert {i for i in range(1, extent) if along[i] != along[i - 1]} <= set(begins)
        uniform = distribution.core.uniform_block(axis)
        lengths = np.diff([*begins, extent])
        assert uniform in (-1, extent) or set(lengths[:-1]) <= {uniform}  # extent: blocks that all lie on one rank


@pytest.mark.parametrize("axis", [-1, 2])
def test_axes_that_do_not_exist(axis):
    with pytest.raises(_core.Error, match=f"Distribution: axis {axis} of a tensor of 2 dimensions does not exist"):
        Distribution((8, 9), (2, 2)).core.block_count(axis)


# The planner ------------------------------------------------------------------------------------------------------


def as_bytes(array, itemsize):
    """An array whose elements are ``itemsize`` bytes that tell them apart: one more axis of bytes."""
    numbers = (array[..., None] * 131 + np.arange(itemsize) * 29 + array[..., None] // 256) % 251
    return numbers.astype(np.uint8)


def move(source, target, itemsize, sources, ranks):
    targets = [np.full((*target.local_shape(rank), itemsize), 255, np.uint8) for rank in range(ranks)]
    _core.apply(source.core, target.core, itemsize, sources, targets)
    return targets


@CALM
@given(pairs, st.sampled_from([1, 2, 3, 4, 8, 12, 16]))
def test_moving_there_and_back_is_cutting_the_whole_tensor(pair, itemsize):
    source, target = pair
    ranks = max(source.ranks_needed, target.ranks_needed)
    before, after = ([as_bytes(p, itemsize) for p in parts(side, whole(source.shape), ranks)] for side in pair)
    there = move(source, target, itemsize, before, ranks)
    back = move(target, source, itemsize, there, ranks)
    for rank in range(ranks):
        np.testing.assert_array_equal(there[rank], after[rank])
        np.testing.assert_array_equal(back[rank], before[rank])


@pytest.mark.parametrize("run", [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 64, 100])
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8, 16, 3])
def test_moving_runs_of_each_length(run, itemsize):
    shape, ranks = (5, 3, 7 * run), 7
    source, target = Distribution(shape, (1, 1, 7)), Distribution(shape, (5, 1, 1))
    before = [as_bytes(part, itemsize) for part in parts(source, whole(shape), ranks)]
    there = move(source, target, itemsize, before, ranks)
    for rank, wanted in enumerate(parts(target, whole(shape), ranks)):
        np.testing.assert_array_equal(there[rank], as_bytes(wanted, itemsize))


@CALM
@given(pairs)
def test_sends_are_the_receives_of_the_other_side(pair):
    source, target = pair
    ranks = max(source.ranks_needed, target.ranks_needed)
    sends, receives = {}, {}
    for rank in range(ranks):
        out, into, _ = _core.rank_schedule(source.core, target.core, rank, True)
        assert [peer for peer, *_ in out] == sorted({peer for peer, *_ in out} - {rank})
        assert [peer for peer, *_ in into] == sorted({peer for peer, *_ in into} - {rank})
        sends.update({(rank, peer): rest for peer, *rest in out})
        receives.update({(peer, rank): rest for peer, *rest in into})
        counts = [[message[:2] for message in messages] for messages in (out, into)]
        plain = _core.rank_schedule(source.core, target.core, rank, False)[:2]
        assert [[message[:2] for message in messages] for messages in plain] == counts
    assert sends == receives
    assert all(count == sum(math.prod(block[2]) for block in blocks) for count, blocks in sends.values())


@CALM
@given(pairs)
def test_what_a_rank_has_it_never_receives(pair):
    source, target = pair
    array = whole(source.shape)
    for rank in range(max(source.ranks_needed, target.ranks_needed)):
        has, needs = (set(side.local(array, rank).ravel().tolist()) for side in pair)
        _, into, ((_, kept, _),) = _core.rank_schedule(source.core, target.core, rank, False)
        assert kept == len(has & needs)
        assert sum(count for _, count, _ in into) == len(needs - has)


# What is refused --------------------------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")

REFUSED = [
    ({"shape": (8, -9)}, r"shape\[1\] must be at least 0, got -9"),
    ({"grid": (2, 0)}, r"process grid \(2, 0\): sizes must be at least 1"),
    ({"dims": (0, 0)}, "grid axis 0 is used twice: by tensor axes 0 and 1"),
    ({"dims": (0, 2)}, r"dims\[1\] is 2, but the process grid has axes 0 to 1"),
    ({"dims": (-1, 0)}, r"dims\[0\] is -1, but the process grid has axes 0 to 1"),
    ({"dims": (0,)}, r"dims needs one entry per entry of shape \(2\), got 1"),
    ({"block": (1, 2, 3)}, r"block needs one entry per entry of shape \(2\), got 3"),
    ({"block": (0, 2)}, r"block\[0\] must be at least 1 element, got 0"),
    ({"block": (1, -1)}, r"block\[1\] must be at least 1 element, got -1"),
    ({"block": ("equal", 2)}, r"block\[0\] must be a number, None or \"balanced\", got 'equal'"),
    ({"block": "equal"}, r"block\[0\] must be a number, None or \"balanced\", got 'equal'"),
    ({"ranks": (0, 1, 2)}, r"process grid \(2, 2\) needs 4 ranks, got a list of 3"),
    ({"ranks": (0, 1, 2, 3, 4)}, r"process grid \(2, 2\) needs 4 ranks, got a list of 5"),
    ({"ranks": (0, 1, 2, 1)}, "rank 1 stands twice in the list of ranks"),
    ({"ranks": (0, 1, -2, 3)}, r"ranks\[2\] must not be negative, got -2"),
    ({"ranks": ()}, "ranks is empty; leave it out for ranks 0, 1, 2"),
    ({"pins": (None,)}, r"pins needs one entry per entry of grid \(2\), got 1"),
    ({"dims": (0, None), "pins": (None, 2)}, "grid axis 1 is pinned to coordinate 2 but has 2 coordinates"),
    ({"dims": (0, None), "pins": (None, -2)}, "grid axis 1 is pinned to coordinate -2"),
    ({"pins": (0, None)}, "grid axis 0 is both pinned and split over"),
    ({"shape": (1,) * 17}, "tensors of 0 to 16 dimensions are supported, got 17"),
    ({"grid": (), "dims": (0, None)}, r"dims\[0\] is 0, but the process grid has no axes \(None: not split\)"),
    ({"grid": (), "ranks": (1, 2)}, r"process grid \(\) needs 1 ranks, got a list of 2"),
    ({"shape": (0, 9), "block": (0, None)}, r"block\[0\] must be at least 1 element, got 0"),
    ({"shape": (2**40, 2**40)}, "shape .* is larger than 64 bits hold"),
    ({"shape": (0, 2**40, 2**40)}, "shape .* is larger than 64 bits hold"),
    ({"grid": (2**40, 2**40)}, "process grid .* is larger than 64 bits hold"),
]


@pytest.mark.parametrize("changed, said", REFUSED, ids=lambda value: str(value) if isinstance(value, dict) else "")
def test_refused(changed, said):
    with pytest.raises(ValueError, match=said) as refused:
        Distribution(**{"shape": (8, 9), "grid": (2, 2), **changed})
    assert "Distribution: " in str(refused.value) or "64 bits" in str(refused.value)


def test_negative_grid_is_named_as_such():
    with pytest.raises(ValueError, match=r"process grid \(-1, 2\): sizes must be at least 1"):
        Distribution((8, 9), (-1, 2))


@pytest.mark.parametrize("value", [2.0, 2.5, NAN, INF, True, np.True_, "2", None, b"2", 2 + 0j, [2], np.float64(2)])
@pytest.mark.parametrize("name", ["shape", "grid", "ranks"])
def test_sizes_are_integers(name, value):
    arguments = {"shape": (8,), "grid": (1,)}
    with pytest.raises(TypeError, match=rf"{name}\[0\] must be an integer, got "):
        Distribution(**{**arguments, name: (value,)})
    if name == "shape":
        with pytest.raises(TypeError, match=r"tile\[0\] must be an integer, got "):
            TiledDistribution((8,), (value,), [0])


@pytest.mark.parametrize("value", [2.0, NAN, True, np.True_, b"2", [2]])
@pytest.mark.parametrize("name", ["dims", "block", "pins"])
def test_other_numbers_are_integers(name, value):
    with pytest.raises(TypeError, match=rf"{name}.* must be an integer, got |{name} must be a sequence"):
        Distribution((8,), (2,), **{name: (value,)})


@pytest.mark.parametrize("values", [8, "88", b"88", {8}, None, 2.0])
def test_sizes_are_sequences(values):
    with pytest.raises(TypeError, match="shape must be a sequence of integers, got "):
        Distribution(values, (2,))
    with pytest.raises(TypeError, match="grid must be a sequence of integers, got "):
        Distribution((8,), values)


def test_numpy_integers_are_integers():
    made = Distribution(np.array([8, 9]), np.array([2, 2], np.uint8), block=(np.int16(3), None), ranks=np.arange(4))
    assert made == Distribution((8, 9), (2, 2), block=(3, None), ranks=(0, 1, 2, 3))
    assert all(type(extent) is int for extent in made.shape)


def test_distributions_do_not_change():
    made, owners = Distribution((8, 9), (2, 2)), np.zeros((4, 3), np.int64)
    with pytest.raises(AttributeError):
        made.shape = (1, 1)
    tiles = TiledDistribution((8, 9), (2, 3), owners)
    owners[0, 0] = 5
    assert tiles.owner((0, 0)) == 0


TILES_REFUSED = [
    (((0,), (1,), [0]), ValueError, r"owner needs one rank per tile, shape \(0,\), got \(1,\)"),
    (((-1,), (1,), [0]), ValueError, r"shape\[0\] must be at least 0, got -1"),
    (((8,), (0,), [0]), ValueError, r"tile\[0\] must be at least 1 element, got 0"),
    (((0,), (0,), []), ValueError, r"tile\[0\] must be at least 1 element, got 0"),
    (((8,), (-2,), [0]), ValueError, r"tile\[0\] must be at least 1 element, got -2"),
    (((), (), []), ValueError, r"owner needs one rank per tile, shape \(\), got \(0,\)"),
    (((), (), [2]), ValueError, r"owner needs one rank per tile, shape \(\), got \(1,\)"),
    (((), (), 2.0), TypeError, "owner must hold integers, got float64"),
    (((8, 8), (2,), [0]), ValueError, "tile needs 2 entries, one per dimension, got 1"),
    (((8, 8), (4, 4), [0, 1, 2, 3]), ValueError, r"owner needs one rank per tile, shape \(2, 2\), got \(4,\)"),
    (((8, 9), (4, 4), [[0, 1], [2, 3]]), ValueError, r"shape \(2, 3\), got \(2, 2\)"),
    (((8, 8), (4, 4), [[0, 1], [-2, 3]]), ValueError, r"the owner of tile \(1, 0\) is rank -2"),
    (((8,), (4,), [0.0, 1.0]), TypeError, "owner must hold integers, got float64"),
    (((8,), (4,), [NAN, 1]), TypeError, "owner must hold integers, got float64"),
    (((8,), (4,), [True, False]), TypeError, "owner must hold integers, got bool"),
    (((8,), (4,), ["0", "1"]), TypeError, "owner must hold integers"),
    (((8,), (4,), None), TypeError, "owner must hold integers, got object"),
    (((1,) * 17, (1,) * 17, np.zeros((1,) * 17, int)), ValueError, "tensors of 0 to 16 dimensions are supported"),
]


@pytest.mark.parametrize("arguments, kind, said", TILES_REFUSED, ids=lambda value: "")
def test_tiles_refused(arguments, kind, said):
    with pytest.raises(kind, match=f"TiledDistribution: .*({said})"):
        TiledDistribution(*arguments)


@pytest.mark.parametrize("made", [Distribution((8, 9), (2, 2)), TiledDistribution((8, 9), (8, 9), [[3]])], ids=str)
def test_questions_that_make_no_sense(made):
    name = type(made).__name__
    with pytest.raises(ValueError, match=rf"{name}: the whole tensor has shape \(8, 9\), got \(9, 8\)"):
        made.local(np.zeros((9, 8)), 0)
    for index, dimension in (((8, 0), 0), ((0, 9), 1), ((-1, 0), 0)):
        with pytest.raises(ValueError, match=rf"{name}: index .* is outside the tensor in dimension {dimension}"):
            made.owner(index)
    with pytest.raises(ValueError, match=rf"{name}: index \(0,\) needs 2 entries"):
        made.owner((0,))
    assert math.prod(made.local_shape(-1)) == math.prod(made.local_shape(10**6)) == 0


ENCODED_REFUSED = [
    ([], "incomplete description"),
    ([0], "incomplete description"),
    ([7, 1], "unknown kind 7"),
    ([0, -1, 1], "0 to 16 dimensions"),
    ([1, 17], "0 to 16 dimensions"),
    ([0, 0, 1], "incomplete description"),
    ([0, 0, 0], "incomplete description"),
    ([0, 0, 0, 2, 1, 1], "incomplete description|needs 1 ranks"),
    ([0, 1], "0 to 1024 axes"),
    ([0, 1, -1], "0 to 1024 axes, got -1"),
    ([0, 1, 5000], "0 to 1024 axes, got 5000"),
    ([0, 1, 1, 8, 2, 0, 0], "incomplete description"),
    ([0, 1, 1, 8, 2, 0, 0, -1, 2, 0], "incomplete description"),
    ([0, 1, 1, 8, 2, 0, 0, -1, -5], "incomplete description"),
    ([0, 1, 1, 8, 2, 0, -2, -1, 0], r"block\[0\] must be at least 1 element, got -2"),
    ([0, 1, 1, 8, 2, 3, 0, -1, 0], r"dims\[0\] is 3, but the process grid has axes 0 to 0 \(None: not split\)"),
    ([1, 2, 8], "incomplete description"),
    ([0, 0, 0, 0, 1], "incomplete description"),
    ([1, 1, -1, 1], r"shape\[0\] must be at least 0, got -1"),
    ([1, 1, 0, 1, 5], r"tile grid \(0,\) needs 0 owners, got 1"),
    ([1, 0], r"tile grid \(\) needs 1 owners, got 0"),
    ([1, 1, 8, 0], r"tile\[0\] must be at least 1 element, got 0"),
    ([1, 1, 8, 4, 0], r"tile grid \(2,\) needs 2 owners, got 1"),
    ([1, 2, 2**40, 2**40, 1, 1], "tile grid .* is larger than 64 bits hold"),
]


@pytest.mark.parametrize("encoded, said", ENCODED_REFUSED, ids=str)
def test_encoded_refused(encoded, said):
    with pytest.raises(_core.Error, match=said):
        _core.Distribution(encoded, "source")


@pytest.mark.parametrize(
    "encoded", [[], [0], [0, 1], [1], [7, 1, 2], [2, 2, 2], [0, 0, 0], [0, 0, 1], [0, 1, 1]], ids=str
)
def test_decoding_refuses_what_is_no_distribution(encoded):
    with pytest.raises(ValueError, match="not an encoded distribution"):
        decode_distribution(encoded)


def test_different_shapes_are_refused():
    with pytest.raises(ValueError, match=r"one global shape, got \(8, 9\) and \(8,\)"):
        _core.check_same_shape(Distribution((8, 9), (2, 2)).core, Distribution((8,), (2,)).core)
    with pytest.raises(ValueError, match="one global shape"):
        _core.rank_schedule(Distribution((8,), (2,)).core, Distribution((9,), (2,)).core, 0)


def test_symbols_wait_for_the_program():
    sympy = pytest.importorskip("sympy")
    n, p = sympy.symbols("N P", positive=True, integer=True)
    made = Distribution((n, sympy.Integer(9)), (p, 2), block=(n // p, None))
    assert made.is_symbolic
    assert made.shape[1] == 9
    assert decode_distribution(made.encoded) == made
    with pytest.raises(ValueError, match="Distribution: N, P, .* must be numbers here, not symbols"):
        made.local_shape(0)
    with pytest.raises(ValueError, match="grid axis 0"):
        Distribution((8, 9), (2, 2), dims=(0, 0))
    with pytest.raises(TypeError):
        _ = TiledDistribution((n,), (2,), [0]).encoded

"""Distributions against brute force: the owners of every element, by global index."""

from __future__ import annotations

import itertools
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from distributions import CALM, coordinate, one, owners_of, pairs, parts, whole
from hypothesis import example, given

from dace_redist.distribution import BoxDistribution, Distribution, TiledDistribution, decode_distribution
from dace_redist.interop.blocks import of_boxes


@CALM
@given(one)
@example(Distribution((), (2, 2), pins=(None, 1)))
@example(Distribution((), (), ranks=(3,)))
@example(TiledDistribution((), (), np.array(2)))
def test_owners_of_every_element(distribution):
    shape, ranks = distribution.shape, distribution.ranks_needed
    held = [set(part.ravel().tolist()) for part in parts(distribution, whole(shape), ranks)]
    replicas, blocked = distribution.core.replicas, isinstance(distribution, Distribution)
    grid = distribution.rank_grid() if blocked else None
    assert not blocked or distribution.replicas == replicas == grid.shape[-1]
    for number, index in enumerate(np.ndindex(*shape)):
        owners = owners_of(distribution, index)
        if blocked:
            place = [coordinate(distribution, axis, at) for axis, at in enumerate(index)]
            assert sorted(grid[tuple(place)]) == sorted(owners)
        assert distribution.owner(index) == owners[0]
        assert isinstance(distribution, BoxDistribution) or len(owners) == len(set(owners)) == replicas
        assert sorted(set(owners)) == [rank for rank in range(ranks) if number in held[rank]]


@CALM
@given(one)
def test_local_shape_and_global_index_are_those_of_the_local_array(distribution):
    array = whole(distribution.shape)
    for rank in range(distribution.ranks_needed + 2):
        part = distribution.local(array, rank)
        assert part.shape == distribution.local_shape(rank)
        assert part.flags.c_contiguous
        assert len(set(part.ravel().tolist())) == part.size or isinstance(distribution, BoxDistribution)
        if isinstance(distribution, Distribution):
            index = distribution.global_index(rank)
            assert all(np.all(np.diff(along) > 0) for along in index)
            np.testing.assert_array_equal(part, array[np.ix_(*index)])


@CALM
@given(one)
def test_on_other_ranks_the_parts_are_equal(distribution):
    needed = distribution.ranks_needed
    new = np.random.default_rng(needed).permutation(needed + 3)
    moved, array = distribution.on_ranks(new), whole(distribution.shape)
    for rank in range(needed):
        np.testing.assert_array_equal(moved.local(array, new[rank]), distribution.local(array, rank))
    assert moved.core.replicas == distribution.core.replicas


def test_ranks_that_are_too_few_or_named_twice_are_refused():
    for ranks in ([0], [1, 1]):
        with pytest.raises(ValueError, match=r"Distribution.on_ranks: 2 different ranks are needed, got \["):
            Distribution.split((4,), 0, 2).on_ranks(ranks)


def test_another_shape_is_split_alike():
    cyclic = Distribution((8, 6), (2, 3), dims=(1, None), block=(2, "ceil"), ranks=[5, 4, 3, 2, 1, 0])
    assert cyclic.with_shape((20, 6)) == Distribution(
        (20, 6), (2, 3), dims=(1, None), block=(2, "ceil"), ranks=[5, 4, 3, 2, 1, 0]
    )
    for wrong in ((8,), (8, 6, 2)):
        with pytest.raises(ValueError, match="needs one entry per entry of shape"):
            cyclic.with_shape(wrong)
    with pytest.raises(ValueError, match="must add up to shape"):
        Distribution((5,), (2,), block=[(2, 3)]).with_shape((6,))


def test_a_grid_with_more_axes_than_the_tensor_needs_to_say_what_it_splits():
    with pytest.raises(ValueError, match=r"grid \(2, 2\) has more axes than shape \(8,\): pass dims"):
        Distribution((8,), (2, 2))
    assert Distribution((8,), (2, 2), dims=[1]).replicas == 2
    assert Distribution((8,), (2, 1)).replicas == Distribution((8,), (2, 2), pins=(None, 1)).replicas == 1


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
    with pytest.raises(ValueError, match="read-only"):
        distribution.owner_of_tile[0, 0] = 1
    array = whole((3, 5))
    tiles = [array[:2, :2], array[:2, 4:], array[2:, 2:4], array[2:, 4:]]
    np.testing.assert_array_equal(distribution.local(array, 0), np.concatenate([tile.ravel() for tile in tiles]))
    assert distribution.local(array, 7).shape == distribution.local_shape(7) == (0,)
    assert all(distribution.local(array.astype(">f4"), rank).dtype == ">f4" for rank in (0, 7))


def test_boxes_lie_one_after_another():
    boxes = np.array([((0, 0), (2, 3)), ((1, 1), (2, 4)), ((3, 0), (0, 5))])
    made = BoxDistribution((3, 5), boxes, [1, 0, 0])
    for changed in (made.boxes, made.owners, made.encoded_array):
        with pytest.raises(ValueError, match="read-only"):
            changed[0] = 1
    boxes[0, 0] = 9
    array = whole((3, 5))
    np.testing.assert_array_equal(made.local(array, 1), array[:2, :3])
    np.testing.assert_array_equal(made.local(array, 0), array[1:3, 1:5].ravel())
    assert [made.local_shape(rank) for rank in range(3)] == [(8,), (2, 3), (0,)]
    assert made.boxes_of(0).tolist() == [[[1, 1], [2, 4]], [[3, 0], [0, 5]]]
    assert made.owner((1, 1)) == 1
    for boxed in (made, BoxDistribution((3, 5), [((0, 0), (2, 3))], [1], halo=(1, 0), periodic=True)):
        again = pickle.loads(pickle.dumps(boxed))
        assert again == boxed
        assert not again.boxes.flags.writeable
    with pytest.raises(ValueError, match=r"BoxDistribution: index \(0, 4\) lies in no box"):
        made.owner((0, 4))


@pytest.mark.parametrize("ndim", range(4))
def test_no_boxes(ndim):
    shape = (4,) * ndim
    made = BoxDistribution(shape, [], [])
    assert made == BoxDistribution(shape, np.empty((0, 2, ndim), int), np.empty(0, int))
    assert made == decode_distribution(made.encoded)
    assert (made.ranks_needed, made.local_shape(0), made.core.first_rank) == (1, (0,), 0)
    assert not made.is_equivalent_to(Distribution(shape, ()))


@pytest.mark.parametrize(
    ("lengths", "uniform"), [((1, 1, 1), 1), ((2, 2, 1), 2), ((2, 1, 0), 2), ((2, 0, 1), -1), ((1, 2), -1)]
)
def test_lengths_that_are_those_of_equal_blocks(lengths, uniform):
    assert Distribution((sum(lengths),), (len(lengths),), block=(lengths,)).core.uniform_block(0) == uniform


def test_extents_of_zero():
    tiles = TiledDistribution((0, 5), (2, 2), np.empty((0, 3)))
    assert tiles == TiledDistribution((0, 5), (2, 2), np.empty((0, 3), np.int8)) == decode_distribution(tiles.encoded)
    assert tiles.ranks_needed == 1  # a communicator has one at least
    assert Distribution((0, 5), (2, 2), block=(2, 3)).core.uniform_block(0) == 0
    for made in (tiles, Distribution((0, 5), (2, 2))):
        with pytest.raises(ValueError, match=r"Distribution: index \(0, 0\) is outside the tensor in dimension 0"):
            made.owner((0, 0))


def test_questions_to_a_tensor_of_no_dimensions():
    with pytest.raises(ValueError, match=r"index \(0,\) needs 0 entries"):
        Distribution((), ()).owner((0,))
    with pytest.raises(ValueError, match=r"the whole tensor has shape \(\), got \(1,\)"):
        Distribution((), ()).local(np.zeros(1), 0)


@pytest.mark.parametrize("seed", range(40))
def test_matrices_that_scalapack_describes(seed):
    rng = np.random.default_rng(seed)
    rows, columns = grid = rng.integers(1, 5, 2).tolist()
    ranks, shape = rng.permutation(rows * columns).reshape(grid), rng.integers(1, 20, 2).tolist()
    block, first = rng.integers(1, 5, 2).tolist(), rng.integers(0, grid).tolist()
    where = Distribution.from_scalapack([1, 0, *shape, *block, *first, 20], ranks)
    for i, j in np.ndindex(*shape):
        assert where.owner((i, j)) == ranks[(first[0] + i // block[0]) % rows, (first[1] + j // block[1]) % columns]
    for rank in range(rows * columns):
        described = where.scalapack_descriptor(rank, 7).tolist()
        assert described == [1, 7, *shape, *block, 0, 0, max(1, where.local_shape(rank)[0])]
        assert Distribution.from_scalapack(described, where.rank_grid()[..., 0]) == where


@pytest.mark.parametrize("seed", range(30))
def test_boxes_of_other_libraries(seed):
    """A grid of boxes, some empty, with replicas; also without one of them, or with owners of several."""
    rng = np.random.default_rng(seed)
    cuts = [np.sort(rng.integers(0, 7, rng.integers(0, 3))).tolist() for _ in range(2)]
    axes = [list(itertools.pairwise([0, *at, 7])) for at in cuts]
    boxes = [((a, b), (c - a, d - b)) for (a, c), (b, d) in itertools.product(*axes)] * int(rng.integers(1, 3))
    owners = rng.permutation(len(boxes)).tolist() if seed % 3 else rng.integers(0, 3, len(boxes)).tolist()
    found = of_boxes((7, 7), boxes, owners)
    numbers = whole((7, 7))
    for rank in range(found.ranks_needed):
        mine = [box for box, owner in zip(boxes, owners, strict=True) if owner == rank and 0 not in box[1]]
        held = [numbers[i : i + m, j : j + n] for (i, j), (m, n) in mine]
        part = found.local(numbers, rank)
        assert part.ravel().tolist() == [number for one in held for number in one.ravel()]
        assert len(held) != 1 or part.shape == held[0].shape
    grid = seed % 3 and all(low < high for along in axes for low, high in along)
    assert isinstance(found, Distribution) or not grid


@CALM
@given(one)
def test_blocks_begin_where_owners_change(distribution):
    for axis, extent in enumerate(distribution.shape):
        begins = distribution.core.block_begins(axis)
        assert begins == sorted(set(begins))
        assert begins[:1] == [0][:extent]
        if isinstance(distribution, BoxDistribution):
            continue
        if isinstance(distribution, Distribution) and 0 not in distribution.shape:
            along = [coordinate(distribution, axis, index) for index in range(extent)]
            assert {i for i in range(1, extent) if along[i] != along[i - 1]} <= set(begins)
        uniform = distribution.core.uniform_block(axis)
        lengths = np.diff([*begins, extent])
        assert uniform in (-1, extent) or set(lengths[:-1]) <= {uniform}  # extent: blocks that all lie on one rank


def test_every_way_to_split_a_short_axis():
    """Blocks of each size, and parts of all lengths, also of 0."""
    splits = list(itertools.product(range(20), range(1, 8), ["balanced", "ceil", *range(1, 9)]))
    for extent, count in itertools.product(range(6), range(1, 5)):
        cuts = itertools.combinations_with_replacement(range(extent + 1), count - 1)
        splits += [(extent, count, tuple(np.diff([0, *cut, extent]).tolist())) for cut in cuts]
    for extent, count, block in splits:
        made = Distribution((extent,), (count,), block=[block])
        owners = np.array([coordinate(made, 0, index) for index in range(extent)], int)
        assert owners.tolist() == [made.owner((index,)) for index in range(extent)]
        for rank in range(count):
            np.testing.assert_array_equal(made.global_index(rank)[0], np.flatnonzero(owners == rank))


@pytest.mark.parametrize(
    "extent, parts, block, lengths",
    [
        (2**50, 2**14, 2**50, {0: 2**50, 2**13: 0, 2**14 - 1: 0}),
        (2**62 + 1, 4, 2**61, {1: 2**61, 2: 1, 3: 0}),
        (2**62 + 1, 2**30, 2**30, {0: 2**32 + 1, 2**30 - 1: 2**32}),
        (2**62, 2**30 - 1, "balanced", {0: 2**32 + 5, 2**30 - 2: 2**32 + 4}),
    ],
)
def test_products_of_blocks_and_parts_may_exceed_64_bits(extent, parts, block, lengths):
    made = Distribution((extent,), (parts,), block=[block])
    assert {rank: made.local_shape(rank)[0] for rank in lengths} == lengths


@pytest.mark.parametrize("axis", [-1, 2])
def test_axes_that_do_not_exist(axis):
    with pytest.raises(ValueError, match=f"Distribution: axis {axis} of a tensor of 2 dimensions does not exist"):
        Distribution((8, 9), (2, 2)).core.block_count(axis)


def test_ranks_are_no_communicator():
    with pytest.raises(TypeError, match="ranks must be a number of ranks, or a list of them, got .*: pass its size"):
        Distribution.split((8, 9), 0, SimpleNamespace(Get_size=lambda: 4))


def repeats(distribution):
    """Return True if the local array of a rank holds an element twice: boxes of one rank overlap."""
    held = parts(distribution, whole(distribution.shape), distribution.ranks_needed)
    return any(len(np.unique(part)) < part.size for part in held)


@pytest.mark.slow
@CALM
@given(pairs)
def test_equivalent_distributions_hold_the_same_on_every_rank(pair):
    one, other = pair
    array = whole(one.shape)
    ranks = range(max(one.ranks_needed, other.ranks_needed))
    alike = all(np.array_equal(one.local(array, rank), other.local(array, rank)) for rank in ranks)
    equivalent = one.is_equivalent_to(other), other.is_equivalent_to(one)
    assert equivalent == (alike, alike) or any(repeats(side) for side in pair)
    assert alike or not any(equivalent)
    assert one.is_equivalent_to(decode_distribution(one.encoded))
    assert not one.is_equivalent_to(Distribution((*one.shape, 1), (1,)))
    with pytest.raises(TypeError, match="other must be a Distribution, .* got 3"):
        one.is_equivalent_to(3)


def test_margins():
    made = Distribution((6, 8), (2, 2), halo=(1, 2), periodic=(True, False))
    assert made == decode_distribution(made.encoded)
    assert made.local_shape(0) == (5, 8)
    assert made.interior(3) == (slice(1, 4), slice(2, 6))
    assert made.slices(3) == (slice(3, 6), slice(4, 8))
    assert made.owner((3, 3)) == 2
    array = np.arange(48).reshape(6, 8)
    around = np.pad(np.pad(array, [(1, 1), (0, 0)], "wrap"), [(0, 0), (2, 2)])
    for rank, (row, column) in enumerate(np.ndindex(2, 2)):
        part = made.local(array, rank)
        assert np.array_equal(part, around[3 * row : 3 * row + 5, 4 * column : 4 * column + 8])
        assert np.array_equal(part[made.interior(rank)], array[made.slices(rank)])
    assert made.local(array, 4).shape == (0, 0)
    cyclic = Distribution((6, 8), (2, 2), block=(1, "ceil"), halo=(0, 2))
    assert np.array_equal(cyclic.local(array, 1), np.pad(array, [(0, 0), (2, 2)])[::2, 4:12])
    assert made.is_equivalent_to(Distribution((6, 8), (2, 2), block="ceil", halo=(1, 2), periodic=(True, False)))
    for other in (Distribution((6, 8), (2, 2)), Distribution((6, 8), (2, 2), halo=(1, 2))):
        assert not made.is_equivalent_to(other) and not other.is_equivalent_to(made)
    assert Distribution((6, 8), (2, 2), halo=0, periodic=True) == Distribution((6, 8), (2, 2))
    tiles = TiledDistribution((6, 8), (3, 8), [[1], [1]], halo=1)
    assert tiles.local_shape(1) == (2 * 5 * 10,)
    with pytest.raises(ValueError, match="the local array of rank 1 is a list of parts"):
        tiles.interior(1)


def test_constructors():
    columns = Distribution.split((6, 8), -1, 3)
    assert columns == Distribution((6, 8), (3,), dims=(None, 0)) == Distribution.split((6, 8), 1, ranks=3)
    assert [columns.local_shape(rank) for rank in range(4)] == [(6, 3), (6, 3), (6, 2), (0, 0)]
    assert columns.slices(1) == (slice(0, 6), slice(3, 6))
    assert Distribution.split((6, 8), 0, [4, 2]).owner((5, 5)) == 2
    assert [Distribution.replicated((6, 8), [3, 1]).local_shape(rank)[0] for rank in range(4)] == [0, 6, 0, 6]
    assert Distribution.on_rank((6, 8), 2).local_shape(2) == (6, 8)
    assert Distribution.on_rank((6, 8), 2).ranks_needed == 3
    cyclic = Distribution.block_cyclic((6, 8), (2, 2), 2)
    assert cyclic == Distribution((6, 8), (2, 2), block=(2, 2)) == Distribution.block_cyclic((6, 8), (2, 2), [2, 2])
    assert Distribution((5,), (3,)) == Distribution((5,), (3,), block="balanced")
    assert [Distribution((7,), (4,), block="ceil").local_shape(rank) for rank in range(4)] == [(2,), (2,), (2,), (1,)]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Distribution.split((6, 8), 2, 3), "axis 2 of a tensor of 2 dimensions .* choose from -2 to 1"),
        (lambda: Distribution.split((6, 8), 0, [1, 1]), "rank 1"),
        (lambda: Distribution.block_cyclic((6, 8), (2,), 2), "a grid of 2 axes"),
        (lambda: Distribution((6, 8), (2, 2), block=(2, 2)).slices(0), "several blocks of axis 0"),
    ],
)
def test_constructors_refuse(call, words):
    with pytest.raises(ValueError, match=words):
        call()

"""Distributions that cannot be: the error says which argument, what was expected and what was given."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dace_redist import _core
from dace_redist.distribution import BoxDistribution, Distribution, TiledDistribution, decode_distribution
from dace_redist.schedule import Schedule, schedule

NAN, INF = float("nan"), float("inf")

REFUSED = [
    ({"shape": (8, -9)}, r"shape\[1\] must be at least 0, got -9"),
    ({"grid": (2, 0)}, r"process grid \(2, 0\): sizes must be at least 1"),
    ({"dims": (0, 0)}, "grid axis 0 is used twice: by tensor axes 0 and 1"),
    ({"dims": (0, 2)}, r"dims\[1\] is 2, but the process grid has axes 0 to 1"),
    ({"dims": (-1, 0)}, r"dims\[0\] is -1, but the process grid has axes 0 to 1"),
    ({"block": (1, 2, 3)}, r"block needs one entry per entry of shape \(2\), got 3"),
    ({"block": (0, 2)}, r"block\[0\] must be at least 1 element, got 0"),
    ({"block": (1, -1)}, r"block\[1\] must be at least 1 element, got -1"),
    ({"block": ("equal", 2)}, r"block\[0\] must be \"balanced\", .* or the length of each part, got 'equal'"),
    ({"block": "equal"}, r"block\[0\] must be \"balanced\", \"ceil\", a number or .*, got 'equal'"),
    ({"block": ((4, 4, 0), 2)}, r"block\[0\] must have the lengths of 2 parts, got 3: \(4, 4, 0\)"),
    ({"block": (2, (4, 5)), "dims": (0, None)}, r"block\[1\] must have the lengths of 1 parts, got 2"),
    ({"block": ((4, 5), 2)}, r"block\[0\]: the lengths of the parts must add up to shape\[0\], 8, got \(4, 5\)"),
    ({"block": ((4, 3), 2)}, r"must add up to shape\[0\], 8, got \(4, 3\)"),
    ({"block": (2, (2**62, 2**63 - 1))}, r"must add up to shape\[1\], 9, got"),
    ({"block": (2, (-1, 10))}, r"block\[1\]: lengths of parts must be at least 0, got -1"),
    ({"ranks": (0, 1, 2, 3, 4)}, r"process grid \(2, 2\) needs 4 ranks, got a list of 5"),
    ({"ranks": (0, 1, 2, 1)}, "rank 1 stands twice in the list of ranks"),
    ({"ranks": (0, 1, -2, 3)}, r"ranks\[2\] must not be negative, got -2"),
    ({"ranks": ()}, "ranks is empty; leave it out for ranks 0, 1, 2"),
    ({"pins": (None,)}, r"pins needs one entry per entry of grid \(2\), got 1"),
    ({"dims": (0, None), "pins": (None, 2)}, "grid axis 1 is pinned to coordinate 2 but has 2 coordinates"),
    ({"dims": (0, None), "pins": (None, -1)}, r"pins\[1\] must be at least 0, or None for all coordinates, got -1"),
    ({"pins": (0, None)}, "grid axis 0 is both pinned and split over"),
    ({"shape": (1,) * 17}, "tensors of 0 to 16 dimensions are supported, got 17"),
    ({"grid": (), "dims": (0, None)}, r"dims\[0\] is 0, but the process grid has no axes \(None: not split\)"),
    ({"shape": (2**40, 2**40)}, "shape .* is larger than 64 bits hold"),
    ({"grid": (2**40, 2**40)}, "process grid .* is larger than 64 bits hold"),
    ({"halo": (1, -1)}, r"halo\[1\] must be at least 0, got -1"),
    ({"halo": (1,)}, r"halo needs one entry per entry of shape \(2\), got 1"),
    ({"halo": 1, "periodic": (True,)}, r"periodic needs one entry per entry of shape \(2\), got 1"),
    ({"halo": (0, 5)}, r"halo\[1\] must not be wider than a part, 4 elements along axis 1, got 5"),
    ({"halo": 1, "block": ((8, 0), None)}, r"halo\[0\] must not be wider than a part, 0 elements along axis 0, got 1"),
    ({"halo": (1, 0), "block": (2, None)}, r"halo\[0\] must be 0, got 1: .* \(block-cyclic\), halos need one"),
]


@pytest.mark.parametrize("changed, said", REFUSED, ids=lambda value: str(value) if isinstance(value, dict) else "")
def test_refused(changed, said):
    with pytest.raises(ValueError, match=said) as refused:
        Distribution(**{"shape": (8, 9), "grid": (2, 2), **changed})
    assert "Distribution: " in str(refused.value) or "64 bits" in str(refused.value)


@pytest.mark.parametrize("value", [2.0, 2.5, NAN, INF, True, np.True_, "2", None, b"2", 2 + 0j, [2], np.float64(2)])
@pytest.mark.parametrize("name", ["shape", "grid", "ranks"])
def test_sizes_are_integers(name, value):
    arguments = {"shape": (8,), "grid": (1,)}
    with pytest.raises(TypeError, match=rf"{name}\[0\] must be an integer, got "):
        Distribution(**{**arguments, name: (value,)})
    if name == "shape":
        with pytest.raises(TypeError, match=r"tile\[0\] must be an integer, got "):
            TiledDistribution((8,), (value,), [0])


@pytest.mark.parametrize("value", [2.0, NAN, True, np.True_, b"2", [2.0]])
@pytest.mark.parametrize("name", ["dims", "block", "pins"])
def test_other_numbers_are_integers(name, value):
    with pytest.raises(TypeError, match=rf"{name}.* must be an integer, got |{name} must be a sequence"):
        Distribution((8,), (2,), **{name: (value,)})


@pytest.mark.parametrize("values", [8, "88", None])
def test_sizes_are_sequences(values):
    with pytest.raises(TypeError, match="shape must be a sequence of integers, got "):
        Distribution(values, (2,))
    with pytest.raises(TypeError, match="grid must be a sequence of integers, got "):
        Distribution((8,), values)


@pytest.mark.parametrize("rank", [-1, -(2**31), np.int64(-(2**63))])
def test_negative_ranks(rank):
    """Every function that takes a rank, of every kind of distribution."""
    blocks, boxes = Distribution((8, 9), (2, 2)), BoxDistribution((8, 9), [((0, 0), (8, 9))], [0])
    with_halo = Distribution((8, 9), (2, 2), halo=1)
    kinds = [blocks, boxes, TiledDistribution((8, 9), (8, 9), [[0]]), Distribution((), ()), with_halo]
    questions = [(kind, name) for kind in kinds for name in ("local_shape", "interior", "local")]
    questions += [(kind, name) for kind in (kinds[0], *kinds[3:]) for name in ("slices", "global_index")]
    questions += [(boxes, "boxes_of"), (Distribution((8, 8), (2, 2)), "scalapack_descriptor")]
    names = ("sends", "receives", "self_copy", "messages", "of_rank", "arrays", "sent_to")
    moves = schedule(blocks, boxes)
    questions += [(moves, name) for name in names] + [(Schedule.joined([moves, moves]), "sent_to")]
    for one, name in questions:
        arguments = (np.zeros(one.shape), rank) if name == "local" else (rank,)
        with pytest.raises(ValueError, match=f"rank must be at least 0, got {rank}"):
            getattr(one, name)(*arguments)


def test_strides_of_a_bound_plan():
    part = (np.dtype("float64"), np.dtype("float64"), [4, 3], [4, 3])
    bound = _core.BoundPlan(0, 0, 0, 0, [part, part], [False, False], True)
    bound.set_strides([([24, 8], []), ([], [24, 8])])
    with pytest.raises(ValueError, match="strides of 2 tensors are needed, got 1"):
        bound.set_strides([([], [])])
    with pytest.raises(ValueError, match="an array of 2 dimensions has as many strides, got 1"):
        bound.set_strides([([], []), ([8], [])])
    with pytest.raises(ValueError, match="axis 2 of a tensor of 2 dimensions does not exist"):
        Distribution((8, 9), (2, 2)).core.global_index(0, 2)


def test_questions_to_a_distribution():
    tiles = TiledDistribution((8,), (4,), [0, 1])
    assert eval(repr(tiles), {"array": np.array, "TiledDistribution": TiledDistribution}) == tiles
    for ask in (Distribution((8,), (2,)).global_index, Distribution((8,), (2,)).slices, tiles.local_shape):
        with pytest.raises(TypeError, match=r"rank must be an integer, got 1\.0"):
            ask(1.0)
    for made in (tiles, Distribution((8,), (2,))):
        with pytest.raises(TypeError, match=r"rank must be an integer, got 1\.0"):
            made.local(np.zeros(8), 1.0)
        with pytest.raises(ValueError, match=r"the whole tensor has shape \(8,\), got list"):
            made.local([0.0] * 8, 0)


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
    (((8,), (0,), [0]), ValueError, r"tile\[0\] must be at least 1 element, got 0"),
    (((), (), []), ValueError, r"owner needs one rank per tile, shape \(\), got \(0,\)"),
    (((), (), 2.0), TypeError, "owner must hold integers, got float64"),
    (((8, 8), (2,), [0]), ValueError, "tile needs 2 entries, one per dimension, got 1"),
    (((8, 8), (4, 4), [[0, 1], [-2, 3]]), ValueError, r"the owner of tile \(1, 0\) is rank -2"),
    (((8,), (4,), [0.0, 1.0]), TypeError, "owner must hold integers, got float64"),
    (((8,), (4,), [True, False]), TypeError, "owner must hold integers, got bool"),
    (((1,) * 17, (1,) * 17, np.zeros((1,) * 17, int)), ValueError, "tensors of 0 to 16 dimensions are supported"),
]


@pytest.mark.parametrize("arguments, kind, said", TILES_REFUSED, ids=lambda value: "")
def test_tiles_refused(arguments, kind, said):
    with pytest.raises(kind, match=f"TiledDistribution: .*({said})"):
        TiledDistribution(*arguments)


WHOLE = ((0, 0), (8, 9))
BOXES_REFUSED = [
    (((8, 9), [WHOLE], [0, 1]), ValueError, r"boxes must have offset and extent .* shape \(2, 2, 2\), got \(1, 2, 2\)"),
    (((8, 9), [(0, 8), (0, 9)], [0]), ValueError, r"shape \(1, 2, 2\), got \(2, 2\)"),
    (((8, 9), [WHOLE], 0), ValueError, r"owners must be a list of one rank per box, got shape \(\)"),
    (((8, 9), [WHOLE], [0.0]), TypeError, "owners must hold integers, got float64"),
    (((8, 9), [((0, 0.5), (8, 8))], [0]), TypeError, "boxes must hold integers, got float64"),
    (((8, 9), [WHOLE, WHOLE], [0, -1]), ValueError, "the owner of box 1 must be a rank, at least 0, got -1"),
    (((8, 9), [((0, 0), (8, -1))], [0]), ValueError, "box 0: its extent in dimension 1 must be at least 0, got -1"),
    (((8, 9), [((0, -1), (8, 9))], [0]), ValueError, "box 0: 9 indices from -1 on are not inside dimension 1 .* has 9"),
    (((8, 9), [((1, 0), (8, 9))], [0]), ValueError, "box 0: 8 indices from 1 on are not inside dimension 0 .* has 8"),
    (((8, 9), [((2**63 - 1, 0), (8, 9))], [0]), ValueError, "box 0: 8 indices from 9223372036854775807 on"),
    (((2**62,), [((0,), (2**62,))] * 2, [3, 3]), ValueError, "the boxes of rank 3 hold more elements than 64 bits"),
    (((8, -9), [], []), ValueError, r"shape\[1\] must be at least 0, got -9"),
]


@pytest.mark.parametrize("arguments, kind, said", BOXES_REFUSED, ids=lambda value: "")
def test_boxes_refused(arguments, kind, said):
    with pytest.raises(kind, match=f"BoxDistribution: .*({said})"):
        BoxDistribution(*arguments)


MADE = [Distribution((8, 9), (2, 2)), TiledDistribution((8, 9), (8, 9), [[3]])]
MADE += [BoxDistribution((8, 9), [((0, 0), (4, 9))], [1])]


@pytest.mark.parametrize("made", MADE, ids=lambda made: type(made).__name__)
def test_questions_that_make_no_sense(made):
    name = type(made).__name__
    with pytest.raises(ValueError, match=rf"{name}: the whole tensor has shape \(8, 9\), got \(9, 8\)"):
        made.local(np.zeros((9, 8)), 0)
    for index, dimension in (((8, 0), 0), ((0, 9), 1), ((-1, 0), 0)):
        with pytest.raises(ValueError, match=rf"{name}: index .* is outside the tensor in dimension {dimension}"):
            made.owner(index)
    with pytest.raises(ValueError, match=rf"{name}: index \(0,\) needs 2 entries"):
        made.owner((0,))
    assert math.prod(made.local_shape(10**6)) == 0


def test_halos_refused():
    for halo, periodic in ((1.5, False), (1, "all"), ((True, 1), False), (1, (1, 0))):
        with pytest.raises(TypeError, match="halo|periodic"):
            Distribution((8, 9), (2, 2), halo=halo, periodic=periodic)
    with pytest.raises(ValueError, match=r"TiledDistribution: halo\[0\] must not be wider than a part, 2 elements"):
        TiledDistribution((8, 9), (3, 9), [[0], [0], [1]], halo=(3, 0))
    with pytest.raises(ValueError, match=r"BoxDistribution: halo\[1\] must not be wider than a part, 1 elements"):
        BoxDistribution((8, 9), [((0, 0), (8, 8)), ((0, 8), (8, 1))], [0, 1], halo=2)


ENCODED_REFUSED = [
    ([3], "incomplete description"),
    ([3, 1, 0, 0, 0], "incomplete description"),
    ([3, 1, 1, 2, 0, 1, 1, 8, 2, 0, -1, -1, 0], r"periodic\[0\] must be 0 or 1"),
    ([3, 1, 1, 0, 3, 1, 1, 0, 0, 1, 1, 8, 2, 0, -1, -1, 0], "unknown kind 3"),
    ([3, 2, 1, 1, 0, 0, 0, 1, 1, 8, 2, 0, -1, -1, 0], "incomplete description"),
    ([], "incomplete description"),
    ([7, 1], "unknown kind 7"),
    ([0, -1, 1], "0 to 16 dimensions"),
    ([0, 0, 0], "incomplete description"),
    ([0, 1, 5000], "0 to 1024 axes, got 5000"),
    ([0, 1, 1, 8, 2, 0, -3, -1, 0], r"block\[0\] must be at least 1 element, got -3"),
    ([0, 1, 1, 8, 2, 0, -2, -1, 0, 8], "incomplete description"),
    ([0, 1, 1, 8, 2, 0, -2, -1, 0, 4, 4, 0], "incomplete description"),
    ([0, 1, 1, 8, 2, 0, -2, -1, -5, 4, 4], "incomplete description"),
    ([1, 2, 8], "incomplete description"),
    ([1, 1, -1, 1], r"shape\[0\] must be at least 0, got -1"),
    ([1, 1, 8, 0], r"tile\[0\] must be at least 1 element, got 0"),
    ([1, 1, 8, 4, 0], r"tile grid \(2,\) needs 2 owners, got 1"),
    ([2, 1, 8], "incomplete description"),
    ([2, 1, 8, 2, 0, 0, 8], "2 boxes of 1 dimensions take 3 numbers each, got 3"),
    ([2, 1, 8, 1, 0, 0, 8, 1], "1 boxes of 1 dimensions take 3 numbers each, got 4"),
    ([1, 2, 2**40, 2**40, 1, 1], "tile grid .* is larger than 64 bits hold"),
]


@pytest.mark.parametrize("encoded, said", ENCODED_REFUSED, ids=str)
def test_encoded_refused(encoded, said):
    with pytest.raises(ValueError, match=said):
        _core.Distribution(encoded, "source")


@pytest.mark.parametrize("encoded", [[], [1], [7, 1, 2], [0, 0, 1], [2, 1, 8], [2, 1, 8, 1, 0], [2, -1, 8]], ids=str)
def test_decoding_refuses_what_is_no_distribution(encoded):
    with pytest.raises(ValueError, match="not an encoded distribution"):
        decode_distribution(encoded)


def test_different_shapes_are_refused():
    with pytest.raises(ValueError, match=r"one global shape, got \(8, 9\) and \(8,\)"):
        _core.check_index_map(Distribution((8, 9), (2, 2)).core, Distribution((8,), (2,)).core)
    with pytest.raises(ValueError, match="one global shape"):
        _core.rank_schedule(Distribution((8,), (2,)).core, Distribution((9,), (2,)).core, 0)


def test_symbols_wait_for_the_program():
    sympy = pytest.importorskip("sympy")
    n, p = sympy.symbols("N P", positive=True, integer=True)
    for block in (n // p, None), (None, (n, 9 - n)), (None, (4, 5)):
        made = Distribution((n, sympy.Integer(9)), (p, 2), block=block)
        assert decode_distribution(made.encoded) == made
    with pytest.raises(ValueError, match=r"block\[0\] must have the lengths of P parts, got 2"):
        Distribution((n,), (p,), block=[(4, 5)])
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

"""The schedule against what one sees when every element of a small tensor is followed."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from distributions import FEW, pairs
from hypothesis import example, given

from dace_redist.distribution import BoxDistribution, Distribution, TiledDistribution
from dace_redist.messages import Quantiles, count_runs
from dace_redist.schedule import schedule

A, B = Distribution((8, 9), (2, 2)), Distribution((8, 9), (4, 1))
SEED = (48, 24, 24, 72, 288)
cases = pairs.map(lambda pair: schedule(*pair, dtype="int32"))


def positions(offset, counts, strides):
    """Positions in the array, in the order in which a packed message holds them."""
    places = itertools.product(*map(range, counts))
    return [offset + sum(map(math.prod, zip(at, strides, strict=True))) for at in places]


def packed(message, side):
    return [
        position
        for block in message.blocks
        for position in positions(getattr(block, f"{side}_offset"), block.counts, getattr(block, f"{side}_strides"))
    ]


def runs_of(sequence):
    """Brute force: lengths of the maximal pieces that ascend by one."""
    runs = []
    for i, position in enumerate(sequence):
        if i and position == sequence[i - 1] + 1:
            runs[-1] += 1
        else:
            runs.append(1)
    return Counter(runs)


def quantiles(runs):
    """Smallest and largest length, and that of the run in which the middle element lies."""
    of_elements = sorted(length for length in runs.elements() for _ in range(length)) or [0]
    return Quantiles(of_elements[0], of_elements[(len(of_elements) - 1) // 2], of_elements[-1])


@FEW
@given(cases)
def test_messages_carry_every_element_to_its_place(case):
    whole = np.arange(math.prod(case.shape)).reshape(case.shape)
    for rank in range(case.ranks):
        wanted = case.target.local(whole, rank).ravel()
        got = np.full_like(wanted, -1)
        for message in (*case.receives(rank), case.self_copy(rank)):
            sent = case.source.local(whole, message.source).ravel()[packed(message, "source")]
            at = packed(message, "target")
            assert len(set(at)) == len(at) == message.count == sum(block.count for block in message.blocks)
            assert np.all(got[at] == -1)
            got[at] = sent
        np.testing.assert_array_equal(got, wanted)


@FEW
@given(cases)
@example(schedule(Distribution((9,), (3,), block=((5, 4, 0),)), Distribution((9,), (3,), block=((0, 4, 5),)), "i4"))
def test_volumes_add_up(case):
    volumes = case.volume_matrix()
    assert volumes.shape == (case.ranks, case.ranks)
    assert volumes.dtype == np.int64
    held = sum(math.prod(case.target.local_shape(rank)) for rank in range(case.ranks))
    assert volumes.sum() == case.bytes_total() == 4 * held
    assert volumes.sum() - np.trace(volumes) == case.bytes_moved()
    sent = volumes - np.diag(np.diag(volumes))
    assert case.busiest_rank() == np.argmax(sent.sum(0) + sent.sum(1))
    for rank in range(case.ranks):
        assert sum(m.nbytes(case.itemsize) for m in case.sends(rank)) == sent[rank].sum()
        assert sum(m.nbytes(case.itemsize) for m in case.receives(rank)) == sent[:, rank].sum()


@FEW
@given(cases)
def test_runs_are_those_of_the_packed_message(case):
    sender, receiver = Counter(), Counter()
    for rank in range(case.ranks):
        for message in case.sends(rank):
            source, target = runs_of(packed(message, "source")), runs_of(packed(message, "target"))
            for block in message.blocks:
                inner = block.counts[-1] if block.counts else 1
                sides = (positions(0, block.counts, s)[:inner] for s in (block.source_strides, block.target_strides))
                assert block.run_length == (inner if all(np.all(np.diff(side) == 1) for side in sides) else 1)
            assert (message.source_runs, message.target_runs) == (source, target)
            sender.update(source)
            receiver.update(target)
    runs = case.run_lengths()
    assert (runs.sender, runs.receiver) == (quantiles(sender), quantiles(receiver))


@FEW
@given(cases)
def test_blocks_as_views_of_the_arrays(case):
    for rank in range(case.ranks):
        sends, receives, _ = case.arrays(rank)
        messages = zip((sends, receives), (case.sends(rank), case.receives(rank)), ("source", "target"), strict=True)
        for arrays, known, side in messages:
            for number, message in enumerate(known):
                at = packed(message, side)
                views = getattr(arrays, f"{side}_views")
                found = [view.ravel() for view in views(np.arange(max(at) + 1), number)]
                assert np.concatenate(found).tolist() == at
                with pytest.raises(ValueError, match=f"at least {max(at) + 1} elements, got shape"):
                    views(np.arange(max(at)), number)


@pytest.mark.parametrize("seed_of_draw", range(200))
def test_runs_of_any_loops(seed_of_draw):
    draw = np.random.default_rng(seed_of_draw)
    blocks = []
    for _ in range(draw.integers(1, 4)):
        depth = int(draw.integers(0, 4))
        blocks.append((int(draw.integers(0, 12)), *(tuple(draw.integers(1, 5, depth).tolist()) for _ in range(2))))
    assert count_runs(blocks) == runs_of([p for block in blocks for p in positions(*block)])


def test_report_says_what_people_ask():
    seed = schedule(Distribution(SEED, (2, 1, 1, 3, 2)), Distribution(SEED, (1, 1, 1, 1, 12)), dtype="int32")
    assert {message.run_length for message in seed.messages(0)} == {24}
    report = str(seed)
    for part in (
        "int32[48, 24, 24, 72, 288], 2.14 GiB",
        "grid 2 x 1 x 1 x 3 x 2, blocks of 24 x 24 x 24 x 24 x 144",
        "1.96 GiB (91.7 %) in 66 messages",
        "182 MiB (8.3 %) stays",
        "sender's side 96 B",
        "receiver's side 2.25 KiB",
        "busiest   rank 1: sends 182 MiB in 6 messages",
    ):
        assert part in report
    assert "nothing to send" in str(schedule(A, A))
    tiles = TiledDistribution((9, 8), (2, 3), np.arange(15).reshape(5, 3) * 7 % 4)
    tiles = str(schedule(tiles, Distribution((9, 8), ())))
    assert "15 tiles of 2 x 3 on 4 ranks" in tiles
    assert "half of all bytes in up to" in tiles
    turned = Distribution((8, 9), (2, 3), dims=(None, 1), ranks=(5, 4, 3, 2, 1, 0))
    replicas = str(schedule(Distribution((8, 9), (2, 2), dims=(0, None)), turned))
    assert "dims 0,-, 2 replicas" in replicas
    assert "ranks 5,4,3,2,1,0" in replicas


@FEW
@given(cases)
def test_json_survives_and_matches(case):
    plain = case.to_json()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["bytes_moved"] == case.bytes_moved()
    matrix = np.zeros((case.ranks, case.ranks), np.int64)
    for source, target, nbytes in plain["volumes"]:
        matrix[source, target] = nbytes
    np.testing.assert_array_equal(matrix, case.volume_matrix())
    np.testing.assert_array_equal(plain["per_rank"]["bytes_kept"], np.diag(matrix))
    assert plain["source"]["kind"] in ("blocked", "tiled", "boxed")


@pytest.mark.parametrize(
    "equal",
    [Distribution((6,), (3,), dims=(None,)), BoxDistribution((6,), [((0,), (6,))] * 3, range(3))],
    ids=["replicas", "boxes"],
)
def test_equal_parts_share_what_is_sent(equal):
    elsewhere = schedule(equal, Distribution((6,), (3,), ranks=(3, 4, 5))).volume_matrix()
    assert elsewhere[:3].sum(axis=1).tolist() == [2 * 8] * 3
    with_one = schedule(equal, Distribution((6,), (2,), ranks=(1, 4))).volume_matrix()
    assert with_one[1, 1] == 3 * 8  # a rank takes from itself what it has


@pytest.mark.parametrize("holes", [[(3, 3)], [(8, 7)], [(0, 0), (4, 5)]])
@pytest.mark.parametrize(
    "target", [Distribution((9, 8), (2, 2)), BoxDistribution((9, 8), [((0, 0), (9, 8))], [1])], ids=["blocks", "box"]
)
def test_elements_that_no_box_holds(holes, target):
    boxes = [((i, j), (1, 1)) for i in range(9) for j in range(8) if (i, j) not in holes]
    move = schedule(BoxDistribution((9, 8), boxes, np.arange(len(boxes)) % 3), target)
    lacking = {target.owner(hole) for hole in holes}
    for rank in range(move.ranks):
        if rank not in lacking:
            move.messages(rank)
            continue
        expected = "|".join(re.escape(str(hole)) for hole in holes if target.owner(hole) == rank)
        with pytest.raises(ValueError, match=f"no box holds element ({expected}), which rank {rank} of the target"):
            move.messages(rank)


def test_boxes_are_not_partial_results():
    boxes = BoxDistribution((4,), [((0,), (4,))] * 2, [0, 1])
    with pytest.raises(ValueError, match="op reduces replicas of a Distribution; overlapping boxes"):
        schedule(boxes, Distribution((4,), (2,)), op="sum")
    assert schedule(Distribution((4,), (2,), dims=(None,)), boxes, op="sum").exchanges == 2


def test_rank_that_takes_no_part():
    the_schedule = schedule(Distribution((5, 4), (2,), ranks=(6, 1)), Distribution((5, 4), (3,), ranks=(2, 6, 4)))
    assert the_schedule.ranks == 7
    assert the_schedule.messages(3) == the_schedule.messages(1000) == []
    assert the_schedule.self_copy(3).count == 0
    assert the_schedule.self_copy(3).run_length == 0


def test_margins_are_exchanged_in_place_and_nothing_else_is():
    wide, wider = (dataclasses.replace(A, halo=halo) for halo in ((1, 0), (2, 0)))
    assert schedule(wide, wide).exchanges_halo
    assert not schedule(A, A).exchanges_halo and not schedule(wide, wider).exchanges_halo
    assert not any(schedule(wide, wide, **how).exchanges_halo for how in ({"alpha": 2}, {"conj": True}))


def test_element_types():
    class DaceType:
        def as_numpy_dtype(self):
            return np.dtype("int16")

    assert schedule(A, B).itemsize == 8
    for dtype, itemsize in ((np.float32, 4), ("complex128", 16), (DaceType(), 2), ("i4,f8", 12), (np.dtype("S3"), 3)):
        assert schedule(A, B, dtype=dtype).itemsize == itemsize
    for dtype in ("flat", None, 3, "", object()):
        with pytest.raises(TypeError, match="unknown dtype|no fixed size"):
            schedule(A, B, dtype=dtype)
    for dtype in (object, str, "S"):
        with pytest.raises(TypeError, match="no fixed size"):
            schedule(A, B, dtype=dtype)
    with pytest.raises(TypeError, match=r"has a shape: expected its base int32, and axes \(2,\) of the tensor"):
        schedule(A, B, dtype="(2,)i4")


def test_bad_input_is_refused():
    with pytest.raises(TypeError, match=r"target must be a Distribution, .* or BoxDistribution, got \(8, 9\)"):
        schedule(A, (8, 9))
    with pytest.raises(ValueError, match=r"one global shape, got \(8, 9\) and \(9, 8\)"):
        schedule(A, Distribution((9, 8), (2, 2)))
    with pytest.raises(ValueError, match="rank must be at least 0, got -1"):
        schedule(A, B).messages(-1)
    for rank in (1.0, True, "0", None):
        with pytest.raises(TypeError, match="rank must be an integer"):
            schedule(A, B).messages(rank)
    with pytest.raises(TypeError, match="senders must be a list of ranks, got 3"):
        schedule(A, B).run_lengths(3)


def test_bytes_beyond_64_bits():
    pair = Distribution((2**61,), (2,)), Distribution((2**61,), (2,), ranks=(1, 0))
    assert schedule(*pair, "f4").volume_matrix().tolist() == [[0, 2**62], [2**62, 0]]
    found = schedule(*pair)
    assert found.bytes_moved() == 2**64
    for call in (found.volume_matrix, lambda: found.sent_to(1), lambda: found.bytes_between_nodes([0, 1])):
        with pytest.raises(ValueError, match=rf"rank \d sends a rank {2**60} elements, whose bytes are more than 64"):
            call()
    four = Distribution((2**61,), (4,)), Distribution((2**61,), (4,), ranks=(1, 0, 3, 2))
    assert schedule(*four).bytes_between_nodes(range(4)) == 2**64


#: Prints the bytes of memory that the schedule of a rank takes that exchanges one element with each other rank.
ALL_TO_ALL = """
import resource
from dace_redist import Distribution, _core
ranks = 100_000
rows, columns = (Distribution((ranks, ranks), (ranks,), dims=dims).core for dims in ((0, None), (None, 0)))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
assert len(_core.rank_schedule(rows, columns, 5, True)[0][0]) == ranks - 1
print((peak() - before) * 1024)
"""


def test_memory_of_many_messages():
    """Blocks take the words of their dimensions, not those of the most dimensions that one may have."""
    printed = subprocess.run([sys.executable, "-c", ALL_TO_ALL], capture_output=True, text=True, check=True).stdout
    assert int(printed) < 40e6

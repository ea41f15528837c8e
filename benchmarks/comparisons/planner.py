"""The schedule of one rank, between grids of 1,000,000 ranks, or between two sets of boxes; MPI moves nothing."""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mpi4py import MPI

from comparisons.comparison import Comparison, UnsuitableError
from dace_redist import _core, schedule
from dace_redist.distribution import BoxDistribution, Distribution
from dace_redist.messages import MessageArrays

GRIDS = (25, 20, 20, 10, 10), (10, 10, 20, 20, 25)
#: Shape of the tensor between these grids: its extents divide by neither number of parts.
SHAPE = tuple(24 * math.lcm(a, b) + 7 for a, b in zip(*GRIDS, strict=True))
#: Ranks that own boxes, and parts into which each axis is cut.
BOX_RANKS, PARTS = 1000, 100
Boxes = tuple[np.ndarray, np.ndarray]


def ranks(comm: MPI.Intracomm, shape: tuple[int, ...]) -> Iterator[Comparison]:
    """Prepare the plan of the rank in the middle, with the messages handed to Python."""
    _check(comm, shape, len(GRIDS[0]))
    number = math.prod(GRIDS[0])
    plan = functools.partial(_core.rank_schedule, *(Distribution(shape, grid).core for grid in GRIDS), number // 2 + 1)
    messages = sum(len(MessageArrays(*part)) for part in plan())
    yield Comparison(f"one of {number:,} ranks, {messages} messages", {"dace-redist": plan})


def boxes(comm: MPI.Intracomm, shape: tuple[int, ...]) -> Iterator[Comparison]:
    """
    Prepare the plan of a rank that owns boxes at random; each axis is cut at random indices.

    Where PyTorch is installed, the planner of its distributed checkpoints plans the reads of the same rank, with its
    metadata objects made beforehand.
    """
    _check(comm, shape, 3)
    sides, rank = (_random_boxes(shape, 1), _random_boxes(shape, 2)), BOX_RANKS // 2
    calls: dict[str, Callable[[], int]] = {"dace-redist": functools.partial(_plan, shape, *sides, rank)}
    if importlib.util.find_spec("torch") is not None:
        calls["PyTorch's checkpoint planner"] = _checkpoint_reads(shape, *sides, rank)
    blocks = {name: call() for name, call in calls.items()}
    assert len(set(blocks.values())) == 1, f"the planners do not agree: {blocks}"
    yield Comparison(f"{PARTS**3} boxes", calls)


def _check(comm: MPI.Intracomm, shape: tuple[int, ...], ndim: int) -> None:
    if comm.size > 1 or len(shape) != ndim:
        raise UnsuitableError(f"needs one rank and {ndim} lengths, got {comm.size} and {len(shape)}")


def _random_boxes(shape: tuple[int, ...], seed: int) -> Boxes:
    """Return the boxes, offsets and extents, and their owners."""
    random = np.random.default_rng(seed)
    cuts = [np.sort(random.choice(np.arange(1, n), min(PARTS, n) - 1, replace=False)) for n in shape]
    begins = [np.concatenate([[0], cut]) for cut in cuts]
    extents = [np.diff(np.append(begin, n)) for begin, n in zip(begins, shape, strict=True)]
    found = np.stack([np.stack(np.meshgrid(*one, indexing="ij"), -1).reshape(-1, 3) for one in (begins, extents)], 1)
    return found, random.integers(0, BOX_RANKS, len(found))


def _plan(shape: tuple[int, ...], before: Boxes, after: Boxes, rank: int) -> int:
    """Plan a rank's messages from NumPy arrays; return the number of blocks that it receives or keeps."""
    _, receives, kept = schedule(*(BoxDistribution(shape, *side) for side in (before, after))).of_rank(rank)
    return sum(len(message.blocks) for message in (*receives, kept))


def _checkpoint_reads(shape: tuple[int, ...], before: Boxes, after: Boxes, rank: int) -> Callable[[], int]:
    """Return the call that plans a rank's reads of a checkpoint, and returns their number."""
    import torch
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, TensorProperties, TensorStorageMetadata
    from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

    def chunks(some: np.ndarray) -> list[Any]:
        return [ChunkStorageMetadata(torch.Size(offset), torch.Size(extent)) for offset, extent in some.tolist()]

    saved = TensorStorageMetadata(TensorProperties(), torch.Size(shape), chunks(before[0]))
    local = chunks(after[0][after[1] == rank])
    return lambda: len(create_read_items_for_chunk_list("tensor", saved, local))

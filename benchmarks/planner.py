"""
Time of one rank's schedule.

``ranks``: for 1,000,000 ranks in five dimensions, with the messages handed to Python.

``boxes``: one rank of 1,000, between two sets of boxes of a tensor of three dimensions; each axis is cut at random
indices, each box has a random owner. With PyTorch installed, the planner of its distributed checkpoints
(``create_read_items_for_chunk_list``) plans the reads of the same rank, with its metadata objects made beforehand.

    python benchmarks/planner.py [ranks] [boxes] [--parts 100] [--json FILE]
"""

from __future__ import annotations

import functools
import importlib.util
import math
import statistics
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from records import append, environment, json_option

from dace_redist import _core, schedule
from dace_redist.distribution import BoxDistribution, Distribution
from dace_redist.messages import MessageArrays

GRIDS = (25, 20, 20, 10, 10), (10, 10, 20, 20, 25)


def plan_ranks(path: Path | None) -> None:
    ranks, shape = math.prod(GRIDS[0]), [24 * math.lcm(a, b) + 7 for a, b in zip(*GRIDS, strict=True)]
    plan = functools.partial(_core.rank_schedule, *(Distribution(shape, grid).core for grid in GRIDS), ranks // 2 + 1)
    messages = sum(len(MessageArrays(*part)) for part in plan())
    seconds = statistics.median(timeit.repeat(plan, number=1, repeat=200))
    click.echo(f"{ranks:,} ranks, {messages} messages: {1e3 * seconds:.3f} ms")
    append(path, {"kind": "uniform", "ranks": ranks, "messages": messages, "seconds": seconds})


BOX_RANKS, EXTENT = 1000, 10_000
Boxes = tuple[np.ndarray, np.ndarray]


def random_boxes(parts: int, seed: int) -> Boxes:
    """Return parts**3 boxes, offsets and extents, and their owners."""
    random = np.random.default_rng(seed)
    cuts = [np.sort(random.choice(np.arange(1, EXTENT), parts - 1, replace=False)) for _ in range(3)]
    begins = [np.concatenate([[0], cut]) for cut in cuts]
    extents = [np.diff(np.append(begin, EXTENT)) for begin in begins]
    boxes = np.stack([np.stack(np.meshgrid(*one, indexing="ij"), -1).reshape(-1, 3) for one in (begins, extents)], 1)
    return boxes, random.integers(0, BOX_RANKS, len(boxes))


def plan_of_boxes(before: Boxes, after: Boxes, rank: int) -> int:
    """Plan a rank's messages from NumPy arrays; return the number of blocks that it receives or keeps."""
    _, receives, kept = schedule(*(BoxDistribution((EXTENT,) * 3, *side) for side in (before, after))).of_rank(rank)
    return sum(len(message.blocks) for message in (*receives, kept))


def checkpoint_reads(before: Boxes, after: Boxes, rank: int) -> Callable[[], int]:
    """Return the call that plans a rank's reads of a checkpoint, and returns their number."""
    import torch
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, TensorProperties, TensorStorageMetadata
    from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

    def chunks(boxes: np.ndarray) -> list[Any]:
        return [ChunkStorageMetadata(torch.Size(offset), torch.Size(extent)) for offset, extent in boxes.tolist()]

    saved = TensorStorageMetadata(TensorProperties(), torch.Size((EXTENT,) * 3), chunks(before[0]))
    local = chunks(after[0][after[1] == rank])
    return lambda: len(create_read_items_for_chunk_list("tensor", saved, local))


def plan_boxes(parts: int, path: Path | None) -> None:
    sides, rank = (random_boxes(parts, 1), random_boxes(parts, 2)), BOX_RANKS // 2
    calls = {"dace-redist": functools.partial(plan_of_boxes, *sides, rank)}
    if importlib.util.find_spec("torch") is not None:
        calls["PyTorch's checkpoint planner"] = checkpoint_reads(*sides, rank)
    blocks = {name: call() for name, call in calls.items()}
    if len(set(blocks.values())) > 1:
        raise click.ClickException(f"the planners do not agree: {blocks}")
    seconds = {name: timeit.timeit(call, number=1) for name, call in calls.items()}
    click.echo(f"{parts**3:,} boxes to {parts**3:,}, rank {rank} of {BOX_RANKS:,}, {blocks['dace-redist']:,} blocks")
    for name, time in seconds.items():
        click.echo(f"  {name:28}{time:9.3f} s, {time / seconds['dace-redist']:.1f} times as long")
    record = {"comparison": "boxes", "shape": (EXTENT,) * 3, "what": f"{parts**3} boxes", "seconds": seconds}
    append(path, record | {"ranks": BOX_RANKS, "environment": environment(1, [0])})


@click.command(help=__doc__)
@click.argument("what", nargs=-1, type=click.Choice(["ranks", "boxes"]))
@click.option("--parts", default=100, show_default=True, type=click.IntRange(2, 300), help="parts of each axis: boxes")
@json_option()
def main(what: tuple[str, ...], parts: int, path: Path | None) -> None:
    for one in what or ("ranks", "boxes"):
        {"ranks": plan_ranks, "boxes": functools.partial(plan_boxes, parts)}[one](path)


if __name__ == "__main__":
    main()

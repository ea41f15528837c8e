"""
Time to plan one rank of 1,000 between two sets of boxes of a tensor of three dimensions, from NumPy arrays to messages.

Each axis of source and target is cut at random indices, each box has a random owner. With PyTorch installed, the
planner of its distributed checkpoints (``create_read_items_for_chunk_list``) plans the reads of the same rank: what it
receives only. Its metadata objects are made beforehand.

    python benchmarks/boxes.py [--parts 100] [--repetitions 3] [--json FILE]
"""

from __future__ import annotations

import importlib.util
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from redistribution.run import environment

from dace_redist import BoxDistribution, schedule

RANKS, EXTENT = 1000, 10_000


def random_boxes(parts: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return parts**3 boxes, offsets and extents, and their owners."""
    random = np.random.default_rng(seed)
    cuts = [np.sort(random.choice(np.arange(1, EXTENT), parts - 1, replace=False)) for _ in range(3)]
    begins = [np.concatenate([[0], cut]) for cut in cuts]
    extents = [np.diff(np.append(begin, EXTENT)) for begin in begins]
    boxes = np.stack([np.stack(np.meshgrid(*one, indexing="ij"), -1).reshape(-1, 3) for one in (begins, extents)], 1)
    return boxes, random.integers(0, RANKS, len(boxes))


def plan(before: Any, after: Any, rank: int) -> int:
    """Plan a rank's messages; return the number of blocks that it receives or keeps."""
    shape = (EXTENT,) * 3
    _, receives, kept = schedule(BoxDistribution(shape, *before), BoxDistribution(shape, *after)).of_rank(rank)
    return sum(len(message.blocks) for message in (*receives, kept))


def checkpoint_reads(before: Any, after: Any, rank: int) -> Callable[[], int]:
    """Return the call that plans a rank's reads of a checkpoint, and returns their number."""
    import torch
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, TensorProperties, TensorStorageMetadata
    from torch.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list

    def chunks(boxes: np.ndarray) -> list[Any]:
        return [ChunkStorageMetadata(torch.Size(offset), torch.Size(extent)) for offset, extent in boxes.tolist()]

    saved = TensorStorageMetadata(TensorProperties(), torch.Size((EXTENT,) * 3), chunks(before[0]))
    local = chunks(after[0][after[1] == rank])
    return lambda: len(create_read_items_for_chunk_list("tensor", saved, local))


def best(call: Callable[[], int], repetitions: int) -> tuple[float, int]:
    """Return the least time, and what the call returns."""
    seconds, found = [], 0
    for _ in range(repetitions):
        begin = time.perf_counter()
        found = call()
        seconds.append(time.perf_counter() - begin)
    return min(seconds), found


@click.command(help=__doc__)
@click.option("--parts", default=100, show_default=True, type=click.IntRange(2, 300), help="parts of each axis")
@click.option("--repetitions", default=3, show_default=True, type=click.IntRange(1))
@click.option("--json", "path", type=click.Path(dir_okay=False, path_type=Path), help="append a JSON line")
def main(parts: int, repetitions: int, path: Path | None) -> None:
    before, after, rank = random_boxes(parts, 1), random_boxes(parts, 2), RANKS // 2
    ours, blocks = best(lambda: plan(before, after, rank), repetitions)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    click.echo(f"{parts**3:,} boxes to {parts**3:,}, rank {rank} of {RANKS:,}, {blocks:,} blocks received or kept")
    click.echo(f"dace-redist{ours:24.3f} s, peak {peak:,.0f} MB")
    if importlib.util.find_spec("torch") is None:
        return click.echo("PyTorch is not installed")
    theirs, reads = best(checkpoint_reads(before, after, rank), 1)
    if reads != blocks:
        raise click.ClickException(f"PyTorch plans {reads:,} reads")
    click.echo(f"PyTorch's checkpoint planner{theirs:7.3f} s, {theirs / ours:.1f} times as long")
    if path:
        seconds = {"dace-redist": ours, "PyTorch's checkpoint planner": theirs}
        record = {"comparison": "boxes", "shape": (EXTENT,) * 3, "what": f"{parts**3} boxes", "seconds": seconds}
        with path.open("a") as lines:
            lines.write(json.dumps(record | {"ranks": RANKS, "environment": environment(1, [0])}) + "\n")


if __name__ == "__main__":
    main()

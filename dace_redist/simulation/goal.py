"""
GOAL text, which LogGOPSim and ATLAHS simulate. Start reading at: write_goal.

Source: Hoefler, Siebert, Lumsdaine, Group Operation Assembly Language, ICPP 2009; LogGOPSim's ``txt2bin`` reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from dace_redist.simulation.operations import Arrival, Compute, Operation, Post, Send


def write_goal(ranks: Iterable[tuple[int, list[Operation]]], count: int, path: Path) -> None:
    """
    Write what each rank does as GOAL text: sizes in bytes, work in nanoseconds.

    :param ranks: What each rank does, in any order; those left out do nothing.
    :param count: Number of ranks.
    :param path: File to write.
    :raises OSError: If it cannot be written; names the file.
    """
    left = set(range(count))
    try:
        opened = path.open("w")
    except OSError as error:
        wrong = f"cannot write GOAL text to {path} ({error.strerror}): name a file in a folder that is there"
        raise OSError(wrong) from None
    with opened as file:
        file.write(f"num_ranks {count}\n")
        for rank, operations in ranks:
            left.discard(rank)
            file.writelines(f"{line}\n" for line in (f"\nrank {rank} {{", *_lines(operations), "}"))
        file.writelines(f"\nrank {rank} {{\n}}\n" for rank in sorted(left))


def _lines(operations: Iterable[Operation]) -> Iterator[str]:
    """A receive may be there from its post on; work and sends follow one another, and what they wait for."""
    last, label, posted = "", 0, dict[int, list[str]]()
    for operation in operations:
        if isinstance(operation, Arrival):
            arrived = posted[operation.peer].pop(0)
            last = f"{last} {arrived}".strip()
            continue
        label += 1
        name = f"l{label}"
        if isinstance(operation, Compute):
            yield f"{name}: calc {round(1e9 * operation.seconds)}"
        elif isinstance(operation, Send):
            yield f"{name}: send {operation.nbytes}b to {operation.peer} tag 0"
        elif isinstance(operation, Post):
            yield f"{name}: recv {operation.nbytes}b from {operation.peer} tag 0"
            posted.setdefault(operation.peer, []).append(name)
        yield from (f"{name} requires {before}" for before in last.split())
        if not isinstance(operation, Post):
            last = name

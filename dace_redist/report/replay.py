"""
Programs as traces that simulators of messages replay: SMPI of SimGrid, LogGOPSim and ATLAHS.

Formats: https://simgrid.org/doc/latest/app_smpi.html (replay); GOAL: Hoefler, Siebert, Lumsdaine, *Group Operation
Assembly Language*, ICPP 2009. Start reading at: Replayed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from dace_redist.errors import naming_file
from dace_redist.traffic import Traffic

_BYTE, _LONG = 6, 4  # SMPI's numbers of MPI_BYTE and MPI_LONG
_MAX_ELEMENTS = 1 << 30  # counted in 32 bits


class Step(NamedTuple):
    """Step of a program: an exchange, or floating-point operations of each of some ranks."""

    exchange: Traffic | None = None
    flops: int = 0
    ranks: Collection[int] = ()


class Operation(NamedTuple):
    """Operation of a rank: ``"compute"``, ``"send"``, ``"receive"``, or ``"wait"`` for all messages since the last."""

    kind: str
    amount: int = 0  # floating-point operations, or bytes
    peer: int = -1


class Replayed:
    """Schedule or plan, whose messages and operations simulators replay; copies take no time in them."""

    def steps(self) -> tuple[int, Sequence[Step]]:
        """Return the number of ranks, and the steps of one run."""
        raise NotImplementedError

    def to_smpi(self, folder: str | Path) -> None:
        """
        Write traces for SMPI of SimGrid: ``rank-0.trace`` and so on, and their list ``traces``. No copies.

        :param folder: Folder of the files, which is made if it is missing.
        :raises OSError: If a file cannot be written.
        """
        (ranks, steps), folder = self.steps(), Path(folder)
        with naming_file("folder of traces", folder, "name one that can be written"):
            folder.mkdir(parents=True, exist_ok=True)
            for rank in range(ranks):
                lines = [f"{rank} {action}\n" for action in _actions(_operations(steps, rank, ranks))]
                (folder / f"rank-{rank}.trace").write_text("".join(lines))
            (folder / "traces").write_text("".join(f"rank-{rank}.trace\n" for rank in range(ranks)))

    def to_goal(self, path: str | Path, flops_per_second: float = 1e10) -> None:
        """
        Write messages and operations as GOAL text, for LogGOPSim and ATLAHS.

        :param path: File to write.
        :param flops_per_second: Operations of a rank per second: GOAL counts nanoseconds.
        :raises OSError: If the file cannot be written.
        """
        ranks, steps = self.steps()
        with naming_file("GOAL text", path, "name a file in a folder that exists"), Path(path).open("w") as file:
            file.write(f"num_ranks {ranks}\n")
            for rank in range(ranks):
                lines = _statements(_operations(steps, rank, ranks), flops_per_second)
                file.writelines(f"{line}\n" for line in (f"\nrank {rank} {{", *lines, "}"))


def _operations(steps: Sequence[Step], rank: int, ranks: int) -> Iterator[Operation]:
    """Yield the operations of a rank: its steps with barriers between them."""
    for number, step in enumerate(steps):
        for distance in (1 << power for power in range((ranks - 1).bit_length() if number else 0)):
            yield Operation("receive", 1, (rank - distance) % ranks)
            yield Operation("send", 1, (rank + distance) % ranks)
            yield Operation("wait")
        if step.flops and rank in step.ranks:
            yield Operation("compute", step.flops)
        if step.exchange is not None:
            yield from _exchanged(step.exchange, rank)


def _exchanged(exchange: Traffic, rank: int) -> Iterator[Operation]:
    """Yield the messages of a rank: those of several tensors joined, the exchanges of a reduction one after another."""
    started = Counter[tuple[int, str, int]]()
    for tensor in exchange.tensors:
        sends, receives, _ = tensor.arrays(rank, with_blocks=False)
        for kind, side in (("receive", receives), ("send", sends)):
            columns = (column.tolist() for column in (side.exchanges, side.peers, tensor.bytes_of(side)))
            for number, peer, nbytes in zip(*columns, strict=True):
                started[number, kind, peer] += nbytes
    for _, messages in itertools.groupby(sorted(started.items()), key=lambda message: message[0][0]):
        yield from (Operation(kind, nbytes, peer) for (_, kind, peer), nbytes in messages)
        yield Operation("wait")


def _actions(operations: Iterable[Operation]) -> Iterator[str]:
    """Yield actions of SMPI. Messages between two ranks arrive in order, so that all have tag 0."""
    words = {"send": "isend", "receive": "irecv"}
    yield "init"
    for kind, amount, peer in operations:
        if kind in words:
            elements, datatype = (amount, _BYTE) if amount < _MAX_ELEMENTS else (-(-amount // 8), _LONG)
            yield f"{words[kind]} {peer} 0 {elements} {datatype}"
        else:
            yield "waitall" if kind == "wait" else f"compute {amount}"
    yield "finalize"


def _statements(operations: Iterable[Operation], flops_per_second: float) -> Iterator[str]:
    """Yield statements of GOAL: each requires the last computation or wait, and a wait requires all since."""
    words = {"send": "send {}b to {} tag 0", "receive": "recv {}b from {} tag 0"}
    last, started = "", list[str]()
    for number, (kind, amount, peer) in enumerate(operations, 1):
        name, seconds = f"l{number}", amount / flops_per_second if kind == "compute" else 0.0
        yield f"{name}: " + words.get(kind, f"calc {round(1e9 * seconds)}").format(amount, peer)
        yield from (f"{name} requires {before}" for before in (started if kind == "wait" else [last]) if before)
        if kind in words:
            started.append(name)
        else:
            last, started = name, []

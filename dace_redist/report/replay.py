"""
Programs as traces that simulators of messages replay: SMPI of SimGrid, LogGOPSim and ATLAHS.

Formats: https://simgrid.org/doc/latest/app_smpi.html (replay); GOAL: Hoefler, Siebert, Lumsdaine, *Group Operation
Assembly Language*, ICPP 2009. Start reading at: write_smpi, write_goal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dace_redist.errors import naming_file

if TYPE_CHECKING:
    from dace_redist.schedule import Schedule

_BYTE, _LONG = 6, 4  # SMPI's numbers of MPI_BYTE and MPI_LONG
_MAX_ELEMENTS = 1 << 30  # counted in 32 bits
_NANOSECONDS = 1e9  # in a second


class Step(NamedTuple):
    """
    Step of a program: an exchange, or operations of some ranks.

    :param exchange: Messages of the step; None where ranks compute.
    :param flops: Operations of each of ``ranks``.
    """

    exchange: Schedule | None = None
    flops: int = 0
    ranks: Collection[int] = ()


class Operation(NamedTuple):
    """
    Operation of a rank.

    :param kind: ``"compute"``; ``"send"`` or ``"receive"``, which start a message; ``"wait"`` for all started ones;
        ``"barrier"``.
    :param amount: Floating-point operations, or bytes of the message.
    """

    kind: str
    amount: int = 0
    peer: int = -1


def write_smpi(steps: Sequence[Step], ranks: int, folder: str | Path) -> None:
    """
    Write a trace of each rank, ``rank-0.trace`` and so on, and their list ``traces``; see :meth:`Schedule.to_smpi`.

    :raises OSError: If a file cannot be written.
    """
    folder = Path(folder)
    with naming_file("folder of traces", folder, "name one that can be written"):
        folder.mkdir(parents=True, exist_ok=True)
        for rank in range(ranks):
            lines = [f"{rank} {action}\n" for action in _actions(_operations(steps, rank))]
            (folder / f"rank-{rank}.trace").write_text("".join(lines))
        (folder / "traces").write_text("".join(f"rank-{rank}.trace\n" for rank in range(ranks)))


def write_goal(steps: Sequence[Step], ranks: int, path: str | Path, flops_per_second: float = 1) -> None:
    """
    Write GOAL text; see :meth:`Schedule.to_goal`.

    :raises OSError: If the file cannot be written.
    """
    with naming_file("GOAL text", path, "name a file in a folder that exists"), Path(path).open("w") as file:
        file.write(f"num_ranks {ranks}\n")
        for rank in range(ranks):
            lines = _statements(_without_barriers(_operations(steps, rank), rank, ranks), flops_per_second)
            file.writelines(f"{line}\n" for line in (f"\nrank {rank} {{", *lines, "}"))


def _operations(steps: Sequence[Step], rank: int) -> Iterator[Operation]:
    """Yield the operations of a rank: steps with barriers between them, in each of which all messages start at once."""
    for number, step in enumerate(steps):
        if number:
            yield Operation("barrier")
        if step.flops and rank in step.ranks:
            yield Operation("compute", step.flops)
        if step.exchange is not None:
            yield from _exchanged(step.exchange, rank)


def _exchanged(exchange: Schedule, rank: int) -> Iterator[Operation]:
    """Yield the messages of a rank: those of several tensors joined, the exchanges of a reduction one after another."""
    started = Counter[tuple[int, str, int]]()
    for tensor in getattr(exchange, "tensors", (exchange,)):
        sends, receives, _ = tensor.arrays(rank, with_blocks=False)
        for kind, side in (("receive", receives), ("send", sends)):
            columns = (column.tolist() for column in (side.exchanges, side.peers, side.elements))
            for number, peer, elements in zip(*columns, strict=True):
                started[number, kind, peer] += elements * tensor.itemsize
    before = 0
    for (number, kind, peer), nbytes in sorted(started.items()):
        if number > before:
            yield Operation("wait")
        before = number
        yield Operation(kind, nbytes, peer)
    if started:
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
            yield {"compute": f"compute {amount}", "wait": "waitall", "barrier": "barrier"}[kind]
    yield "finalize"


def _without_barriers(operations: Iterable[Operation], rank: int, ranks: int) -> Iterator[Operation]:
    """Replace barriers, which GOAL has not, by messages of a byte to ranks at distances 1, 2, 4 and so on."""
    for operation in operations:
        if operation.kind != "barrier":
            yield operation
            continue
        for distance in (1 << power for power in range((ranks - 1).bit_length())):
            yield Operation("receive", 1, (rank - distance) % ranks)
            yield Operation("send", 1, (rank + distance) % ranks)
            yield Operation("wait")


def _statements(operations: Iterable[Operation], flops_per_second: float) -> Iterator[str]:
    """Yield statements of GOAL: each requires the last computation or wait, and a wait requires all since."""
    words = {"send": "send {}b to {} tag 0", "receive": "recv {}b from {} tag 0"}
    last, started = "", list[str]()
    for number, (kind, amount, peer) in enumerate(operations, 1):
        name, seconds = f"l{number}", amount / flops_per_second if kind == "compute" else 0.0
        yield f"{name}: " + words.get(kind, f"calc {round(_NANOSECONDS * seconds)}").format(amount, peer)
        yield from (f"{name} requires {before}" for before in (started if kind == "wait" else [last]) if before)
        if kind in words:
            started.append(name)
        else:
            last, started = name, []

"""
Says which ranks are missing where one waits for long in a collective operation. Start reading at: watch.

A thread of each process looks once a second where the main thread is, so that operations themselves do nothing for it,
and also see ranks that wait in mpi4py or for a file. Ranks see each other by sockets, see ``long_wait.hpp``: it has the
messages, too, and those of programs in other languages.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

from dace_redist import _core
from dace_redist.mpi.launch import ranks_of_node

_LOOK_SECONDS = 1.0
#: Time for which the frame of an operation is kept, to tell one long call from many short ones at one address.
_CONFIRM_SECONDS = 0.05

#: Functions that all ranks of a communicator call, by name; those with the same value may meet each other.
_OPERATIONS = {
    **dict.fromkeys(("redistribute", "to"), "redistribute"),
    **dict.fromkeys(("plan", "from_datatypes", "from_messages", "inverse", "adjoint"), "plan"),
    **dict.fromkeys(("__call__", "start", "wait", "test"), "a transfer"),
    **{name: name for name in ("scatter", "gather", "load", "save", "einsum", "run", "compile")},
    **{name: name for name in ("tune", "optimize", "set_strategy")},
}


@functools.cache
def watch() -> None:
    """Start the thread, at the first call; not where ``DACE_REDIST_WAIT_MESSAGE`` is 0."""
    from mpi4py import MPI

    seconds = _core.wait_message_seconds()
    world = MPI.COMM_WORLD
    if seconds > 0 and world.size > 1:
        _Watch(world.rank, world.size, seconds, MPI.Query_thread() == MPI.THREAD_MULTIPLE).start()


class _Watch(threading.Thread):
    """
    The thread that looks at the main thread.

    :param knows_groups: Whether it may call MPI, to find the ranks of other communicators than the world.
    """

    def __init__(self, rank: int, size: int, seconds: float, knows_groups: bool) -> None:
        super().__init__(name="dace-redist-waiting", daemon=True)
        self._rank, self._size, self._seconds, self._knows_groups = rank, size, seconds, knows_groups
        self._one_node = ranks_of_node() == size

    def run(self) -> None:
        pause = min(_LOOK_SECONDS, self._seconds / 4)
        with self._present(self._rank, "here"):
            while True:
                found = None  # a frame that is kept keeps the arrays of a call that has ended
                time.sleep(pause)
                if found := _operation():
                    name, frame, found = found[0], id(found[1]), None
                    self._follow(name, frame, pause)

    def _follow(self, name: str, frame: int, pause: float) -> None:
        """Be present in an operation until the main thread leaves it."""
        since, told = time.monotonic(), False
        with self._present(self._rank, name), self._present(self._rank, "python"):  # the library says nothing then
            while True:
                found = None
                time.sleep(pause)
                found = _operation()
                if not found or (found[0], id(found[1])) != (name, frame):
                    return
                if not told and time.monotonic() - since > self._seconds and _stays(found[1]):
                    told = True
                    self._tell(name, found[1])

    def _tell(self, name: str, frame: FrameType) -> None:
        missing = [rank for rank in self._ranks(frame) if not self._is_present(rank, name) and self._is_near(rank)]
        if not missing:
            return
        caller = frame.f_back
        where = f" ({os.path.basename(caller.f_code.co_filename)}:{caller.f_lineno})" if caller else ""
        sys.stderr.write(_core.wait_message(self._rank, self._seconds, name + where, missing, not self._one_node))

    def _ranks(self, frame: FrameType) -> Sequence[int]:
        """Return the ranks of an operation's communicator, as numbered in the world, which lacks those it spawned."""
        from mpi4py import MPI

        comm = _communicator(frame) if self._knows_groups else None
        if comm is None:
            return range(self._size)
        group, world = comm.Get_group(), MPI.COMM_WORLD.Get_group()
        ranks = [rank for rank in group.Translate_ranks(None, world) if rank != MPI.UNDEFINED]
        group.Free()
        world.Free()
        return ranks

    def _is_near(self, rank: int) -> bool:
        return self._one_node or self._is_present(rank, "here")

    @staticmethod
    def _address(rank: int, name: str) -> str:
        return "\0" + _core.presence_name(rank, name)

    @contextlib.contextmanager
    def _present(self, rank: int, name: str) -> Iterator[None]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mine:
            with contextlib.suppress(OSError):  # a process of the same place, which is present then
                mine.bind(self._address(rank, name))
            yield

    def _is_present(self, rank: int, name: str) -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
            return asking.connect_ex(self._address(rank, name)) == 0


def _frames() -> Iterator[FrameType]:
    """Yield the frames of the main thread, the innermost first."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _operation() -> tuple[str, FrameType] | None:
    """Return the outermost operation that the main thread is in."""
    found = None
    for frame in _frames():
        if frame.f_globals.get("__name__", "").startswith("dace_redist.") and frame.f_code.co_name in _OPERATIONS:
            found = _OPERATIONS[frame.f_code.co_name], frame
    return found


def _stays(frame: FrameType) -> bool:
    time.sleep(_CONFIRM_SECONDS)
    return any(other is frame for other in _frames())


def _communicator(operation: FrameType) -> Any:
    """Return the communicator that an operation and the functions that it calls use; None: not found."""
    from mpi4py import MPI

    for frame in _frames():
        values = frame.f_locals
        of_self = (getattr(values.get("self"), name, None) for name in ("comm", "_comm"))
        for value in (values.get("comm"), *of_self):
            if isinstance(value, MPI.Intracomm) and value != MPI.COMM_NULL:
                return value
        if frame is operation:
            return None
    return None

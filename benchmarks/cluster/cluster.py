"""
Several nodes on one machine: runs an MPI job over network namespaces that play hosts, see ``README.md``.

``python benchmarks/cluster/cluster.py --nodes 2 --ranks 8 --rate 1gbit -- python -m mpi4py program.py``
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

import click
from launching import TIMED_OUT, supervise

from dace_redist.mpi.launch import mpi_environment, mpiexec_command

HERE = Path(__file__).resolve().parent
MAPPINGS = ("block", "cyclic")
MAX_NODES = 1000  # a bridge has 1023 ports

_NAMESPACES = ["--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
_RATE = re.compile(r"(\d+(?:\.\d+)?)([kmgt]?)bit")
PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"  # where Debian keeps ip and tc, not on a user's PATH

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # as is all in a user namespace
#: What ranks on several nodes want, unless the user says otherwise.
OVER_TCP = {
    "OMPI_MCA_pml": "ob1",  # TCP between nodes, and not through UCX's
    # Open MPI 4.1 makes no windows between nodes over TCP for more threads than this (its osc/pt2pt cannot).
    "MPI4PY_RC_THREAD_LEVEL": "serialized",
}


class Link(NamedTuple):
    """Bytes that crossed the link of one node during a job, including headers and messages of the launcher."""

    sent: int
    received: int


class Outcome(NamedTuple):
    """Exit code of mpiexec, or ``launching.TIMED_OUT``; what it printed; traffic of the links, empty at a timeout."""

    returncode: int
    output: str
    links: list[Link]


class ClusterError(RuntimeError):
    """The nodes could not be brought up."""


def run(
    nodes: int,
    ranks: int,
    argv: Sequence[str],
    *,
    rate: str = "1gbit",
    timeout: float | None = 120,
    environment: Mapping[str, str] | None = None,
    mapping: str = "block",
) -> Outcome:
    """
    Run ``argv`` on ``ranks`` ranks over ``nodes`` emulated nodes, with the MPI in use; nothing is left afterwards.

    :param nodes: From 1 to 1000.
    :param ranks: At least one per node. Where ``nodes`` does not divide it, the first nodes have one more.
    :param argv: Program and arguments.
    :param rate: Speed of each link, each way, such as ``1gbit`` or ``250mbit``; ``none``: no limit.
    :param timeout: Seconds the job may take, > 0; then all of it is killed.
    :param environment: Variables to add to (or replace in) the present ones.
    :param mapping: ``block``: neighbours in rank share a node; ``cyclic``: rank r is on node r mod ``nodes``.
    :raises ValueError: If an argument is out of range.
    :raises ClusterError: If the nodes could not be brought up; :func:`why_not` says beforehand if they cannot.
    """
    with tempfile.TemporaryFile() as output:
        code, links = _start(nodes, ranks, argv, mapping, environment or {}, rate=rate, timeout=timeout, output=output)
        output.seek(0)
        printed = output.read().decode(errors="replace")
    if links is None and code != TIMED_OUT:
        raise ClusterError(f"the {nodes} nodes were not brought up: {printed.strip() or f'ended with {code}'}")
    return Outcome(code, printed, links or [])


@functools.cache
def why_not() -> str | None:
    """Return the reason why this machine cannot emulate nodes, in one line; None if it can. Tries it (50 ms)."""
    for command in ("ip", "tc", "unshare", "nsenter", "setpriv"):
        if shutil.which(command, path=PATH) is None:
            return f"no command {command} (packages iproute2 and util-linux)"
    if not _works(*unshare(), "true"):
        return "neither CAP_SYS_ADMIN nor unprivileged user namespaces: this machine lets nobody make namespaces"
    probes = {
        "no tmpfs may be mounted in a namespace here": "mount -t tmpfs tmpfs /run",
        "no veth links (kernel module veth, CAP_NET_ADMIN)": "ip link add one type veth peer name two",
        "no bridges (kernel module bridge)": "ip link add one type bridge",
        "no rate limit tbf (kernel module sch_tbf)": "tc qdisc add dev lo root tbf rate 1gbit burst 64kb latency 1ms",
    }
    return next((why for why, command in probes.items() if not _works(*unshare(), *command.split())), None)


def _works(*command: str) -> bool:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=os.environ | {"PATH": PATH})
    return done.returncode == 0


@functools.cache
def unshare() -> list[str]:
    """Return the command that enters throw-away namespaces, if need be as root of a user namespace."""
    plain = ["unshare", *_NAMESPACES, "--propagation", "private"]
    return plain if _works(*plain, "true") else [*plain[:1], "--user", "--map-root-user", *plain[1:]]


def _start(
    nodes: int, ranks: int, argv: Sequence[str], mapping: str, environment: Mapping[str, str], **options: Any
) -> tuple[int, list[Link] | None]:
    """Run a job: as :func:`on_login_node`, with its other options."""
    variables, files = _across_nodes(slots(nodes, ranks), mapping)
    variables |= {k: v for k, v in mpi_environment(ranks).items() if k not in variables} | dict(environment)
    return on_login_node(nodes, mpiexec_command(ranks, argv), variables, files=files, **options)


def on_login_node(
    nodes: int,
    command: Sequence[str],
    variables: Mapping[str, str],
    *,
    files: Mapping[str, str],
    rate: str,
    timeout: float | None,
    output: IO[bytes] | None,
) -> tuple[int, list[Link] | None]:
    """
    Bring up nodes, and run a command beside them, which calls ``/run/on_node NODE WORDS...`` for words on a node.

    :param command: What to run; when it ends, so do the nodes.
    :param files: Text by path, to write beforehand; nobody outside sees those in ``/run``.
    :param output: Where it prints; None: where this process does. The other parameters are as in :func:`run`.
    :return: (return code, links); there are no links if it timed out or never began.
    """
    orders = {"nodes": nodes, "rate": rate, "burst": _burst(rate), "command": [*command], "files": dict(files)}
    path = variables.get("PATH", os.environ.get("PATH", os.defpath))
    with tempfile.TemporaryFile() as report:
        inside = [sys.executable, str(HERE / "inside.py"), json.dumps(orders), str(report.fileno())]
        # setpriv: if this process is killed, the kernel ends unshare, unshare the first process inside, and that all.
        watched = ["setpriv", "--pdeathsig", "KILL", *unshare(), *inside]
        added = {**variables, "PATH": f"{path}:/usr/sbin:/sbin"}
        code = supervise(watched, timeout, environment=added, output=output, pass_fds=[report.fileno()])
        text = os.pread(report.fileno(), 1 << 20, 0)
    return code, [Link(*link) for link in json.loads(text)] if text and code != TIMED_OUT else None


def slots(nodes: int, ranks: int) -> list[int]:
    """
    Return the number of ranks of each node.

    :raises ValueError: If there is not a rank for every node, or the number of nodes is out of range.
    """
    if not 1 <= nodes <= MAX_NODES:
        raise ValueError(f"the number of nodes must be from 1 to {MAX_NODES}, got {nodes}")
    if ranks < nodes:
        raise ValueError(f"{nodes} nodes need at least {nodes} ranks, got {ranks}")
    return [ranks // nodes + (node < ranks % nodes) for node in range(nodes)]


def _burst(rate: str) -> int:
    """
    Return the bytes that may pass a link at once: what it carries in 0.1 ms, but enough for the largest packets.

    Measured: more lets messages of 100 kB pass at many times the rate, less does not reach it.

    :raises ValueError: If ``rate`` is none.
    """
    found = _RATE.fullmatch(rate)
    if rate != "none" and (found is None or float(found[1]) == 0):
        raise ValueError(f"rate must be such as 1gbit, 250mbit or none, got {rate!r}")
    bits = float(found[1]) * 1000 ** " kmgt".index(found[2] or " ") if found else 0
    return max(32 << 10, math.ceil(bits / 8 * 1e-4))


def _across_nodes(ranks_of: Sequence[int], mapping: str) -> tuple[dict[str, str], dict[str, str]]:
    """
    Return the settings of each MPI for ranks on the nodes and their links: (variables, files to write inside).

    As in ``mpi_environment``, the variables of one MPI mean nothing to another, so all are set.
    """
    if mapping not in MAPPINGS:
        raise ValueError(f"mapping must be one of {', '.join(MAPPINGS)}, got {mapping!r}")
    agent, shared_memory = "/run/on_node", "/dev/shm"
    positions = [(turn, node) for node, count in enumerate(ranks_of) for turn in range(count)]
    if mapping == "cyclic":
        positions.sort()
    files = {
        "/run/openmpi": "".join(f"node{node} slots={count}\n" for node, count in enumerate(ranks_of)),
        "/run/mpich": "".join(f"node{node}:{count}\n" for node, count in enumerate(ranks_of)),
        "/run/mpich.conf": f"-rankmap {','.join(str(node) for _, node in positions)}\n",
    }
    order = "slot" if mapping == "block" else "node"
    forced = {
        "OMPI_MCA_plm": "rsh",
        "OMPI_MCA_plm_rsh_agent": agent,
        "OMPI_MCA_orte_default_hostfile": "/run/openmpi",
        "OMPI_MCA_orte_tmpdir_base": shared_memory,  # private to a node, gone with it
        "OMPI_MCA_rmaps_base_mapping_policy": order,
        "OMPI_MCA_plm_rsh_no_tree_spawn": "1",  # only from outside can a node be entered
        "PRTE_MCA_plm": "ssh",
        "PRTE_MCA_plm_ssh_agent": agent,
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        "PRTE_MCA_prte_default_hostfile": "/run/openmpi",
        "PRTE_MCA_prte_tmpdir_base": shared_memory,
        "PRTE_MCA_rmaps_default_mapping_policy": f"{order}:oversubscribe",
        "HYDRA_LAUNCHER": "rsh",
        "HYDRA_LAUNCHER_EXEC": agent,
        "HYDRA_HOST_FILE": "/run/mpich",
        "HYDRA_CONFIG_FILE": "/run/mpich.conf",
    }
    return forced | AS_ROOT | {name: value for name, value in OVER_TCP.items() if name not in os.environ}, files


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": ["-h", "--help"]})
@click.option("--nodes", default=2, show_default=True, help="How many nodes.")
@click.option("--ranks", type=int, help="How many ranks; default: two per node.")
@click.option("--rate", default="1gbit", show_default=True, help="Speed of each link, or none for no limit.")
@click.option("--mapping", type=click.Choice(MAPPINGS), default="block", show_default=True, help="Ranks to nodes.")
@click.option("--timeout", type=float, help="Seconds after which to kill the job; default: never.")
@click.option("--show-link-bytes", is_flag=True, help="Print the bytes that crossed each node's link during the job.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def main(
    nodes: int, ranks: int | None, mapping: str, show_link_bytes: bool, command: tuple[str, ...], **options: Any
) -> None:
    """Run COMMAND under mpiexec over several emulated nodes of this machine; put -- before it."""
    start = functools.partial(_start, nodes, ranks or 2 * nodes, command, mapping, {}, output=None, **options)
    code, links = started(why_not(), start, options["timeout"])
    for node, link in enumerate(links or [] if show_link_bytes else []):
        click.echo(f"node{node}: sent {link.sent} bytes, received {link.received} bytes")
    raise SystemExit(code)


def started(
    reason: str | None, start: Callable[[], tuple[int, list[Link] | None]], timeout: float | None
) -> tuple[int, list[Link] | None]:
    """Return what ``start`` does; for a command line, which says why nodes cannot be emulated, if there is a reason."""
    if reason:
        raise click.ClickException(reason)
    try:
        code, links = start()
    except (ValueError, FileNotFoundError) as error:
        raise click.UsageError(str(error)) from None
    if code == TIMED_OUT and timeout is not None:
        click.echo(f"killed after {timeout:g} s", err=True)
    return code, links


if __name__ == "__main__":
    main()

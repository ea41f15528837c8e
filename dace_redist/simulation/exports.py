"""
Operations of each rank, one after another, written for simulators of messages: SMPI of SimGrid, which also replays
them, and LogGOPSim and ATLAHS.

Formats: https://simgrid.org/doc/latest/app_smpi.html (replay) and platform_examples.html (clusters); GOAL: Hoefler,
Siebert, Lumsdaine, Group Operation Assembly Language, ICPP 2009. Start reading at: write_traces, write_goal.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from dace_redist.errors import naming_file
from dace_redist.simulation.machine import Job
from dace_redist.simulation.network import Dragonfly, FatTree, Network, Switch, Torus
from dace_redist.simulation.redistribution import Operation, RankOperations

_HOW_TO_GET = "it comes with SimGrid: apt-get install simgrid libsimgrid-dev, or https://simgrid.org"
_SPEED = 1e9  # operations per second of a simulated core: a nanosecond each
_BYTE, _LONG = 6, 4  # SMPI's numbers of MPI_BYTE and MPI_LONG
_LONGEST = 1 << 30  # elements are counted in 32 bits

#: SMPI multiplies rates and latencies by factors measured on Ethernet of 1 Gbit/s, and lets flows in opposite
#: directions disturb each other, unless it is told otherwise.
OPTIONS = (
    "--cfg=smpi/coll-selector:ompi",
    "--cfg=network/crosstraffic:0",
    "--cfg=network/TCP-gamma:0",
    "--cfg=smpi/bw-factor:0:1",
    "--cfg=smpi/lat-factor:0:1",
    "--log=root.thresh:error",
    "--log=smpi_replay.thresh:info",
)


def write_traces(ranks: RankOperations, job: Job, folder: Path) -> None:
    """
    Write the files of SMPI: a trace of each rank, ``traces``, ``platform.xml``, ``hosts`` and ``replay.sh``.

    The folder is made if it is missing. A ValueError if SimGrid has no such network.
    """
    platform = _platform(job)
    with naming_file("folder of traces", folder, "name one that can be written"):
        folder.mkdir(parents=True, exist_ok=True)
        names = [f"rank-{rank}.trace" for rank in range(job.ranks)]
        for rank, operations in _all_ranks(ranks, job.ranks):
            (folder / names[rank]).write_text("\n".join(_trace(rank, operations)) + "\n")
        (folder / "traces").write_text("".join(f"{name}\n" for name in names))
        (folder / "platform.xml").write_text(platform)
        (folder / "hosts").write_text("".join(f"h{node}\n" for node in job.node_of.tolist()))
        command = " ".join(_command(job.ranks))
        (folder / "replay.sh").write_text(f'#!/bin/sh\ncd "$(dirname "$0")" && exec {command}\n')
        (folder / "replay.sh").chmod(0o755)


def replay(folder: Path, ranks: int, timeout: float | None = None) -> float:
    """Let SMPI replay the traces of a folder, and return the simulated seconds; a RuntimeError if it cannot."""
    if shutil.which("smpirun") is None:
        raise RuntimeError(f"the traces in {folder} cannot be replayed: the command smpirun is missing: {_HOW_TO_GET}")
    done = subprocess.run(_command(ranks), cwd=folder, capture_output=True, text=True, timeout=timeout)
    found = re.search(r"Simulation time ([0-9.eE+-]+)", done.stdout + done.stderr)
    if done.returncode != 0 or found is None:
        last = " ".join((done.stderr or done.stdout).split())[-300:]
        raise RuntimeError(f"smpirun could not replay the traces in {folder} (exit status {done.returncode}): {last}")
    return float(found[1])


def write_goal(ranks: RankOperations, count: int, path: Path) -> None:
    """Write the operations of ``count`` ranks as GOAL text: sizes in bytes, work in nanoseconds."""
    with naming_file("GOAL text", path, "name a file in a folder that exists"), path.open("w") as file:
        file.write(f"num_ranks {count}\n")
        for rank, operations in _all_ranks(ranks, count):
            file.writelines(f"{line}\n" for line in (f"\nrank {rank} {{", *_goal(operations), "}"))


def _all_ranks(ranks: RankOperations, count: int) -> RankOperations:
    """Yield all ranks with their operations, idle ranks last."""
    idle = set(range(count))
    for rank, operations in ranks:
        idle.discard(rank)
        yield rank, operations
    yield from ((rank, []) for rank in sorted(idle))


def _command(ranks: int) -> list[str]:
    hosts = ["-np", str(ranks), "-platform", "platform.xml", "-hostfile", "hosts"]
    return ["smpirun", "-no-privatize", *OPTIONS, *hosts, "-replay", "traces"]


def _trace(rank: int, operations: Iterable[Operation]) -> Iterator[str]:
    """Lines ``RANK ACTION ...``; messages between two ranks arrive in order, so that all may have tag 0."""
    words = {"compute": "compute {work}", "send": "isend {peer} 0 {elements}", "receive": "irecv {peer} 0 {elements}"}
    words["wait"] = f"wait {{peer}} {rank} 0"
    yield f"{rank} init"
    for one in operations:
        numbers = {"work": f"{one.amount * _SPEED:.0f}", "peer": one.peer, "elements": _elements(int(one.amount))}
        yield f"{rank} {words[one.kind].format_map(numbers)}"
    yield from (f"{rank} waitall", f"{rank} finalize")


def _goal(operations: Iterable[Operation]) -> Iterator[str]:
    """Work and sends follow one another and the arrivals before them; a receive may arrive from its post on."""
    lines = {
        "compute": lambda one: f"calc {round(1e9 * one.amount)}",
        "send": lambda one: f"send {int(one.amount)}b to {one.peer} tag 0",
        "receive": lambda one: f"recv {int(one.amount)}b from {one.peer} tag 0",
    }
    required, posted = list[str](), defaultdict[int, list[str]](list)
    for number, operation in enumerate(operations, 1):
        name = f"l{number}"
        if operation.kind == "wait":
            required.append(posted[operation.peer].pop(0))
            continue
        yield f"{name}: {lines[operation.kind](operation)}"
        yield from (f"{name} requires {before}" for before in required)
        if operation.kind == "receive":
            posted[operation.peer].append(name)
        else:
            required = [name]


def _elements(nbytes: int) -> str:
    """Return number and type of a message's elements."""
    return f"{nbytes} {_BYTE}" if nbytes < _LONGEST else f"{-(-nbytes // 8)} {_LONG}"


def _platform(job: Job) -> str:
    """The machine: one cluster of as many hosts as its network connects, of which ranks on a node share the cores."""
    machine, network = job.machine, job.machine.network
    cores = max(1, int(machine.cores))
    speed = _SPEED * min(1.0, machine.cores)
    link, latency, topology = 1e12, 1e-9, ""
    if network is not None:
        link, latency, topology = network.link, network.hop, _topology(network)
    hosts = machine.nodes if network is None else network.nodes
    return (
        '<?xml version="1.0"?>\n<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n'
        '<platform version="4.1">\n'
        f'  <cluster id="machine" prefix="h" suffix="" radical="0-{hosts - 1}" speed="{speed:.0f}f" core="{cores}"\n'
        f'           bw="{link:.0f}Bps" lat="{latency:.3g}s" sharing_policy="SPLITDUPLEX"{topology}\n'
        '           loopback_bw="1000000000000Bps" loopback_lat="0s"/>\n</platform>\n'
    )


def _topology(network: Network) -> str:
    """SimGrid's name and parameters; the rates of other links as whole multiples of that of a node's link."""

    def times(rate: float) -> int:
        return max(1, round(rate / network.link))

    if isinstance(network, Switch):
        name, parameters = "FAT_TREE", f"1;{network.ports};1;1"
    elif isinstance(network, FatTree):
        counts = [1, *([times(network.trunk)] * (len(network.down) - 1))]
        lists = (",".join(map(str, values)) for values in (network.down, network.up, counts))
        name, parameters = "FAT_TREE", ";".join([str(len(network.down)), *lists])
    elif isinstance(network, Torus):
        name, parameters = "TORUS", ",".join(map(str, network.dims))
    elif isinstance(network, Dragonfly):
        if network.groups > network.routers:
            raise ValueError(
                "SimGrid needs at least as many routers in a chassis as groups, the dragonfly has "
                f"{network.routers} and {network.groups}: write GOAL text instead"
            )
        between = times(network.cable * network.cables)
        name = "DRAGONFLY"
        parameters = (
            f"{network.groups},{between};{network.chassis},{times(network.group_link)};"
            f"{network.routers},{times(network.chassis_link)};{network.nodes_per_router}"
        )
    else:
        raise ValueError(f"SimGrid has no network of kind {network.kind}")
    return f' topology="{name}" topo_parameters="{parameters}"'

"""
The first process inside the throw-away namespaces: builds a switch and the nodes, then runs a launcher of MPI jobs.

Started by ``cluster.py``. Like a login node it has a port of the switch and no ranks; unlike the nodes it may enter
them, whose PID namespaces lie in its own. Nothing is taken down here: when this process ends, the kernel ends all
others of its PID namespace, and without processes the namespaces go too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MTU = 9000  # with 1500, two cores are busy with packets before 10 Gbit/s

LOGIN = "10.77.255.254"


def host(node: int) -> str:
    return f"node{node}"


def address(node: int) -> str:
    return f"10.77.{(node + 1) // 256}.{(node + 1) % 256}"


def batch(tool: str, lines: list[str]) -> None:
    """Run many commands of ``ip`` or ``tc`` in one process."""
    done = subprocess.run([tool, "-batch", "-"], input="\n".join(lines), text=True, capture_output=True)
    if done.returncode != 0:
        raise RuntimeError(f"{tool}: {done.stderr.strip()}")


def expect(node: subprocess.Popen[str], word: str) -> None:
    assert node.stdout is not None
    if node.stdout.readline().strip() != word:
        raise RuntimeError(f"a node did not get {word}: {node.args!r}")


def build(nodes: int, rate: str, burst: int) -> list[subprocess.Popen[str]]:
    """
    Bring up the nodes, each on a port of one switch; both directions of every link are held to ``rate``.

    :return: A process per node, which holds its namespaces.
    """
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    Path("/run/nodes").mkdir()
    Path("/run/on_node").symlink_to(HERE / "on_node.sh")  # launchers would cut a path with a blank in two
    names = [f"{address(node)} {host(node)}" for node in range(nodes)]
    Path("/run/hosts").write_text("\n".join(["127.0.0.1 localhost", f"{LOGIN} login", *names, ""]))
    subprocess.run(["mount", "--bind", "/run/hosts", "/etc/hosts"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], check=True)
    subprocess.run(["hostname", "login"], check=True)
    own = ["--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--mount-proc", "--propagation", "private"]
    started = [
        subprocess.Popen(
            ["unshare", *own, "sh", str(HERE / "node.sh"), host(node), f"{address(node)}/16", rate, str(burst)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for node in range(nodes)
    ]
    links = ["link set lo up", "link add switch type bridge stp_state 0 forward_delay 0"]
    for node, process in enumerate(started):
        expect(process, "alive")
        Path("/run/nodes", host(node)).write_text(str(process.pid))
        links += [
            f"link add port{node} mtu {MTU} type veth peer name eth0 mtu {MTU} netns {process.pid}",
            f"link set port{node} master switch up",
        ]
    batch("ip", [*links, f"address add {LOGIN}/16 dev switch", "link set switch up"])
    if rate != "none":
        limit = f"root tbf rate {rate} burst {burst} limit 16mb"  # of bytes that wait, as in a switch
        batch("tc", [f"qdisc add dev port{node} {limit}" for node in range(nodes)])
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in started:
        expect(process, "ready")
    return started


def counters(nodes: int) -> list[tuple[int, int]]:
    """Return the bytes that each node has sent and received so far, as its port of the switch saw them."""
    rows = (line.partition(":") for line in Path("/proc/net/dev").read_text().splitlines())
    values = {name.strip(): fields.split() for name, _, fields in rows}
    ports = [values[f"port{node}"] for node in range(nodes)]
    return [(int(port[0]), int(port[8])) for port in ports]


def write_files(files: dict[str, str]) -> None:
    for path, text in files.items():
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text)


def main() -> int:
    """``inside.py ORDERS FD``: run the job (JSON); what crossed the links goes to the open file FD as JSON."""
    job: dict[str, Any] = json.loads(sys.argv[1])
    try:
        held = build(job["nodes"], job["rate"], job["burst"])
        write_files(job["files"])
    except (RuntimeError, subprocess.CalledProcessError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    before = counters(len(held))
    code = subprocess.run(job["command"], stdin=subprocess.DEVNULL).returncode
    moved = [
        (sent - sent_before, received - received_before)
        for (sent, received), (sent_before, received_before) in zip(counters(len(held)), before, strict=True)
    ]
    with open(int(sys.argv[2]), "w") as report:
        json.dump(moved, report)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    raise SystemExit(main())

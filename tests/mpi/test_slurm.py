"""Slurm on emulated nodes: the job scripts of the manual and of the benchmarks, and who is bound to which core."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import slurm

ROOT = Path(__file__).resolve().parents[2]
CORES = sorted(os.sched_getaffinity(0))
RANKS = 4  # on two nodes

SIZE = f"--nodes=2 --ntasks-per-node={RANKS // 2} --cpus-per-task=1"
SCRIPTS = dict(
    re.findall(r"<!-- file: (\S+) -->\n```bash\n(.*?)^```$", (ROOT / "docs/howto/slurm.md").read_text(), re.S | re.M)
)
LAUNCHERS = {
    "srun": "srun",
    "srun-unbound": "srun --cpu-bind=none",
    "mpiexec": "mpiexec --map-by slot:PE=$SLURM_CPUS_PER_TASK",
}

# Together: bringing Slurm up takes a second, and a job starts up to a second after the one before it.
JOBS = {
    "job": f"{SIZE} job.slurm",
    "mpiexec": f"{SIZE} mpiexec.slurm",
    "cores": f"{SIZE} cores.slurm",
    "einsums": "--nodes=2 --ntasks-per-node=1 --cpus-per-task=1 benchmarks/einsum/einsums.slurm S mm1",
}

pytestmark = [pytest.mark.compile, pytest.mark.full, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which all jobs have run; NAME.log is the output of a job."""
    reason = slurm.why_not()
    if reason:
        pytest.skip(f"no Slurm on emulated nodes here: {reason}")
    here = tmp_path_factory.mktemp("slurm")
    for name in ("benchmarks", "examples", "tests"):
        (here / name).symlink_to(ROOT / name)
    (here / ".venv/bin").mkdir(parents=True)
    (here / ".venv/bin/activate").write_text(f"PATH={Path(sys.executable).parent}:$PATH\n")
    steps = [
        f"echo {name}; {launcher} python -m mpi4py tests/cluster_program.py cores"
        for name, launcher in LAUNCHERS.items()
    ]
    for name, text in {**SCRIPTS, "cores.slurm": "\n".join(["#!/bin/bash", *steps])}.items():
        (here / name).write_text(text)
    submit = [f"sbatch --output={name}.log {job}" for name, job in JOBS.items()]
    wait = 'while [ -n "$(squeue --noheader)" ]; do sleep 0.1; done; scontrol --oneliner show jobs'
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    own = "unset OMPI_MCA_hwloc_base_binding_policy"  # of these tests
    script = "\n".join([f"cd {here}; {own}", *submit, wait])
    code, printed = slurm.run(2, ["sh", "-c", script], timeout=500, environment={"PATH": path})
    if code != 0 or printed.count("JobState=COMPLETED") != len(JOBS):
        logs = "\n".join(f"{log.name}:\n{log.read_text()}" for log in sorted(here.glob("*.log")))
        pytest.fail(f"{code}\n{printed}\n{logs}", pytrace=False)
    return here


@pytest.mark.parametrize("name", ["job", "mpiexec"])
def test_scripts_of_the_manual_run(folder: Path, name: str) -> None:
    assert f"ranks     {RANKS}\n" in (folder / f"{name}.log").read_text()


@pytest.fixture(scope="module")
def cores(folder: Path) -> Callable[[str], list[Any]]:
    """Return the reports of each rank by launcher: node, cores, and core during measurements."""

    def of(launcher: str) -> list[Any]:
        parts = re.split(rf"^({'|'.join(LAUNCHERS)})$", (folder / "cores.log").read_text(), flags=re.M)
        lines = parts[parts.index(launcher) + 1].splitlines()
        said = [line.removeprefix("rank ").split(": ", 1) for line in lines if line.startswith("rank ")]
        return [json.loads(text) for _, text in sorted(said, key=lambda pair: int(pair[0]))]

    return of


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_are_numbered_node_by_node(cores: Callable[[str], list[Any]], launcher: str) -> None:
    assert [said["node"] for said in cores(launcher)] == ["node0", "node0", "node1", "node1"]


@pytest.mark.skipif(len(CORES) < 2, reason="two ranks a node share the only core")
@pytest.mark.parametrize("launcher", ["srun", "mpiexec"])
def test_ranks_that_the_launcher_bound_stay_there(cores: Callable[[str], list[Any]], launcher: str) -> None:
    said = cores(launcher)
    for one, other in (said[:2], said[2:]):
        assert not set(one["cores"]) & set(other["cores"])
    assert [rank["put on"] for rank in said] == [None] * RANKS


def test_ranks_that_share_all_cores_are_dealt_out(cores: Callable[[str], list[Any]]) -> None:
    said = cores("srun-unbound")
    assert [rank["cores"] for rank in said] == [CORES] * RANKS
    if len(CORES) <= 2:
        assert [rank["put on"] for rank in said] == [CORES[0], CORES[-1]] * 2


def test_sample_job_of_the_benchmarks(folder: Path) -> None:
    assert "on nodes of 1" in (folder / "einsums.log").read_text()
    (line,) = (folder / "einsums-2.jsonl").read_text().splitlines()
    assert json.loads(line)["ranks"] == 2
    assert (folder / "einsums-mm1-2.svg").stat().st_size > 1000

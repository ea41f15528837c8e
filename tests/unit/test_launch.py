"""Variables that the launcher adds to the environment, and its timeout of processes that do not end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import launching
import pytest

import dace_redist
from dace_redist.mpi import launch


def test_environment_leaves_the_users_words_alone(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("OMPI_MCA_osc", raising=False)
    added = launch.mpi_environment()
    assert "OMP_NUM_THREADS" not in added
    assert added["OMPI_MCA_osc"] == "^ucx"


def test_a_rank_starts_jobs_of_its_own(monkeypatch):
    monkeypatch.setenv("OMPI_MCA_ess", "env")  # mpiexec of Open MPI 4 sets it, and fails with it
    monkeypatch.setenv("OMPI_MCA_osc", "^ucx")
    monkeypatch.setenv("PMIX_RANK", "0")
    outside = launch.outside_environment()
    assert "OMPI_MCA_osc" in outside and not {"OMPI_MCA_ess", "PMIX_RANK"} & outside.keys()


def test_mpiexec_in_bin_has_a_prefix(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name, path: f"/bin/{name}")
    assert launch.mpiexec_command(2, ["hostname"]) == [os.path.realpath("/bin") + "/mpiexec", "-n", "2", "hostname"]


@pytest.fixture
def fake_mpiexec(monkeypatch):
    """Run the program once, as a launcher that starts one rank."""
    monkeypatch.setattr(launching, "mpiexec_command", lambda ranks, argv: list(argv))


@pytest.mark.usefixtures("fake_mpiexec")
def test_launch_returns_code_and_text():
    code, text = launching.launch(1, ["/bin/sh", "-c", "echo out; echo err >&2; exit 3"], timeout=20)
    assert (code, text) == (3, "out\nerr\n")


@pytest.mark.slow
@pytest.mark.usefixtures("fake_mpiexec")
def test_timeout_ends_processes_in_other_sessions_too(tmp_path):
    script = "setsid sleep 987 & echo $! ; sleep 987"
    start = time.monotonic()
    code, text = launching.launch(1, ["/bin/sh", "-c", script], timeout=1)
    assert code == launching.TIMED_OUT
    assert time.monotonic() - start < 15
    deadline = time.monotonic() + 5
    while Path(f"/proc/{text.split()[0]}/cmdline").exists() and time.monotonic() < deadline:
        state = Path(f"/proc/{text.split()[0]}/stat").read_text().split()[2]
        if state == "Z":  # ended; its new parent has not taken note
            return
        time.sleep(0.05)
    assert not Path(f"/proc/{text.split()[0]}").exists()


def test_wrong_launcher_is_named(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    launch.check_launcher(SimpleNamespace(size=4))
    with pytest.raises(RuntimeError, match="started 4 ranks, but MPI .* sees 1"):
        launch.check_launcher(SimpleNamespace(size=1))
    monkeypatch.delenv("OMPI_COMM_WORLD_SIZE")
    monkeypatch.delenv("PMI_SIZE", raising=False)
    launch.check_launcher(SimpleNamespace(size=1))
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "3")
    with pytest.raises(RuntimeError, match=r"started 3 ranks, but MPI .* sees 1.*srun --mpi=pmix"):
        launch.check_launcher(SimpleNamespace(size=1))


@pytest.mark.slow
def test_launch_that_does_not_end(tmp_path, monkeypatch):
    (tmp_path / "mpiexec").write_text("#!/bin/sh\nsleep 987\n")
    (tmp_path / "mpiexec").chmod(0o755)
    monkeypatch.setattr(launch, "path_from_here", lambda: f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(launch, "_TIMEOUT_SECONDS", 0.5)
    with pytest.raises(RuntimeError, match="2 ranks did not find each other .mpiexec returned -15"):
        launch.describe_mpi.__wrapped__()


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python looks into the working folder first")
def test_ranks_find_the_package_that_started_them(tmp_path, monkeypatch):
    (tmp_path / "dace_redist").mkdir()
    (tmp_path / "dace_redist/__init__.py").write_bytes(Path(dace_redist.__file__).read_bytes())
    find = "import sys; sys.path.insert(0, ''); import dace_redist"
    alone = subprocess.run([sys.executable, "-I", "-S", "-c", find], cwd=tmp_path, capture_output=True, text=True)
    assert "is the source of dace_redist, without its compiled _core" in alone.stderr
    monkeypatch.chdir(tmp_path)
    assert launch.describe_mpi.__wrapped__()

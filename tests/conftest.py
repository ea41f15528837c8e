"""The ``mpi`` marker: a test so marked is run again, alone, under mpiexec; start reading at ``run_under_mpi``."""

from __future__ import annotations

import faulthandler
import json
import os
import re
import signal
import sys
import tempfile
import time
from array import array
from pathlib import Path
from typing import Any

import pytest
from forked_ranks import Servers
from launching import TIMED_OUT
from launching import launch as launch_ranks

from dace_redist.mpi import launch

CHILD = "DACE_REDIST_MPI_CHILD"  # set in a rank: the folder for its report; the next variables are the numbers it needs
RANKS = "DACE_REDIST_MPI_RANKS"
STACKS_AT = "DACE_REDIST_MPI_STACKS_AT"  # time.time() at which a rank that still runs prints its stacks
GRACE = "DACE_REDIST_MPI_GRACE"  # seconds that a failed rank waits for the others before it ends them
LONGEST = ("test_runtime.py", "test_distribute.py", "test_cluster.py", "test_random_cases.py")  # files that start first
DEFAULT_TIMEOUT = 120
DEFAULT_GRACE = 10
TAIL_LINES = 60
PYTEST_FRAME = re.compile(r' +File ".*(/_pytest/|/pluggy/|/pytest/__main__|<frozen runpy>).*line')

# DaCe's builds for each MPI, and those of tests that run at once, are in folders of their own; mpicxx, cmake and
# mpiexec are those beside this Python.
os.environ.update(launch.mpi_environment())
_builds = Path(__file__).resolve().parent.parent / ".dacecache" / Path(sys.prefix).name
os.environ.setdefault("DACE_default_build_folder", str(_builds / os.environ.get("PYTEST_XDIST_WORKER", "")))
os.environ.setdefault("DACE_BUILD_CACHE_DIR", str(_builds / "shared"))
os.environ.setdefault("DACE_REDIST_CACHE", str(_builds / "programs"))
os.environ["DACE_REDIST_MACHINE"] = str(_builds / "no machine.json")  # what "Auto" is must not depend on this machine
# Hundreds of processes import the same sources.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# "inspect" walks up the stack, deep under pytest, per node; "none" forgets also what the frontend knows.
os.environ.setdefault("DACE_compiler_lineinfo", "frontend")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "mpi(ranks, timeout=120): run under mpiexec, once for each number of ranks")
    config.addinivalue_line(
        "markers", "dace: of an mpi test whose ranks use DaCe: they have imported it when they start"
    )
    config.addinivalue_line("markers", "mpi_matrix: an mpi test that runs under every MPI at hand")
    if CHILD in os.environ:
        config.addinivalue_line("markers", "timeout: of pytest-timeout, which a rank does without")
        config.pluginmanager.register(Rank(config), "mpi-rank")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker = metafunc.definition.get_closest_marker("mpi")
    if marker is not None:
        if "mpi_ranks" not in metafunc.fixturenames:
            metafunc.fixturenames.append("mpi_ranks")
        ranks = marker.kwargs.get("ranks", marker.args[0] if marker.args else [2])
        ranks = [ranks] if isinstance(ranks, int) else ranks
        metafunc.parametrize("mpi_ranks", ranks, ids=[f"{count}ranks" for count in ranks], indirect=True)


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHILD in os.environ:
        return
    for item in items:
        if getattr(item.obj, "is_hypothesis_test", False):
            item.add_marker(pytest.mark.fuzz)
    items.sort(key=lambda item: item.path.name not in LONGEST)  # where files run at once, the last are short
    for item in items:
        marker = item.get_closest_marker("mpi")
        if marker is not None:
            item.add_marker(pytest.mark.timeout(marker.kwargs.get("timeout", DEFAULT_TIMEOUT) + 60))
            item.setup = lambda: None  # type: ignore[method-assign]  # the fixtures are made in the ranks, not here
            item.runtest = lambda item=item: run_under_mpi(item)  # type: ignore[method-assign]


@pytest.fixture
def mpi_ranks(request: pytest.FixtureRequest) -> int:
    """Number of ranks this test runs on."""
    return request.param


@pytest.fixture
def comm(request: pytest.FixtureRequest) -> Any:
    """``MPI.COMM_WORLD`` of a test with the ``mpi`` marker."""
    if request.node.get_closest_marker("mpi") is None:
        pytest.fail(f"{request.node.nodeid} uses comm and so needs @pytest.mark.mpi(ranks=[...])", pytrace=False)
    from mpi4py import MPI

    return MPI.COMM_WORLD


# In the parent ---------------------------------------------------------------------------------------------------


def run_under_mpi(item: pytest.Item) -> None:
    """Run one test under mpiexec; fails with the text of the first rank that failed, or of all if it hung."""
    marker = item.get_closest_marker("mpi")
    ranks, timeout = item.callspec.params["mpi_ranks"], marker.kwargs.get("timeout", DEFAULT_TIMEOUT)
    switches = ["-s", "-q", "--no-header", "--runxfail", "--tb=short"]
    switches += ["-p", "no:cacheprovider", "-p", "no:faulthandler", f"--rootdir={item.config.rootpath}"]
    forks = servers(item.config, needs_dace=item.get_closest_marker("dace") is not None)
    argv = forks.command([item.nodeid, *switches])  # which may have to start; the time limit is of the ranks
    with tempfile.TemporaryDirectory(prefix="dace-redist-mpi-") as name:
        folder = Path(name)
        variables = {
            CHILD: name,
            RANKS: str(ranks),
            STACKS_AT: str(time.time() + timeout - min(3.0, 0.2 * timeout)),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        }
        code, printed = launch_ranks(ranks, argv, timeout, environment=variables, cwd=item.config.rootpath)
        reports = [read_report(folder, rank) for rank in range(ranks)]
    judge(f"{item.nodeid} on {ranks} ranks", code, printed, reports, timeout)


_servers: dict[tuple[str, ...], Servers] = {}


def servers(config: pytest.Config, needs_dace: bool) -> Servers:
    """Return the servers that fork ranks, with or without DaCe imported."""
    modules = ("numpy", "dace_redist.transformations.distribute" if needs_dace else "dace_redist.mpi.launch")
    if modules not in _servers:
        _servers[modules] = Servers(modules, launch.mpi_environment(ranks=1))
        config.add_cleanup(_servers[modules].stop)
    return _servers[modules]


@pytest.fixture(scope="session")
def ranks_with_dace(request: pytest.FixtureRequest) -> Servers:
    """Return servers for tests that start programs on several ranks, where importing DaCe takes most of the time."""
    return servers(request.config, needs_dace=True)


def read_report(folder: Path, rank: int) -> dict[str, str]:
    """Return the report of a rank: outcome, text (its traceback or reason to skip) and log (all it printed)."""
    report = {"outcome": "not finished", "text": ""}
    if (folder / f"{rank}.json").exists():
        report = json.loads((folder / f"{rank}.json").read_text())
    log = folder / f"{rank}.log"
    report["log"] = log.read_text(errors="replace") if log.exists() else ""
    return report


def judge(name: str, code: int, printed: str, reports: list[dict[str, str]], timeout: float) -> None:
    """Turn what the ranks left into the outcome of the parent's test."""
    outcomes = [report["outcome"] for report in reports]
    summary = "; ".join(f"rank {rank}: {outcome}" for rank, outcome in enumerate(outcomes))
    failed = [rank for rank, outcome in enumerate(outcomes) if outcome == "failed"]
    launcher = f"\n--- mpiexec printed\n{tail(printed)}" if printed.strip() else ""
    if failed:
        first = reports[failed[0]]
        said = f"\n--- rank {failed[0]} printed\n{tail(first['log'])}" if first["log"].strip() else ""
        pytest.fail(f"{name}: failed ({summary})\n--- rank {failed[0]}\n{first['text']}{said}{launcher}", pytrace=False)
    logs = "".join(f"\n--- rank {rank} ({r['outcome']}) printed\n{tail(r['log'])}" for rank, r in enumerate(reports))
    if code == TIMED_OUT:
        pytest.fail(f"{name}: hung, ended after {timeout:g} s ({summary}){logs}{launcher}", pytrace=False)
    if code != 0 or "not finished" in outcomes:
        pytest.fail(f"{name}: mpiexec returned {code} ({summary}){logs}{launcher}", pytrace=False)
    if all(outcome == "skipped" for outcome in outcomes):
        pytest.skip(reports[0]["text"])


def tail(text: str) -> str:
    """Last lines of what was printed, without the frames of pytest itself in a stack."""
    lines = [line for line in text.strip().splitlines() if not PYTEST_FRAME.match(line)]
    cut = [f"... ({len(lines) - TAIL_LINES} lines before)"] if len(lines) > TAIL_LINES else []
    return "\n".join(cut + lines[-TAIL_LINES:])


# In a rank -------------------------------------------------------------------------------------------------------


class Rank:
    """Pytest plugin of one rank: prints into its own file, reports its outcome, and agrees on the end with the rest."""

    def __init__(self, config: pytest.Config) -> None:
        self.rank = launch.launched_rank() or 0
        self.folder = Path(os.environ[CHILD])
        self.outcome, self.text = "passed", ""
        self.log = (self.folder / f"{self.rank}.log").open("w")
        sys.stdout.flush()
        for stream in (1, 2):
            os.dup2(self.log.fileno(), stream)
        faulthandler.enable(self.log)
        faulthandler.register(signal.SIGTERM, self.log, chain=True)
        faulthandler.dump_traceback_later(max(0.1, float(os.environ[STACKS_AT]) - time.time()), file=self.log)
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:  # pytest's own lines would bury what the rank prints
            reporter._tw._file = open(os.devnull, "w")  # noqa: SIM115
        from mpi4py import MPI

        if MPI.COMM_WORLD.size != int(os.environ[RANKS]):
            self.outcome = "failed"
            try:
                launch.check_launcher(MPI.COMM_WORLD)
                self.text = f"expected {os.environ[RANKS]} ranks, got {MPI.COMM_WORLD.size}"
            except RuntimeError as error:
                self.text = str(error)
            self.write()
            os._exit(1)  # every rank believes to be alone: nothing to agree on
        self.comm = MPI.COMM_WORLD.Dup()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.note(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.note(report)

    def note(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        if report.failed:
            self.text += report.longreprtext + "\n"
            self.outcome = "failed"
        elif report.skipped and self.outcome == "passed":
            self.text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
            self.outcome = "skipped"

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus != pytest.ExitCode.OK and self.outcome != "failed":
            self.outcome = "failed"
            self.text += f"pytest ended with {exitstatus!r}: the test could not be collected or was interrupted"
        self.write()
        failed, anywhere = array("i", [self.outcome == "failed"]), array("i", [0])
        request = self.comm.Iallreduce(failed, anywhere)
        give_up = time.monotonic() + float(os.environ.get(GRACE, DEFAULT_GRACE))
        while not request.Test():
            time.sleep(0.002)
            if failed[0] and time.monotonic() > give_up:
                print(f"rank {self.rank} failed and the others do not come: ending them", flush=True)
                self.comm.Abort(1)
        faulthandler.cancel_dump_traceback_later()
        if anywhere[0]:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def write(self) -> None:
        target = self.folder / f"{self.rank}.json"
        part = target.with_suffix(".part")
        part.write_text(json.dumps({"outcome": self.outcome, "text": self.text}))
        part.replace(target)

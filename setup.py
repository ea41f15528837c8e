"""Builds dace-redist: the package mapping, the planner's binding ``dace_redist._core``, and the runtime's libraries."""

import importlib
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from pybind11.setup_helpers import ParallelCompile, Pybind11Extension, build_ext
from setuptools import setup
from setuptools.command.build import build

PACKAGE = Path("dace_redist")
RUNTIME, CONTRACTION = PACKAGE / "runtime", PACKAGE / "contraction"
INCLUDE = [str(folder) for folder in (RUNTIME / "src", RUNTIME / "include", CONTRACTION / "src")]
HEADERS = sorted(str(header) for room in (RUNTIME, CONTRACTION) for header in room.rglob("*.h*"))
#: The planner, files, node-shared memory, messages of ranks that wait, and the parser of einsums, which need no MPI.
SOURCES = sorted(str(source) for room in ("layout", "file") for source in RUNTIME.glob(f"src/{room}/*.cpp"))
SOURCES += [str(RUNTIME / f"src/shm/{name}.cpp") for name in ("arena", "array_allocator", "available_memory", "xpmem")]
SOURCES += [str(RUNTIME / f"src/{name}.cpp") for name in ("copy/huge_pages", "core/long_wait")]
SOURCES.append(str(CONTRACTION / "src/einsum.cpp"))

#: Of each library, as installed.
ROOM_FILES = ("CMakeLists.txt", "include/*", "src/**/*.hpp", "src/**/*.cpp", "src/**/*.cu")

CORES = len(os.sched_getaffinity(0))
VERSION = runpy.run_path("dace_redist/_version.py")["__version__"]
VARIANTS = runpy.run_path("dace_redist/native/variants.py")
#: Environment variable: paths of the ``mpicxx`` of the MPIs that the package brings libraries for, for all processors.
MPIS_VARIABLE = "DACE_REDIST_WHEEL_MPIS"
#: Environment variable: levels of processors, for tests; default: all.
LEVELS = os.environ.get("DACE_REDIST_WHEEL_LEVELS", " ".join(VARIANTS["LEVELS"])).split()


class Build(build):
    """Removes what an earlier build left, which would go into the package, too."""

    def run(self):  # noqa: D102
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class BuildExtension(build_ext):
    """Builds the runtime's libraries, too, unless the package stays in the checkout, where sources change."""

    def run(self):  # noqa: D102
        super().run()
        if self.inplace or self.editable_mode:
            return
        folder = Path(self.build_lib, "dace_redist", VARIANTS["FOLDER"].name)
        if LEVELS and (mpis := os.environ.get(MPIS_VARIABLE)):
            for mpi in mpis.split(os.pathsep):
                build_libraries(folder, mpi, LEVELS)
            openmp = subprocess.check_output(["g++", f"-print-file-name={VARIANTS['OPENMP']}"], text=True).strip()
            shutil.copy(openmp, folder)  # systems without a compiler may have none
        else:
            build_for_this_machine(folder)


def build_for_this_machine(folder):
    """Build for the MPI at hand and this processor's level, if they are known; else it is done at the first use."""
    facts = Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""
    flags = next((line for line in facts.splitlines() if line.startswith("flags")), "")
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
    mpi, cmake, levels = shutil.which("mpicxx", path=path), shutil.which("cmake"), VARIANTS["levels"](flags)
    if mpi and cmake and levels:
        try:
            build_libraries(folder, mpi, levels[-1:])
        except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
            print(f"the runtime's library is built at its first use: {error}", file=sys.stderr)


def build_libraries(folder, mpi, levels):
    """Build the libraries for an MPI: for the lowest level to link with, for the others where the linker finds them."""
    name, scalapack = VARIANTS["LIBRARY_FILE"], VARIANTS["SCALAPACK_FILE"]
    settings = [f"-DMPI_CXX_COMPILER={mpi}", f"-DDACE_REDIST_VERSION={VERSION}", "-DCMAKE_SKIP_BUILD_RPATH=ON"]
    blas = blas_settings()  # without its path, too: Python loads it before
    settings += blas
    for level in levels:
        with tempfile.TemporaryDirectory() as build:
            where = [f"-DDACE_REDIST_ARCHITECTURE={level}", "-DCMAKE_SHARED_LINKER_FLAGS=-s"]
            subprocess.check_call(["cmake", "-S", PACKAGE, "-B", build, *settings, *where])
            made_here = ["--target", "dace_redist_scalapack", *(["dace_redist_einsum"] if blas else [])]
            subprocess.check_call(["cmake", "--build", build, *made_here, "--parallel", str(CORES)])
            made = Path(build, name)
            target = folder / interface(made) / levels[0]
            target = target if level == levels[0] else target / VARIANTS["HIGHER_LEVELS"] / level
            target.mkdir(parents=True, exist_ok=True)
            for library in [made, *([Path(build, VARIANTS["EINSUM_FILE"])] if blas else [])]:
                shutil.copy(library, target)
            if level == levels[0]:  # the other levels use it, too
                shutil.copy(Path(build, scalapack), target)


def blas_settings():
    """Return settings for OpenBLAS of PyPI, which every installation has; none where a build has to do without it."""
    try:
        package = importlib.import_module("scipy_openblas32")
    except ImportError as error:
        print(f"the library of contractions is built at its first use: {error}", file=sys.stderr)
        return []
    return [
        f"-DDACE_REDIST_BLAS_LIBRARY={Path(package.get_lib_dir(), package.get_library(fullname=True))}",
        f"-DDACE_REDIST_BLAS_INCLUDES={package.get_include_dir()}",
        "-DDACE_REDIST_BLAS_DEFINITIONS=BLAS_SYMBOL_PREFIX=scipy_",
    ]


def interface(library):
    """Return the name of the binary interface of the MPI that a library is linked to."""
    linked = library.read_bytes()
    for name, mpi in VARIANTS["MPI_LIBRARIES"].items():
        if b"\0" + mpi.encode() + b"\0" in linked:
            return name
    raise RuntimeError(f"the MPI of {library} is none of {', '.join(VARIANTS['MPI_LIBRARIES'].values())}")


ParallelCompile(default=CORES).install()
setup(
    package_dir={
        "dace_redist": "dace_redist",
        "dace_redist.library_nodes": "library_nodes",
        "dace_redist.transformations": "transformations",
        "dace_redist.transformations.distribute": "transformations/distribute",
    },
    packages=[
        "dace_redist",
        "dace_redist.einsum",
        "dace_redist.adapters",
        "dace_redist.interop",
        "dace_redist.io",
        "dace_redist.mpi",
        "dace_redist.native",
        "dace_redist.redistribution",
        "dace_redist.redistribution.arrays",
        "dace_redist.redistribution.problem",
        "dace_redist.report",
        "dace_redist.timing",
        "dace_redist.library_nodes",
        "dace_redist.transformations",
        "dace_redist.transformations.distribute",
        "dace_redist.transformations.distribute.read",
        "dace_redist.transformations.distribute.read.dace_repairs",
        "dace_redist.transformations.distribute.emit",
        "dace_redist.transformations.distribute.runtime",
    ],
    package_data={
        "dace_redist": [
            "py.typed",
            "__init__.pyi",
            "_core.pyi",
            "CMakeLists.txt",
            *(f"{room}/{files}" for room in ("runtime", "contraction", "scalapack") for files in ROOM_FILES),
        ],
    },
    ext_modules=[
        Pybind11Extension(
            "dace_redist._core",
            ["dace_redist/_core.cpp", *SOURCES],
            include_dirs=[*INCLUDE, np.get_include()],
            depends=HEADERS,
            extra_link_args=["-Wl,--exclude-libs,ALL"],  # see CMakeLists.txt
            cxx_std=17,
        )
    ],
    cmdclass={"build": Build, "build_ext": BuildExtension},
)

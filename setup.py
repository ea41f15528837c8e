"""Builds dace-redist: the package mapping and the planner's binding ``dace_redist._core``."""

import os
from pathlib import Path

import numpy as np
from pybind11.setup_helpers import ParallelCompile, Pybind11Extension, build_ext
from setuptools import setup

INCLUDE = Path("dace_redist/runtime/src")
HEADERS = sorted(str(header) for header in INCLUDE.rglob("*.hpp"))
#: The planner and node-shared memory, which need no MPI.
SOURCES = sorted(str(source) for source in INCLUDE.glob("layout/*.cpp"))
SOURCES += [str(INCLUDE / "shm" / name) for name in ("arena.cpp", "array_allocator.cpp", "available_memory.cpp")]
SOURCES += [str(INCLUDE / name) for name in ("contraction/einsum.cpp", "copy/huge_pages.cpp")]

ParallelCompile(default=len(os.sched_getaffinity(0))).install()
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
        "dace_redist.measuring",
        "dace_redist.mpi",
        "dace_redist.native",
        "dace_redist.redistribution",
        "dace_redist.report",
        "dace_redist.simulation",
        "dace_redist.tuning",
        "dace_redist.library_nodes",
        "dace_redist.transformations",
        "dace_redist.transformations.distribute",
        "dace_redist.transformations.distribute.read",
        "dace_redist.transformations.distribute.rewrite",
        "dace_redist.transformations.distribute.emit",
        "dace_redist.transformations.distribute.runtime",
    ],
    package_data={
        "dace_redist": [
            "py.typed",
            "__init__.pyi",
            "_core.pyi",
            "tuning/default_machine.json",
            "simulation/machines/*.yaml",
            "runtime/CMakeLists.txt",
            "runtime/include/*",
            "runtime/src/**/*.hpp",
            "runtime/src/**/*.cpp*",
            "runtime/src/**/*.cu",
        ],
    },
    ext_modules=[
        Pybind11Extension(
            "dace_redist._core",
            ["dace_redist/_core.cpp", *SOURCES],
            include_dirs=[str(INCLUDE), str(INCLUDE.parent / "include"), np.get_include()],
            depends=HEADERS,
            cxx_std=17,
        )
    ],
    cmdclass={"build_ext": build_ext},
)

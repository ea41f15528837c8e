"""Commands ``dace-redist build`` and ``dace-redist config``."""

from __future__ import annotations

import click

from dace_redist._version import __version__
from dace_redist.mpi.launch import describe_mpi, exports_for
from dace_redist.native.cmake_build import build_time, cmake_package, ensure_library
from dace_redist.native.loaded_mpi import mpi_in_use
from dace_redist.native.toolchain import (
    CUDA,
    EINSUM,
    INCLUDE_DIRECTORY,
    REDISTRIBUTION,
    SCALAPACK,
    cuda_compiler,
    library_path,
    packaged,
    processor_levels,
)
from dace_redist.native.variants import best_build


@click.command()
@click.option(
    "--gpu/--no-gpu", default=None, help="build the library for GPUs; default: if nvcc is on PATH or in CUDA_HOME"
)
def build(gpu: bool | None) -> None:
    """
    Compile the libraries ahead of their first use.

    They are kept for this MPI and processor. On a cluster, run it once where there is a compiler.
    """
    for name in (REDISTRIBUTION, EINSUM, SCALAPACK):
        click.echo(ensure_library(name))
    if gpu or (gpu is None and cuda_compiler() is not None):
        click.echo(ensure_library(CUDA))


def installation() -> list[str]:
    """Return lines of version, compiler, MPI, shell and library in use; starts two ranks, whose failure is an error."""
    library = best_build(library_path(), processor_levels())
    origin = "came with the package" if library_path() == packaged() else f"compiled here{build_time()}"
    if not library.exists():
        origin = "not built yet: the first call does so, or dace-redist build"
    compiler = mpi_in_use().compiler or "none: only DaCe programs need one"
    mpi = describe_mpi()
    exports = [f"shell     {line}" for line in exports_for(mpi)]
    lines = [f"version   {__version__}", f"compiler  {compiler}", f"MPI       {mpi}", *exports]
    return [*lines, f"library   {library} ({origin})"]


@click.command()
@click.option("--cflags", is_flag=True, help="options of the C or C++ compiler, besides those of mpicc")
@click.option("--libs", is_flag=True, help="options of the linker")
@click.option("--fortran", is_flag=True, help="source of the Fortran module, to compile first")
@click.option("--cmakedir", is_flag=True, help="folder of the CMake package, for -Ddace_redist_DIR=")
@click.option("--preload", type=click.Choice(["scalapack"]), help="library for LD_PRELOAD")
def config(cflags: bool, libs: bool, fortran: bool, cmakedir: bool, preload: str | None) -> None:
    """
    Print flags for C, C++ and Fortran programs.

    \b
    mpicc program.c $(dace-redist config --cflags --libs)
    mpicxx -std=c++17 program.cpp $(dace-redist config --cflags --libs)
    mpifort $(dace-redist config --fortran) program.f90 $(dace-redist config --libs)
    cmake -Ddace_redist_DIR=$(dace-redist config --cmakedir) ...
    mpiexec -x LD_PRELOAD=$(dace-redist config --preload scalapack) program
    """  # noqa: D301 (click reads the backspace)
    if not (cflags or libs or fortran or cmakedir or preload):
        raise click.UsageError(
            "name --cflags, --libs, --fortran, --cmakedir or --preload; "
            "dace-redist info prints the MPI and library in use"
        )
    words = [f"-I{INCLUDE_DIRECTORY}"] if cflags else []
    if fortran:
        words.append(str(INCLUDE_DIRECTORY / "dace_redist.f90"))
    if libs:
        library = ensure_library()
        words += [f"-L{library.parent}", f"-Wl,-rpath,{library.parent}", f"-l:{library.name}"]
    if cmakedir:
        words.append(str(cmake_package().parent))
    if preload:
        words.append(str(ensure_library(SCALAPACK)))
    click.echo(" ".join(words))

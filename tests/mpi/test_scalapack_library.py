"""The library of ScaLAPACK's routines against ScaLAPACK in the same process: every byte of the local arrays."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launching import TIMED_OUT, launch, long_waits
from mpi4py import MPI
from mpi_programs import another_mpi
from redistribution import scalapack
from seeds import seed, some

from dace_redist.mpi.collective import sleeping_barrier
from dace_redist.mpi.topology import processor_facts
from dace_redist.native.cmake_build import ensure_library
from dace_redist.native.loaded_mpi import mpi_in_use
from dace_redist.native.toolchain import SCALAPACK, mpi_compiler

SEED = seed()
TYPES = {"i": "i4", "s": "f4", "d": "f8", "c": "c8", "z": "c16"}
TRANSPOSES = {"pstran": "f4", "pdtran": "f8", "pctranu": "c8", "pctranc": "c8", "pztranu": "c16", "pztranc": "c16"}
OUTSIDE = -1
PROGRAM = Path(__file__).parents[1] / "scalapack_program.py"
REPORT = re.compile(r"process \d+ carried out (\d+) of (\d+) calls")

pytestmark = pytest.mark.mpi_matrix


class Libraries:
    """Both libraries, and process grids of BLACS over a communicator."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        if reason := scalapack.library_missing():
            pytest.skip(reason)
        os.environ["DACE_REDIST_SCALAPACK_MIN_BYTES"] = "0"
        self.comm, self.real = comm, scalapack.library()
        if comm.rank == 0:
            ensure_library(SCALAPACK)
        sleeping_barrier(comm)
        self.ours = ctypes.CDLL(str(ensure_library(SCALAPACK)))
        self._system = self.real.Csys2blacs_handle(MPI._handleof(comm))

    def context(self, ranks: np.ndarray) -> int:
        """Return a new context of a grid of these ranks; OUTSIDE on others. Collective."""
        members, context = np.asfortranarray(ranks, np.int32), ctypes.c_int(self._system)
        address = members.ctypes.data_as(ctypes.c_void_p)
        self.real.Cblacs_gridmap(ctypes.byref(context), address, ranks.shape[0], *ranks.shape)
        return context.value

    def free(self, contexts: set[int]) -> None:
        for context in contexts - {OUTSIDE}:
            self.real.Cblacs_gridexit(context)

    def carried_out(self) -> tuple[int, int]:
        """Numbers of calls in this process, and of those that were not left to ScaLAPACK."""
        counts = ctypes.c_int64(), ctypes.c_int64()
        self.ours.dr_scalapack_calls(*map(ctypes.byref, counts))
        return counts[0].value, counts[1].value


def grid(rng: np.random.Generator, ranks: np.ndarray) -> np.ndarray:
    """A process grid of some of the ranks, in any order."""
    rows = int(rng.integers(1, len(ranks) + 1))
    columns = int(rng.integers(1, len(ranks) // rows + 1))
    return rng.permutation(ranks)[: rows * columns].reshape(rows, columns)


def extent(n: int, block: int, part: int, first: int, parts: int) -> int:
    """Indices of a part of a dimension; not the library's way."""
    return sum(1 for i in range(n) if (i // block + first) % parts == part)


class Matrix:
    """A random block-cyclic matrix around a submatrix of a shape; on ranks outside of the grid without meaning."""

    def __init__(
        self, rng: np.random.Generator, ranks: np.ndarray, context: int, shape: list[int], me: int, min_lld: int
    ) -> None:
        self.offset = rng.integers(0, 12, 2).tolist()
        size = [a + b + int(rng.integers(0, 9)) for a, b in zip(self.offset, shape, strict=True)]
        block = rng.integers(1, 10, 2).tolist()
        first = [int(rng.integers(0, parts)) for parts in ranks.shape]
        spare = int(rng.integers(0, 3))
        self.at = [int(i) + 1 for i in self.offset]
        if context == OUTSIDE:
            self.descriptor = np.full(9, -77, np.int32)
            self.descriptor[:2] = 1, OUTSIDE
            self.shape, self.at = (1, 1), [-9, 123456]
        else:
            place = [int(i[0]) for i in np.nonzero(ranks == me)]
            local = [extent(*one) for one in zip(size, block, place, first, ranks.shape, strict=True)]
            self.shape = (max(min_lld, local[0] + spare), local[1])
            self.descriptor = np.array([1, context, *size, *block, *first, self.shape[0]], np.int32)

    def filled(self, rng: np.random.Generator, dtype: str) -> np.ndarray:
        values = rng.integers(-1000, 1000, (2, *self.shape))
        return np.asfortranarray((values[0] + 1j * values[1]).astype(dtype) if dtype[0] == "c" else values[0], dtype)


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def called(library: Any, name: str, *arguments: Any) -> None:
    """Call a routine by its Fortran name, or its C name, which takes numbers by value."""
    routine = getattr(library, name)
    routine.restype = None
    given = [np.array(one, np.int32) if isinstance(one, int) and name[0] != "C" else one for one in arguments]
    routine(*(pointer(one) if isinstance(one, np.ndarray) else one for one in given))


def shapes(rng: np.random.Generator) -> list[int]:
    return [int(n) for n in rng.integers(1, rng.choice([4, 60]), 2)]


def copied(libraries: Libraries, number: int) -> str:
    """Copy a random submatrix by both libraries; return what differs on this rank. Collective."""
    comm = libraries.comm
    rng, own = np.random.default_rng([SEED, number]), np.random.default_rng([SEED, number, comm.rank])
    few = np.random.default_rng([SEED, number % 12])  # a set of processes has a communicator of its own
    union = few.permutation(comm.size)[: int(few.integers(1, comm.size + 1))]
    rows = int(few.choice([n for n in range(1, len(union) + 1) if len(union) % n == 0]))
    layouts = [union.reshape(rows, -1), grid(rng, union), grid(rng, union)]
    if rng.integers(4) == 0:
        layouts[2] = layouts[1]
    contexts = [libraries.context(layout) for layout in layouts]
    kind, shape = str(rng.choice([*TYPES])), shapes(rng)
    source, target = (Matrix(rng, layouts[i], contexts[i], shape, comm.rank, min_lld=0) for i in (1, 2))
    A, ours = source.filled(own, TYPES[kind]), target.filled(own, TYPES[kind])
    theirs = ours.copy("F")
    name = f"Cp{kind}gemr2d" if rng.integers(2) else f"p{kind}gemr2d_"
    if contexts[0] != OUTSIDE:
        for library, B in ((libraries.ours, ours), (libraries.real, theirs)):
            sides = [A, *source.at, source.descriptor, B, *target.at, target.descriptor]
            called(library, name, *shape, *sides, contexts[0])
    libraries.free(set(contexts))
    how = f"case {number}: {name} {shape} {source.descriptor} to {target.descriptor} at {source.at}, {target.at}"
    return "" if ours.tobytes() == theirs.tobytes() else f"{how}, rank {comm.rank}:\n{ours}\nnot\n{theirs}"


def transposed(libraries: Libraries, number: int) -> str:
    """Transpose a random submatrix by both libraries; return what differs on this rank. Collective."""
    comm = libraries.comm
    rng, own = np.random.default_rng([SEED, number]), np.random.default_rng([SEED, number, comm.rank])
    layout = grid(rng, np.arange(comm.size))
    context, shape, name = libraries.context(layout), shapes(rng), str(rng.choice([*TRANSPOSES]))
    if context == OUTSIDE:
        return ""
    dtype = TRANSPOSES[name]
    source, target = (Matrix(rng, layout, context, part, comm.rank, min_lld=1) for part in (shape[::-1], shape))
    alpha, beta = (np.array(rng.choice([0, 1, 1, -2.5, 0.1]), dtype) for _ in range(2))
    if dtype[0] == "c" and rng.integers(2):
        alpha *= 1 - 2j
    A, ours = source.filled(own, dtype), target.filled(own, dtype)
    theirs = ours.copy("F")
    for library, C in ((libraries.ours, ours), (libraries.real, theirs)):
        sides = [A, *source.at, source.descriptor, beta, C, *target.at, target.descriptor]
        called(library, f"{name}_", *shape, alpha, *sides)
    libraries.free({context})
    how = f"case {number}: {name} {shape} {alpha} {beta} {source.descriptor} to {target.descriptor}"
    close = np.allclose(ours, theirs, rtol=0, atol=1e4 * np.finfo(dtype).eps)
    return "" if close else f"{how}, rank {comm.rank}:\n{ours}\nnot\n{theirs}"


@pytest.mark.mpi(ranks=[1, 2, 4], full=[3, 6, 8], timeout=600)
@pytest.mark.parametrize("case", [copied, transposed])
def test_random_cases(comm: MPI.Intracomm, case: Any) -> None:
    libraries = Libraries(comm)
    before = libraries.carried_out()
    for number in range(some(60)):
        wrong = [text for text in comm.allgather(case(libraries, number)) if text]
        assert not wrong, wrong[0]
    calls, carried_out = (now - then for now, then in zip(libraries.carried_out(), before, strict=True))
    calls, carried_out = comm.allreduce(calls), comm.allreduce(carried_out)
    assert carried_out > 0.6 * calls, "too few calls were carried out by the library"


def launched(
    *how: str, ranks: int = 4, timeout: float = 120, only: int | None = None, behind: str = ""
) -> tuple[int, str]:
    """Start the program with the library preloaded, behind another one or on one rank only."""
    if reason := scalapack.library_missing():
        pytest.skip(reason)
    preload = f"LD_PRELOAD={behind}:{ensure_library(SCALAPACK)}"
    rank = "[ ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} != " + f"{only} ] ||"
    command = f"{'' if only is None else rank} export {preload}; exec {sys.executable} {PROGRAM} {' '.join(how)}"
    variables = {"DACE_REDIST_SCALAPACK_REPORT": "1", "DACE_REDIST_WAIT_MESSAGE": "2"}
    return launch(ranks, ["sh", "-c", command], timeout, environment=variables)


@pytest.fixture(scope="module")
def of_one_rank() -> Iterator[Future[tuple[int, str]]]:
    """Return what a job prints in 20 s; after 2 s it says that it waits. Other tests run meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(launched, "as it is", ranks=2, timeout=20, only=0)


@pytest.mark.usefixtures("of_one_rank")
@pytest.mark.parametrize("how", ["as it is", "threads"])
def test_preloaded_library_serves_a_python_module(how: str) -> None:
    code, output = launched(how)
    assert code == 0 and "right" in output, output
    counts = [tuple(map(int, found)) for found in REPORT.findall(output)]
    assert len(counts) == 4 and all(0 < carried_out < calls for carried_out, calls in counts), output


def test_scalapack_reports_wrong_arguments() -> None:
    code, output = launched("lld", ranks=2)
    assert code != 0 and "??MR2D:bad lda arg" in output, output
    code, output = launched("freed", ranks=2)
    assert code != 0 and "xxGEMR2D:something wrong in the parameters" in output, output


def test_threads_that_call_at_once_are_an_error() -> None:
    code, output = launched("at_once", ranks=2, timeout=40)
    assert code not in (0, TIMED_OUT) and "another thread of this process is in a routine of ScaLAPACK" in output, (
        output
    )


def test_libraries_have_no_path_of_an_mpi() -> None:
    """They are kept for all MPIs of an interface, and the one they were built with may be gone."""
    found = [
        re.findall(r"(?:RUNPATH|RPATH).*\[(.*)\]", subprocess.check_output(["readelf", "-d", library], text=True))
        for library in (ensure_library(), ensure_library(SCALAPACK))
    ]
    assert found == [[], ["$ORIGIN"]]


def test_processor_below_the_level_of_the_library() -> None:
    if not shutil.which("qemu-x86_64"):
        pytest.skip("no emulator of x86-64 (Debian: apt-get install qemu-user)")
    library = ensure_library(SCALAPACK)
    processors = {"Conroe": False}  # without SSE4
    if "avx512f" not in processor_facts().get("flags", ""):  # for which the library is compiled, but not the emulator
        processors["max"] = True
    for processor, loads in processors.items():
        found = f"LD_LIBRARY_PATH={Path(mpi_in_use().path).parent}"
        emulated = ["qemu-x86_64", "-cpu", processor, "-E", f"LD_PRELOAD={library}", "-E", found, "/bin/true"]
        done = subprocess.run(emulated, capture_output=True, text=True)
        assert (done.returncode == 0) == loads, done.stderr
        assert ("CPU ISA level is lower than required" in done.stderr) != loads, done.stderr


@pytest.mark.compile
def test_library_for_another_mpi_leaves_calls_to_scalapack(tmp_path: Path) -> None:
    code, output = launched("as it is", ranks=2, behind=another_mpi(tmp_path / "other.so"))
    assert code == 0 and "right" in output, output
    assert re.search("libdace_redist_scalapack is for .* but the program uses Fjord MPI: ScaLAPACK is not", output), (
        output
    )
    assert REPORT.findall(output) == [("0", "8")] * 2, output


def test_new_contexts_take_no_resources() -> None:
    outputs = [launched("contexts", str(count), ranks=2)[1] for count in (500, 3000)]
    few, many = ([int(number) for number in text.split("right ")[1].split()[:3]] for text in outputs)
    assert many[0] < few[0] * 1.05 + 2048 and many[1:] == few[1:], outputs


def test_sets_of_processes_take_no_memory() -> None:
    """Other processes, or in another order, for each context: 261 of each of 5 ranks."""
    code, output = launched("sets", ranks=5)
    grown = re.search(r"grown by (-?\d+) in (\d+)", output)
    assert code == 0 and grown, output
    assert int(grown[1]) < 1024 * int(grown[2]), output  # BLACS and MPI take 150 to 400 each


def test_ranks_without_the_library_are_reported(of_one_rank: Future[tuple[int, str]]) -> None:
    code, output = of_one_rank.result()
    assert code != 0 and "set LD_PRELOAD on every rank" in output, output
    said = [name for rank, name, late in long_waits(output, "2") if rank == 0 and 1 in late]
    assert any(re.fullmatch(r"p\w+", name) for name in said), output


@pytest.mark.full
@pytest.mark.compile
@pytest.mark.parametrize("letter", TYPES)
def test_drivers_of_scalapack(letter: str, tmp_path: Path) -> None:
    """ScaLAPACK's own tests of p?gemr2d, of a checkout of its sources."""
    if not (checkout := os.environ.get("DACE_REDIST_SCALAPACK_SOURCES")):
        pytest.skip("set DACE_REDIST_SCALAPACK_SOURCES to a folder of ScaLAPACK's sources")
    if reason := scalapack.library_missing():
        pytest.skip(reason)
    sources = Path(checkout, "REDIST", "TESTING")
    options = ["-std=gnu89", "-w", "-DAdd_", "-DInt=int", f"-I{sources}", "-o", tmp_path / "driver"]
    mpicc = mpi_compiler().replace("mpicxx", "mpicc")
    subprocess.run([mpicc, *options, sources / f"p{letter}gemrdrv.c", "-lscalapack-openmpi"], check=True)
    shutil.copy(sources / "GEMR2D.dat", tmp_path)
    preload = f"LD_PRELOAD={ensure_library(SCALAPACK)}"
    variables = {"DACE_REDIST_SCALAPACK_REPORT": "1", "DACE_REDIST_SCALAPACK_MIN_BYTES": "0"}
    code, output = launch(4, ["env", preload, "./driver"], 120, environment=variables, cwd=tmp_path)
    assert code == 0 and output.count("TEST PASSED OK") == 90, output[-2000:]
    assert all(calls == ("180",) * 2 for calls in REPORT.findall(output)), output[-1000:]


def scalapack4py_program() -> list[str]:
    pytest.importorskip("scalapack4py", reason="needs scalapack4py (pip install scalapack4py)")
    return [sys.executable, str(PROGRAM.with_name("scalapack4py_program.py")), "900"]


def debian(program: str, package: str) -> Path:
    """The latest version of a program; its MPI is Debian's."""
    found = sorted(Path("/usr").glob(program))
    if not found or os.environ.get(scalapack.VARIABLE):
        pytest.skip(f"needs a program that runs with Debian's Open MPI (apt-get install {package})")
    return found[-1]


def petsc4py_program() -> list[str]:
    found = debian("lib/petscdir/*/*-real/lib/python3/dist-packages/petsc4py", "python3-petsc4py-real")
    variables = [f"PETSC_DIR={found.parents[3]}", f"PYTHONPATH={found.parent}"]
    return ["env", *variables, "/usr/bin/python3", str(PROGRAM.with_name("petsc4py_program.py")), "900"]


def gpaw_program() -> list[str]:
    debian("lib/python3/dist-packages/gpaw", "gpaw")
    return ["/usr/bin/python3", str(PROGRAM.with_name("gpaw_program.py"))]


def cp2k_program() -> list[str]:
    return [str(debian("bin/cp2k.psmp", "cp2k")), "-i", str(PROGRAM.with_name("water.inp"))]


@pytest.mark.parametrize(
    ("program", "calls"),
    [
        (scalapack4py_program, 10),
        (petsc4py_program, 6),
        pytest.param(gpaw_program, None, marks=pytest.mark.full),
        pytest.param(cp2k_program, None, marks=pytest.mark.full),
    ],
)
def test_programs_get_equal_results(program: Callable[[], list[str]], calls: int | None, tmp_path: Path) -> None:
    """:param calls: That the library carries out; None: all, also of small matrices."""
    if reason := scalapack.library_missing():
        pytest.skip(reason)
    command, preload = program(), f"LD_PRELOAD={ensure_library(SCALAPACK)}"
    small = {} if calls else {"DACE_REDIST_SCALAPACK_MIN_BYTES": "0"}
    outputs = []
    for words in (command, ["env", preload, "DACE_REDIST_SCALAPACK_REPORT=1", *command]):
        code, output = launch(4, words, 120, environment=small, cwd=tmp_path)
        assert code == 0, output
        outputs.append(output)
    found, expected = (re.findall(r"^(?:sum|.*Total FORCE_EVAL) (.*)$", output, re.MULTILINE) for output in outputs)
    assert found == expected and len(found) == 1, outputs[1]
    counts = [tuple(map(int, numbers)) for numbers in REPORT.findall(outputs[1])]
    assert len(counts) == 4 and all(carried_out == (calls or most) > 0 for carried_out, most in counts), outputs[1]

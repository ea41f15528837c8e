"""Kernels distributed by hand: builds with every requested strategy, and alternating measurements of their steps."""

import argparse
import contextlib
import copy
import glob
import io
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import dace
import numpy as np
from by_hand_kernel import WORLD, Kernel
from clocks import add_clocks, new_clock, read_clock, steps
from command_line import leave
from dace.codegen.compiled_sdfg import CompiledSDFG
from dace.codegen.compiler import load_precompiled_sdfg
from dace.sdfg import utils
from dace.transformation.passes.simplify import SimplifyPass
from mpi4py import MPI


class _WaitPolitely:
    """Communicator for ``distributed_compile``; ranks sleep while rank 0 compiles."""

    def Get_rank(self) -> int:  # noqa: N802
        return WORLD.rank

    def bcast(self, value, root: int = 0):
        request = WORLD.Ibarrier()
        while not request.Test():
            time.sleep(0.01)
        return WORLD.bcast(value, root)

    def allgather(self, value) -> list:
        return WORLD.allgather(value)


def _parse(kernel: Kernel) -> dace.SDFG:
    sdfg = kernel.program.to_sdfg(simplify=False)
    SimplifyPass(skip={"FuseStates"}).apply_pass(sdfg, {})  # a state per statement, so that each can be timed
    add_clocks(sdfg)
    return sdfg


def _build(kernel: Kernel, parsed: dace.SDFG | None, strategy: str, options: dict) -> CompiledSDFG:
    """Compile a program with a strategy on rank 0, the only one that has it, and load it on all."""
    sdfg, problem = None, None
    if WORLD.rank == 0:
        sdfg = copy.deepcopy(parsed)
        sdfg.name = f"{kernel.name}_{strategy.lower()}"
        try:
            if strategy != "MPI":
                import dace_redist

                dace_redist.set_strategy(sdfg, strategy, **options)
        except (ImportError, TypeError, ValueError) as error:
            problem = f"error: strategy {strategy}: {error}"
    problem = _WaitPolitely().bcast(problem)
    if problem:
        leave(problem, code=2)
    return utils.distributed_compile(sdfg, _WaitPolitely())


def _load(kernel: Kernel, strategy: str) -> CompiledSDFG:
    """Load what an earlier run built; all ranks share rank 0's folder, as in ``distributed_compile``."""
    name = f"{kernel.name}_{strategy.lower()}"
    folder = WORLD.bcast(dace.SDFG(name).build_folder)
    if not WORLD.bcast(any(glob.iglob(f"{folder}/**/lib{name}.*", recursive=True))):
        leave(f"error: --prebuilt: no program was built in {folder}", code=2)
    return load_precompiled_sdfg(folder)


@dataclass
class TimedStrategy:
    """Strategy with its options, its program, and the times of its runs."""

    strategy: str
    options: dict
    compiled: CompiledSDFG
    result: np.ndarray | None = None  # of the last run
    seconds: dict[str, list[float]] | None = None  # per step and in all: for each round the maximum over the ranks


def build_all(kernel: Kernel, arguments: argparse.Namespace) -> list[TimedStrategy]:
    """Build the kernel with every requested strategy; print a line for each on rank 0."""
    with _quiet():
        parsed = _parse(kernel) if WORLD.rank == 0 and not arguments.prebuilt else None
    programs, names = [], list(dict.fromkeys(arguments.strategy))
    for number, strategy in enumerate(names, start=1):
        doing = "loading" if arguments.prebuilt else "compiling"
        say(f"{doing} {kernel.name} with {strategy} ({number} of {len(names)})")
        options = dict(arguments.option) if strategy != "MPI" else {}
        with _quiet():
            load = _load(kernel, strategy) if arguments.prebuilt else _build(kernel, parsed, strategy, options)
        programs.append(TimedStrategy(strategy, options, load))
    return programs


def say(line: str) -> None:
    """Print a line, on rank 0 and at once."""
    if WORLD.rank == 0:
        print(line, flush=True)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide the output of stock DaCe while it parses and expands a Redistribute: debug prints, warnings about itself."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"dace\.")
        yield


def measure(programs: list[TimedStrategy], inputs: dict, repetitions: int) -> None:
    """
    Run all programs alternately, so that other load of the machine affects all equally; the first round warms up.

    Steps are timed with a barrier before each, so that late ranks do not count; the total is timed in separate runs
    without barriers.
    """
    names = [[*steps(program.compiled.sdfg), "total"] for program in programs]
    seconds = [np.zeros((repetitions + 1, len(columns))) for columns in names]
    for repetition in range(repetitions + 1):
        for program, samples in zip(programs, seconds, strict=True):
            samples[repetition] = _run(program, inputs, samples.shape[1])
    for program, columns, samples in zip(programs, names, seconds, strict=True):
        WORLD.Allreduce(MPI.IN_PLACE, samples, MPI.MAX)
        program.seconds = dict(zip(columns, samples[1:].T.tolist(), strict=True))


def _run(program: TimedStrategy, inputs: dict, columns: int) -> np.ndarray:
    """Run a program twice; return this rank's seconds in every step, and in total without barriers."""
    arguments = {name: inputs[name] for name in program.compiled.sdfg.arglist() if name in inputs}
    seconds = np.zeros(columns)
    for barrier in (True, False):
        clock = new_clock(program.compiled.sdfg, barrier)
        WORLD.Barrier()
        program.result = program.compiled(**arguments, clock=clock)
        if barrier:
            seconds[:-1] = read_clock(clock)
        else:
            seconds[-1] = read_clock(clock).sum()
    return seconds

"""Job of benchmarks/einsum/einsums.py on several ranks: one comparison, written as a JSON line."""

import argparse
import contextlib
import importlib
import json
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import by_hand_check
import by_hand_timing
import numpy as np
from by_hand_kernel import WORLD
from clocks import new_clock, read_clock, steps
from einsum_cases import CASES
from einsum_timing import TimedProgram
from mpi4py import MPI
from one_process import resident_bytes, started, status
from run_einsum import from_rank_0, parts, wholes

from dace_redist import DistributedProgram, distribute
from dace_redist.mpi.collective import sleeping_barrier
from dace_redist.mpi.topology import pinned_to_core
from dace_redist.tuning.measure import Repetitions

LENGTHS = {"mm2": (1024, 0), "mm3": (1024, 0), "ttmc": (24, 12)}  # of modes and factors: those of preset S


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", choices=["by-hand", "memory", "one-thread", "one-process"])
    parser.add_argument("kernel", choices=CASES)
    parser.add_argument("--whose", choices=["ours", "by hand"], default="ours", help="for memory")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, required=True)
    arguments = parser.parse_args()
    jobs = {"by-hand": by_hand, "memory": memory, "one-thread": one_thread, "one-process": one_process}
    record = {"job": arguments.job, "kernel": arguments.kernel, "ranks": WORLD.size, "load": os.getloadavg()[0]}
    record |= jobs[arguments.job](arguments)
    if WORLD.rank == 0:
        with arguments.json.open("a") as file:
            file.write(json.dumps(record) + "\n")


def by_hand(arguments: argparse.Namespace) -> dict:
    """
    Measure our program and the one distributed by hand under stock DaCe: seconds in total and by kind of step.

    The total is from the first start to the last end. Steps are timed by clocks in the program, with barriers between
    them; the slowest rank counts. The programs run alternately.
    """
    sides = {"ours": Ours(arguments.kernel), "by hand": ByHand(arguments.kernel, prebuilt=False)}
    samples = {name: np.zeros((arguments.rounds + 1, len(side.steps) + 1)) for name, side in sides.items()}
    whole_runs = Repetitions(WORLD)
    with pinned_to_core(WORLD):
        for number in range(arguments.rounds + 1):  # the first warms up
            for name, side in sides.items():
                WORLD.Barrier()
                samples[name][number, :-1] = side.run(barrier=True)
                samples[name][number, -1] = whole_runs.repeat(name, partial(side.run, barrier=False))
    found = {}
    for name, side in sides.items():
        WORLD.Allreduce(MPI.IN_PLACE, samples[name], MPI.MAX)
        found[name] = _medians([*side.steps, "total"], samples[name][1:])
    return found


def _medians(names: list[str], samples: np.ndarray) -> dict[str, float]:
    """Return the medians by kind of step, the first word of its name."""
    kinds = dict.fromkeys(name.split(" ")[0] for name in names)
    columns = {kind: [name.split(" ")[0] == kind for name in names] for kind in kinds}
    return {kind: float(np.median(samples[:, which].sum(axis=1))) for kind, which in columns.items()}


class Ours:
    """Kernel as an einsum, distributed by this package."""

    def __init__(self, name: str) -> None:
        program = planned(name)
        self._local, self._timed = parts(CASES[name], program), TimedProgram(program, ["Auto"])
        self._timed.compile()
        self.steps = self._timed.steps
        self.operand_bytes = sum(array.nbytes for array in self._local.values())

    def run(self, barrier: bool) -> np.ndarray:
        return self._timed.run("Auto", dict(self._local), barrier)[1]


class ByHand:
    """A kernel distributed by hand, with the redistribution of stock DaCe."""

    def __init__(self, name: str, prebuilt: bool) -> None:
        kernel = importlib.import_module(name).KERNEL
        extents = kernel.extents(*LENGTHS[name])
        arguments = argparse.Namespace(strategy=["MPI"], option=[], prebuilt=prebuilt)
        self._operands = by_hand_check.operands(kernel, extents)
        (self._program,) = by_hand_timing.build_all(kernel, arguments)
        self._compiled = self._program.compiled
        inputs = kernel.symbols(extents) | self._operands
        self._inputs = {key: inputs[key] for key in self._compiled.sdfg.arglist() if key in inputs}
        self.steps = steps(self._compiled.sdfg)
        self.operand_bytes = sum(array.nbytes for array in self._operands.values())

    def run(self, barrier: bool) -> np.ndarray:
        clock = new_clock(self._compiled.sdfg, barrier)
        self._compiled(**self._inputs, clock=clock)
        return read_clock(clock)


def planned(name: str) -> DistributedProgram:
    case = CASES[name]
    return from_rank_0(lambda: distribute(case.program, WORLD.size, case.sizes("S", WORLD.size)))


def memory(arguments: argparse.Namespace) -> dict:
    """
    Return the peak bytes of the largest rank: operands, and growth of memory while the loaded program runs twice.

    They come from the kernel's high-water mark of resident memory, which is reset before. The code of libraries does
    not count; each rank counts its share of shared memory; both are measured at the end. Run it in a new process after
    the program was built.
    """
    make: dict[str, Callable[[], Any]] = {"ours": lambda: Ours(arguments.kernel)}
    make["by hand"] = lambda: ByHand(arguments.kernel, prebuilt=True)
    side = make[arguments.whose]()
    resident, others = resident_bytes(), _not_own()
    for _ in range(2):
        side.run(False)
    WORLD.Barrier()  # nobody has unmapped anything
    grown = status("VmHWM") - resident - (_not_own() - others)
    WORLD.Barrier()
    most, together = (WORLD.allreduce(grown + side.operand_bytes, how) for how in (MPI.MAX, MPI.SUM))
    return {"whose": arguments.whose, "bytes": most, "bytes_of_all": together}


def _not_own() -> int:
    """Return the resident bytes of files, such as code, and the shares of other processes in shared memory."""
    return status("RssFile") + status("RssShmem") - status("Pss_Shmem", "smaps_rollup")


def one_thread(arguments: argparse.Namespace) -> dict:
    """
    Measure a run on all ranks, from first start to last end, and opt_einsum on rank 0 while the others sleep.

    Expects ``OMP_NUM_THREADS=1`` in the environment.
    """
    import opt_einsum

    program = planned(arguments.kernel)
    given = wholes(CASES[arguments.kernel], program)
    local = program.scatter(**given)
    (group,) = program.plan.statements
    contract = opt_einsum.contract_expression(
        str(group.einsum), *(given[name].shape for name in group.operands), optimize="optimal"
    )
    operands = [given[name] for name in group.operands]
    samples: dict[str, list[float]] = {"ours": [], "opt_einsum": []}
    program.compile()
    whole_runs = Repetitions(WORLD)
    with pinned_to_core(WORLD):
        for _ in range(arguments.rounds + 2):  # the first two warm up
            samples["ours"].append(whole_runs.repeat("ours", partial(program.run, **local)))
            start = time.perf_counter()
            if WORLD.rank == 0:
                contract(*operands)
            samples["opt_einsum"].append(time.perf_counter() - start)
            sleeping_barrier(WORLD, 0.002)
    return {name: float(np.median(seconds[2:])) for name, seconds in samples.items()} | {"samples": samples}


def one_process(arguments: argparse.Namespace) -> dict:
    """
    Measure alternately a run on all ranks and the NumPy program in one process with a thread per core.

    The ranks sleep during the latter. Expects ``OMP_NUM_THREADS=1`` in the environment. Operands written in place are
    not reset: both sides continue with their present values.
    """
    program = planned(arguments.kernel)
    local = parts(CASES[arguments.kernel], program)
    samples: dict[str, list[float]] = {"ours": [], "one process": []}
    program.compile()
    whole_runs = Repetitions(WORLD)
    with contextlib.ExitStack() as stack:
        peer = stack.enter_context(started(arguments.kernel, "S")) if WORLD.rank == 0 else None
        stack.enter_context(pinned_to_core(WORLD))
        for _ in range(arguments.rounds + 2):  # the first two warm up
            samples["ours"].append(whole_runs.repeat("ours", partial(program.run, **local)))
            samples["one process"].append(0.0 if peer is None else peer.run())
            time.sleep(0.1)  # its BLAS threads go on looking for work for some 30 ms
            sleeping_barrier(WORLD, 0.002)
        peak = 0 if peer is None else peer.peak_bytes()
    medians = {name: float(np.median(seconds[2:])) for name, seconds in samples.items()}
    return medians | {"samples": samples, "bytes_of_process": peak}


if __name__ == "__main__":
    main()

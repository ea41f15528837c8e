"""What benchmarks/einsum/einsums.py runs on several ranks: one comparison, written as a JSON line."""

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
    Seconds of our program and of the one distributed by hand under stock DaCe, in all and by kind of step.

    In all from the first start to the last end; steps by clocks in the program, with barriers between them, where the
    slowest rank counts. In turn.
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
    """Of each kind of step, which is the first word of its name."""
    kinds = dict.fromkeys(name.split(" ")[0] for name in names)
    columns = {kind: [name.split(" ")[0] == kind for name in names] for kind in kinds}
    return {kind: float(np.median(samples[:, which].sum(axis=1))) for kind, which in columns.items()}


class Ours:
    """A kernel as an einsum, distributed by this package."""

    def __init__(self, name: str) -> None:
        program = planned(name)
        self._local, self._timed = parts(CASES[name], program), TimedProgram(program, ["Auto"])
        self._timed.compile()
        self.steps = self._timed.steps
        self.operand_bytes = sum(array.nbytes for array in self._local.values())

    def run(self, barrier: bool) -> np.ndarray:
        return self._timed.run("Auto", dict(self._local), barrier)[1]


class ByHand:
    """The same kernel distributed by hand, with the redistribution of stock DaCe."""

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
    Peak bytes of the rank with most: operands, and what memory grows by while the loaded program is run twice.

    From the kernel's high-water mark of resident memory, which is set back before. The code of libraries does not
    count; of shared memory each rank counts its share, both as they are at the end. To be run when the program has been
    built, in a process of its own.
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
    """Resident bytes that are files, such as code, or that count on other processes with which this one shares them."""
    return status("RssFile") + status("RssShmem") - status("Pss_Shmem", "smaps_rollup")


def one_thread(arguments: argparse.Namespace) -> dict:
    """
    Seconds of a run on all ranks, from first start to last end, and of opt_einsum on rank 0 while the others sleep.

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
    Seconds of a run on all ranks and of the NumPy program in one process, with a thread per core, in turn.

    The ranks sleep meanwhile. Expects ``OMP_NUM_THREADS=1`` in the environment. What is written in place is not made
    anew: both sides go on with what they have.
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

"""
Kernels written as einsums, distributed by `dace_redist.distribute`: plan, times of each step, check against NumPy.

    mpiexec -n 4 python benchmarks/einsum/run_einsum.py ttmc --preset S --strategy Auto Pack --check
"""

import argparse
import json
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import dace
import numpy as np
from by_hand_kernel import WORLD
from by_hand_timing import say
from command_line import Parser, add_measuring, check_writable, leave, named_number, positive
from einsum_cases import CASES, PRESETS, EinsumCase, everything, numpy_result
from einsum_timing import TimedProgram
from mpi4py import MPI

from dace_redist import DistributedProgram, Distribution, distribute
from dace_redist.mpi.collective import sleeping_barrier, together
from dace_redist.mpi.topology import pinned_to_core
from dace_redist.strategies import host_strategies
from dace_redist.tuning.measure import Repetitions

TOLERANCE = 1e-12  # largest relative error of a right result
CHOICES = ("Auto", *host_strategies())


def main() -> None:
    """Parse the command line, run the kernel, report; exit code 1 if a result is wrong."""
    arguments = parse_arguments()
    dace.Config.set("progress", value=False)
    warnings.filterwarnings("ignore", module=r"dace\.")  # what DaCe says of itself
    try:
        right = run(CASES[arguments.kernel], arguments)
    except (ValueError, MemoryError, OSError) as error:  # the same on every rank
        leave(f"error: {error}", code=2)
    except Exception:  # on one rank only, perhaps: the others would wait for it
        traceback.print_exc()
        WORLD.Abort(1)
    WORLD.Barrier()
    raise SystemExit(0 if right else 1)


def parse_arguments() -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel", nargs="?", choices=CASES, metavar="KERNEL", help=f"one of {', '.join(CASES)}")
    parser.add_argument("--list", action="store_true", help="say what the kernels are, and their sizes")
    parser.add_argument("--preset", choices=PRESETS, default="S", help="which sizes (default S)")
    parser.add_argument(
        "--size", type=named_number, action="append", default=[], metavar="SYMBOL=N", help="another size"
    )
    parser.add_argument(
        "--slabs",
        type=named_number,
        action="append",
        default=[],
        metavar="TENSOR=AXIS",
        help="where an input is, if that is not to be the planner's choice: in slabs along an axis (0 is the first)",
    )
    add_measuring(parser, CHOICES)
    parser.add_argument("--check", action="store_true", help="compare with NumPy, which rank 0 runs on whole tensors")
    parser.add_argument("--memory", type=positive, metavar="BYTES", help="what a rank may hold at most")
    parser.add_argument("--node-size", type=positive, metavar="RANKS", help="ranks that share a node")
    parser.add_argument("--plot", metavar="FILE", help="draw the plan (.png, .svg or .pdf)")
    arguments = parser.parse_args()
    if arguments.list:
        leave(listing(arguments.preset, WORLD.size), code=0)
    if arguments.kernel is None:
        parser.error(f"which kernel? One of {', '.join(CASES)}; --list says what they are")
    unknown = sorted(set(dict(arguments.size)) - set(CASES[arguments.kernel].symbols))
    if unknown:
        parser.error(
            f"--size: {arguments.kernel} has no {unknown[0]}, but {', '.join(CASES[arguments.kernel].symbols)}"
        )
    if arguments.json:
        check_writable(arguments.json, parser)
    return arguments


def sizes_of(arguments: argparse.Namespace) -> dict[str, int]:
    return CASES[arguments.kernel].sizes(arguments.preset, WORLD.size) | dict(arguments.size)


def listing(preset: str, ranks: int) -> str:
    lines = [f"sizes of preset {preset} on {ranks} rank{'s' * (ranks > 1)}:"]
    for name, case in CASES.items():
        sizes = " ".join(f"{symbol}={value}" for symbol, value in case.sizes(preset, ranks).items())
        lines.append(f"  {name:<10} {case.summary}\n  {'':<10} {sizes}")
    return "\n".join(lines)


def run(case: EinsumCase, arguments: argparse.Namespace) -> bool:
    """Run a case; return True if all results are right."""
    sizes = sizes_of(arguments)
    options = {"memory_bytes": arguments.memory, "node_size": arguments.node_size}
    options["placements"] = {name: slabs(case, sizes, name, axis) for name, axis in arguments.slabs}
    program = from_rank_0(lambda: distribute(case.program, WORLD.size, sizes, **options))
    say(str(program))
    from_rank_0(lambda: arguments.plot and program.plot(arguments.plot))
    timed = TimedProgram(program, list(dict.fromkeys(arguments.strategy)))
    local = parts(case, program)
    say(f"compiling, then measuring {arguments.repetitions} rounds, after one to warm up")
    timed.compile()
    with pinned_to_core(WORLD):
        samples, outputs = measure(timed, local, arguments.repetitions)
    right = True
    for strategy in timed.by_strategy:
        error = relative_error(case, program, outputs[strategy]) if arguments.check else None
        right = right and (error is None or error <= TOLERANCE)
        record = {"kernel": case.name, "ranks": WORLD.size, "preset": arguments.preset, "sizes": sizes}
        record |= {"strategy": strategy, "error": error, "seconds": medians(samples[strategy])}
        record |= {"samples": {step: times.tolist() for step, times in samples[strategy].items()}}
        if WORLD.rank == 0:
            report(record, arguments)
    return right


def slabs(case: EinsumCase, sizes: dict[str, int], name: str, axis: int) -> Distribution:
    """
    An input in slabs along an axis, one on each rank.

    :raises ValueError: If the kernel has no such input, or it has no such axis.
    """
    inputs = case.program.f.__annotations__
    if name not in inputs or axis >= len(inputs[name].shape):
        known = ", ".join(f"{name} ({len(array.shape)})" for name, array in inputs.items())
        raise ValueError(f"--slabs: {case.name} has no axis {axis} of {name}; it has (with so many axes) {known}")
    shape = [sizes[str(extent)] for extent in inputs[name].shape]
    return Distribution(shape, (WORLD.size,), dims=[0 if other == axis else None for other in range(len(shape))])


def from_rank_0(make: Callable[[], Any]) -> Any:
    """Return an object that rank 0 makes while the others sleep; raise its error on all ranks. Collective."""
    made, failure = None, None
    if WORLD.rank == 0:
        try:
            made = make()
        except Exception as error:
            failure = error
    sleeping_barrier(WORLD)
    made, failure = WORLD.bcast((made, failure))
    if failure is not None:
        raise failure
    return made


def parts(case: EinsumCase, program: DistributedProgram) -> dict[str, np.ndarray]:
    """
    Return this rank's part of each input.

    :raises ValueError: On every rank, if one has too little memory.
    """
    with together(WORLD):
        try:
            return {
                name: case.operand(name, tensor.distribution.global_index(WORLD.rank), tensor.shape)
                for name, tensor in program.inputs.items()
            }
        except MemoryError as error:
            raise ValueError(f"the operands do not fit into memory: {error}; take another --preset or --size") from None


def wholes(case: EinsumCase, program: DistributedProgram) -> dict[str, np.ndarray]:
    """Return each input as a whole."""
    shapes = {name: tensor.shape for name, tensor in program.inputs.items()}
    return {name: case.operand(name, everything(shape), shape) for name, shape in shapes.items()}


Samples = dict[str, np.ndarray]


def measure(
    timed: TimedProgram, local: dict[str, np.ndarray], repetitions: int
) -> tuple[dict[str, Samples], dict[str, dict[str, np.ndarray]]]:
    """
    Run all strategies alternately, so that other load of the machine affects all equally; the first round warms up.

    Steps are timed with a barrier after each, and the slowest rank counts; the total is timed in separate runs without
    barriers, from the first start to the last end.

    :return: By strategy, seconds of each step and in all in each round; and this rank's parts of the last outputs.
    """
    samples = {strategy: np.zeros((repetitions + 1, len(timed.steps) + 1)) for strategy in timed.by_strategy}
    outputs, whole_runs = {}, Repetitions(WORLD)
    for number in range(repetitions + 1):
        for strategy, times in samples.items():
            WORLD.Barrier()
            times[number, :-1] = timed.run(strategy, copies(local), barrier=True)[1]
            times[number, -1], outputs[strategy] = timed_run(whole_runs, timed, strategy, local)
    for times in samples.values():
        WORLD.Allreduce(MPI.IN_PLACE, times, MPI.MAX)
    names = [*timed.steps, "total"]
    return {strategy: dict(zip(names, times[1:].T, strict=True)) for strategy, times in samples.items()}, outputs


def copies(local: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return copies of the operands for one run: some are written in place."""
    return {name: array.copy() for name, array in local.items()}


def timed_run(
    whole_runs: Repetitions, timed: TimedProgram, strategy: str, local: dict[str, np.ndarray]
) -> tuple[float, dict[str, np.ndarray]]:
    """Return the seconds of a run without barriers, and this rank's parts of the outputs."""
    given, outputs = copies(local), {}
    seconds = whole_runs.repeat(strategy, lambda: outputs.update(timed.run(strategy, given, barrier=False)[0]))
    return seconds, outputs


def medians(samples: Samples) -> dict[str, float]:
    """Return median seconds in total, of each kind of step (its first word), and of each step."""
    kinds: Samples = {}
    for step, times in samples.items():
        kind = step.split(" ")[0]
        kinds[kind] = kinds.get(kind, 0) + times
    ordered = {"total": samples["total"], **kinds, **samples}
    return {name: float(np.median(times)) for name, times in ordered.items()}


def relative_error(case: EinsumCase, program: DistributedProgram, outputs: dict[str, np.ndarray]) -> float:
    """Return the maximum difference to NumPy's outputs, relative to the largest element. Collective."""
    gathered = {name: program.gather(outputs[name], name) for name in program.outputs}
    return from_rank_0(lambda: _relative_error(case, program, gathered))


def _relative_error(case: EinsumCase, program: DistributedProgram, gathered: dict[str, np.ndarray]) -> float:
    given = wholes(case, program)
    expected = {"__return": numpy_result(case.program, given)} | given
    return max(float(abs(got - expected[n]).max() / abs(expected[n]).max()) for n, got in gathered.items())


def report(record: dict, arguments: argparse.Namespace) -> None:
    error, seconds = record["error"], record["seconds"]
    verdict = "not checked" if error is None else "right" if error <= TOLERANCE else "WRONG"
    verdict += "" if error is None else f", largest relative error {error:.1e}"
    print(f"{record['strategy']}: {seconds['total'] * 1e3:.1f} ms, {verdict}", flush=True)
    if not arguments.brief:
        print("    milliseconds, medians; of the steps, each followed by a barrier, those of the slowest rank")
        for name, value in seconds.items():
            print(f"{'  ' * (2 + (' ' in name))}{name:<32} {value * 1e3:10.3f}", flush=True)
    if arguments.json:
        with open(arguments.json, "a") as file:
            file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()

"""
Kernels written as einsums, distributed by `dace_redist.distribute`: plan, times of each step, check, comparisons.

    mpiexec -n 4 python benchmarks/einsum/run_einsum.py ttmc --strategies Auto,Pack --check --by-hand stock,Pack
"""

import importlib
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

import click
import dace
import numpy as np
from einsum_cases import CASES, PRESETS, EinsumCase, numpy_result
from einsum_peers import PARALLEL_PEERS, PEERS, SPINNING_SECONDS, by_hand_program, from_rank_0, peer_of, wholes
from einsum_timing import TimedProgram
from mpi4py import MPI
from records import append, json_option, names_option

from dace_redist import DistributedProgram, Distribution, distribute
from dace_redist.cli import run_command
from dace_redist.einsum.command import index_sizes
from dace_redist.mpi.collective import together
from dace_redist.mpi.topology import pinned_to_core
from dace_redist.strategies import STRATEGIES
from dace_redist.timing.measure import Repetitions

WORLD = MPI.COMM_WORLD
#: Largest relative error of right results, by device.
TOLERANCES = {"cpu": 1e-12, "gpu": 1e-10}
BY_HAND_TOLERANCE = 1e-10
CHOICES = ("Auto", *STRATEGIES)

Samples = dict[str, np.ndarray]


@click.command()
@click.argument("kernel", type=click.Choice(list(CASES)))
@click.option("--preset", type=click.Choice(PRESETS), default="S", show_default=True, help="sizes")
@click.option("--size", "sizes", multiple=True, callback=index_sizes, metavar="SYMBOL=N", help="another size")
@click.option("--slabs", multiple=True, callback=index_sizes, metavar="TENSOR=AXIS", help="an input in slabs")
@click.option("--strategies", default="Auto", callback=names_option(*CHOICES), help="of redistributions; default: Auto")
@click.option(
    "--against",
    default="",
    callback=names_option(*PARALLEL_PEERS, *PEERS),
    metavar="LIST",
    help=f"of {', '.join((*PARALLEL_PEERS, *PEERS))}",
)
@click.option(
    "--by-hand",
    default="",
    callback=names_option("stock", *STRATEGIES),
    metavar="LIST",
    help="the kernel distributed by hand, with redistributions of stock DaCe or by a strategy",
)
@click.option("--device", type=click.Choice(list(TOLERANCES)), default="cpu", show_default=True, help="of the operands")
@click.option("--repetitions", type=click.IntRange(1), default=5, show_default=True, help="timed rounds")
@click.option("--check", is_flag=True, help="compare with NumPy, which rank 0 runs on whole tensors")
@click.option("--node-size", type=click.IntRange(1), help="ranks that share a node")
@click.option("--plot", type=click.Path(dir_okay=False), help="draw the plan (.png, .svg or .pdf)")
@json_option()
def main(kernel: str, **options: Any) -> None:
    """Distribute a kernel, measure and check it; exit code 1 if a result is wrong."""
    dace.Config.set("progress", value=False)
    warnings.filterwarnings("ignore", module=r"dace\.")  # what DaCe says of itself
    try:
        right = run(CASES[kernel], options)
    except (ValueError, MemoryError, OSError) as error:  # equal on every rank
        raise click.ClickException(str(error)) from None
    except Exception:  # on one rank only, perhaps: the others would wait for it
        traceback.print_exc()
        WORLD.Abort(1)
    WORLD.Barrier()
    if not right:
        raise click.exceptions.Exit(1)


def run(case: EinsumCase, options: dict[str, Any]) -> bool:
    """Run a case; return True if all results are right."""
    unknown = sorted(set(options["sizes"]) - set(case.symbols))
    if unknown:
        raise ValueError(f"--size: {case.name} has no {unknown[0]}, but {', '.join(case.symbols)}")
    sizes = case.sizes(options["preset"], WORLD.size) | options["sizes"]
    planning = {name: options[name] for name in ("node_size", "device")}
    planning["placements"] = {name: slabs(case, sizes, name, axis) for name, axis in options["slabs"].items()}
    program = from_rank_0(lambda: distribute(case.program, WORLD.size, sizes, arguments=options["device"], **planning))
    say(str(program))
    from_rank_0(lambda: options["plot"] and program.plot(options["plot"]))
    timed = TimedProgram(program, options["device"], options["strategies"])
    local = parts(case, program, importlib.import_module("cupy" if options["device"] == "gpu" else "numpy"))
    say(f"compiling, then measuring {options['repetitions']} rounds, after one to warm up")
    for compiled in timed.by_strategy.values():
        compiled.compile()
    by_hand = {f"by hand, {name}": by_hand_program(case, sizes, name) for name in options["by_hand"]}
    peers = {name: peer_of(name, case, program) for name in options["against"]}
    with pinned_to_core(WORLD):
        samples, outputs, others = measure(timed, local, peers | by_hand, options["repetitions"])
    right = True
    for name, error in [(name, peer.error()) for name, peer in by_hand.items()]:
        right = right and error <= BY_HAND_TOLERANCE
        say(f"{name}: {verdict(error, BY_HAND_TOLERANCE)}")
    for strategy in timed.by_strategy:
        error = relative_error(case, program, outputs[strategy]) if options["check"] else None
        right = right and (error is None or error <= TOLERANCES[options["device"]])
        record = {"kernel": case.name, "ranks": WORLD.size, "preset": options["preset"], "sizes": sizes}
        record |= {"strategy": strategy, "error": error, "seconds": medians(samples[strategy]), "against": others}
        record |= {"samples": {step: times.tolist() for step, times in samples[strategy].items()}}
        if WORLD.rank == 0:
            report(record, verdict(error, TOLERANCES[options["device"]]))
            append(options["path"], record)
    return right


def verdict(error: float | None, tolerance: float) -> str:
    if error is None:
        return "not checked"
    return f"{'right' if error <= tolerance else 'WRONG'}, largest relative error {error:.1e}"


def say(line: str) -> None:
    """Print a line, on rank 0 and at once."""
    if WORLD.rank == 0:
        print(line, flush=True)


def slabs(case: EinsumCase, sizes: dict[str, int], name: str, axis: int) -> Distribution:
    """
    Return the distribution of an input in slabs along an axis, one on each rank.

    :raises ValueError: If the kernel has no such input, or it has no such axis.
    """
    inputs = case.program.f.__annotations__
    if name not in inputs or axis >= len(inputs[name].shape):
        known = ", ".join(f"{name} ({len(array.shape)})" for name, array in inputs.items())
        raise ValueError(f"--slabs: {case.name} has no axis {axis} of {name}; its inputs, with their axes: {known}")
    shape = [sizes[str(extent)] for extent in inputs[name].shape]
    dims = [0 if other == axis else None for other in range(len(shape))]
    return Distribution(shape, (WORLD.size,), dims=dims, block="ceil")


def parts(case: EinsumCase, program: DistributedProgram, xp: Any) -> dict[str, Any]:
    """
    Return this rank's part of each input, arrays of NumPy or CuPy.

    :raises ValueError: On every rank, if one has too little memory.
    """
    with together(WORLD):
        try:
            return {
                name: case.operand(name, tensor.distribution.global_index(WORLD.rank), tensor.shape, xp)
                for name, tensor in program.inputs.items()
            }
        except MemoryError as error:
            raise ValueError(f"the operands do not fit into memory: {error}; take another --preset or --size") from None


def measure(
    timed: TimedProgram, local: dict[str, np.ndarray], peers: dict[str, Callable[[], None]], repetitions: int
) -> tuple[dict[str, Samples], dict[str, dict[str, np.ndarray]], dict[str, float]]:
    """
    Run all strategies and peers alternately, so that other load of the machine affects all; the first round warms up.

    Steps are timed with a barrier after each, and the slowest rank counts; the total is timed in separate runs without
    barriers, from the first start to the last end.

    :return: By strategy, seconds of each step and in all in each round, and this rank's parts of the last outputs; by
        peer, the median seconds.
    """
    samples = {strategy: np.zeros((repetitions + 1, len(timed.steps) + 1)) for strategy in timed.by_strategy}
    others = {name: np.zeros(repetitions + 1) for name in peers}
    outputs, whole_runs = {}, Repetitions(WORLD)
    for number in range(repetitions + 1):
        for strategy, times in samples.items():
            WORLD.Barrier()
            times[number, :-1] = timed.run(strategy, copies(local), barrier=True)[1]
            given, results = copies(local), {}
            once = partial(_keep, results, timed, strategy, given)
            times[number, -1], outputs[strategy] = whole_runs.repeat(strategy, once), results
        for name, peer in peers.items():
            others[name][number] = whole_runs.repeat(name, peer)
            time.sleep(SPINNING_SECONDS)
    for times in samples.values():
        WORLD.Allreduce(MPI.IN_PLACE, times, MPI.MAX)
    names = [*timed.steps, "total"]
    by_step = {strategy: dict(zip(names, times[1:].T, strict=True)) for strategy, times in samples.items()}
    return by_step, outputs, {name: float(np.median(seconds[1:])) for name, seconds in others.items()}


def _keep(results: dict[str, np.ndarray], timed: TimedProgram, strategy: str, given: dict[str, np.ndarray]) -> None:
    results |= timed.run(strategy, given, barrier=False)[0]


def copies(local: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return copies of the operands for one run: some are written in place."""
    return {name: array.copy() for name, array in local.items()}


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

    def compare() -> float:
        given = wholes(case, program)
        expected = {"__return": numpy_result(case.program, given)} | given
        return max(float(abs(got - expected[n]).max() / abs(expected[n]).max()) for n, got in gathered.items())

    return from_rank_0(compare)


def report(record: dict, result: str) -> None:
    seconds = record["seconds"]
    print(f"{record['strategy']}: {seconds['total'] * 1e3:.1f} ms, {result}")
    for name, value in record["against"].items():
        print(f"    {name}: {value * 1e3:.1f} ms, {value / seconds['total']:.2f} times as long")
    print("    milliseconds, medians; of the steps, each followed by a barrier, those of the slowest rank")
    for name, value in seconds.items():
        print(f"{'  ' * (2 + (' ' in name))}{name:<32} {value * 1e3:10.3f}", flush=True)


if __name__ == "__main__":
    run_command(main, "run_einsum.py")

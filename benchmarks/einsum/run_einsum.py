"""
Kernels written as einsums, distributed by `dace_redist.distribute`: plan, times, check, comparisons; tuned strategies.

    mpiexec -n 4 python benchmarks/einsum/run_einsum.py deinsum --strategies Auto,Datatype,Tuned --check

Times of the steps: `DACE_REDIST_TRACE=folder`, then `dace-redist trace folder`.
"""

import copy
import importlib
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))

import click
import dace
import numpy as np
from einsum_cases import CASES, DEINSUM, PRESETS, EinsumCase, numpy_result
from einsum_peers import PEERS, SPINNING_SECONDS, by_hand_program, wholes
from mpi4py import MPI
from records import append, json_option, names_option

from dace_redist import DistributedProgram, Distribution, distribute, set_strategy, tune
from dace_redist.cli import run_command
from dace_redist.einsum.command import index_sizes
from dace_redist.mpi.collective import together
from dace_redist.mpi.topology import pinned_to_core
from dace_redist.report.units import milliseconds, table
from dace_redist.strategies import STRATEGIES, with_options
from dace_redist.timing.measure import Repetitions

WORLD = MPI.COMM_WORLD
#: Largest relative error of right results, by device.
TOLERANCES = {"cpu": 1e-12, "gpu": 1e-10}
BY_HAND_TOLERANCE = 1e-10
#: Strategy of a program whose redistributions have those that `dace_redist.tune` finds.
TUNED = "Tuned"
CHOICES = ("Auto", *STRATEGIES, TUNED)


@click.command()
@click.argument("kernels", nargs=-1, required=True, type=click.Choice(["deinsum", *CASES]))
@click.option("--preset", type=click.Choice(PRESETS), default="S", show_default=True, help="sizes")
@click.option("--size", "sizes", multiple=True, callback=index_sizes, metavar="SYMBOL=N", help="another size")
@click.option("--slabs", multiple=True, callback=index_sizes, metavar="TENSOR=AXIS", help="an input in slabs")
@click.option("--strategies", default="Auto", callback=names_option(*CHOICES), help="of redistributions; default: Auto")
@click.option(
    "--against",
    default="",
    callback=names_option(*PEERS),
    metavar="LIST",
    help=f"of {', '.join(PEERS)}",
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
@click.option("--limit", type=float, default=10.0, show_default=True, help="seconds to tune a redistribution")
@click.option("--check", is_flag=True, help="compare with NumPy, which rank 0 runs on whole tensors")
@click.option("--node-size", type=click.IntRange(1), help="ranks that share a node")
@click.option("--plot", type=click.Path(dir_okay=False), help="draw the plan (.png, .svg or .pdf)")
@json_option()
def main(kernels: tuple[str, ...], **options: Any) -> None:
    """Distribute kernels, measure and check them; exit code 1 if a result is wrong."""
    dace.Config.set("progress", value=False)
    warnings.filterwarnings("ignore", module=r"dace\.")  # what DaCe says of itself
    names = [name for given in kernels for name in (DEINSUM if given == "deinsum" else [given])]
    symbols = sorted({symbol for name in names for symbol in CASES[name].symbols})
    try:
        if unknown := sorted({*options["sizes"]} - {*symbols}):
            raise ValueError(f"--size: {', '.join(names)}: no {unknown[0]}, but {', '.join(symbols)}")
        records = [record for name in names for record in run(CASES[name], options)]
    except (ValueError, MemoryError, OSError) as error:  # equal on every rank
        raise click.ClickException(str(error)) from None
    except Exception:  # on one rank only, perhaps: the others would wait for it
        traceback.print_exc()
        WORLD.Abort(1)
    if TUNED in options["strategies"]:
        say("\n".join(tuned_table(records)))
    WORLD.Barrier()
    if not all(record["right"] for record in records):
        raise click.exceptions.Exit(1)


def run(case: EinsumCase, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a case; return a record for each strategy."""
    sizes = case.sizes(options["preset"], WORLD.size)
    sizes |= {name: size for name, size in options["sizes"].items() if name in sizes}
    planning = {name: options[name] for name in ("node_size", "device")}
    planning["placements"] = {name: slabs(case, sizes, name, axis) for name, axis in options["slabs"].items()}
    program = distribute(case.program, WORLD.size, sizes, arguments=options["device"], **planning)
    say(str(program))
    with together(WORLD):
        if options["plot"] and WORLD.rank == 0:
            program.plot(options["plot"])
    say(f"compiling, then measuring {options['repetitions']} rounds, after one to warm up")
    programs, found = {}, []
    for strategy in options["strategies"]:
        programs[strategy] = replace(program, built=copy.deepcopy(program.built))
        if strategy == TUNED:
            sdfg = programs[strategy].sdfg
            found = tune(sdfg, symbols=sizes, limit_seconds=options["limit"], progress=False)
        else:
            set_strategy(programs[strategy].sdfg, strategy)
        programs[strategy].compile()
    local = parts(case, program, importlib.import_module("cupy" if options["device"] == "gpu" else "numpy"))
    by_hand = {f"by hand, {name}": by_hand_program(case, sizes, name) for name in options["by_hand"]}
    peers = {name: PEERS[name](case, program) for name in options["against"]}
    with pinned_to_core(WORLD):
        samples, outputs = measure(programs, local, peers | by_hand, options["repetitions"])
    right = True
    for name, error in [(name, peer.error()) for name, peer in by_hand.items()]:
        right = right and error <= BY_HAND_TOLERANCE
        say(f"{name}: {verdict(error, BY_HAND_TOLERANCE)}")
    medians, records = {name: float(np.median(seconds)) for name, seconds in samples.items()}, []
    for strategy in programs:
        error = relative_error(case, program, outputs[strategy]) if options["check"] else None
        record = {"kernel": case.name, "ranks": WORLD.size, "preset": options["preset"], "sizes": sizes}
        record |= {"strategy": strategy, "error": error, "seconds": {"total": medians[strategy]}}
        record |= {"against": {name: medians[name] for name in (*peers, *by_hand)}, "samples": samples[strategy]}
        record |= {"tuned": [one.to_json() for one in found]} if strategy == TUNED else {}
        tolerance = TOLERANCES[options["device"]]
        if WORLD.rank == 0:
            report(record, verdict(error, tolerance))
            append(options["path"], record)
        records.append(record | {"right": right and (error is None or error <= tolerance)})
    return records


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
    programs: Mapping[str, DistributedProgram],
    local: dict[str, np.ndarray],
    peers: Mapping[str, Callable[[], None]],
    repetitions: int,
) -> tuple[dict[str, list[float]], dict[str, dict[str, np.ndarray]]]:
    """
    Run all strategies and peers alternately, so that other load of the machine affects all; the first round warms up.

    :return: By strategy or peer, seconds of each round; by strategy, this rank's parts of the last outputs.
    """
    samples: dict[str, list[float]] = {name: [] for name in (*programs, *peers)}
    outputs, runs = {}, Repetitions(WORLD)
    for _ in range(repetitions + 1):
        for strategy, program in programs.items():
            given, results = copies(local), {}
            samples[strategy].append(runs.repeat(strategy, partial(_keep, results, program, given)))
            outputs[strategy] = results
        for name, peer in peers.items():
            samples[name].append(runs.repeat(name, peer))
            time.sleep(SPINNING_SECONDS)
    return {name: seconds[1:] for name, seconds in samples.items()}, outputs


def _keep(results: dict[str, np.ndarray], program: DistributedProgram, given: dict[str, np.ndarray]) -> None:
    """Run a program, and wait for the GPU; keep its outputs, of which inputs written in place are some."""
    result = program.run(**given)
    if "cupy" in sys.modules:
        sys.modules["cupy"].cuda.get_current_stream().synchronize()
    results |= {name: result if name == "__return" else given[name] for name in program.outputs}


def copies(local: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return copies of the operands for one run: some are written in place."""
    return {name: array.copy() for name, array in local.items()}


def relative_error(case: EinsumCase, program: DistributedProgram, outputs: dict[str, np.ndarray]) -> float:
    """Return the maximum difference to NumPy's outputs, relative to the largest element. Collective."""
    gathered, errors = {name: program.gather(outputs[name], name) for name in program.outputs}, []
    with together(WORLD):
        if WORLD.rank == 0:
            given = wholes(case, program)
            expected = {"__return": numpy_result(case.program, given)} | given
            errors = [float(abs(got - expected[n]).max() / abs(expected[n]).max()) for n, got in gathered.items()]
    return max(WORLD.bcast(errors))


def report(record: dict, result: str) -> None:
    seconds = record["seconds"]["total"]
    print(f"{record['strategy']}: {seconds * 1e3:.1f} ms, {result}")
    for name, value in record["against"].items():
        print(f"    {name}: {value * 1e3:.1f} ms, {value / seconds:.2f} times as long", flush=True)


def tuned_table(records: list[dict[str, Any]]) -> list[str]:
    """Return lines with the times of each kernel, and the strategy that each of its redistributions took, and why."""
    strategies = list(dict.fromkeys(record["strategy"] for record in records))
    times = {(record["kernel"], record["strategy"]): record["seconds"]["total"] for record in records}
    rows = [("kernel", *(f"{name}, ms" for name in strategies), "redistribution", "strategy", "because")]
    for record in (record for record in records if "tuned" in record):
        cells = [milliseconds(times[record["kernel"], name]) for name in strategies]
        for one in record["tuned"] or [{"nodes": ["none"], "best": {}, "verdict": ""}]:
            options = dict(one["best"])
            chosen = with_options(options.pop("strategy", "-"), options)
            rows.append((record["kernel"], *cells, ", ".join(one["nodes"]), chosen, one["verdict"]))
    return ["", *table(rows, left=len(rows[0]))]


if __name__ == "__main__":
    run_command(main, "run_einsum.py")

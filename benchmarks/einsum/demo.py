"""Demo (`make demo`): TTMc, one np.einsum, on 4 ranks with every strategy: plan, check, times of steps, pictures."""

import json
import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

import click
import numpy as np
from launching import supervise

from dace_redist.cli import run_command
from dace_redist.mpi.launch import describe_mpi, mpi_environment, mpiexec_command
from dace_redist.report.canvas import new_figure
from dace_redist.report.units import format_bytes
from dace_redist.strategies import STRATEGIES

RANKS = 4
REFERENCE = "Datatype"  # MPI's derived datatypes, which is how stock DaCe redistributes
TIMEOUT = 1800  # seconds, for a slow machine


@click.command(help=__doc__)
@click.option("--output", type=click.Path(path_type=Path), default="demo", help="folder for all files")
@click.option("--size", default=24, help="length of the tensor's modes")
@click.option("--rank", default=12, help="columns of the matrices")
@click.option("--repetitions", default=20, help="timed rounds of all strategies")
def main(output: Path, size: int, rank: int, repetitions: int) -> int:
    output.mkdir(parents=True, exist_ok=True)
    introduce(size, rank)
    results, plan, times = (output / name for name in ("results.jsonl", "plan.png", "times.png"))
    results.unlink(missing_ok=True)
    code = run(size, rank, ["--repetitions", str(repetitions), "--json", str(results), "--plot", str(plan)])
    records = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    if [record["strategy"] for record in records] != list(STRATEGIES):
        print(f"demo: the program ended with code {code} before all strategies were measured", file=sys.stderr)
        return code or 1
    right = "All answers are right." if code == 0 else "AN ANSWER IS WRONG: see above."
    print(f"{right}\n{table(records)}\n")
    draw(records, times)
    print(f"tensors, grids, what is moved    {plan}")
    print(f"times of the steps               {times}")
    print(f"all figures                      {results}")
    return code


def cores() -> int:
    return len(os.sched_getaffinity(0))


def introduce(size: int, rank: int) -> None:
    print('TTMc, in benchmarks/einsum/einsum_kernels.py: np.einsum("ijklm,jb,kc,ld,me->ibcde", X, B, C, D, E).')
    print(f"i to m have length {size}, b to e {rank}: X has {format_bytes(8 * size**5)}.")
    print(f"{RANKS} ranks on {cores()} cores; {describe_mpi()}")
    print("X is where it was read, in slabs of its last mode m. dace_redist.distribute finds order and grids:\n")
    load = os.getloadavg()[0]
    if load > cores():
        print(f"This machine is busy with other work (load {load:.0f}): the times will be rough.")


def run(size: int, rank: int, options: list[str]) -> int:
    """Run benchmarks/einsum/run_einsum.py under mpiexec; what it prints is seen as it comes."""
    sizes = dict.fromkeys("IJKLM", size) | dict.fromkeys("PQRT", rank)
    words = ["ttmc", "--slabs", "X=4", "--strategies", ",".join(STRATEGIES), "--check"]
    words += [word for symbol, value in sizes.items() for word in ("--size", f"{symbol}={value}")]
    command = mpiexec_command(RANKS, [sys.executable, str(Path(__file__).with_name("run_einsum.py")), *words, *options])
    threads = {"OMP_NUM_THREADS": str(max(1, cores() // RANKS))}
    return supervise(command, TIMEOUT, environment=threads | os.environ | mpi_environment(RANKS))


def redistributed(record: dict) -> np.ndarray:
    """Milliseconds in redistributions in each round."""
    return 1e3 * sum(np.array(times) for step, times in record["samples"].items() if step.startswith("redistribute"))


def compared(record: dict, reference: dict) -> tuple[float, str]:
    """
    Return the speedup over the reference (ratio of the medians), and its verdict.

    The strategies ran alternately: the verdict is certain if the same one was faster in three of four rounds.
    """
    times, others = redistributed(record), redistributed(reference)
    ratio = float(np.median(others) / np.median(times))
    low, high = np.percentile(others / times, (25, 75))
    if ratio > 1 and low > 1:
        return ratio, "faster"
    return ratio, "slower" if ratio < 1 and high < 1 else "no clear difference"


def steps(record: dict) -> list[str]:
    return [step for step in record["samples"] if step != "total"]


def table(records: list[dict]) -> str:
    reference = next(record for record in records if record["strategy"] == REFERENCE)
    names = steps(reference)
    lines = ["", "Milliseconds: median over the rounds of the slowest rank.", ""]
    lines += [f"step {number}: {name}" for number, name in enumerate(names, start=1)]
    heads = [*(f"step {number}" for number in range(1, len(names) + 1)), "whole run"]
    lines += ["", f"{'strategy':<14}" + "".join(f"{head:>11}" for head in heads) + "   redistribution"]
    for record in records:
        cells = [1e3 * record["seconds"][name] for name in (*names, "total")]
        ratio, verdict = compared(record, reference)
        last = "" if record is reference else f"{ratio:10.2f}x  {verdict}"
        lines.append(f"{record['strategy']:<14}" + "".join(f"{cell:11.2f}" for cell in cells) + last)
    lines += ["", f"The last column: times as fast as {REFERENCE}; no clear difference: the rounds do not agree on it."]
    slower = [record["strategy"] for record in records if compared(record, reference)[1] == "slower"]
    if slower:
        lines.append(f"Slower than {REFERENCE} on this machine: {', '.join(slower)}.")
    return "\n".join(lines)


def draw(records: list[dict], path: Path) -> None:
    """Draw a bar per strategy, stacked from the medians of the steps."""
    names = [record["strategy"] for record in records]
    figure = new_figure(8.5, 4.4, layout="constrained")
    axes = figure.subplots()
    bottom = np.zeros(len(records))
    for number, step in enumerate(steps(records[0])):
        moved = step.startswith("redistribute")
        values = np.array([1e3 * record["seconds"][step] for record in records])
        colour = "tab:red" if moved else str(0.55 + 0.1 * (number % 4))
        axes.bar(names, values, bottom=bottom, color=colour, edgecolor="white", label=step)
        bottom += values
    axes.set_ylim(0, 1.1 * bottom.max())
    axes.set_ylabel("time of the steps [ms]")
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), reverse=True, frameon=False, fontsize=8)
    first = records[0]
    axes.set_title(
        f"TTMc, X {' x '.join(str(first['sizes'][s]) for s in 'IJKLM')}, {first['ranks']} ranks on {cores()} cores, "
        f"median of {len(first['samples']['total'])} rounds",
        fontsize=10,
    )
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    run_command(main, "demo.py")

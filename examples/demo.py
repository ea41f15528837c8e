"""Runs TTMc on 4 ranks with every strategy, checks the answers, prints a table and draws pictures (`make demo`)."""

import argparse
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from dace_redist import Distribution, Schedule, schedule
from dace_redist.explain import format_bytes
from dace_redist.launch import describe_mpi, mpi_environment, mpiexec_command
from dace_redist.strategies import STRATEGIES

RANKS = 4
STOCK = "MPI"
TIMEOUT = 1800  # seconds, for a slow machine that compiles everything
HERE = Path(__file__).resolve().parent
SOURCES = ("examples/*.py", "library_nodes/**/*.py", "transformations/*.py", "dace_redist/**/*.hpp", "dace_redist/*.py")


def main() -> int:
    """Run the demo; 0 if every answer is right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo"), help="folder for all files (default demo)")
    parser.add_argument("--size", type=int, default=24, help="length of the tensor's modes (default 24)")
    parser.add_argument("--rank", type=int, default=12, help="columns of the matrices (default 12)")
    parser.add_argument("--repetitions", type=int, default=20, help="timed rounds of all strategies (default 20)")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    threads = int(os.environ.get("OMP_NUM_THREADS", "").split(",")[0] or max(1, cores() // RANKS))
    introduce(arguments, threads)
    results, built = arguments.output / "results.jsonl", arguments.output / "programs.built"
    results.unlink(missing_ok=True)
    wanted = built_from()
    code = run(arguments, results, threads, prebuilt=built.exists() and built.read_text() == wanted)
    records = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    if [record["strategy"] for record in records] != list(STRATEGIES):
        built.unlink(missing_ok=True)
        print(f"demo: the program ended with code {code} before all strategies were measured", file=sys.stderr)
        return code or 1
    built.write_text(wanted)
    right = "All answers are right." if code == 0 else "AN ANSWER IS WRONG: see above."
    print(f"{right}\n{table(records, threads)}")
    moves = largest(records[0])
    pictures = {"times": arguments.output / "times.png", "plan": arguments.output / "plan.png"}
    draw(records, pictures["times"])
    moves.plot(pictures["plan"])
    print(f"\nThe largest of the three redistributions:\n{moves}\n")
    print(f"redistribution times        {pictures['times']}")
    print(f"who sends what (largest)    {pictures['plan']}")
    print(f"all figures                 {results}")
    return code


def cores() -> int:
    return len(os.sched_getaffinity(0))


def introduce(arguments: argparse.Namespace, threads: int) -> None:
    nbytes = 8 * arguments.size**5
    print("TTMc, ijklm,jb,kc,ld,me->ibcde, distributed the Deinsum way: four process grids, so three redistributions.")
    print(f"i to m have length {arguments.size}, b to e {arguments.rank}; the tensor has {format_bytes(nbytes)}.")
    print(f"{RANKS} ranks with {threads} thread{'' if threads == 1 else 's'} each on {cores()} cores; {describe_mpi()}")
    load = os.getloadavg()[0]
    if load > cores():
        print(f"This machine is busy with other work (load {load:.0f}): the times will be rough.")


def built_from() -> str:
    """Changes with everything that the programs are compiled from, so that a later run knows whether they are those."""
    facts = [describe_mpi(), importlib.metadata.version("dace"), os.environ.get("DACE_default_build_folder", "")]
    facts += [
        f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith(("DACE_compiler", "CXX"))
    ]
    digest = hashlib.sha256("\n".join(facts).encode())
    for pattern in SOURCES:
        for path in sorted(HERE.parent.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def run(arguments: argparse.Namespace, results: Path, threads: int, prebuilt: bool) -> int:
    """Run examples/ttmc.py under mpiexec; what it prints is seen as it comes."""
    job = [sys.executable, str(HERE / "ttmc.py"), "--size", str(arguments.size), "--rank", str(arguments.rank)]
    job += ["--strategy", *STRATEGIES, "--repetitions", str(arguments.repetitions), "--brief", "--json", str(results)]
    if prebuilt:
        job.append("--prebuilt")
    else:
        print(f"The first run compiles {len(STRATEGIES)} programs, which takes longer than the rest.", flush=True)
    variables = {"DACE_default_build_folder": str((arguments.output / "programs").resolve())}
    variables |= os.environ | mpi_environment(RANKS) | {"OMP_NUM_THREADS": str(threads)}
    process = subprocess.Popen(mpiexec_command(RANKS, job), stdin=subprocess.DEVNULL, env=variables)
    try:
        return process.wait(TIMEOUT)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as reason:
        process.terminate()  # mpiexec ends the ranks
        process.wait(10)
        print(f"demo: stopped, {'interrupted' if isinstance(reason, KeyboardInterrupt) else reason}", file=sys.stderr)
        return 1


def redistributions(record: dict) -> np.ndarray:
    """Milliseconds of each redistribution, an array [redistributions, rounds]."""
    return 1e3 * np.array([times for step, times in record["samples"].items() if step.startswith("redistribute")])


def compared(record: dict, stock: dict) -> tuple[float, str]:
    """
    How many times faster than stock DaCe (ratio of the medians), and whether that is certain.

    The strategies ran in turn: it is certain if in three of four rounds the one or the other was faster, too.
    """
    times, stock_times = redistributions(record).sum(axis=0), redistributions(stock).sum(axis=0)
    ratio = float(np.median(stock_times) / np.median(times))
    low, high = np.percentile(stock_times / times, (25, 75))
    if ratio > 1 and low > 1:
        return ratio, "faster"
    return ratio, "slower" if ratio < 1 and high < 1 else "no clear difference"


def table(records: list[dict], threads: int) -> str:
    stock = next(record for record in records if record["strategy"] == STOCK)
    count = len(redistributions(stock))
    heads = ["strategy", *(f"redist. {n}" for n in range(1, count + 1)), "sum", "whole run", "vs stock"]
    lines = ["", "Milliseconds: median over the rounds of the slowest rank; sum: the redistributions of one round.", ""]
    lines += [f"{heads[0]:<18}" + "".join(f"{head:>11}" for head in heads[1:])]
    for record in records:
        times = redistributions(record)
        cells = [*np.median(times, axis=1), np.median(times.sum(axis=0)), 1e3 * record["seconds"]["total"]]
        name = f"{STOCK} (stock DaCe)" if record is stock else record["strategy"]
        ratio, verdict = compared(record, stock)
        last = "" if record is stock else f"{ratio:10.2f}x  {verdict}"
        lines.append(f"{name:<18}" + "".join(f"{cell:11.2f}" for cell in cells) + last)
    lines += ["", "vs stock: sum of stock DaCe over this sum; no clear difference: the rounds do not agree on it."]
    slower = [record["strategy"] for record in records if compared(record, stock)[1] == "slower"]
    if slower:
        lines.append(f"Slower than stock DaCe on this machine: {', '.join(slower)}.")
    if threads == 1:
        lines.append("Threaded has one thread per rank here, so it is Pack with more to do.")
    return "\n".join(lines)


def largest(record: dict) -> Schedule:
    """TTMc's first redistribution: ijkle goes from the first grid, ijklme, to the second, ijklde."""
    shape = [record["rank" if mode == "e" else "size"] for mode in "ijkle"]
    sides = [
        Distribution(shape, parts, dims=[modes.index(mode) for mode in "ijkle"])
        for modes, parts in list(record["grids"].items())[:2]
    ]
    return schedule(*sides)


def draw(records: list[dict], path: Path) -> None:
    """Bars: median of the time in redistributions; lines on them: the middle half of the rounds."""
    from matplotlib.figure import Figure

    names = [record["strategy"] for record in records]
    low, middle, high = np.percentile([redistributions(record).sum(axis=0) for record in records], (25, 50, 75), axis=1)
    stock = names.index(STOCK)
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.subplots()
    colours = ["0.6" if name == STOCK else "tab:blue" for name in names]
    axes.bar(names, middle, color=colours, yerr=[middle - low, high - middle], capsize=5, ecolor="black")
    axes.axhline(middle[stock], color="black", linestyle="--", linewidth=1)
    behind = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}  # hides the line where they meet
    for place, (value, top) in enumerate(zip(middle, high, strict=True)):
        axes.annotate(
            f"{value:.1f}", (place, top), (0, 4), "data", "offset points", ha="center", fontsize=9, bbox=behind
        )
    axes.set_ylim(0, 1.15 * high.max())
    axes.set_xticks(range(len(names)), [f"{name}\n(stock DaCe)" if name == STOCK else name for name in names])
    axes.set_ylabel("time in redistributions [ms]")
    first, rounds = records[0], redistributions(records[0]).shape[1]
    axes.set_title(
        f"TTMc, size {first['size']}, rank {first['rank']}, {first['ranks']} ranks on {cores()} cores\n"
        f"median and middle half of {rounds} rounds; dashed: stock DaCe",
        fontsize=10,
    )
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    raise SystemExit(main())

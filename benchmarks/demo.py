"""Demo (`make demo`): a redistribution by every method, a distributed einsum program, and the einsum in one line."""

import json
import os
import sys
import textwrap
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

import click
from launching import supervise
from redistribution.methods import ALLTOALLW, COPY, STOCK

from dace_redist.cli import run_command
from dace_redist.mpi.launch import describe_mpi, mpi_environment, mpiexec_command
from dace_redist.report.canvas import new_figure
from dace_redist.report.units import format_bytes, format_seconds, table

HERE = Path(__file__).resolve().parent
TIMEOUT = 900  # seconds, for a slow machine
#: Ranks of the case, which is the full redistribution of Lundwall et al., and of the einsum.
CASE_RANKS, EINSUM_RANKS = 12, 4
#: "Auto" with ordinary arrays, and with a target from ``shared_empty``.
DEFAULT, SHARED = "Auto", "Auto, shared-target"
NAMES = {
    SHARED: "dace-redist, target in node-shared memory",
    DEFAULT: "dace-redist, default",
    ALLTOALLW: "MPI_Alltoallw",
    STOCK: "DaCe's own node",
    COPY: "plain copy of the parts",
}

Record = dict[str, Any]


@click.command(help=__doc__)
@click.option("--output", type=click.Path(path_type=Path), default="demo", help="folder for all files")
@click.option("--case", default="seed-k12", help="case of benchmarks/bench.py, of 12 ranks")
@click.option("--preset", default="default", help="sizes of the cases")
@click.option("--size", default=96, help="points of the field along each axis")
@click.option("--repetitions", default=10, help="timed rounds of the einsum")
def main(output: Path, case: str, preset: str, size: int, repetitions: int) -> int:
    output.mkdir(parents=True, exist_ok=True)
    print(f"dace-redist on {cores()} cores; {describe_mpi()}")
    load = os.getloadavg()[0]
    if load > cores():
        print(f"This machine is busy with other work (load {load:.0f}): the times will be rough.")
    limits = [
        "--limit",
        "12",
        "--least",
        "5",
        "--peers",
        "mpi",
        "--variants",
        "ordinary,shared-target",
        "--preset",
        preset,
    ]
    bench = Program(output / "redistribution", CASE_RANKS, ["bench.py", case, *limits])
    options = ["--slabs", "U=0", "--strategies", "Auto,Datatype", "--against", "einsum", "--check"]
    options += [word for axis in "IJK" for word in ("--size", f"{axis}={size}")]
    options += ["--repetitions", str(repetitions), "--plot", str(output / "plan.png")]
    program = Program(output / "einsum", EINSUM_RANKS, ["einsum/run_einsum.py", "snapshots", *options])
    moved = bench.run("1. One redistribution by every method")
    methods = {record["method"]: record for record in moved if "median" in record}
    if bench.code or not {STOCK, DEFAULT} <= {*methods}:
        return bench.failed()
    print(redistribution(moved, methods))
    draw(methods, output / "speedups.png")
    runs = program.run("2. An einsum program for one process, distributed")
    if [record["strategy"] for record in runs] != ["Auto", "Datatype"]:
        return program.failed()
    print(einsums(runs, program.log.read_text()))
    print(f"pictures: {output / 'speedups.png'}, {output / 'plan.png'}; all figures: {output}/*.jsonl, {output}/*.log")
    return program.code


def cores() -> int:
    return len(os.sched_getaffinity(0))


class Program:
    """
    Benchmark that runs under mpiexec, with its output in a file.

    :param path: Of its files, without their endings.
    :param words: Script, from this folder, and its arguments.
    """

    def __init__(self, path: Path, ranks: int, words: Sequence[str]) -> None:
        self.results, self.log = path.with_suffix(".jsonl"), path.with_suffix(".log")
        argv = [sys.executable, str(HERE / words[0]), *words[1:], "--json", str(self.results)]
        threads = {"OMP_NUM_THREADS": str(max(1, cores() // ranks))}
        self._command, self._environment = mpiexec_command(ranks, argv), threads | os.environ | mpi_environment(ranks)
        self.code = 0

    def run(self, title: str) -> list[Record]:
        """Run it, with a dot each second, and return its records."""
        print(f"\n{title} ", end="", flush=True)
        begin, done = time.monotonic(), threading.Event()

        def tick() -> None:
            while not done.wait(1):
                print(".", end="", flush=True)

        dots = threading.Thread(target=tick)
        dots.start()
        self.results.unlink(missing_ok=True)
        try:
            with self.log.open("wb") as output:
                self.code = supervise(self._command, TIMEOUT, environment=self._environment, output=output)
        finally:
            done.set()
            dots.join()
        print(f" {time.monotonic() - begin:.0f} s\n")
        return [json.loads(line) for line in self.results.read_text().splitlines()] if self.results.exists() else []

    def failed(self) -> int:
        """Print the end of the output, and return an exit code."""
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
        print(f"demo: {self.log} ends with code {self.code}:\n{tail}", file=sys.stderr)
        return self.code or 1


def redistribution(records: Iterable[Record], methods: Mapping[str, Record]) -> str:
    """Return the methods of the case, ours and the best strategies first."""
    stock, copy = methods[STOCK], methods[COPY]
    first = [SHARED, DEFAULT]
    strategies = sorted((m for m in methods if m not in NAMES and "," not in m), key=lambda m: methods[m]["median"])
    cells = [("", "time", "GB/s", "times as fast as DaCe's node", "speed of a plain copy")]
    for method in [*first, *strategies, ALLTOALLW, STOCK, COPY]:
        if method not in methods:
            continue
        seconds = methods[method]["median"]
        name = NAMES.get(method, f"  {method}")
        rate, share = stock["bytes"] / seconds / 1e9, copy["median"] / seconds
        cells.append((name, format_seconds(seconds), f"{rate:.1f}", f"{stock['median'] / seconds:.2f}", f"{share:.0%}"))
    shape = " x ".join(map(str, stock["shape"]))
    head = (
        f"{stock['dtype']} tensor, {shape}, {format_bytes(stock['bytes'])}, from a grid of 2 x 1 x 1 x 3 x 2 ranks to "
        f"1 x 1 x 1 x 1 x 12\n(the full redistribution of Lundwall et al.); every result was checked:\n"
    )
    skipped = [f"\nnot measured: {r['method']}: {r['skipped']}" for r in records if "skipped" in r]
    return "\n".join([head, *table(cells, left=1), *skipped])


def einsums(records: Sequence[Record], log: str) -> str:
    """Return the plan, and the times of the program with our redistributions and MPI's, and of the call."""
    ours, theirs = records
    plan = log[log.index("__return =") : log.index("\nbytes per rank")].rstrip()
    error = max(record["error"] for record in records)
    wrong = "THE RESULT IS WRONG" if error > 1e-10 else "equal to NumPy's result"
    seconds = {
        "as planned": ours["seconds"]["total"],
        "the same plan, moved by MPI's datatypes, as DaCe does": theirs["seconds"]["total"],
        "in one line, without a compiler: einsum below": ours["against"]["einsum"],
    }
    size = ours["sizes"]
    return "\n".join(
        [
            f"@dace.program with np.einsum, {EINSUM_RANKS} ranks: correlations of {size['T']} snapshots U of a field;",
            "each rank has read some snapshots. dace_redist.distribute plans what moves, and where:\n",
            textwrap.indent("\n".join(line[:118] for line in plan.splitlines()), "    "),
            f"\n{wrong} (largest relative error {error:.1e})\n",
            *table([(name, format_seconds(one)) for name, one in seconds.items()], left=1),
            '\n3. In one line: C = dace_redist.einsum("tijk,sijk->ts", U, U), where U is a DistributedArray\n',
        ]
    )


def draw(methods: Mapping[str, Record], path: Path) -> None:
    """Draw how many times as fast as DaCe's node the methods are."""
    stock = methods[STOCK]
    shown = [(NAMES[m], stock["median"] / methods[m]["median"], m) for m in reversed(NAMES) if m in methods]
    figure = new_figure(8, 3, layout="constrained")
    axes = figure.subplots()
    colours = ["tab:red" if m in (DEFAULT, SHARED) else "0.75" if m == COPY else "0.5" for *_, m in shown]
    bars = axes.barh([name for name, *_ in shown], [ratio for _, ratio, _ in shown], color=colours)
    labels = [f"{ratio:.1f}x, {format_seconds(methods[m]['median'])}" for _, ratio, m in shown]
    axes.bar_label(bars, labels, padding=4, fontsize=9)
    axes.set_xlim(0, 1.25 * max(ratio for _, ratio, _ in shown))
    axes.set_xlabel("times as fast as DaCe's own Redistribute node")
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"{' x '.join(map(str, stock['shape']))} tensor ({format_bytes(stock['bytes'])}), redistributed on "
        f"{stock['ranks']} ranks, {cores()} cores",
        fontsize=10,
    )
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    run_command(main, "demo.py")

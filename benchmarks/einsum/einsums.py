"""
Distributed einsums against their requirements: programs distributed by hand, opt_einsum, other numbers of ranks.

    python benchmarks/einsum/einsums.py --json results.jsonl
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

from einsum_cases import CASES
from launching import launch

from dace_redist.report.units import format_bytes

HERE = Path(__file__).resolve().parent
RUNNER = HERE / "run_einsum.py"
BY_HAND = ("mm2", "mm3", "ttmc")
ONE_THREAD = {"mm2": 0.60, "mttkrp3_0": 0.12, "ttmc": 0.40}  # at most this part of opt_einsum's time
SCALED = ("mm2", "mttkrp3_0", "ttmc", "rings")
TIMES_AS_FAST = 1.3
PARTS = ("by-hand", "one-thread", "one-process", "scaling")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure (default: all)")
    kernels = tuple(CASES)
    parser.add_argument("--kernels", nargs="+", choices=kernels, default=kernels, help="only these (default: all)")
    parser.add_argument("--ranks", nargs="+", type=int, help="only on so many (default: 4 and 8; scaling: 1 to 12)")
    parser.add_argument("--rounds", type=int, default=15, help="timed rounds of each comparison (default 15)")
    parser.add_argument("--json", type=Path, help="append all records, one line each")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = (arguments.json or Path(folder) / "results.jsonl").resolve()
        before = len(results.read_text()) if results.exists() else 0
        for ranks, command in commands(arguments):
            print(f"{ranks} ranks: {' '.join(command)}", file=sys.stderr, flush=True)
            run(ranks, [*command, "--json", str(results)], folder)
        lines = results.read_text()[before:].splitlines() if results.exists() else []
    print(table([json.loads(line) for line in lines]))
    return 0


def commands(arguments: argparse.Namespace) -> Iterator[tuple[int, list[str]]]:
    """Return numbers of ranks and their commands."""
    jobs = str(HERE / "einsum_jobs.py")
    rounds = ["--rounds", str(arguments.rounds)]
    if "by-hand" in arguments.parts:
        for ranks in arguments.ranks or (4, 8):
            for kernel in filter(arguments.kernels.__contains__, BY_HAND):
                yield ranks, [jobs, "by-hand", kernel, *rounds]
                for whose in ("ours", "by hand"):
                    yield ranks, [jobs, "memory", kernel, "--whose", whose]
    if "one-thread" in arguments.parts:
        for kernel in filter(arguments.kernels.__contains__, ONE_THREAD):
            yield 4, [jobs, "one-thread", kernel, *rounds]
    if "one-process" in arguments.parts:
        for kernel in arguments.kernels:
            for ranks in arguments.ranks or (len(os.sched_getaffinity(0)),):
                yield ranks, [jobs, "one-process", kernel, *rounds]
                yield ranks, [jobs, "memory", kernel]
    if "scaling" in arguments.parts:
        for kernel in filter(arguments.kernels.__contains__, SCALED):
            for preset in ("S", "weak"):
                for ranks in arguments.ranks or (1, 2, 4, 8, 12):
                    yield ranks, [str(RUNNER), kernel, "--preset", preset, "--repetitions", str(arguments.rounds)]


def run(ranks: int, command: list[str], folder: str) -> None:
    """Launch a command; show its output if it fails. One thread per rank, unless the environment sets a number."""
    variables = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    argv = [sys.executable, "-m", "mpi4py", *command]
    code, output = launch(ranks, argv, timeout=900, environment=variables, cwd=folder)
    if code != 0:
        print(f"returned {code}:\n{output[-4000:]}", file=sys.stderr, flush=True)


def table(records: list[dict]) -> str:
    """Return a table of all figures and their requirements."""
    lines = [f"{'what':<44}{'ours':>12}{'other':>12}{'ratio':>8}{'required':>10}  load"]
    for record in records:
        head = f"{record['kernel']}, {record['ranks']} ranks"
        if record.get("job") == "by-hand":
            ours, other = record["ours"], record["by hand"]
            lines.append(_row(f"{head}, by hand, times as fast", ours["total"], other["total"], TIMES_AS_FAST, record))
            lines += [f"    {name}: {_kinds(record[name])}" for name in ("ours", "by hand")]
        elif record.get("job") == "one-thread":
            ratio = record["ours"] / record["opt_einsum"]
            label, limit = f"{head}, part of opt_einsum's time", ONE_THREAD[record["kernel"]]
            lines.append(_line(label, record["ours"], record["opt_einsum"], ratio, f"<= {limit:.2f}", record))
        elif record.get("job") == "one-process":
            lines.append(_row(f"{head}, NumPy in one process", record["ours"], record["one process"], 1.0, record))
    return "\n".join([*lines, *_memory_rows(records), *_process_rows(records), *_scaling_rows(records)])


def _row(label: str, ours: float, other: float, least: float, record: dict) -> str:
    return _line(label, ours, other, other / ours, f">= {least:.2f}", record)


def _line(label: str, ours: float, other: float, ratio: float, required: str, record: dict) -> str:
    return f"{label:<44}{ours * 1e3:9.2f} ms{other * 1e3:9.2f} ms{ratio:8.2f}{required:>10}{record['load']:6.1f}"


def _kinds(seconds: dict[str, float]) -> str:
    return ", ".join(f"{kind} {1e3 * value:.2f}" for kind, value in seconds.items() if kind != "total")


def _memory_rows(records: list[dict]) -> list[str]:
    found = {(r["kernel"], r["ranks"], r["whose"]): r["bytes"] for r in records if r.get("job") == "memory"}
    lines = []
    for (kernel, ranks, whose), ours in found.items():
        other = found.get((kernel, ranks, "by hand"))
        if whose == "ours" and other:
            label = f"{kernel}, {ranks} ranks, peak memory per rank"
            cells = f"{format_bytes(ours):>12}{format_bytes(other):>12}{ours / other:8.2f}{'<= 1.00':>10}"
            lines.append(f"{label:<44}{cells}")
    return lines


def _process_rows(records: list[dict]) -> list[str]:
    """Return rows with the memory of all ranks over that of the NumPy program in one process."""
    together = {(r["kernel"], r["ranks"]): r["bytes_of_all"] for r in records if r.get("whose") == "ours"}
    found = [(r, together.get((r["kernel"], r["ranks"]))) for r in records if r.get("job") == "one-process"]
    return [
        f"{record['kernel']}, {record['ranks']} ranks, memory of all to one process".ljust(44)
        + f"{format_bytes(ours):>12}{format_bytes(record['bytes_of_process']):>12}"
        + f"{ours / record['bytes_of_process']:8.2f}"
        for record, ours in found
        if ours
    ]


def _scaling_rows(records: list[dict]) -> list[str]:
    scaled = [record for record in records if "preset" in record]
    lines = []
    for kernel, preset in dict.fromkeys((r["kernel"], r["preset"]) for r in scaled):
        own = [record for record in scaled if (record["kernel"], record["preset"]) == (kernel, preset)]
        times = "  ".join(f"{r['ranks']}: {1e3 * r['seconds']['total']:.2f}" for r in own)
        lines.append(f"{kernel}, {'strong' if preset == 'S' else 'weak'} scaling, ms by ranks: {times}")
    return lines


if __name__ == "__main__":
    raise SystemExit(main())

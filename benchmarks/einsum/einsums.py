"""
Distributed einsums: against programs distributed by hand, opt_einsum and NumPy, and on several numbers of ranks.

    python benchmarks/einsum/einsums.py --json results.jsonl
"""

import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

import click
from by_hand import KERNELS
from einsum_cases import CASES
from launching import launch

RUNNER = Path(__file__).resolve().parent / "run_einsum.py"
#: Kernels whose scaling is measured.
SCALED = ("mm2", "mttkrp3_0", "ttmc", "rings")
#: Kernels of one statement, which opt_einsum takes.
ONE_STATEMENT = tuple(name for name in CASES if name not in ("mm1", "tucker", "cp"))


@click.command()
@click.argument("kernels", nargs=-1, type=click.Choice(list(CASES)))
@click.option("--ranks", multiple=True, type=click.IntRange(1), help="instead of 4 and 8, and 1 to 12 for scaling")
@click.option("--repetitions", default=15, show_default=True, type=click.IntRange(1), help="timed rounds")
@click.option("--json", "path", type=click.Path(dir_okay=False, path_type=Path), help="append a JSON line per result")
def main(kernels: tuple[str, ...], ranks: tuple[int, ...], repetitions: int, path: Path | None) -> None:
    """Measure all kernels, or some; one thread per rank, unless OMP_NUM_THREADS says otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        results = (path or Path(folder) / "results.jsonl").resolve()
        before = len(results.read_text()) if results.exists() else 0
        for kernel in kernels or CASES:
            peers = ["numpy", *(["opt_einsum"] if kernel in ONE_STATEMENT else [])]
            others = ["--against", ",".join(peers), *(["--by-hand", "stock"] if kernel in KERNELS else [])]
            runs = {(count, "S"): others for count in ranks or (4, 8)}
            for preset in ("S", "weak") if kernel in SCALED else ():
                runs |= {(count, preset): [] for count in ranks or (1, 2, 4, 8, 12) if (count, preset) not in runs}
            for (count, preset), words in runs.items():
                command = [str(RUNNER), kernel, "--preset", preset, "--repetitions", str(repetitions), *words]
                _run(count, [*command, "--json", str(results)], folder)
        lines = results.read_text()[before:].splitlines() if results.exists() else []
    for record in map(json.loads, lines):
        seconds = record["seconds"]["total"]
        others = [f"{name} {other / seconds:.2f} times as long" for name, other in record["against"].items()]
        head = f"{record['kernel']:12}{record['preset']:6}{record['ranks']:4} ranks{seconds * 1e3:10.2f} ms"
        click.echo("  ".join([head, *others]))


def _run(ranks: int, command: list[str], folder: str) -> None:
    """Launch a command; show its output if it fails."""
    click.echo(f"{ranks} ranks: {' '.join(command[1:])}", err=True)
    variables = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    argv = [sys.executable, "-m", "mpi4py", *command]
    code, output = launch(ranks, argv, timeout=900, environment=variables, cwd=folder)
    if code != 0:
        click.echo(f"returned {code}:\n{output[-4000:]}", err=True)


if __name__ == "__main__":
    main()

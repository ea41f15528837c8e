"""
Figures of the manual, and numbers in the tables of its performance page, from the results in ``benchmarks/results``.

    python benchmarks/manual.py                # or: make figures

Results that are missing leave their rows and figures as they are; ``benchmarks/measure.sh results`` makes them.
A row of a page is found by words of its first cells; its last cells are replaced. Numbers in sentences are checked.
"""

from __future__ import annotations

import functools
import json
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

import click
import manual_texts
from manual_texts import mean_and_worst
from PIL import Image
from programs import PROGRAMS
from redistribution import figures, tables
from redistribution import methods as kinds

from dace_redist import distribute
from dace_redist.cli import run_command
from dace_redist.report import canvas

ROOT = Path(__file__).resolve().parents[1]
RESULTS, FIGURES = ROOT / "benchmarks" / "results", ROOT / "docs" / "figures"
PERFORMANCE, GPU = ROOT / "docs" / "performance.md", ROOT / "docs" / "howto" / "gpu.md"
Record = Mapping[str, Any]
#: Words that a row has, and cells that end it.
Row = tuple[str, list[str]]

#: Of the pictures of plans, which makes them a third as large.
COLOURS = 32
#: Figures that a sub-command of dace-redist draws.
COMMANDS = {
    "plan.png": "explain --shape 48,24,24,72,288 --from 2,1,1,3,2 --to 1,1,1,1,12 --dtype int32",
    "einsum-plan.png": "einsum ij,jk,kl,lm->im --sizes i=8192,j=8192,k=8192,l=8192,m=8192 --ranks 8",
}
REFERENCES = {
    "`MPI_Alltoallw`": "Alltoallw or mpi4py-fft",
    "DaCe's `Redistribute`": "stock DaCe",
    "ScaLAPACK": "ScaLAPACK",
    "DTensor": "DTensor",
}
#: The same, of libraries that are measured apart.
PEERS = {"COSTA": "COSTA", "PETSc": "PETSc"}
#: Words of the rows of five cases, and their names.
CASES = {
    "5-D tensor of Lundwall et al.": "seed-k16",
    "slab to pencil": "slab-to-pencil-240",
    "TTMc's first tensor": "ttmc-ijkle-4",
    "runs of 64 bytes": "runs-64B",
    "random owners of tiles": "tiles-random",
}
OURS, ALLTOALLW = ("Auto", "Auto, shared-target"), tables.REFERENCES["Alltoallw or mpi4py-fft"]
#: Comparison, and how methods begin of which the fastest one is the reference.
COMPARISONS = {
    "redistribute, then transpose": ("axes", "without, then transpose"),
    "convert to float32, then redistribute": ("convert", "astype before"),
    "reduce, redistribute, broadcast": ("reduce", "Reduce"),
    "16 small tensors one by one": ("several", "one after another"),
    "gather, reshape, scatter by mpi4py": ("reshape", "gather, reshape, scatter by mpi4py"),
    "gather, reshape, scatter by plans": ("reshape", "gather, reshape, scatter by plans"),
    "halo exchange by mpi4py's subarrays": ("halo", "mpi4py"),
}
#: Comparison, its kind, and the reference.
OTHERS = {
    "Heat, `resplit`": ("libraries", "heat", "own"),
    "mpiarray, `redistribute`": ("libraries", "mpiarray", "own"),
    "PyLops-MPI, `redistribute`": ("libraries", "pylops-mpi", "own"),
    "PyTorch `DTensor` on gloo, `redistribute`": ("libraries", "PyTorch", "own"),
    "2 x 2 blocks": ("files", "2 x 2 blocks", "own hyperslab"),
    "block-cyclic, blocks of 64 x 64": ("files", "block-cyclic 64", "own hyperslab"),
    "PyTorch's checkpoint planner": ("boxes", "", "PyTorch"),
}
#: Kernels that are distributed by hand, too.
BY_HAND = ("mm2", "mm3", "ttmc")
#: Row of the results, and whether it is the inverse of a speed-up.
OVERHEADS = {
    "start to first result": ("start", True),
    "call of a `Plan`, 16 x 16 matrix": ("redistribute", False),
    "with ready datatypes": ("plan", True),
    "compile a DaCe program": ("compile", True),
}


def redistribution(records: Sequence[Record], references: Mapping[str, str] = REFERENCES) -> Iterator[Row]:
    for words, reference in references.items():
        ratios = [list(tables.speedups(records, label, tables.REFERENCES[reference]).values()) for label in OURS]
        if all(ratios):
            yield words, [str(len(ratios[0])), *map(mean_and_worst, ratios)]


def peers(records: Sequence[Record]) -> Iterator[Row]:
    return redistribution(records, PEERS)


def to_alltoallw(records: Sequence[Record], label: str) -> dict[str, tuple[int, float]]:
    """Return the ranks of each case, and how many times as fast as ``MPI_Alltoallw`` a method is there."""
    ranks = {record["case"]: int(record["ranks"]) for record in records}
    found = tables.speedups(records, label, ALLTOALLW)
    return {case: (ranks[case], ratio) for (case, _), ratio in found.items()}


def machines(of_machines: Sequence[Sequence[Record]]) -> Iterator[Row]:
    """Yield speed-ups by ranks and the slower cases, for each machine with ordinary and with node-shared targets."""
    found = [to_alltoallw(records, label) for records in of_machines for label in OURS]
    ranks = sorted({ranks for ratios in found for ranks, _ in ratios.values()})
    for count in ranks:
        of_count = [[ratio for ranks, ratio in ratios.values() if ranks == count] for ratios in found]
        if all(of_count):
            yield f"by ranks: {count}", [str(len(of_count[0])), *map(mean_and_worst, of_count)]
    slower = [sorted((ratio, case) for case, (_, ratio) in ratios.items() if ratio < 0.995) for ratios in found]
    yield "slower cases", [", ".join(f"`{case}` {ratio:.2f}" for ratio, case in cases) or "none" for cases in slower]


def examples(records: Sequence[Record]) -> Iterator[Row]:
    """Yield milliseconds of ``MPI_Alltoallw`` and of ours, and the bytes per second of ours and of a plain copy."""
    medians = {(record["case"], record["method"]): record["median"] for record in tables.measured(records)}
    for words, case in CASES.items():
        known = {method: seconds for (other, method), seconds in medians.items() if other == case}
        if {*OURS, kinds.COPY} <= set(known):
            nbytes = next(record["bytes"] for record in records if record["case"] == case)
            times = [min(known[method] for method in ALLTOALLW if method in known), *(known[ours] for ours in OURS)]
            rates = [nbytes / known[method] / 1e9 for method in (*OURS, kinds.COPY)]
            yield words, [*(f"{1e3 * seconds:.1f}" for seconds in times), *(f"{rate:.1f}" for rate in rates)]


def bound(records: Sequence[Record]) -> Iterator[Row]:
    """Yield the speed-ups that two plain copies of what moves would have."""
    rows = [*tables.measured(records), *tables.two_copies(records)]
    compared = (tables.speedups(rows, "two plain copies", tables.REFERENCES[name]) for name in REFERENCES.values())
    yield "two plain copies", [f"{statistics.geometric_mean(ratios.values()):.2f}" for ratios in [*compared][:3]]


def ratios(records: Sequence[Record], name: str, kind: str, reference: str) -> list[float]:
    """Return the fastest reference to the first method, of the last result for each shape of a kind of comparison."""
    found = {}
    for record in records:
        if record["comparison"] == name and record["what"].startswith(kind):
            seconds = record["seconds"]
            least = min(time for method, time in seconds.items() if method.startswith(reference))
            found[(record["what"], *record["shape"])] = least / next(iter(seconds.values()))
    return list(found.values())


def comparisons(records: Sequence[Record]) -> Iterator[Row]:
    for words, (name, reference) in COMPARISONS.items():
        cells = [ratios(records, name, memory, reference) for memory in ("ordinary", "node-shared")]
        if all(cells):
            yield words, list(map(mean_and_worst, cells))
    for words, which in OTHERS.items():
        if found := ratios(records, *which):
            yield words, [mean_and_worst(found)]
    for record in records:
        if record["comparison"] == "stacks":
            times = record["seconds"]
            plans = times["plans, ordinary arrays"], times["plans, new arrays"]
            yield "pad and `MPI_Alltoall`", [f"{times['by hand'] / one:.2f}" for one in plans]


def einsums(records: Sequence[Record]) -> Iterator[Row]:
    found = {r["kernel"]: r for r in records if r["ranks"] == 4 and r["preset"] == "S"}
    if set(BY_HAND) <= set(found):
        ratios = [found[kernel]["against"]["by hand, stock"] / found[kernel]["seconds"]["total"] for kernel in BY_HAND]
        yield "2MM, 3MM, TTMc", [mean_and_worst(ratios)]


def gallery(records: Sequence[Record]) -> Iterator[Row]:
    yield "the [gallery]", [mean_and_worst([r["seconds"]["numpy"] / r["seconds"]["ranks"] for r in records])]


def kernels(records: Sequence[Record]) -> Iterator[Row]:
    for words, ranks in (("small kernels on two ranks", 2), ("small kernels on one rank", 1)):
        found = {r["program"]: r["seconds"]["numpy"] / r["seconds"]["ranks"] for r in records if r["ranks"] == ranks}
        yield words, [mean_and_worst(list(found.values()))]


def ctf(records: Sequence[Record]) -> Iterator[Row]:
    for words, ranks in (("einsums on two ranks", 2), ("einsums on four ranks", 4)):
        found = {r["kernel"]: r["against"]["ctf"] / r["against"]["einsum"] for r in records if r["ranks"] == ranks}
        yield words, [mean_and_worst(list(found.values()))]


def overheads(records: Sequence[Record]) -> Iterator[Row]:
    medians = {record["row"]: statistics.median(record["values"]) for record in records}
    if "first-use" in medians:
        yield "compile the libraries", [f"{medians['first-use']:.0f} s"]
    for words, (row, is_inverse) in OVERHEADS.items():
        if row in medians:
            yield words, [f"{1 / medians[row] if is_inverse else medians[row]:.2g}"]


def updated(page: str, rows: Sequence[Row]) -> str:
    """
    Return a page with other cells at the end of rows.

    :raises ValueError: If no row has the words.
    """
    for words, cells in rows:
        row = re.compile(rf"^(\|.*{re.escape(words)}.*?)(?: \|[^|\n]*){{{len(cells)}}}\|$", re.MULTILINE)
        page, count = row.subn(lambda m, cells=cells: f"{m[1]} | {' | '.join(cells)} |", page)
        if count != 1:
            raise ValueError(f"{count} rows of the performance page have the words {words!r}, expected one")
    return page


def draw_others() -> None:
    """Draw the figures that need no results."""
    for name, command in COMMANDS.items():
        words = [sys.executable, "-m", "dace_redist.cli", *shlex.split(command), "--plot", str(FIGURES / name)]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    for script in (*sorted(FIGURES.glob("*.py")), ROOT / "docs" / "extensions" / "reference_pages.py"):
        subprocess.run([sys.executable, str(script)], check=True)


def draw_gallery() -> None:
    """Draw the plans of the programs that the gallery shows, with the sizes on its page."""
    page = (ROOT / "docs" / "gallery.md").read_text()
    for name, ranks, sizes in re.findall(r"<!-- generated: gallery (\w+) (\d+) (.*) -->", page):
        numbers = {symbol: int(size) for symbol, size in re.findall(r"(\w+)=(\d+)", sizes)}
        path = FIGURES / "gallery" / f"{name}.png"
        distribute(PROGRAMS[name].program, int(ranks), numbers).plot(path)
        with Image.open(path) as picture:
            picture.quantize(COLOURS).save(path, optimize=True)


@click.command(help=__doc__)
def main() -> None:
    for page, rows in ((PERFORMANCE, rows_of_results()), (GPU, manual_texts.gpu(results("gpu")))):
        page.write_text(updated(page.read_text(), rows))
    for phrase in missing_phrases():
        click.echo(f"change by hand: {phrase}")
    if runs := [r for r in tables.measured(tables.read([RESULTS / "redistribution.jsonl"])) if r["series"] == "runs"]:
        canvas.save(functools.partial(figures.draw_series, runs), FIGURES / "bench-runs.png")
    draw_gallery()
    draw_others()


def rows_of_results() -> list[Row]:
    """Return the rows of the performance page from ``benchmarks/results``."""
    rows: list[Row] = []
    for read in (redistribution, peers, comparisons, einsums, gallery, kernels, ctf, overheads):
        path = RESULTS / f"{read.__name__}.jsonl"
        if not path.exists():
            click.echo(f"{path} is missing: its rows stay as they are")
            continue
        of_cases = read in (redistribution, peers)
        records = tables.read([path]) if of_cases else results(read.__name__)
        rows += list(read(records))
        if read is redistribution:
            others = (RESULTS / f"redistribution-{name}.jsonl" for name in ("zen4", "intel"))
            of_machines = [records, *(tables.read([path]) for path in others)]
            rows += [*machines(of_machines), *bound(records), *examples(records)]
    rows += manual_texts.default_strategy([results("auto"), results("cores")])
    rows += manual_texts.scalapack_routines(results("copying"))
    rows += manual_texts.products(results("products"))
    return rows


def results(name: str) -> list[Record]:
    """Return the lines of a file of results."""
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").open()]


def missing_phrases() -> list[str]:
    """Return phrases from the results that pages do not have."""
    expected = {PERFORMANCE: [*manual_texts.phrases(*map(results, ("cores", "mapped", "nodes")))]}
    for name in ("redistribution", "peers", "kernels"):
        expected[PERFORMANCE].append(manual_texts.machine(results(name)[0]["environment"]))
    expected[GPU] = [*manual_texts.gpu_phrases(results("gpu"))]
    texts = {page: " ".join(page.read_text().split()) for page in expected}
    return [f"{page.name}: {phrase}" for page in expected for phrase in expected[page] if phrase not in texts[page]]


if __name__ == "__main__":
    run_command(main, "manual.py")

"""Numbers of the manual from results of their own files: cells of tables, and phrases that a page must have."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from redistribution import tables

Record = Mapping[str, Any]
Row = tuple[str, list[str]]
SINGLE = ("Datatype", "Pack", "Pipelined", "RMA")
ALLTOALLW = tables.REFERENCES["Alltoallw or mpi4py-fft"]
#: Words of rows about GPUs, and their cases or kernels.
ON_GPU = {"rows to columns, 64 MiB": "runs-4KiB", "random tiles, 44 MiB": "tiles-random"}
ON_GPU |= {"slabs to pencils, 6.8 MiB": "slab-to-pencil-4-96", "3MM, n = 2048": "mm3", "MTTKRP, 400³": "mttkrp3_0"}
ON_GPU |= {"MTTKRP of order 5": "mttkrp5_2", "TTMc of order 5": "ttmc"}

#: Words of rows about products of matrices, and their methods.
PRODUCTS = {"COSMA 2.8.4": "COSMA, own distributions", "pdgemm": "pdgemm"}
PRODUCTS |= {"one rank's `dgemm`": "dgemm of a rank's share"}


def mean_and_worst(values: Sequence[float]) -> str:
    """Return a cell: the geometric mean, and in brackets the least of several values."""
    return f"{statistics.geometric_mean(values):.2f}" + (f" ({min(values):.2f})" if len(values) > 1 else "")


def span(values: Sequence[float], digits: int) -> str:
    """Return the least and the largest value, or one if they are equal."""
    ends = [f"{value:.{digits}f}" for value in (min(values), max(values))]
    return " to ".join(dict.fromkeys(ends))


def default_strategy(of_machines: Sequence[Sequence[Record]]) -> Iterator[Row]:
    """Yield cases, and the speed-up of "Auto" over the fastest single strategy, by ranks on each machine."""
    for ranks in (2, 4, 12):
        cells = []
        for records in of_machines:
            own = [record for record in records if record["ranks"] == ranks]
            found = tables.speedups(own, "Auto", SINGLE).values()
            cells += [str(len(found)), mean_and_worst(list(found))]
        yield f"Auto on {ranks} ranks", cells


def scalapack_routines(records: Sequence[Record]) -> Iterator[Row]:
    """Yield speed-ups of the first calls of the preloaded library, by routine, ranks and size."""
    found: dict[tuple[str, int, int], list[float]] = {}
    for record in records:
        if record["comparison"] == "scalapack":
            seconds, routine = record["seconds"], record["what"].split()[0]
            ratio = seconds["ScaLAPACK"] / seconds["dace-redist, first calls"]
            found.setdefault((routine, record["ranks"], record["shape"][0]), []).append(ratio)
    for routine, ranks in dict.fromkeys(key[:2] for key in found):
        sizes = sorted(n for *which, n in found if which == [routine, ranks])
        yield f"`pd{routine}` on {ranks} ranks", [span(found[routine, ranks, n], 1) for n in sizes]


def products(records: Sequence[Record]) -> Iterator[Row]:
    """Yield speed-ups of products by ``einsum``, and the bytes of a rank."""
    timed = [record["seconds"] for record in records if record["comparison"] == "products"]
    for words, method in PRODUCTS.items():
        yield words, [mean_and_worst([seconds[method] / seconds["einsum"] for seconds in timed if method in seconds])]
    sweeps = [record["seconds"] for record in records if record["comparison"] == "cp-als"]
    yield "sweeps of CP-ALS", [mean_and_worst([seconds["mpi4py"] / seconds["einsum"] for seconds in sweeps])]
    for record in records:
        if record["comparison"] == "bytes":
            ours, least, cosma = (record["bytes"][who] for who in ("einsum", "least", "COSMA"))
            cells = [f"{ours / 2**20:.0f} MiB", f"{ours / least:.2f}", f"{cosma / 2**20:.0f} MiB"]
            yield f"8192³ on {record['ranks']} ranks", cells


def gpu(records: Sequence[Record]) -> Iterator[Row]:
    """Yield speed-ups of arrays on the GPU over those in main memory, and of einsums over CuPy."""
    medians = {(record["case"], record["method"]): record["median"] for record in records if "median" in record}
    kernels = {record["kernel"]: record for record in records if "kernel" in record}
    for words, name in ON_GPU.items():
        if name in kernels:
            ratio = kernels[name]["against"]["cupy"] / kernels[name]["seconds"]["total"]
        else:
            ratio = medians[name, "Auto"] / medians[name, "Auto, gpu"]
        yield words, [f"{ratio:.2f}"]


def gpu_phrases(records: Sequence[Record]) -> Iterator[str]:
    """Yield the rates of copies on the GPU."""
    least = min(record["median"] for record in records if record.get("variant") == "gpu")
    yield f"takes at least {1e3 * least:.1f} ms"
    rates = {record["copy"]: record["rates"] for record in records if "copy" in record}
    of = {kind: [r["plan"] / 1e3 for name, r in rates.items() if kind in name] for kind in ("pack", "permute")}
    yield f"reads and writes {span(of['pack'], 1)} TB/s, permuting axes {span(of['permute'], 1)} TB/s"
    yield f"a plain copy {statistics.median(rate['copy'] for rate in rates.values()) / 1e3:.1f} TB/s"


def machine(environment: Mapping[str, Any]) -> str:
    """Return the machine of a result, as far as its file says."""
    words = [environment["processor"]]
    if "mhz" in environment:
        caches = ", ".join(f"{name} {size}" for name, size in environment["caches"].items())
        words += [f"{float(environment['mhz']) / 1e3:.1f} GHz", caches]
        words += ["virtual machine"] * environment["virtual"]
    return ", ".join(words)


def phrases(cores: Sequence[Record], mapped: Sequence[Record], nodes: Sequence[Record]) -> Iterator[str]:
    """Yield what the performance page says of one rank on each core, of mapped arrays, and of nodes."""
    found = tables.speedups(cores, "Auto", ALLTOALLW).values()
    yield f"is {mean_and_worst(list(found))} in {len(found)} cases"
    shares = [record["share_of_copy"] for record in mapped if record["method"] == "Auto, mapped"]
    yield f"{' and '.join(f'{share:.2f}' for share in shares)} of the speed of a plain copy"
    links = {
        who: span([r["share_of_wire"] for r in nodes if r["method"] in methods and "share_of_wire" in r], 2)
        for who, methods in (("ours", ("Auto",)), ("theirs", ALLTOALLW))
    }
    yield f"`Hierarchical` reaches {links['ours']} of the link's bandwidth, `Alltoallw` {links['theirs']}"
    short = [record for record in nodes if record["group"] == "messages"]
    ratios = {case: ratio for (case, _), ratio in tables.speedups(short, "Hierarchical", ALLTOALLW).items()}
    slowest, fastest = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    yield f"{ratios[slowest]:.2f} (`{slowest}`) to {ratios[fastest]:.2f} times (`{fastest}`) as fast as `Alltoallw`"

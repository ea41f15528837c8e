"""
Contractions of local arrays on one thread, against opt_einsum and against a matrix product of equal operations.

``python benchmarks/contraction.py [--only MTTKRP] [--repetitions 5]``; medians in milliseconds, runs interleaved.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import numpy as np
import opt_einsum
from contractions import OPTIMISED, CompiledContraction, build

#: Name, einsum, extent of an index unless it is among the following.
CASES = [
    ("2MM step", "ij,jk->ik", 1024, {}),
    ("MTTKRP 3 mode 0", "ijk,ja,ka->ia", 192, {"a": 24}),
    ("MTTKRP 3 mode 1", "ijk,ia,ka->ja", 192, {"a": 24}),
    ("MTTKRP 3 mode 2", "ijk,ia,ja->ka", 192, {"a": 24}),
    ("MTTKRP 5 mode 0", "ijklm,ja,ka,la,ma->ia", 36, {"a": 24}),
    ("MTTKRP 5 mode 2", "ijklm,ia,ja,la,ma->ka", 36, {"a": 24}),
    ("MTTKRP 5 mode 4", "ijklm,ia,ja,ka,la->ma", 36, {"a": 24}),
    ("TTMc last", "ijklm,ma->ijkla", 24, {"a": 12}),
    ("TTMc 4th, kept", "ijklm,la->ijkam", 24, {"a": 12}),
    ("TTMc 4th, last", "ijklm,la->ijkma", 24, {"a": 12}),
    ("TTMc middle", "ijklm,ka->ijalm", 24, {"a": 12}),
    ("TTMc 2nd", "ijklm,ja->iaklm", 24, {"a": 12}),
    ("TTMc first", "ijklm,ia->ajklm", 24, {"a": 12}),
    ("ring", "icak,tkjc->tija", 32, {}),
    ("ladder", "abcd,cdij->abij", 32, {}),
]


def timed(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return (time.perf_counter() - begin) * 1e3


def main() -> None:
    """Run the cases and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name starts so")
    parser.add_argument("--repetitions", type=int, default=5)
    arguments = parser.parse_args()
    print(
        f"{'ms':18}{'einsum':24}{'ours':>9}{'opt_einsum':>12}{'GEMM':>9}{'stream':>9}{'/opt':>7}{'/bound':>8}  work MB"
    )
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        library = build(Path(folder), *OPTIMISED)
        for name, expression, size, others in CASES:
            if not name.startswith(arguments.only):
                continue
            terms, indices = expression.split("->")
            arrays = [rng.standard_normal([others.get(i, size) for i in term]) for term in terms.split(",")]
            result = np.empty([others.get(i, size) for i in indices])
            contraction = CompiledContraction(library, expression, "float64")
            gemm, dot = (
                CompiledContraction(library, "ij,jk->ik", "float64"),
                CompiledContraction(library, "i,i->", "float64"),
            )
            large = max(arrays, key=np.size)
            rank = others.get("a", int(np.prod([size for i in indices if i not in terms.split(",")[0]])))
            matrix = large.reshape(-1, size if rank != size * size else size * size)
            factor, product = rng.standard_normal((matrix.shape[1], rank)), np.empty((matrix.shape[0], rank))
            flat, total = large.reshape(-1), np.empty(())
            path = opt_einsum.contract_path(expression, *arrays)[0]
            runs = {
                "ours": lambda c=contraction, a=arrays, r=result: c(a, r),
                "opt_einsum": lambda e=expression, a=arrays, p=path: opt_einsum.contract(e, *a, optimize=p),
                "GEMM": lambda c=gemm, a=matrix, b=factor, r=product: c([a, b], r),
                "stream": lambda c=dot, a=flat, r=total: c([a, a], r),
            }
            for run in runs.values():
                run()
            samples = [{key: timed(run) for key, run in runs.items()} for _ in range(arguments.repetitions)]
            ms = {key: statistics.median(sample[key] for sample in samples) for key in runs}
            ratios = ms["ours"] / ms["opt_einsum"], ms["ours"] / max(ms["GEMM"], ms["stream"])
            figures = "".join(f"{ms[key]:{width}.2f}" for key, width in zip(ms, (9, 12, 9, 9), strict=True))
            memory = contraction.workspace_nbytes / 2**20
            print(f"{name:18}{expression:24}{figures}{ratios[0]:7.2f}{ratios[1]:8.2f}{memory:9.2f}", flush=True)


if __name__ == "__main__":
    main()

"""
2MM, MTTKRP of order 3 and TTMc of order 5, distributed over ranks that share a GPU, against CuPy on one of them.

    mpiexec -n 4 python benchmarks/gpu/einsums.py              # also -n 1 and -n 2
    mpiexec -n 2 python benchmarks/gpu/einsums.py ttmc --size I=32 --size J=32

The kernels are those of `benchmarks/einsum/einsum_kernels.py`, distributed with `device="gpu"` and `arguments="gpu"`:
operands and results lie on the GPU, so copies from and to main memory are not timed. By turns in one run, medians:
the distributed program, from a barrier to the end of the slowest rank; and `cupy.einsum` of the whole operands on rank
0 while the others sleep, with `optimize=True`, and in the order that NumPy finds for the same program. The ratio is to
the faster of these, and required to be at most 1.3.

The result is compared with CuPy's: exit code 1 if one is wrong. Without CuPy or a GPU the exit code is 2.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
import traceback
import unittest.mock
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from dace_redist import DistributedProgram, distribute
from dace_redist.mpi.collective import together

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "einsum"))
from command_line import Parser, leave, named_number, positive  # noqa: E402
from einsum_cases import CASES, SYMBOLS, EinsumCase, elements, everything  # noqa: E402
from run_einsum import from_rank_0  # noqa: E402

COMM = MPI.COMM_WORLD
REQUIRED = 1.3  # times as long as CuPy, at most
TOLERANCE = 1e-10  # largest relative error of a right result
SLAB = 1 << 24  # elements of an operand made at once
#: By preset and kernel, the lengths of tensor modes and of factor ranks. Large: some tens of milliseconds on an H200,
#: of whose memory whole operands, parts and intermediates together take about 100 GB.
PRESETS = {
    "small": {"mm2": (1024,), "mttkrp3_0": (192, 24), "ttmc": (24, 12)},
    "large": {"mm2": (10240,), "mttkrp3_0": (1600, 320), "ttmc": (64, 64)},
}


def why_not() -> str | None:
    """Return the reason why this rank cannot measure, in one line; None if it can."""
    try:
        import cupy
    except ImportError as error:
        return f"the comparison is with CuPy, which cannot be imported ({error}): pip install cupy-cuda13x"
    try:
        if cupy.cuda.runtime.getDeviceCount() > 0:
            return None
        reason = "CUDA sees none"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        reason = str(error)
    return f"there is no GPU that could be measured: {reason}"


def sizes_of(case: EinsumCase, preset: str, changed: dict[str, int]) -> dict[str, int]:
    """Values of a kernel's symbols."""
    lengths = PRESETS[preset][case.name]
    of_preset = {name: lengths[at] for name in case.symbols for group, at in SYMBOLS.items() if name in group}
    return of_preset | {name: value for name, value in changed.items() if name in of_preset}


def distributed(case: EinsumCase, ranks: int, sizes: dict[str, int]) -> DistributedProgram:
    """A kernel for ranks that compute on a GPU, where its operands and its result lie."""
    return distribute(case.program, ranks, sizes, device="gpu", arguments="gpu")


def operand(xp: Any, name: str, indices: Sequence[Any], shape: Sequence[int]) -> Any:
    """
    A part of an operand, see ``elements``, made in slabs: what that takes besides is small.

    :param xp: CuPy, or NumPy for tests.
    """
    made = xp.empty([len(along) for along in indices])
    rows = max(1, SLAB // max(1, made.size // max(1, len(made))))
    for first in range(0, len(made), rows):
        made[first : first + rows] = elements(name, [indices[0][first : first + rows], *indices[1:]], shape, xp)
    return made


def numpys_order(expression: str, *operands: Any) -> list[Any]:
    """Return NumPy's contraction order for operands of any library."""
    shapes = [np.broadcast_to(np.float64(0), array.shape) for array in operands]
    return np.einsum_path(expression, *shapes, optimize="greedy")[0]


def alone(xp: Any, case: EinsumCase, operands: dict[str, Any], order: Callable[..., Any]) -> Any:
    """
    A kernel as its user wrote it, on whole operands, by ``xp.einsum``.

    :param order: Of an expression and its operands, what ``einsum`` gets as ``optimize``.
    """
    contract = xp.einsum

    def einsum(expression: str, *arrays: Any) -> Any:
        return contract(expression, *arrays, optimize=order(expression, *arrays))

    with unittest.mock.patch.object(np, "einsum", einsum):
        return case.program.f(**operands)


ORDERS: dict[str, Callable[..., Any]] = {
    "CuPy, optimize=True": lambda *_: True,
    "CuPy, in NumPy's order": numpys_order,
}


def relative_error(xp: Any, whole: np.ndarray, expected: Any) -> float:
    """Return the maximum error relative to the largest element; compared slab by slab."""
    pairs = zip(whole, expected, strict=True)
    found = [(float(abs(xp.asarray(got) - right).max()), float(abs(right).max())) for got, right in pairs]
    difference, largest = np.max(found, axis=0)
    return float(difference / largest)


def seconds_of(work: Callable[[], Any], synchronize: Callable[[], None]) -> float:
    """Return the seconds until the work enqueued by this rank is complete."""
    start = time.perf_counter()
    work()
    synchronize()
    return time.perf_counter() - start


def medians(
    run: Callable[[], Any], others: dict[str, Callable[[], Any]], synchronize: Callable[[], None], repetitions: int
) -> tuple[float, dict[str, float]]:
    """
    Return the seconds of work of all ranks, the slowest of which counts, and of rank 0 alone. Collective.

    :param run: Work of all ranks.
    :param others: Work of rank 0, by name; on other ranks only the names count.
    :param synchronize: Waits for the work enqueued by this rank.
    """
    times = np.zeros((repetitions + 1, 1 + len(others)))
    for taken in times:
        COMM.Barrier()
        taken[0] = COMM.allreduce(seconds_of(run, synchronize), MPI.MAX)
        for number, other in enumerate(others.values(), 1):
            taken[number] = from_rank_0(lambda other=other: seconds_of(other, synchronize))
    ours, *found = np.median(times[1:], axis=0).tolist()  # the first round warms up
    return ours, dict(zip(others, found, strict=True))


def compare(case: EinsumCase, sizes: dict[str, int], repetitions: int) -> bool:
    """Compare one kernel: print plan, times and ratio; return True if its result is right. Collective."""
    import cupy

    program = from_rank_0(lambda: distributed(case, COMM.size, sizes))
    if COMM.rank == 0:
        print(program, flush=True)
    program.compile()
    tensors = program.inputs
    with together(COMM):
        local = {n: operand(cupy, n, t.distribution.global_index(COMM.rank), t.shape) for n, t in tensors.items()}
        wholes = {n: operand(cupy, n, everything(t.shape), t.shape) for n, t in tensors.items() if COMM.rank == 0}
    local["__return"] = program.run(**local)
    methods = {name: functools.partial(alone, cupy, case, wholes, order) for name, order in ORDERS.items()}
    synchronize = cupy.cuda.get_current_stream().synchronize
    ours, others = medians(lambda: program.run(**local), methods, synchronize, repetitions)
    whole = program.gather(local["__return"])
    error = from_rank_0(lambda: relative_error(cupy, whole, methods[next(iter(ORDERS))]()))
    if COMM.rank == 0:
        report(case.name, ours, others, error)
    return error <= TOLERANCE


def free_arrays() -> None:
    """Free the memory that CuPy caches."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()


def report(name: str, ours: float, others: dict[str, float], error: float) -> None:
    ratio = ours / min(others.values())
    for method, seconds in {f"distributed over {COMM.size}": ours, **others}.items():
        print(f"{name:12} {method:24} {1e3 * seconds:10.3f} ms")
    verdict = "right" if error <= TOLERANCE else "WRONG"
    print(
        f"{name:12} ratio {ratio:.2f} (required: at most {REQUIRED}), {verdict}: relative error {error:.1e}", flush=True
    )


def parse_arguments() -> argparse.Namespace:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kernels = list(PRESETS["large"])
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=f"of {', '.join(kernels)} (default: all)")
    parser.add_argument("--preset", choices=PRESETS, default="large", help="which sizes (default large)")
    parser.add_argument(
        "--size", type=named_number, action="append", default=[], metavar="SYMBOL=N", help="another size"
    )
    parser.add_argument("--repetitions", type=positive, default=10, help="timed rounds (default 10)")
    arguments = parser.parse_args()
    arguments.kernels = arguments.kernels or kernels
    unknown = [name for name in arguments.kernels if name not in kernels]
    if unknown:
        parser.error(f"there is no kernel {unknown[0]}, but {', '.join(kernels)}")
    known = sorted({symbol for name in arguments.kernels for symbol in CASES[name].symbols})
    for symbol, _ in arguments.size:
        if symbol not in known:
            parser.error(f"--size: {', '.join(arguments.kernels)} have no {symbol}, but {', '.join(known)}")
    return arguments


def main() -> None:
    """Parse the command line, compare the kernels; exit code 1 if a result is wrong, 2 if nothing can be measured."""
    arguments = parse_arguments()
    reason = next((one for one in COMM.allgather(why_not()) if one is not None), None)
    if reason is not None:
        leave(reason, code=2)
    right = True
    try:
        for name in arguments.kernels:
            case = CASES[name]
            right &= compare(case, sizes_of(case, arguments.preset, dict(arguments.size)), arguments.repetitions)
            free_arrays()
    except Exception:  # on one rank only, perhaps: the others would wait for it
        traceback.print_exc()
        COMM.Abort(1)
    COMM.Barrier()
    raise SystemExit(0 if right else 1)


if __name__ == "__main__":
    main()

"""Common part of the kernels distributed by hand (mm2, mm3, mttkrp, ttmc). Start reading at: main."""

import argparse
import json
import traceback
import zlib

import dace
import numpy as np
from by_hand_check import operands, relative_errors
from by_hand_kernel import WORLD, Grid, Kernel, symbols
from by_hand_timing import TimedStrategy, build_all, measure, say
from command_line import parse_arguments
from dace.frontend.common import op_repository
from dace.frontend.python.replacements import mpi as dace_mpi
from mpi4py import MPI

__all__ = ["Grid", "Kernel", "main", "matmul", "symbols"]

TOLERANCE = 1e-10  # largest relative error of a right result


@op_repository.replaces("dace.comm.Reduce")
def _reduce(pv, sdfg, state, buffer, op, root=0, grid=None):
    """
    ``dace.comm.Reduce`` that takes an ``MPI.Op``, as ``dace.comm.Allreduce`` does.

    DaCe 2.0.0b1 accepts no operator there: neither ``MPI.SUM`` nor a string literal (it stays a ``StringLiteral``).
    """
    return dace_mpi._Reduce(pv, sdfg, state, buffer, dace_mpi._mpi4py_to_MPI(MPI, op), root, grid)


_M, _N, _K = symbols("_M _N _K")


@dace.program
def matmul(left: dace.float64[_M, _K], right: dace.float64[_K, _N]):
    """``left @ right`` in an order that walks rows; DaCe's own expansion without a BLAS is 100 times slower."""
    product = np.zeros((_M, _N), np.float64)
    for i in dace.map[0:_M]:
        for k in range(_K):
            for j in dace.map[0:_N]:
                product[i, j] += left[i, k] * right[k, j]
    return product


def main(kernel: Kernel, description: str) -> None:
    """Parse the command line, run the kernel with every strategy named, report; exit code 1 if a result is wrong."""
    try:
        right = _main(kernel, parse_arguments(kernel, description))
    except Exception:  # on one rank only, perhaps: the others would wait for it
        traceback.print_exc()
        WORLD.Abort(1)
    WORLD.Barrier()
    raise SystemExit(0 if right else 1)


def _main(kernel: Kernel, arguments: argparse.Namespace) -> bool:
    extents = kernel.extents(arguments.size, getattr(arguments, "rank", 0))
    programs = build_all(kernel, arguments)
    say("making the operands")
    inputs = kernel.symbols(extents) | operands(kernel, extents)
    say(f"measuring: {arguments.repetitions} rounds, after one to warm up")
    measure(programs, inputs, arguments.repetitions)
    errors: list[float | None] = [None] * len(programs)
    if arguments.check:
        say("checking against NumPy")
        errors = relative_errors(kernel, [program.result for program in programs], extents)
    for program, error in zip(programs, errors, strict=True):
        record = _record(kernel, arguments, program) | {"error": error}
        program.compiled.finalize()
        if WORLD.rank == 0:
            _report(record, arguments)
    return all(error is None or error <= TOLERANCE for error in errors)


def _record(kernel: Kernel, arguments: argparse.Namespace, program: TimedStrategy) -> dict:
    """Return the record of a line of ``--json``. Collective."""
    checksum = zlib.crc32(repr(WORLD.allgather(zlib.crc32(program.result.tobytes()))).encode())
    record = {"kernel": kernel.name, "ranks": WORLD.size, "size": arguments.size}
    record |= {"rank": arguments.rank} if kernel.rank_modes else {}
    record["grids"] = {grid.modes: grid.parts[WORLD.size] for grid in kernel.grids}
    record |= {"strategy": program.strategy, "options": program.options, "checksum": f"{checksum:08x}"}
    record["seconds"] = {step: float(np.median(samples)) for step, samples in program.seconds.items()}
    return record | {"samples": program.seconds}


def _report(record: dict, arguments: argparse.Namespace) -> None:
    error, seconds = record["error"], record["seconds"]
    verdict = "not checked" if error is None else "right" if error <= TOLERANCE else "WRONG"
    verdict += "" if error is None else f", largest relative error {error:.1e}"
    if arguments.brief:
        print(f"{record['strategy']}: {seconds['total'] * 1e3:.1f} ms, {verdict}", flush=True)
    else:
        shape = f"size {record['size']}" + (f", rank {record['rank']}" if "rank" in record else "")
        print(f"{record['kernel']} with {record['strategy']} on {record['ranks']} ranks, {shape}")
        for step, median in seconds.items():
            print(f"  {step:<16}{median * 1e3:12.3f} ms")
        print(f"  {verdict}", flush=True)
    if arguments.json:
        with open(arguments.json, "a") as file:
            file.write(json.dumps(record) + "\n")

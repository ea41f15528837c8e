"""
Reference for the ranks: a NumPy program in one process with as many BLAS threads as cores.

The process reads a line for each run, and prints its seconds. Run as a script, it has the program of a kernel.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np


class Peer:
    """Handle of the process."""

    def __init__(self, process: subprocess.Popen) -> None:
        self._process = process

    def run(self) -> float:
        """Run once; return the seconds."""
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())


@contextmanager
def started(*command: str) -> Iterator[Peer]:
    """
    Start a process that calls :func:`serve`.

    :param command: Script and its arguments: this file, the name of a kernel, and a preset for one rank.
    """
    threads = {name: str(len(os.sched_getaffinity(0))) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    of_a_rank = ("OMPI_", "PMIX_", "PMI_", "PRTE_")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(of_a_rank)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, *command], env=variables | threads, **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        yield Peer(process)
        process.stdin.close()


def serve(program: Callable[[], Any]) -> None:
    """Run a program, with opt_einsum in the place of `np.einsum`, for each line of standard input."""
    import opt_einsum

    with patch.object(np, "einsum", opt_einsum.contract):
        print("ready", flush=True)
        for _ in sys.stdin:
            start = time.perf_counter()
            program()
            print(time.perf_counter() - start, flush=True)


def main() -> None:
    from einsum_cases import CASES, everything

    case = CASES[sys.argv[1]]
    sizes = case.sizes(sys.argv[2], 1)
    shapes = {name: tuple(sizes[str(n)] for n in t.shape) for name, t in case.program.f.__annotations__.items()}
    operands = {name: case.operand(name, everything(shape), shape) for name, shape in shapes.items()}
    serve(lambda: case.program.f(**operands))


if __name__ == "__main__":
    main()

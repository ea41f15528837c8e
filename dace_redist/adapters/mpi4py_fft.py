"""
Transfers of mpi4py-fft by plans.

``python -m dace_redist.adapters.mpi4py_fft PROGRAM ...`` runs a program with :func:`install`.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import runpy
import sys
from collections import Counter
from typing import Any

import numpy as np

from dace_redist.distribution import Distribution
from dace_redist.mpi.collective import remembered
from dace_redist.native.interface import prepare
from dace_redist.redistribution.cache import plan_cache
from dace_redist.redistribution.problem import Arguments, Problem
from dace_redist.redistribution.tensor_plan import Plan


class Installed(contextlib.ExitStack):
    """Replacement of ``mpi4py_fft.pencil.Transfer``; a context manager that takes it back at the end."""

    def remove(self) -> None:
        """Make transfers as before from now on."""
        self.close()


def install(*, min_bytes: int = 4096, calls: int = 2) -> Installed:
    """
    Have mpi4py-fft move its arrays by plans, which transfers of equal shapes on a communicator share. Local; all ranks
    must do so, ahead of the first transfer, with the same arguments.

    :param min_bytes: Mean bytes between two ranks below which transfers stay with ``Alltoallw``.
    :param calls: Number of equal transfers that stay with it before a plan is made, which takes longer.
    """
    from mpi4py_fft import pencil

    installed = Installed()
    installed.callback(setattr, pencil, "Transfer", pencil.Transfer)
    pencil.Transfer = _transfer_class(pencil, min_bytes, calls)
    return installed


@functools.lru_cache(maxsize=256)
def _problem(shape: tuple[int, ...], dtype: np.dtype[Any], whole: int, split: int, ranks: int) -> Problem:
    """Return the transfer of an array that is whole along one axis and split along another to the other way round."""
    source, target = (Distribution.split(shape, axis, ranks) for axis in (split, whole))
    return Arguments(source, target, {}, "Hierarchical", {}, None).checked(dtype, ranks)


def _move(comm: Any, transfer: tuple[Any, ...], calls: int, array: Any, out: Any) -> bool:
    """Move by a plan, if there is to be one after so many calls: then return True. Transfers are as in _problem."""
    problem, cache = _problem(*transfer, comm.size), plan_cache(comm)
    made = cache.plans.get(problem)
    if made is None:
        used = remembered(comm, "transfers of mpi4py-fft", Counter[Problem])
        used[problem] += 1
        if used[problem] <= calls:
            return False
        prepare(comm)
        made = cache.get(comm, problem, lambda: Plan(comm, problem))
    cache.plans.move_to_end(problem)
    made(np.asarray(array), np.asarray(out))
    return True


def _transfer_class(pencil: Any, min_bytes: int, calls: int) -> type:
    class Transfer(pencil.Transfer):  # type: ignore[misc]
        """mpi4py-fft's transfer, by a plan where that pays."""

        def __init__(
            self, comm: Any, shape: Any, dtype: Any, subshapeA: Any, axisA: int, subshapeB: Any, axisB: int
        ) -> None:
            self.comm, self.shape, self.dtype = comm, tuple(shape), np.dtype(dtype)
            self.subshapeA, self.axisA = tuple(subshapeA), axisA
            self.subshapeB, self.axisB = tuple(subshapeB), axisB
            self._counts_displs = [1] * comm.size, [0] * comm.size
            self._fits = math.prod(self.shape) * self.dtype.itemsize >= min_bytes * comm.size**2

        def __getattr__(self, name: str) -> Any:
            """Make the datatypes at their first use."""
            if name not in ("_subtypesA", "_subtypesB"):
                raise AttributeError(name)
            axis, subshape = (self.axisA, self.subshapeA) if name == "_subtypesA" else (self.axisB, self.subshapeB)
            types = pencil._subarraytypes(self.comm, self.shape, axis, subshape, self.dtype)
            setattr(self, name, types)
            return types

        def forward(self, arrayA: Any, arrayB: Any) -> None:
            if not self._moved(arrayA, arrayB, self.axisA, self.axisB):
                super().forward(arrayA, arrayB)

        def backward(self, arrayB: Any, arrayA: Any) -> None:
            if not self._moved(arrayB, arrayA, self.axisB, self.axisA):
                super().backward(arrayB, arrayA)

        def _moved(self, array: Any, out: Any, whole: int, split: int) -> bool:
            if not self._fits:
                return False
            return _move(self.comm, (self.shape, self.dtype, whole, split), calls, array, out)

        def destroy(self) -> None:
            for name in ("_subtypesA", "_subtypesB"):
                for datatype in self.__dict__.pop(name, ()):
                    datatype.Free()

    return Transfer


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit("usage: python -m dace_redist.adapters.mpi4py_fft PROGRAM ...")
    del sys.argv[0]
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))  # as Python does for a program
    install()
    runpy.run_path(sys.argv[0], run_name="__main__")

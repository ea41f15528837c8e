"""Facts of a communicator: its library, its measurements, and the strategies that these choose."""

from __future__ import annotations

from collections.abc import Callable

from mpi4py import MPI

from dace_redist.mpi.collective import remembered, together
from dace_redist.native.cmake_build import ensure_library
from dace_redist.redistribution.problem import Problem
from dace_redist.strategies import AUTO, DEFAULT_STRATEGY, options_on_gpu
from dace_redist.tuning import auto
from dace_redist.tuning.problem import Problem as MeasuredProblem

#: Name of the fact that something was measured.
MEASURED = "measured"


def prepare(comm: MPI.Intracomm, ensure: Callable[[], object] | None = None) -> None:
    """
    Build the library unless it exists. Collective at the first call for a communicator.

    :param ensure: Builds another library; default: that of redistribution.
    """

    def build() -> bool:
        with together(comm):
            (ensure or ensure_library)()
        return True

    remembered(comm, ensure, build)


def is_measured(comm: MPI.Intracomm) -> bool:
    """
    Check for a tuning record or a machine profile. Collective at the first call for a communicator, and at the first
    after :func:`dace_redist.redistribution.cache.forget_choices`.
    """

    def find() -> bool:
        from dace_redist.tuning.files import profile_path, record_path

        return bool(comm.bcast(comm.rank == 0 and (record_path().exists() or profile_path().exists())))

    return remembered(comm, MEASURED, find)


def chosen(comm: MPI.Intracomm, problem: Problem) -> tuple[str, dict[str, int | float], bool]:
    """Return strategy, options, and True if they were recorded. Collective if ``"Auto"`` has measurements."""
    name, options, recorded = problem.strategy, dict(problem.options), False
    if name == AUTO.name:
        name = DEFAULT_STRATEGY
        tensor = problem.tensors[0]
        if problem.memories and tensor.transform.is_copy and is_measured(comm):
            choices = auto.choose_all([MeasuredProblem(tensor, memory) for memory in problem.memories], comm)
            choice = next((choice for choice in choices if choice.recorded), choices[0])
            name, options, recorded = choice.strategy, {**choice.options, **options}, choice.recorded
    return name, options_on_gpu(name, options) if problem.on_gpu else options, recorded

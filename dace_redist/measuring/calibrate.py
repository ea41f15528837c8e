"""Measures a machine profile on the ranks of an MPI job. Start reading at: calibrate."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from mpi4py import MPI

from dace_redist._version import __version__
from dace_redist.errors import RedistributionError
from dace_redist.measuring.measure import progress_bar
from dace_redist.measuring.measurements import Measurements, Sizes
from dace_redist.measuring.timed_exchanges import TimedExchanges
from dace_redist.mpi.collective import checked_communicator, together
from dace_redist.mpi.topology import Topology, pinned_to_core, topology_of
from dace_redist.native.device import DEVICE_VARIABLE
from dace_redist.redistribution.cache import forget_choices
from dace_redist.tuning import profile as machine_profile
from dace_redist.tuning.auto import gpus_of
from dace_redist.tuning.files import profile_path
from dace_redist.tuning.profile import DeviceRates, MachineProfile, Rates

#: All is measured so often, and the fastest counts: a machine that does other work too is slow for seconds at a time.
_ROUNDS = 3


def calibrate(
    comm: Any = None,
    *,
    output: str | os.PathLike[str] | None = None,
    sizes: Sizes | None = None,
    gpu_sizes: Sizes | None = None,
    limit_seconds: float = 45.0,
    progress: bool = True,
) -> MachineProfile:
    """
    Measure copies and messages on this machine, and write the machine profile. Collective over ``comm``.

    All ranks work at the same time. Where every rank can use a GPU, or main memory stands in for one, arrays there are
    measured, too. Errors are raised on every rank: a wrong path, an OSError, before measuring.

    :param output: File to write; default: see :func:`dace_redist.tuning.files.profile_path`.
    :param sizes: Sizes to measure; default: up to 16 MiB.
    :param gpu_sizes: Sizes to measure of arrays on GPUs; default: :meth:`Sizes.on_gpu`.
    :param limit_seconds: Time for the measurements; each is made at least once.
    :return: The profile, equal on every rank.
    :raises RuntimeError: If there is too little node-shared memory.
    :raises BuildError: If ``DACE_REDIST_DEVICE`` is set, and the library for GPUs cannot be built.
    :raises RedistributionError: If ``DACE_REDIST_DEVICE`` is set, and a rank has no GPU.
    """
    comm = checked_communicator(comm)
    with together(comm):
        path = profile_path(output)
        if comm.rank == 0:
            _check_writable(path)
    sizes, gpu_sizes = sizes or Sizes(), gpu_sizes or Sizes.on_gpu()
    topology, gpu = topology_of(comm), _usable_gpu(comm)
    node = comm.Split(topology.node_of[comm.rank], comm.rank)
    with progress_bar(progress and comm.rank == 0, "calibrate", limit_seconds) as show, pinned_to_core(comm):
        with together(comm):
            timed = TimedExchanges(comm, sizes.max_bytes(topology.ranks_per_node), limit_seconds, show)
            if gpu:
                timed.add_pool("gpu", gpu_sizes.max_bytes(topology.ranks_per_node))

        def one_round(timed: TimedExchanges) -> MachineProfile:
            main = Measurements(timed, node, topology, sizes)
            device = Measurements(timed, node, topology, gpu_sizes, "gpu").device_rates(gpu) if gpu else None
            return _profile(topology, main.rates(), device)

        counter = _Counter(comm)
        one_round(cast(TimedExchanges, counter))
        timed.count = _ROUNDS * counter.count
        made: MachineProfile = comm.bcast(machine_profile.fastest([one_round(timed) for _ in range(_ROUNDS)]))
    node.Free()
    with together(comm):
        if comm.rank == 0:
            machine_profile.save(made, path)
    forget_choices(comm)
    return made


class _Counter:
    """Counts measurements instead of making them."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm, self.count = comm, 0

    def __getattr__(self, name: str) -> Callable[..., float]:
        def measured(*_: Any, **__: Any) -> float:
            self.count += 1
            return 1.0

        return measured


def _check_writable(path: Path) -> None:
    """Fail before the measurements, not after them; an existing file stays as it is."""
    existed = path.exists()
    with machine_profile.writing(path):
        path.open("ab").close()
    if not existed:
        path.unlink()


def _usable_gpu(comm: MPI.Intracomm) -> str:
    """Model of the ranks' GPUs; ``""`` if a rank cannot use one, an error if the variable asks for one. Collective."""
    wanted = bool(os.environ.get(DEVICE_VARIABLE))
    try:
        return gpus_of(comm)
    except (RuntimeError, RedistributionError, OSError):  # a BuildError is a RuntimeError
        if comm.allreduce(wanted, MPI.LOR):
            raise
        return ""


def _profile(topology: Topology, main: Rates, device: DeviceRates | None) -> MachineProfile:
    return MachineProfile(
        format=f"dace-redist {machine_profile.KIND}",
        version=machine_profile.VERSION,
        machine=topology.machine,
        mpi=topology.mpi,
        package=__version__,
        date=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        nodes=topology.node_count,
        ranks_per_node=topology.ranks_per_node,
        cores_per_node=os.cpu_count() or 1,
        **dict(main),
        device=device,
    )

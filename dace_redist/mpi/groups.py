"""The two groups of an intercommunicator as one communicator. Start reading at: Groups.of."""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dace_redist.errors import RedistributionError
from dace_redist.integers import environment_seconds

if TYPE_CHECKING:
    from mpi4py import MPI

    from dace_redist.distribution import AnyDistribution

    Side = TypeVar("Side", bound=AnyDistribution)

#: Seconds that a group waits for the other one, unless DACE_REDIST_GROUP_SECONDS says otherwise.
_WAIT_SECONDS = 3600.0
#: Maximum seconds until all ranks have left a round that one has left.
_LEAVE_SECONDS = 60.0
#: Maximum seconds until ranks that did not meet have left all rounds, when they free the communicator.
_FREE_SECONDS = 5.0
#: Maximum number of distributions that are kept with the ranks of both groups.
_MAX_MOVED = 256


class Groups:
    """
    Both groups of an intercommunicator.

    :ivar merged: Communicator of the ranks of one group, then those of the other.
    :ivar ranks: Ranks of this group in ``merged``, and those of the other group.
    """

    merged: MPI.Intracomm
    ranks: tuple[range, range]

    def __init__(self) -> None:
        self._ready = self._failed = False
        self._begin()
        self._moved: dict[Any, Any] = {}

    @classmethod
    def of(cls, inter: MPI.Intercomm) -> Groups:
        """
        Return the groups of an intercommunicator, which keeps them until it is freed. Collective over both.

        :raises TypeError: If it is MPI_COMM_NULL.
        :raises RedistributionError: If the other group does not call, now or before.
        """
        if not inter:
            raise TypeError("comm must be an mpi4py communicator of this rank, got MPI_COMM_NULL")
        groups: Any = inter.Get_attr(_keyval())
        if groups is None:
            groups = cls()
            inter.Set_attr(_keyval(), groups)
        if groups._failed:
            raise RedistributionError("the groups of this intercommunicator did not meet in an earlier call")
        try:
            groups._begin()
            limit = environment_seconds("DACE_REDIST_GROUP_SECONDS", _WAIT_SECONDS)
            groups._meet(groups.merged if groups._ready else inter, limit)
        except RedistributionError:
            groups._failed = True
            raise
        if not groups._ready:
            groups._merge(inter)
        made: Groups = groups
        return made

    def _merge(self, inter: MPI.Intercomm) -> None:
        self.merged = inter.Merge(False)  # MPI decides which group comes first
        local, remote = inter.size, inter.remote_size
        first = self.merged.rank == inter.rank
        self.ranks = (
            (range(local), range(local, local + remote)) if first else (range(remote, local + remote), range(remote))
        )
        self._ready = True

    def _begin(self) -> None:
        """Begin a call, in which no round was entered, and nobody gave up."""
        self._rounds = 0
        self._request: Any = None
        self._said, self._heard = np.zeros(1, np.intc), np.zeros(1, np.intc)

    def _meet(self, comm: MPI.Comm, limit: float) -> None:
        """
        Wait for all ranks of a communicator, for a limited time. Collective.

        There are three rounds. A rank that gave up in the first one enters the others when the communicator is freed,
        and says so there: to the other group in the second round, which tells this one in the third. So no rank goes on
        alone, and no round is left when the communicator is gone, which Open MPI does not survive.

        :param limit: Seconds.
        :raises RedistributionError: If a rank does not come.
        """
        from mpi4py import MPI

        begin = time.monotonic()
        while self._rounds < 3 or self._request:
            if not self._request:
                self._said |= self._heard
                self._rounds, begin = self._rounds + 1, time.monotonic()
                self._request = comm.Iallreduce(self._said, self._heard, MPI.MAX)
            if self._request.Test():
                continue
            waited = time.monotonic() - begin
            if waited > (limit if self._rounds == 1 else min(limit, _LEAVE_SECONDS)):
                raise RedistributionError(self._absent(limit))
            if waited > 0.001:
                time.sleep(min(0.01, waited / 50))
        if self._heard[0]:
            raise RedistributionError(self._absent(limit))

    @staticmethod
    def _absent(limit: float) -> str:
        return (
            f"ranks of the other group, or of this one, did not call within {limit:g} seconds (the limit is "
            "DACE_REDIST_GROUP_SECONDS): every rank of both must; this intercommunicator has no further use"
        )

    def freed(self, inter: MPI.Comm) -> None:
        """Free the communicator. Collective over both groups."""
        if not self._failed:
            if self._ready:
                self.merged.Free()
        elif not self._ready:
            self._said[0] = 1
            with contextlib.suppress(RedistributionError):
                self._meet(inter, _FREE_SECONDS)

    def sends(self, passed: bool) -> bool:
        """
        Return True if this group has the source. Collective over both groups.

        :param passed: True if this rank says so.
        :raises ValueError: On every rank, unless ranks of exactly one group do.
        """
        from mpi4py import MPI

        mine = 0 if self.ranks[0].start == 0 else 1
        flags = np.zeros(2, np.intc)
        flags[mine] = passed
        self.merged.Allreduce(MPI.IN_PLACE, flags, MPI.MAX)
        if flags.sum() != 1:
            who = "both do" if flags[0] else "none does"
            raise ValueError(f"one group of the intercommunicator must send (pass arrays, or sends=True), but {who}")
        return bool(flags[mine])

    def moved(self, side: Side, owned: bool) -> Side:
        """Return a distribution over this group, or over the other, with the ranks of ``merged``."""
        key = side, owned
        if key not in self._moved:
            if len(self._moved) == _MAX_MOVED:
                self._moved.clear()
            self._moved[key] = side.on_ranks(self.ranks[0 if owned else 1])
        found: Side = self._moved[key]
        return found


def _free(inter: MPI.Comm, _: int, groups: Groups) -> None:
    groups.freed(inter)


@functools.cache
def _keyval() -> int:
    from mpi4py import MPI

    return int(MPI.Comm.Create_keyval(delete_fn=_free))

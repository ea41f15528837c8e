"""The two groups of an intercommunicator as one communicator. Start reading at: Groups.of."""

from __future__ import annotations

import os
import time
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dace_redist.errors import RedistributionError

if TYPE_CHECKING:
    from mpi4py import MPI

    from dace_redist.planned_distribution import PlannedDistribution

#: Seconds that a group waits for the other one by default, see docs/reference/environment.md.
_WAIT_SECONDS = 3600.0
#: Seconds in which a rank that was met goes on, unless its process is stopped.
_MET_SECONDS = 60.0

Side = TypeVar("Side", bound="PlannedDistribution")


class Groups:
    """
    Both groups of an intercommunicator.

    :ivar merged: Communicator of the ranks of one group and then those of the other.
    :ivar ranks: Ranks of this group in ``merged``, and those of the other group.
    """

    def __init__(self, inter: MPI.Intercomm) -> None:
        """Merge the groups, of which either may come first in ``merged``. Collective over both."""
        self.merged = inter.Merge(False)
        local, remote = inter.size, inter.remote_size
        first = self.merged.rank == inter.rank
        self.ranks = range(0, local), range(local, local + remote)
        if not first:
            self.ranks = range(remote, remote + local), range(0, remote)
        self._moved: dict[Hashable, Any] = {}

    @classmethod
    def of(cls, inter: MPI.Intercomm) -> Groups:
        """
        Return the groups of an intercommunicator, which keeps them until it is freed. Collective over both groups.

        :raises TypeError: If it is MPI_COMM_NULL.
        :raises RedistributionError: On every rank that calls, if the other group does not, see :func:`meet`.
        """
        from mpi4py import MPI

        if inter == MPI.COMM_NULL:
            raise TypeError("comm must be an mpi4py communicator of this rank, got MPI_COMM_NULL")
        found = inter.Get_attr(_keyval())
        if found is None:
            meet(inter)
            found = cls(inter)
            inter.Set_attr(_keyval(), found)
        else:
            if found.merged == MPI.COMM_NULL:
                raise RedistributionError("the other group of this intercommunicator did not call before")
            meet(found.merged)
        groups: Groups = found
        return groups

    def moved(self, side: Side, owned: bool) -> Side:
        """Return a distribution over this group, or else the other, with the ranks of ``merged``."""
        key = side, owned
        if key not in self._moved:
            if len(self._moved) > 256:
                self._moved.clear()
            self._moved[key] = side.on_ranks(self.ranks[0 if owned else 1])
        found: Side = self._moved[key]
        return found

    def sends(self, passed: bool) -> bool:
        """
        Return True if this group has the source. Collective over both groups.

        :param passed: True if this rank says so, or passes arrays.
        :raises ValueError: On every rank, unless ranks of exactly one group do.
        """
        from mpi4py import MPI

        flags = np.zeros(2, np.intc)
        flags[0 if self.ranks[0].start == 0 else 1] = passed
        self.merged.Allreduce(MPI.IN_PLACE, flags, MPI.MAX)
        if flags.sum() != 1:
            raise ValueError(f"one group must have the source and pass arrays, but {('neither', 'both')[flags[0]]} do")
        return bool(flags[0]) == (self.ranks[0].start == 0)

"""The arrays and plans that are measured: what the room above, which makes them, provides. Start reading at: Bench."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from dace_redist.distribution import AnyDistribution


class TimedPlan(Protocol):
    """A plan with its arrays; made by :class:`Bench`."""

    def __call__(self) -> None:
        """Redistribute, and wait. Collective."""

    def free(self) -> None:
        """Free the plan. Local."""


class Bench(Protocol):
    """Makes arrays and plans; ``dace_redist.redistribution.bench`` implements it."""

    def array(self, shape: Sequence[int], dtype: np.dtype[Any], place: str, comm: Any) -> Any:
        """Return an array of ones in ``"ordinary"``, ``"shared"`` or ``"gpu"`` memory; raise if there is too little."""

    def view(self, whole: Any, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
        """Return the beginning of a contiguous array in another shape."""

    def plan(
        self, arrays: tuple[Any, Any], source: AnyDistribution, target: AnyDistribution, comm: Any, **options: Any
    ) -> TimedPlan:
        """Make a plan with options of :func:`dace_redist.plan`. Collective; RedistributionError if a rank cannot."""

    def forget_choices(self, comm: Any) -> None:
        """Have the plan cache of a communicator choose anew. Collective."""

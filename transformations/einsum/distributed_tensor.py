"""What a distributed program takes or returns: one tensor of it, and how it lies on the ranks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dace_redist.distribution import Distribution
from dace_redist.einsum.placement import Placement


@dataclass(frozen=True)
class DistributedTensor:
    """
    An input or output of a distributed program.

    :param name: Its name in the program.
    :param placement: How it is split over the ranks, whatever its size.
    :param shape: Its global shape; none for a tensor of one element that the program declares as ``[1]``.
    :param dtype: Type of its elements.
    :param is_vector: Whether the program declares it as ``[1]``; what is gathered is a vector then.
    """

    name: str
    placement: Placement
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_vector: bool = False

    @property
    def whole_shape(self) -> tuple[int, ...]:
        """Shape of the whole tensor as the program declares it."""
        return self.shape or (1,) * self.is_vector

    @cached_property
    def distribution(self) -> Distribution:
        """Which rank holds which elements. A scalar is a vector of one element."""
        return self.placement.distribution(self.shape)

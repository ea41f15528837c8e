"""Types of the planner's binding, see ``_core.cpp``."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

#: Peer, elements, blocks: (source_offset, target_offset, counts, source_strides, target_strides).
_Blocks = list[tuple[int, int, list[int], list[int], list[int]]]
_Messages = list[tuple[int, int, _Blocks]]

max_dims: int
#: Longest message within a node that needs no handshake.
max_eager_bytes: int
#: Longest message that ``Aggregated`` joins with others.
max_joined_bytes: int
#: Lengths of runs, and a number of receivers, by which the protocol of a message within a node is chosen; see
#: protocol_limits.hpp.
min_remote_run: int
max_scattered_run: int
several_receivers: int
#: Default, smallest and largest value.
option_ranges: dict[str, tuple[int | float, int | float, int | float]]

class Error(ValueError): ...

class Distribution:
    def __init__(self, encoding: Sequence[int], name: str = "distribution") -> None: ...
    @property
    def ranks_needed(self) -> int: ...
    @property
    def replicas(self) -> int: ...
    @property
    def first_rank(self) -> int: ...
    def block_count(self, axis: int) -> int: ...
    def block_begins(self, axis: int) -> list[int]: ...
    def uniform_block(self, axis: int) -> int: ...
    def local_shape(self, rank: int) -> list[int]: ...
    def owner(self, index: Sequence[int]) -> int: ...
    def global_index(self, rank: int, axis: int) -> npt.NDArray[np.int64]: ...
    def tile_ranges(self, rank: int) -> list[list[int]]: ...

def rank_schedule(
    source: Distribution,
    target: Distribution,
    rank: int,
    with_blocks: bool = True,
    index_map: Sequence[int] = (),
    exchange: int = -1,
    element_bytes: int = 0,
) -> tuple[_Messages, _Messages, _Messages]: ...
def reduction_exchanges(source: Distribution, target: Distribution, element_bytes: int) -> int: ...
def held_elements(
    source: Distribution, target: Distribution, rank: int, index_map: Sequence[int] = ()
) -> npt.NDArray[np.int64]: ...
def tile_grid(shape: Sequence[int], tile: Sequence[int], name: str) -> list[int]: ...
def check_index_map(source: Distribution, target: Distribution, index_map: Sequence[int] = ()) -> None: ...
def apply(
    source: Distribution,
    target: Distribution,
    element_bytes: int,
    sources: Sequence[Any],
    targets: Sequence[Any],
    index_map: Sequence[int] = (),
) -> None: ...
def is_khatri_rao_product(expression: str) -> bool: ...

class SharedMemory:
    def __init__(self, nbytes: int) -> None: ...

def is_shared(array: object) -> bool: ...

#: Allocates NumPy arrays of 64 KiB and more in node-shared memory.
node_shared_allocator: object

def set_allocator(allocator: object) -> object: ...

class BoundPlan:
    def __init__(
        self,
        execute: int,
        agree: int,
        plan: int,
        source_type: np.dtype[Any],
        target_type: np.dtype[Any],
        source_shape: Sequence[int],
        target_shape: Sequence[int],
    ) -> None: ...
    def set_strides(self, source: Sequence[int], target: Sequence[int]) -> None: ...
    def run(self, source: object, target: object) -> int: ...
    def run_if_agreed(self, comm: int, number: int, source: object, target: object) -> int: ...
    def release(self) -> None: ...

class BoundJointPlan:
    def __init__(
        self,
        execute: int,
        agree: int,
        plan: int,
        parts: Sequence[tuple[np.dtype[Any], np.dtype[Any], Sequence[int], Sequence[int]]],
    ) -> None: ...
    def run(self, sources: object, targets: object) -> int: ...
    def run_if_agreed(self, comm: int, number: int, sources: object, targets: object) -> int: ...
    def release(self) -> None: ...

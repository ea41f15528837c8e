"""The library node that adds partial sums."""

from __future__ import annotations

from typing import Any

from dace import dtypes, library
from dace.sdfg import SDFG, SDFGState

from dace_redist.distribution import AnyDistribution
from dace_redist.library_nodes.distributed_node import INPUT, OUTPUT, DistributedNode

#: Element types that MPI adds.
_ADDED = (
    *(dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64),
    *(dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128),
)


@library.node
class SumReplicas(DistributedNode):
    """
    Adds partial sums: under ``source`` every replica of a part holds one, under ``target`` the ranks hold their sum.

    The ranks that hold replicas of one part share its sum in the target: each owns a box of it and no element is owned
    twice (a reduce-scatter; with a single owner a reduce), or each owns all of it (an allreduce).

    :param name: Label, for error messages.
    :param source: Distribution of the partial sums: grid axes that no tensor axis names hold them.
    :param target: Distribution of the sums, of the same global shape.
    """

    implementations: dict[str, Any] = {}
    default_implementation = "MPI"

    def __init__(self, name: str, source: AnyDistribution | None = None, target: AnyDistribution | None = None) -> None:
        super().__init__(name, inputs={INPUT}, outputs={OUTPUT})
        if source is not None and target is not None:
            self.source, self.target = source.encoded, target.encoded

    def validate(self, sdfg: SDFG, state: SDFGState) -> None:
        """
        Checks what can be known before the program runs.

        :raises ValueError: If something does not fit; names the node, what was expected and what was given.
        """
        (source_array, source_subset), (target_array, target_subset) = self.arrays(sdfg, state)
        self._validate_symbols(sdfg, state)
        self._validate_types(source_array, target_array)
        if source_array.dtype not in _ADDED:
            raise ValueError(f"{self.title}: cannot add elements of {source_array.dtype}")
        for connector in sorted(set(self.in_connectors) - {INPUT}):
            name = self._memlet(connector, state).data
            self._validate_communicator(connector, sdfg.arrays[name], name)
        self._validate_overlap(state)
        self._validate_distributions(source_subset, target_subset)

"""Library node that adds partial sums."""

from __future__ import annotations

from typing import Any

from dace import library

from dace_redist.library_nodes.distributed_node import DistributedNode
from dace_redist.library_nodes.node import NUMBERS


@library.node
class SumReplicas(DistributedNode):
    """
    Sum of partial results: under ``source`` every replica of a part holds one, under ``target`` the ranks hold the sum.

    The ranks that hold replicas of one part own its sum in the target: each a box without overlaps (a reduce-scatter;
    with a single owner a reduce), or each the whole (an allreduce).

    :param name: Label, for error messages.
    :param source: Distribution of the partial sums: grid axes that no tensor axis names hold them.
    :param target: Distribution of the sums, of the same global shape.
    """

    implementations: dict[str, Any] = {}
    default_implementation = "MPI"
    element_types = NUMBERS
    verb = "add"
    gpu_remedy = 'take a Redistribute node with op="sum", which adds arrays on the GPU'

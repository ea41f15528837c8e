"""The library node that adds partial sums."""

from __future__ import annotations

from typing import Any

from dace import library

from dace_redist.library_nodes.distributed_node import DistributedNode
from dace_redist.library_nodes.node import NUMBERS


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
    element_types = NUMBERS
    verb = "add"
    gpu_remedy = 'take a Redistribute node with op="sum", which adds arrays on the GPU'

"""Packed messages between GPUs by NVIDIA's communication library."""

from dace.library import register_expansion

from dace_redist.library_nodes.redistribute import Redistribute
from dace_redist.library_nodes.tasklets import ExpandToStrategy


@register_expansion(Redistribute, "NCCL")
class ExpandRedistributeNCCL(ExpandToStrategy):
    """A call of the library, with a plan of strategy ``NCCL``."""

    strategy = "NCCL"

"""Library nodes that move several tensors in one exchange, and that add partial sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dace import Memlet, library, properties
from dace.libraries.comm.nodes.node import CommNode
from dace.sdfg import SDFG, SDFGState

from dace_redist.distribution import decode_distribution
from dace_redist.library_nodes.node import INPUT, NUMBERS, OUTPUT, DistributedNode, symbols_of
from dace_redist.library_nodes.redistribute import Redistribute, StrategicNode
from dace_redist.library_nodes.views import overlap
from dace_redist.strategies import check_places, find_strategy

_GPU_REMEDY = "only Redistribute nodes, one for each tensor, move arrays on the GPU"

#: Lists that describe a tensor: source, target, axes, region, and the factors with flags for conjugation and a reshape.
_LISTS = 5


@library.node
class JointRedistribute(StrategicNode, CommNode):
    """
    Redistribution of several tensors in one exchange: all blocks from one rank to another form one message.

    It pays for many small tensors. Strategies are those for arrays in main memory. Tensor i moves from
    ``_inp_buffer_i`` to ``_out_buffer_i``. The communicator is that of the ``_comm`` or ``_grid`` connector, else the
    world.

    :param tensors: A node for each tensor, in no graph; their strategies are ignored.
    :raises ValueError: If the list is empty, or a node has an op or is non-blocking.
    """

    implementations: dict[str, Any] = {}
    verb = "move"
    gpu_remedy = _GPU_REMEDY
    side_effects = True  # else DaCe removes outputs that nothing reads, and their connectors

    encoded = properties.ShapeProperty(  # of a type in which DaCe replaces symbols
        default=(), category="Semantics", desc="The lists that describe the tensors, each with its length before it"
    )

    def __init__(self, name: str, tensors: Sequence[Redistribute]) -> None:
        connectors = [{f"{end}_{i}" for i in range(len(tensors))} for end in (INPUT, OUTPUT)]
        super().__init__(name, inputs=connectors[0], outputs=connectors[1])
        if not tensors:
            raise ValueError(f"{self.title}: needs at least one tensor")
        for tensor in tensors:
            if not isinstance(tensor, Redistribute):
                raise TypeError(f"{self.title}: expected Redistribute nodes, got {type(tensor).__name__}")
            if tensor.op or tensor.nonblocking:
                raise ValueError(
                    f"{self.title}: {tensor.title} cannot move with others: op and nonblocking are for one tensor"
                )
        lists = [
            (t.source, t.target, t.axes, t.region, (t.alpha, t.beta, int(t.conj), int(t.reshapes))) for t in tensors
        ]
        self.encoded = tuple(number for each in lists for one in each for number in (len(one), *one))

    @property
    def tensors(self) -> list[Redistribute]:
        """A node for each tensor, whose arrays are those of this node."""
        lists, rest = [], list(self.encoded)
        while rest:
            end = 1 + int(rest[0])
            lists.append(rest[1:end])
            rest = rest[end:]
        return [_Tensor(self, n, *lists[n * _LISTS : (n + 1) * _LISTS]) for n in range(len(lists) // _LISTS)]

    @property
    def operand_connectors(self) -> list[str]:
        """Connectors of the inputs."""
        return [f"{INPUT}_{number}" for number in range(len(self.out_connectors))]

    @property
    def free_symbols(self) -> set[str]:
        """Symbols of distributions, regions and factors, in addition to those of any node."""
        return super().free_symbols | symbols_of(self.encoded)

    def validate(self, sdfg: SDFG, state: SDFGState) -> None:
        """Check every tensor, too: see :meth:`RedistNode.validate`."""
        super().validate(sdfg, state)
        with self.naming():
            check_places(find_strategy(self.strategy), False, False)
        tensors = self.tensors
        for tensor in tensors:
            tensor.validate(sdfg, state)
        used = [tensor.memlet(INPUT, state) for tensor in tensors]
        again = set[str]()
        for output in [tensor.memlet(OUTPUT, state) for tensor in tensors]:
            again |= {output.data for one in used if one.data == output.data or overlap(one, output, state)}
            used.append(output)
        if again:
            raise ValueError(
                f"{self.title}: every output must be an array of its own, got {', '.join(sorted(again))} again"
            )


class _Tensor(Redistribute):
    """One tensor of a joint node: its properties, and the arrays at the connectors of that node."""

    takes_gpu_arrays = False
    gpu_remedy = _GPU_REMEDY

    def __init__(self, joint: JointRedistribute, number: int, source: Any, target: Any, *rest: Any) -> None:
        self._joint, self._number = joint, number
        axes, region, (alpha, beta, conj, reshapes) = rest
        ends = [decode_distribution(side) for side in (source, target)]
        super().__init__(f"{joint.label}[{number}]", *ends, "Pack", alpha=alpha, beta=beta, conj=bool(conj))
        self.axes, self.region, self.reshapes = list(map(int, axes)), tuple(region), bool(reshapes)

    def memlet(self, connector: str, state: SDFGState) -> Memlet:
        """Return the memlet at the joint node's connector of this tensor."""
        return self._joint.memlet(f"{connector}_{self._number}", state)

    def _validate_symbols(self, sdfg: SDFG, state: SDFGState) -> None:
        """Check nothing: the joint node does."""


@library.node
class SumReplicas(DistributedNode):
    """
    Sum of partial results: under ``source`` every replica of a part holds one, under ``target`` the ranks hold the sum.

    The ranks that hold replicas of one part own its sum in the target: each a box without overlaps (a reduce-scatter;
    with a single owner a reduce), or each the whole (an allreduce).

    :param source: Distribution of the partial sums: grid axes that no tensor axis names hold them.
    :param target: Distribution of the sums, of the same global shape.
    """

    implementations: dict[str, Any] = {}
    default_implementation = "MPI"
    element_types = NUMBERS
    verb = "add"
    gpu_remedy = 'take a Redistribute node with op="sum", which adds arrays on the GPU'

"""Library node that moves several distributed tensors in one exchange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dace import Memlet, library, properties
from dace.libraries.comm.nodes.node import CommNode
from dace.sdfg import SDFG, SDFGState

from dace_redist.distribution import decode_distribution
from dace_redist.library_nodes.distributed_node import INPUT, OUTPUT
from dace_redist.library_nodes.node import RedistNode, symbols_of
from dace_redist.library_nodes.redistribute import Redistribute

_GPU_REMEDY = "only Redistribute nodes, one for each tensor, move arrays on the GPU"


def _lists(text: str) -> properties.ShapeProperty:
    return properties.ShapeProperty(default=(), category="Semantics", desc=f"{text}, each with its length before it")


def _joined(lists: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    return tuple(number for one in lists for number in (len(one), *one))


def _apart(joined: Sequence[Any]) -> list[list[Any]]:
    lists, rest = [], list(joined)
    while rest:
        length = int(rest[0])
        lists.append(rest[1 : 1 + length])
        rest = rest[1 + length :]
    return lists


@library.node
class JointRedistribute(RedistNode, CommNode):
    """
    Redistribution of several tensors in one exchange: all blocks from one rank to another form one message.

    It pays for many small tensors. The implementations are the strategies for arrays in main memory. Tensor i moves
    from ``_inp_buffer_i`` to ``_out_buffer_i``. The communicator is that of the ``_comm`` or ``_grid`` connector, else
    the world.

    :param name: Label, for error messages.
    :param tensors: A node for each tensor, in no graph; their strategies are ignored.
    :raises ValueError: If the list is empty, or a node has an op, run-time distributions, or elements in pieces.
    """

    implementations: dict[str, Any] = {}
    default_implementation = "Hierarchical"
    verb = "move"
    gpu_remedy = _GPU_REMEDY

    sources, targets = _lists("Source distributions, encoded"), _lists("Target distributions, encoded")
    permutations, regions = _lists("Source axes of the target axes"), _lists("Regions")
    factors = _lists("alpha, beta and whether the input is conjugated")

    def __init__(self, name: str, tensors: Sequence[Redistribute]) -> None:
        connectors = [{f"{end}_{i}" for i in range(len(tensors))} for end in (INPUT, OUTPUT)]
        super().__init__(name, inputs=connectors[0], outputs=connectors[1])
        if not tensors:
            raise ValueError(f"{self.title}: needs at least one tensor")
        for tensor in tensors:
            if tensor.op or tensor.given_at_run_time or tensor.element_bytes != 0 or tensor.nonblocking:
                raise ValueError(
                    f"{self.title}: {tensor.title} cannot move with others: op, distributions given at run time, "
                    "element_bytes and nonblocking are for one tensor"
                )
        self.sources, self.targets = (_joined([getattr(t, end) for t in tensors]) for end in ("source", "target"))
        self.permutations, self.regions = _joined([t.axes for t in tensors]), _joined([t.region for t in tensors])
        self.factors = _joined([(t.alpha, t.beta, int(t.conj)) for t in tensors])

    @property
    def tensors(self) -> list[Redistribute]:
        """A node for each tensor, whose arrays are those of this node."""
        kept = (self.sources, self.targets, self.permutations, self.regions, self.factors)
        return [JointTensor(self, number, *lists) for number, lists in enumerate(zip(*map(_apart, kept), strict=True))]

    @property
    def operand_connectors(self) -> list[str]:
        """Connectors of the inputs."""
        return [f"{INPUT}_{number}" for number in range(len(_apart(self.sources)))]

    @property
    def free_symbols(self) -> set[str]:
        """Symbols of distributions, regions and factors, in addition to those of any node."""
        return super().free_symbols | symbols_of((*self.sources, *self.targets, *self.regions, *self.factors))

    def validate(self, sdfg: SDFG, state: SDFGState) -> None:
        """
        Check what is known before the program runs.

        :raises ValueError: If a check fails; names the node and the tensor.
        """
        self._validate_symbols(sdfg, state)
        self._validate_communicator(sdfg, state)
        tensors = self.tensors
        for tensor in tensors:
            tensor.validate(sdfg, state)
        written = [tensor.memlet(OUTPUT, state).data for tensor in tensors]
        read = [tensor.memlet(INPUT, state).data for tensor in tensors]
        again = sorted({name for name in written if name in read or written.count(name) > 1})
        if again:
            raise ValueError(f"{self.title}: every output must be an array of its own, got {', '.join(again)} again")


class JointTensor(Redistribute):
    """
    One tensor of a :class:`JointRedistribute`: its properties, and the arrays at the connectors of that node.

    :param joint: The joint node.
    :param number: Number of the tensor.
    """

    takes_gpu_arrays = False
    gpu_remedy = _GPU_REMEDY

    def __init__(
        self,
        joint: JointRedistribute,
        number: int,
        source: Sequence[Any],
        target: Sequence[Any],
        axes: Sequence[int],
        region: Sequence[Any],
        factors: Sequence[Any],
    ) -> None:
        self._joint, self._number = joint, number
        both = [decode_distribution(side) for side in (source, target)]
        super().__init__(
            f"{joint.label}[{number}]", *both, "Pack", alpha=factors[0], beta=factors[1], conj=bool(factors[2])
        )
        self.axes, self.region = list(map(int, axes)), tuple(region)

    def memlet(self, connector: str, state: SDFGState) -> Memlet:
        """Return the memlet at the joint node's connector of this tensor."""
        return self._joint.memlet(f"{connector}_{self._number}", state)

    def _validate_symbols(self, sdfg: SDFG, state: SDFGState) -> None:
        """Check nothing: the joint node does."""

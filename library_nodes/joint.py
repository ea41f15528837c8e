"""Library node that moves several tensors in one exchange."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from dace import Memlet, library, properties, serialize
from dace.libraries.comm.nodes.node import CommNode
from dace.sdfg import SDFG, SDFGState
from dace.sdfg.replace import replace_properties_dict

from dace_redist.library_nodes.node import INPUT, OUTPUT
from dace_redist.library_nodes.redistribute import Redistribute, StrategicNode
from dace_redist.library_nodes.views import overlap
from dace_redist.strategies import check_places, find_strategy

_GPU_REMEDY = "only Redistribute nodes, one for each tensor, move arrays on the GPU"


class _Tensor(Redistribute):
    """Redistribution in no graph: of one tensor of a joint node, between the arrays at the connectors of that node."""

    takes_gpu_arrays = False
    gpu_remedy = _GPU_REMEDY

    def __init__(self, node: Redistribute, joint: JointRedistribute, number: int) -> None:
        vars(self).update(vars(copy.deepcopy(node)))
        self._joint, self._number = joint, number
        self.set_strategy("Auto")

    @property
    def title(self) -> str:
        """Kind and label of the joint node, and the number of the tensor, for error messages."""
        return f"{self._joint.title}: tensor {self._number}"

    def memlet(self, connector: str, state: SDFGState) -> Memlet:
        """Return the memlet at the joint node's connector of this tensor."""
        return self._joint.memlet(f"{connector}_{self._number}", state)

    def _validate_symbols(self, sdfg: SDFG, state: SDFGState) -> None:
        """Check nothing: the joint node does."""


class _Tensors(tuple[_Tensor, ...]):
    def replace(self, symbols: Any) -> None:
        """Replace symbols, as DaCe does in a range."""
        for tensor in self:
            replace_properties_dict(tensor, {}, symbols)


class TensorsProperty(properties.RangeProperty):
    """Property that holds a redistribution for each tensor of a node; JSON has their properties."""

    dtype = _Tensors

    def __set__(self, obj: JointRedistribute, nodes: Sequence[Redistribute]) -> None:
        tensors = (_Tensor(node, obj, number) for number, node in enumerate(nodes))
        super().__set__(obj, _Tensors(tensors))

    def to_json(self, tensors: Sequence[Redistribute]) -> list[dict[str, Any]]:
        """Return the properties of each node."""
        return [serialize.all_properties_to_json(tensor) for tensor in tensors]

    def from_json(self, value: list[dict[str, Any]], context: Any = None) -> list[Redistribute]:
        """Return the nodes."""
        return [Redistribute.from_json(one, context) for one in value]


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

    tensors = TensorsProperty(default=(), category="Semantics", desc="A redistribution for each tensor")

    def __init__(self, name: str, tensors: Sequence[Redistribute]) -> None:
        connectors = [dict.fromkeys(f"{end}_{i}" for i in range(len(tensors))) for end in (INPUT, OUTPUT)]
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
        self.tensors = tensors

    @property
    def operand_connectors(self) -> list[str]:
        """Connectors of the inputs."""
        return [f"{INPUT}_{number}" for number in range(len(self.out_connectors))]

    @property
    def free_symbols(self) -> set[str]:
        """Symbols of distributions, regions and factors, in addition to those of any node."""
        return super().free_symbols.union(*(tensor.free_symbols for tensor in self.tensors))

    def validate(self, sdfg: SDFG, state: SDFGState) -> None:
        """Check every tensor, too: see :meth:`RedistNode.validate`."""
        super().validate(sdfg, state)
        with self.naming():
            check_places(find_strategy(self.strategy), False, False)
        for tensor in self.tensors:
            tensor.validate(sdfg, state)
        used = [tensor.memlet(INPUT, state) for tensor in self.tensors]
        again = set[str]()
        for output in [tensor.memlet(OUTPUT, state) for tensor in self.tensors]:
            again |= {output.data for one in used if one.data == output.data or overlap(one, output, state)}
            used.append(output)
        if again:
            raise ValueError(
                f"{self.title}: every output must be an array of its own, got {', '.join(sorted(again))} again"
            )

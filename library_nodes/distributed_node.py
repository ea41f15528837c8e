"""Base class of nodes that move a distributed tensor to another distribution."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dace import data, dtypes, properties
from dace.libraries.comm.nodes.node import CommNode
from dace.sdfg import SDFG, SDFGState

from dace_redist.distribution import AnyDistribution, TiledDistribution, decode_distribution
from dace_redist.library_nodes.node import (
    NUMBERS,
    RedistNode,
    differ,
    dimensions_of,
    lies_on_gpu,
    simplified,
    symbols_of,
)

INPUT, OUTPUT = "_inp_buffer", "_out_buffer"


@properties.make_properties
class DistributedNode(RedistNode, CommNode):
    """
    A node between ``_inp_buffer``, this rank's part under ``source``, and ``_out_buffer``, its part under ``target``.

    The communicator is that of the ``_comm`` connector (an integer that holds an ``MPI_Comm``), else of the process
    grid at the ``_grid`` connector, else the world; the ranks of a distribution are ranks in it. Local arrays may have
    any strides and be larger than the rank's part.

    :param name: Label, for error messages.
    :param source: Distribution of the input; None if not known before the program runs.
    :param target: Distribution of the output, of the same global shape.
    :param inputs: Connectors in addition to ``_inp_buffer``.
    :raises ValueError: If only one of the distributions is given.
    """

    element_types = (dtypes.bool_, dtypes.float16, *NUMBERS)
    verb = "move"

    source = properties.ShapeProperty(default=(), category="Semantics", desc="Source distribution, encoded")
    target = properties.ShapeProperty(default=(), category="Semantics", desc="Target distribution, encoded")
    element_bytes = properties.SymbolicProperty(
        default=0, category="Semantics", desc="Bytes per element moved; 0: those of the arrays' type"
    )

    def __init__(
        self,
        name: str,
        source: AnyDistribution | None = None,
        target: AnyDistribution | None = None,
        inputs: Collection[str] = (),
    ) -> None:
        super().__init__(name, inputs={INPUT, *inputs}, outputs={OUTPUT})
        if (source is None) != (target is None):
            raise ValueError(f"{self.title}: source and target are both given, or both at run time")
        if source is not None and target is not None:
            self.source, self.target = source.encoded, target.encoded

    @property
    def operand_connectors(self) -> list[str]:
        """Connector of the input."""
        return [INPUT]

    @property
    def free_symbols(self) -> set[str]:
        """Symbols of both distributions, in addition to those of any node."""
        return super().free_symbols | symbols_of((*self.source, *self.target))

    @property
    def given_at_run_time(self) -> bool:
        """True if connectors, not properties, provide the distributions."""
        return False

    def distributions(self) -> tuple[AnyDistribution, AnyDistribution]:
        """
        Return source and target.

        :raises ValueError: If one of them is not a valid distribution; names the node.
        """
        both = []
        for side, encoded in (("source", self.source), ("target", self.target)):
            try:
                both.append(decode_distribution(encoded))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{self.title}: {side}: {error}") from error
        return both[0], both[1]

    def arrays(self, sdfg: SDFG, state: SDFGState) -> tuple[tuple[data.Data, Any], tuple[data.Data, Any]]:
        """
        Return descriptor and memlet subset of the input and of the output.

        :raises ValueError: If one of them is not connected exactly once.
        """
        memlets = (self.memlet(INPUT, state), self.memlet(OUTPUT, state))
        source, target = ((sdfg.arrays[memlet.data], memlet.subset) for memlet in memlets)
        return source, target

    def on_gpu(self, sdfg: SDFG, state: SDFGState) -> tuple[bool, bool]:
        """
        Return two flags: input on the GPU, output on the GPU.

        :raises ValueError: If one of them is not connected exactly once.
        """
        (source, _), (target, _) = self.arrays(sdfg, state)
        return lies_on_gpu(source), lies_on_gpu(target)

    def validate(self, sdfg: SDFG, state: SDFGState) -> None:
        """
        Check what is known before the program runs.

        :raises ValueError: If a check fails; names the node, the expected and the given value.
        """
        self._validate_symbols(sdfg, state)
        self.validate_types(sdfg, state)
        self._validate_communicator(sdfg, state)
        self._validate_overlap(state)
        if self.given_at_run_time:
            return
        source, target = self.distributions()
        self._validate_shapes(source, target)
        for side, distribution, (_, subset) in zip(
            ("input", "output"), (source, target), self.arrays(sdfg, state), strict=True
        ):
            self._validate_local(side, distribution, subset)

    def _validate_shapes(self, source: AnyDistribution, target: AnyDistribution) -> None:
        if len(source.shape) != len(target.shape) or differ(source.shape, target.shape):
            raise ValueError(
                f"{self.title}: source and target need one global shape, got {source.shape} and {target.shape}"
            )

    def _validate_local(self, side: str, distribution: AnyDistribution, subset: Any) -> None:
        """Check that the array holds the part of the first rank, which is the largest."""
        ndim = local_ndim(distribution)
        extents = [extent for extent, _ in local_dimensions(subset, [1] * subset.dims(), distribution)]
        if len(extents) != ndim:
            raise ValueError(
                f"{self.title}: the {side} of a distribution of {len(distribution.shape)} dimensions "
                f"needs a local array of {ndim if distribution.shape else 'one element'}, got shape {tuple(extents)}"
            )
        if distribution.is_symbolic or isinstance(distribution, TiledDistribution):
            return
        first = distribution.core.first_rank
        needed = distribution.local_shape(first) or (1,)  # DaCe has no arrays of 0 dimensions
        if any(simplified(have - need).is_negative for have, need in zip(extents, needed, strict=True)):
            raise ValueError(
                f"{self.title}: the local {side} has shape {tuple(extents)}, but rank {first} owns {needed} of it"
            )


def local_ndim(distribution: AnyDistribution) -> int:
    """Return the number of dimensions of local arrays in DaCe: at least 1, since DaCe has no arrays of 0 dimensions."""
    return 1 if isinstance(distribution, TiledDistribution) else max(len(distribution.shape), 1)


def local_dimensions(subset: Any, strides: Any, distribution: AnyDistribution) -> list[tuple[Any, Any]]:
    """Return (extent, stride in elements) per dimension of a memlet's subset of an array with these strides."""
    return dimensions_of(subset, strides, local_ndim(distribution))

"""What the nodes that take a distributed tensor to another distribution have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dace import Memlet, data, dtypes, properties, subsets, symbolic
from dace.data.distributed import ProcessGrid
from dace.libraries.comm.nodes.node import CommNode
from dace.sdfg import SDFG, SDFGState

from dace_redist.distribution import AnyDistribution, TiledDistribution, decode

INPUT, OUTPUT = "_inp_buffer", "_out_buffer"

#: Element types that can be moved.
ELEMENT_TYPES = (
    *(dtypes.bool_, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64),
    *(dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64),
    *(dtypes.float16, dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128),
)


@properties.make_properties
class DistributedNode(CommNode):
    """
    A node between ``_inp_buffer``, this rank's part under ``source``, and ``_out_buffer``, its part under ``target``.

    The communicator is the one of the ``_comm`` connector (an integer that holds an ``MPI_Comm``), else the process
    grid at the ``_grid`` connector, else the world; ranks of a distribution count in it. Local arrays may have any
    strides and be larger than what the rank owns.
    """

    source = properties.ShapeProperty(default=(), category="Semantics", desc="Words of the source distribution")
    target = properties.ShapeProperty(default=(), category="Semantics", desc="Words of the target distribution")
    element_bytes = properties.SymbolicProperty(
        default=0, category="Semantics", desc="Bytes per element moved; 0: those of the arrays' type"
    )

    @property
    def title(self) -> str:
        """Kind and label, for error messages."""
        return f'{type(self).__name__} "{self.label}"'

    @property
    def free_symbols(self) -> set[str]:
        """Symbols of both distributions and of the element size, besides those of any node."""
        words = (*self.source, *self.target)
        return super().free_symbols | {str(s) for word in words for s in symbolic.symlist(word).values()}

    @property
    def given_at_run_time(self) -> bool:
        """Whether the distributions come through connectors instead of the properties."""
        return False

    def distributions(self) -> tuple[AnyDistribution, AnyDistribution]:
        """
        Source and target.

        :raises ValueError: If one of them is no distribution; names the node.
        """
        both = []
        for side, words in (("source", self.source), ("target", self.target)):
            try:
                both.append(decode(words))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{self.title}: {side}: {error}") from error
        return both[0], both[1]

    def arrays(self, sdfg: SDFG, state: SDFGState) -> tuple[tuple[data.Data, Any], tuple[data.Data, Any]]:
        """
        Descriptor and memlet subset of the input and of the output.

        :raises ValueError: If one of them is not connected exactly once.
        """
        memlets = (self._memlet(INPUT, state), self._memlet(OUTPUT, state))
        source, target = ((sdfg.arrays[memlet.data], memlet.subset) for memlet in memlets)
        return source, target

    def _memlet(self, connector: str, state: SDFGState) -> Memlet:
        edges = [e for e in state.in_edges(self) if e.dst_conn == connector]
        edges += [e for e in state.out_edges(self) if e.src_conn == connector]
        if len(edges) != 1 or edges[0].data.data is None:
            raise ValueError(f"{self.title}: connector {connector} needs exactly one edge, got {len(edges)}")
        return edges[0].data

    def _validate_distributions(self, source_subset: Any, target_subset: Any) -> None:
        source, target = self.distributions()
        if len(source.shape) != len(target.shape) or differ(source.shape, target.shape):
            raise ValueError(
                f"{self.title}: source and target need one global shape, got {source.shape} and {target.shape}"
            )
        self._validate_local("input", source, source_subset)
        self._validate_local("output", target, target_subset)

    def _validate_communicator(self, connector: str, array: data.Data, name: str) -> None:
        wrong = f"{self.title}: {connector} must "
        if connector == "_comm" and array.dtype not in dtypes.INTEGER_TYPES:
            raise ValueError(f"{wrong}be an integer that holds an MPI_Comm, got {name} of {array.dtype}")
        if connector == "_grid" and not isinstance(array, ProcessGrid):
            raise ValueError(f"{wrong}be a process grid, got {name}, of type {type(array).__name__}")

    def _validate_overlap(self, state: SDFGState) -> None:
        source, target = self._memlet(INPUT, state), self._memlet(OUTPUT, state)
        if source.data == target.data and subsets.intersects(source.subset, target.subset) is not False:
            raise ValueError(
                f"{self.title}: input {source} and output {target} overlap; a tensor cannot be redistributed in place"
            )

    def _validate_symbols(self, sdfg: SDFG, state: SDFGState) -> None:
        unknown = self.free_symbols - state.symbols_defined_at(self).keys() - sdfg.constants.keys()
        if unknown:
            raise ValueError(
                f"{self.title}: the program does not know {', '.join(sorted(unknown))}, of which its "
                "sizes or options are made; declare symbols with sdfg.add_symbol"
            )

    def _validate_types(self, source: data.Data, target: data.Data) -> None:
        if source.dtype != target.dtype:
            raise ValueError(
                f"{self.title}: input and output need one element type, got {source.dtype} and {target.dtype}"
            )
        for array in (source, target):
            if array.storage in (dtypes.StorageType.GPU_Global, dtypes.StorageType.GPU_Shared):
                raise ValueError(f"{self.title}: arrays must lie in main memory, got {array.storage}")
        if source.dtype.base_type not in ELEMENT_TYPES or source.dtype.veclen > 1:
            known = ", ".join(t.to_string() for t in ELEMENT_TYPES)
            raise ValueError(f"{self.title}: cannot move elements of {source.dtype}; possible: {known}")

    def _validate_local(self, side: str, distribution: AnyDistribution, subset: Any) -> None:
        """The array must hold what the first rank owns, which is never less than what others own."""
        extents = local_extents(subset, distribution)
        ndim = local_ndim(distribution)
        if len(extents) != ndim:
            raise ValueError(
                f"{self.title}: the {side} of a distribution of {len(distribution.shape)} dimensions "
                f"needs a local array of {ndim if distribution.shape else 'one element'}, got shape {tuple(extents)}"
            )
        if distribution.is_symbolic or isinstance(distribution, TiledDistribution):
            return
        first = distribution.core.first_rank
        needed = distribution.local_shape(first) or (1,)  # DaCe has no arrays of 0 dimensions
        if any(symbolic.simplify(have - need).is_negative for have, need in zip(extents, needed, strict=True)):
            raise ValueError(
                f"{self.title}: the local {side} has shape {tuple(extents)}, but rank {first} owns {needed} of it"
            )


def plain_number(value: Any) -> Any:
    """A SymPy number as Python's; anything else as it is."""
    if getattr(value, "is_Integer", False):
        return int(value)
    return float(value) if getattr(value, "is_Float", False) else value


def local_ndim(distribution: AnyDistribution | None) -> int:
    """Dimensions of the local arrays of a distribution in DaCe, which has none of 0 dimensions: these have one."""
    if distribution is None or isinstance(distribution, TiledDistribution):
        return 1
    return max(len(distribution.shape), 1)


def local_extents(subset: Any, distribution: AnyDistribution | None) -> list[Any]:
    """Extents of a memlet's subset; dimensions of one element are left out where there are more than needed."""
    return [extent for extent, _ in local_dimensions(subset, [1] * subset.dims(), distribution)]


def local_dimensions(subset: Any, strides: Any, distribution: AnyDistribution | None) -> list[tuple[Any, Any]]:
    """(extent, stride in elements) per dimension of a memlet's subset of an array with these strides."""
    return dimensions_of(subset, strides, local_ndim(distribution))


def dimensions_of(subset: Any, strides: Any, ndim: int) -> list[tuple[Any, Any]]:
    """(extent, stride in elements) per dimension of a memlet's subset; those of one element are left out where there
    are more than ``ndim``.
    """
    steps = [step for _, _, step in subset.ndrange()]
    dimensions = [(n, stride * step) for n, stride, step in zip(subset.size(), strides, steps, strict=True)]
    while len(dimensions) > ndim and (1 in [extent for extent, _ in dimensions]):
        dimensions.pop(next(i for i, (extent, _) in enumerate(dimensions) if extent == 1))
    return dimensions


def differ(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two lists of sizes differ for sure: symbols may turn out equal."""
    return any(symbolic.simplify(x - y).is_zero is False for x, y in zip(a, b, strict=True))

"""Library nodes that move a tensor to another distribution, and that wait for a transfer that another one started."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from dace import data, dtypes, library, properties
from dace.libraries.comm.nodes import Wait
from dace.libraries.comm.nodes.node import NonblockingCommNode
from dace.sdfg import SDFG, SDFGState
from dace.sdfg.scope import is_devicelevel_gpu

from dace_redist.distribution import AnyDistribution, Distribution, check_distribution
from dace_redist.integers import checked_reshape
from dace_redist.library_nodes.node import (
    INPUT,
    NUMBERS,
    OUTPUT,
    RedistNode,
    differ,
    dimensions_of,
    lies_on_gpu,
    local_ndim,
    plain_number,
    simplified,
    symbols_of,
)
from dace_redist.library_nodes.properties import DistributionProperty
from dace_redist.schedule import check_shapes
from dace_redist.strategies import DEFAULT_STRATEGY, OPTIONS, PROGRESS, check_options, check_places, find_strategy
from dace_redist.transform import Transform, checked_precision

#: Connector of the request, an ``int64``, that a non-blocking node passes to :class:`RedistributeWait`.
REQUEST = "_request"

#: Connectors that order a wait after the start of the transfer and before uses of the output.
ORDER_INPUT, ORDER_OUTPUT = "_in_buffer", "_out_buffer"

#: Type of elements of any type.
_ANY_TYPE = np.dtype(np.uint8)


@properties.make_properties
class StrategicNode(RedistNode):
    """Node that moves tensors by its implementation, a strategy of ``STRATEGIES``; its properties are all options."""

    default_implementation = DEFAULT_STRATEGY

    vars().update(
        (name, properties.SymbolicProperty(default=option.default, category="Parameters", desc=option.description))
        for name, option in OPTIONS.items()
    )

    def __init__(self, *arguments: Any, **named: Any) -> None:  # else DaCe skips the next class in the order of bases
        super().__init__(*arguments, **named)

    def set_strategy(self, name: str, **options: Any) -> None:
        """
        Set the strategy; options that are not given are reset to their defaults.

        :param name: Name of a strategy, or ``"Auto"``.
        :raises ValueError: If the strategy or an option is unknown or out of range.
        :raises TypeError: If an option is of another type.
        """
        checked = self._check_strategy(name, options)
        self.implementation = None if name == "Auto" else name
        for option, entry in OPTIONS.items():
            setattr(self, option, checked.get(option, entry.default))

    def _check_strategy(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        with self.naming():
            return check_options(find_strategy(name), options)

    @property
    def strategy(self) -> str:
        """Name of the strategy in force."""
        return self.implementation or self.default_implementation

    @property
    def options(self) -> dict[str, Any]:
        """Options of the strategy in force, with their values: numbers, or symbols of the program."""
        return {name: plain_number(getattr(self, name)) for name in find_strategy(self.strategy).options}

    @property
    def has_choice(self) -> bool:
        """True if the program names a strategy, or an option other than the default."""
        return self.implementation is not None or any(n != OPTIONS[name].default for name, n in self.options.items())

    def expand(self, state: SDFGState, implementation: str | None = None, **options: Any) -> str:
        """Expand by a strategy, which becomes that of the node."""
        self.implementation = implementation or self.implementation
        return str(super().expand(state, **options))

    def validate(self, sdfg: SDFG, state: SDFGState) -> None:
        """Check strategy and options, too: see :meth:`RedistNode.validate`."""
        self._check_strategy(self.strategy, self.options)
        super().validate(sdfg, state)


@library.node
class Redistribute(StrategicNode, NonblockingCommNode):
    """
    Redistribution of a tensor from ``_inp_buffer``, this rank's part under ``source``, to ``_out_buffer``, its part
    under ``target``. Elements of the output that the rank does not own are unchanged.

    The communicator is that of the ``_comm`` connector (an integer that holds an ``MPI_Comm``), else of the process
    grid at the ``_grid`` connector, else the world; the ranks of a distribution are ranks in it. Local arrays may have
    any strides, be larger than the rank's part, and lie on the GPU (``StorageType.GPU_Global``).

    ``axes``, ``region`` and ``reshape``, as of :func:`dace_redist.plan`, permute the dimensions, select a sub-tensor,
    and change the shape. The implementation is the strategy, see ``STRATEGIES``. With ``nonblocking`` the node only
    starts the transfer, and passes a request to a :class:`RedistributeWait`; until then the input must not change, and
    the output must not be used.

    :param name: Label, for error messages and :func:`dace_redist.set_strategy`.
    :param source: Distribution of the input.
    :param target: Distribution of the output, of the same global shape except for ``axes``, ``region`` and
        ``reshape``.
    :param axes: Source axis of each target axis; None: no permutation.
    :param region: (source_offset, target_offset, shape) of a sub-tensor, numbers or symbols; None: the whole tensor.
    :param alpha: Factor of the input, a real number or an expression of symbols: the output becomes
        ``alpha * input + beta * output``. Element types may differ, see :func:`dace_redist.plan`.
    :param beta: Factor of the output, likewise.
    :param conj: True to conjugate the input.
    :param op: Reduction of the replicas of the source, which are then partial results: see :func:`dace_redist.plan`.
    :param reshape: Shape of the target, to which the source is reshaped in C order, numbers or symbols; one of them may
        be -1. None: no reshape.
    :param wire, within_nodes, accumulate, reproducible: Types on the wire and of the reduction, and its order: see
        :func:`dace_redist.plan`.
    :raises ValueError: If the strategy or an option is unknown or out of range, or if axes, region or reshape are
        invalid.
    :raises TypeError: If axes, region or reshape are not lists of integers, or a factor is complex.
    """

    implementations: dict[str, Any] = {}
    element_types = (dtypes.bool_, dtypes.float16, *NUMBERS)
    verb = "move"
    takes_gpu_arrays = True

    source = DistributionProperty(category="Semantics", desc="Source distribution")
    target = DistributionProperty(category="Semantics", desc="Target distribution")
    axes = properties.ListProperty(int, default=[], category="Semantics", desc="Source axis of each target axis")
    region = properties.ShapeProperty(
        default=(), category="Semantics", desc="Source offset, target offset and shape of the sub-tensor that moves"
    )
    reshapes = properties.Property(
        dtype=bool, default=False, category="Semantics", desc="True to reshape the source to the target's shape"
    )
    alpha = properties.SymbolicProperty(default=1, category="Semantics", desc="Factor of the input")
    beta = properties.SymbolicProperty(default=0, category="Semantics", desc="Factor of what is in the output")
    conj = properties.Property(dtype=bool, default=False, category="Semantics", desc="Whether the input is conjugated")
    op = properties.Property(
        dtype=str, default="", category="Semantics", desc="How replicas of the source are reduced; empty: not at all"
    )
    wire = properties.Property(
        dtype=str, default="", category="Semantics", desc="Element type between nodes; empty: the smaller of both types"
    )
    within_nodes = properties.Property(
        dtype=bool, default=False, category="Semantics", desc="Whether all elements are rounded to that type"
    )
    accumulate = properties.Property(
        dtype=str, default="", category="Semantics", desc="Element type of the reduction; empty: that of the output"
    )
    reproducible = properties.Property(
        dtype=bool, default=False, category="Semantics", desc="Whether replicas are reduced in a binary tree"
    )
    progress = properties.Property(
        dtype=str,
        default=PROGRESS[0],
        choices=list(PROGRESS),
        category="Parameters",
        desc="What moves on a non-blocking transfer: MPI and the wait, or a thread of its own",
    )

    def __init__(
        self,
        name: str,
        source: AnyDistribution,
        target: AnyDistribution,
        strategy: str | None = None,
        axes: Sequence[int] | None = None,
        region: Sequence[Sequence[Any]] | None = None,
        alpha: Any = 1,
        beta: Any = 0,
        conj: bool = False,
        op: str | None = None,
        reshape: Sequence[Any] | None = None,
        wire: Any = None,
        within_nodes: bool = False,
        accumulate: Any = None,
        reproducible: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(name, inputs={INPUT}, outputs={OUTPUT})
        for side, distribution in (("source", source), ("target", target)):
            check_distribution(f"{self.title}: {side}", distribution)
        self.source, self.target = source, target
        with self.naming():
            shape = checked_reshape(reshape, target.shape)
            made = Transform(len(source.shape), _ANY_TYPE, axes=axes, region=region, op=op or None, reshape=shape)
            of_sums = {"accumulate": accumulate or None, "reproducible": reproducible}
            precision = checked_precision(wire=wire or None, within_nodes=within_nodes, **of_sums)
        for field, value in precision.items():
            setattr(self, field, value or type(getattr(self, field))())
        self.axes = list(made.axes or ())
        self.region = tuple(number for part in made.region or () for number in part)
        self.reshapes = made.reshape is not None
        self._set_factors(alpha, beta)
        self.conj, self.op = conj, op or ""
        self.set_strategy(strategy or "Auto", **options)

    @property
    def operand_connectors(self) -> list[str]:
        """Connector of the input."""
        return [INPUT]

    @property
    def output_connector(self) -> str:
        """Connector of the output."""
        return OUTPUT

    def distributions(self) -> tuple[AnyDistribution, AnyDistribution]:
        """Return source and target; raise a ValueError if one of them is not valid."""
        with self.naming(ValueError, "source: "):
            source = self.source
        with self.naming(ValueError, "target: "):
            return source, self.target

    def arrays(self, sdfg: SDFG, state: SDFGState) -> tuple[tuple[data.Data, Any], tuple[data.Data, Any]]:
        """Return descriptor and memlet subset of the input and of the output."""
        source, target = self.memlet(INPUT, state), self.memlet(OUTPUT, state)
        return (sdfg.arrays[source.data], source.subset), (sdfg.arrays[target.data], target.subset)

    def on_gpu(self, sdfg: SDFG, state: SDFGState) -> tuple[bool, bool]:
        """Return two flags: input on the GPU, output on the GPU."""
        (source, _), (target, _) = self.arrays(sdfg, state)
        return lies_on_gpu(source), lies_on_gpu(target)

    @property
    def exchanges_halo(self) -> bool:
        """True if input and output may be one array, of which only margins are written."""
        plain = self.is_copy and not (self.axes or self.region)
        return plain and self.source == self.target and any(self.source.halo)

    @property
    def index_map(self) -> Transform:
        """Elements that move, and their target indices; without types and factors."""
        ndim = len(self.axes) or len(self.region) // 3 or len(self.distributions()[0].shape)
        parts = [self.region[at * ndim : (at + 1) * ndim] for at in range(3)] if self.region else None
        return Transform(ndim, _ANY_TYPE, axes=self.axes or None, region=parts, reshape=self.reshape)

    @property
    def reshape(self) -> tuple[Any, ...] | None:
        """Shape to which the source is reshaped, that of the target; None: it is not reshaped."""
        return tuple(self.distributions()[1].shape) if self.reshapes else None

    @property
    def free_symbols(self) -> set[str]:
        """Symbols of distributions, region and factors, in addition to those of any node."""
        of_ends = (*self._source, *self._target)
        return super().free_symbols | symbols_of((*of_ends, *self.region, self.alpha, self.beta))

    @property
    def is_copy(self) -> bool:
        """True if elements are neither scaled, conjugated nor reduced; types may differ."""
        return (self.alpha, self.beta, self.conj, self.op, self.wire) == (1, 0, False, "", "")

    @property
    def precision(self) -> dict[str, Any]:
        """Types on the wire and of the reduction, and its order, as arguments of :func:`dace_redist.plan`."""
        types = {"wire": self.wire or None, "accumulate": self.accumulate or None}
        return types | {"within_nodes": self.within_nodes, "reproducible": self.reproducible}

    def operation(self, sdfg: SDFG, state: SDFGState) -> Transform:
        """Return the operation on elements; symbolic factors count as 2."""
        types = [array.dtype.base_type.as_numpy_dtype() for array, _ in self.arrays(sdfg, state)]
        factors = [2 if symbols_of([factor]) else complex(factor) for factor in (self.alpha, self.beta)]
        with self.naming(ValueError):
            return Transform(1, *types, None, None, *factors, self.conj, self.op or None, **self.precision)

    def validate_types(self, sdfg: SDFG, state: SDFGState) -> None:
        """Raise a ValueError unless the strategy supports both arrays' devices, the input's type and its conversion."""
        source, target = (array.dtype for array, _ in self.arrays(sdfg, state))
        if source == target:
            super().validate_types(sdfg, state)
        else:
            self._validate_memory(sdfg, state)
        if source != target or not self.is_copy:
            operation = self.operation(sdfg, state)
            with self.naming(ValueError):
                operation.check_on_gpu(*self.on_gpu(sdfg, state))

    @property
    def tensors(self) -> tuple[Redistribute]:
        """The node itself: a :class:`JointRedistribute` has several."""
        return (self,)

    def set_nonblocking(self, progress: str = PROGRESS[0]) -> None:
        """
        Make the node non-blocking.

        :param progress: Kind of progress, one of :data:`PROGRESS`.
        :raises ValueError: If the kind is unknown.
        """
        if progress not in PROGRESS:
            raise ValueError(f"{self.title}: progress must be one of {', '.join(PROGRESS)}, got {progress!r}")
        self.nonblocking, self.progress = True, progress
        self.add_out_connector(REQUEST)

    def _validate_memory(self, sdfg: SDFG, state: SDFGState) -> None:
        super()._validate_memory(sdfg, state)
        on_gpu = self.on_gpu(sdfg, state)
        with self.naming():
            check_places(find_strategy(self.strategy), *on_gpu)
        if any(on_gpu) and is_devicelevel_gpu(sdfg, state, self):
            raise ValueError(f"{self.title}: it is inside a GPU kernel, where nothing can be redistributed")

    def validate(self, sdfg: SDFG, state: SDFGState) -> None:
        """Check types, shapes, extents and the request, too: see :meth:`RedistNode.validate`."""
        if "dace.autodiff" in sys.modules:  # which validates programs before it differentiates them
            importlib.import_module("dace_redist.library_nodes.autodiff")
        super().validate(sdfg, state)
        self.validate_types(sdfg, state)
        ends = self.distributions()
        self._validate_overlap(state)
        self._validate_shapes(*ends)
        for side, distribution, (_, subset) in zip(("input", "output"), ends, self.arrays(sdfg, state), strict=True):
            self._validate_local(side, distribution, subset)
        if self.nonblocking != (REQUEST in self.out_connectors):
            raise ValueError(f"{self.title}: nonblocking and the connector {REQUEST} go together, see set_nonblocking")
        if self.nonblocking:
            _validate_request(self, state)

    def _validate_shapes(self, source: AnyDistribution, target: AnyDistribution) -> None:
        found, wrong = self.index_map, ""
        if not found.encoded:
            if len(source.shape) != len(target.shape) or differ(source.shape, target.shape):
                wrong = f"source and target need one global shape, got {source.shape} and {target.shape}"
        elif not (source.is_symbolic or target.is_symbolic or symbols_of(self.region)):
            with self.naming():
                check_shapes(source, target, found)
        elif self.reshapes:
            if differ([math.prod(source.shape)], [math.prod(target.shape)]):
                wrong = f"a tensor of shape {source.shape} cannot be reshaped to {target.shape}, of another size"
        elif len(source.shape) != len(target.shape):
            wrong = f"source and target need as many dimensions, got shapes {source.shape} and {target.shape}"
        elif found.region is None and differ([source.shape[axis] for axis in found.source_axes], target.shape):
            wrong = f"with axes {found.axes} the source's shape {source.shape} does not give {target.shape}"
        if wrong:
            raise ValueError(f"{self.title}: {wrong}")

    def _validate_local(self, side: str, distribution: AnyDistribution, subset: Any) -> None:
        """Check that the array holds the part of any rank."""
        ndim = local_ndim(distribution)
        extents = [extent for extent, _ in dimensions_of(subset, [1] * subset.dims(), ndim)]
        if len(extents) != ndim:
            raise ValueError(
                f"{self.title}: the {side} of a distribution of {len(distribution.shape)} dimensions "
                f"needs a local array of {ndim if distribution.shape else 'one element'}, got shape {tuple(extents)}"
            )
        if distribution.is_symbolic or not isinstance(distribution, Distribution):
            return
        needed = tuple(distribution.core.largest_block()) or (1,)  # DaCe has no arrays of 0 dimensions
        if any(simplified(have - need).is_negative for have, need in zip(extents, needed, strict=True)):
            raise ValueError(
                f"{self.title}: the local {side} has shape {tuple(extents)}, but the largest part of a rank is {needed}"
            )


@library.node
class RedistributeWait(RedistNode, Wait):
    """
    Wait for the completion of a non-blocking :class:`Redistribute`.

    ``_request`` is the request of that node. Its output array passes through ``_in_buffer`` and ``_out_buffer``, so
    that uses of it follow the wait.
    """

    _dace_library_name = __package__  # else that of DaCe's node
    implementations: dict[str, Any] = {}
    default_implementation = "MPI"
    side_effects = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.in_connectors = dict.fromkeys((REQUEST, ORDER_INPUT))
        self.out_connectors = dict.fromkeys((ORDER_OUTPUT,))

    def validate(self, sdfg: SDFG, state: SDFGState) -> None:
        """Check the request, and that both buffers are the same array: see :meth:`RedistNode.validate`."""
        _validate_request(self, state)
        before, after = (self.memlet(connector, state) for connector in (ORDER_INPUT, ORDER_OUTPUT))
        if before.data != after.data:
            raise ValueError(f"{self.title}: {ORDER_INPUT} and {ORDER_OUTPUT} must be one array, got {before}, {after}")


def _validate_request(node: RedistNode, state: SDFGState) -> None:
    """Check that the request is one 64-bit integer in main memory."""
    memlet, array = node.memlet(REQUEST, state), node.array(REQUEST, state)
    if array.dtype != dtypes.int64 or memlet.subset.num_elements() != 1:
        raise ValueError(f"{node.title}: {REQUEST} must be one 64-bit integer, got {memlet} of {array.dtype}")
    if lies_on_gpu(array):
        raise ValueError(f"{node.title}: {REQUEST} must lie in main memory, but {memlet.data} has {array.storage}")

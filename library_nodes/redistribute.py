"""The library node that moves a distributed tensor from one distribution to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dace import Memlet, data, dtypes, library, properties, subsets, symbolic
from dace.data.distributed import ProcessGrid
from dace.libraries.comm.nodes.node import CommNode
from dace.sdfg import SDFG, SDFGState

from dace_redist.distribution import AnyDistribution, TiledDistribution, from_words
from dace_redist.strategies import DEFAULT_STRATEGY, OPTIONS, Strategy, check_options, find_strategy

INPUT, OUTPUT = "_inp_buffer", "_out_buffer"

#: Connectors through which a program may hand over, as ``int64`` arrays, what the properties hold otherwise: the words
#: of both distributions, and extents and strides of the local arrays.
RUN_TIME_CONNECTORS = ("_source", "_source_local", "_target", "_target_local")

#: Element types that can be moved.
ELEMENT_TYPES = (
    *(dtypes.bool_, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64),
    *(dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64),
    *(dtypes.float16, dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128),
)


def _option(name: str) -> properties.Property:
    option = OPTIONS[name]
    return properties.SymbolicProperty(default=option.default, category="Parameters", desc=option.description)


@library.node
class Redistribute(CommNode):
    """
    Moves a distributed tensor: ``_inp_buffer``, this rank's part under ``source``, to ``_out_buffer``, its part under
    ``target``. What a rank does not own of the output is left as it is.

    The communicator is the one of the ``_comm`` connector (an integer that holds an ``MPI_Comm``), else the process
    grid at the ``_grid`` connector, else the world; ranks of a distribution count in it. Local arrays may have any
    strides and be larger than what the rank owns. The implementation is the strategy, see ``STRATEGIES``.

    :param name: Label, for error messages and :func:`dace_redist.set_strategy`.
    :param source: Distribution of the input; None if given at run time (``RUN_TIME_CONNECTORS``).
    :param target: Distribution of the output, of the same global shape.
    :param strategy: Name of the strategy.
    :param options: Options of the strategy.
    :raises ValueError: If the strategy or an option is unknown or out of range.
    """

    implementations: dict[str, Any] = {}
    default_implementation = DEFAULT_STRATEGY

    source = properties.ShapeProperty(default=(), category="Semantics", desc="Words of the source distribution")
    target = properties.ShapeProperty(default=(), category="Semantics", desc="Words of the target distribution")
    element_bytes = properties.SymbolicProperty(
        default=0, category="Semantics", desc="Bytes per element moved; 0: those of the arrays' type"
    )
    chunk_bytes = _option("chunk_bytes")
    depth = _option("depth")
    growth = _option("growth")
    threads = _option("threads")
    slot_bytes = _option("slot_bytes")
    max_message_bytes = _option("max_message_bytes")

    def __init__(
        self,
        name: str,
        source: AnyDistribution | None = None,
        target: AnyDistribution | None = None,
        strategy: str | None = None,
        **options: Any,
    ) -> None:
        run_time = set(RUN_TIME_CONNECTORS) if source is None else set()
        super().__init__(name, inputs={INPUT, *run_time}, outputs={OUTPUT})
        if (source is None) != (target is None):
            raise ValueError(f'Redistribute "{name}": source and target are both given, or both at run time')
        if source is not None and target is not None:
            self.source, self.target = source.words, target.words
        self.set_strategy(strategy or "Auto", **options)

    def set_strategy(self, name: str, **options: Any) -> None:
        """
        Chooses how the tensor is moved; options not given go back to their defaults.

        :param name: Name of a strategy, or ``"Auto"``.
        :param options: Its options.
        :raises ValueError: If the strategy or an option is unknown or out of range.
        :raises TypeError: If an option is of another type.
        """
        strategy, checked = self._checked(name, options)
        self.implementation = None if name == "Auto" else strategy.name
        for option, entry in OPTIONS.items():
            setattr(self, option, checked.get(option, entry.default))

    def _checked(self, name: str, options: dict[str, Any]) -> tuple[Strategy, dict[str, Any]]:
        try:
            strategy = find_strategy(name)
            return strategy, check_options(strategy, options)
        except (ValueError, TypeError) as error:
            raise type(error)(f'Redistribute "{self.label}": {error}') from error

    @property
    def strategy(self) -> str:
        """Name of the strategy in force."""
        return self.implementation or self.default_implementation

    @property
    def options(self) -> dict[str, Any]:
        """The options that the strategy in force takes, with their values: numbers, or symbols of the program."""
        return {name: plain_number(getattr(self, name)) for name in find_strategy(self.strategy).options}

    @property
    def given_at_run_time(self) -> bool:
        """Whether the distributions come through connectors instead of the properties."""
        return "_source" in self.in_connectors

    @property
    def free_symbols(self) -> set[str]:
        """Symbols of both distributions and of the element size, besides those of any node."""
        words = (*self.source, *self.target)
        return super().free_symbols | {str(s) for word in words for s in symbolic.symlist(word).values()}

    def distributions(self) -> tuple[AnyDistribution, AnyDistribution]:
        """
        Source and target.

        :raises ValueError: If one of them is no distribution; names the node.
        """
        both = []
        for side, words in (("source", self.source), ("target", self.target)):
            try:
                both.append(from_words(words))
            except (ValueError, TypeError) as error:
                raise ValueError(f'Redistribute "{self.label}": {side}: {error}') from error
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
            raise ValueError(
                f'Redistribute "{self.label}": connector {connector} needs exactly one edge, got {len(edges)}'
            )
        return edges[0].data

    def validate(self, sdfg: SDFG, state: SDFGState) -> None:
        """
        Checks what can be known before the program runs.

        :raises ValueError: If something does not fit; names the node, what was expected and what was given.
        """
        (source_array, source_subset), (target_array, target_subset) = self.arrays(sdfg, state)
        self._checked(self.strategy, self.options)
        self._validate_symbols(sdfg, state)
        self._validate_types(source_array, target_array)
        self._validate_connectors(sdfg, state)
        self._validate_overlap(state)
        if self.given_at_run_time:
            return
        source, target = self.distributions()
        if len(source.shape) != len(target.shape) or differ(source.shape, target.shape):
            raise ValueError(
                f'Redistribute "{self.label}": source and target need one global shape, '
                f"got {source.shape} and {target.shape}"
            )
        self._validate_local("input", source, source_subset)
        self._validate_local("output", target, target_subset)

    def _validate_connectors(self, sdfg: SDFG, state: SDFGState) -> None:
        for connector in sorted(set(self.in_connectors) - {INPUT}):
            name = self._memlet(connector, state).data
            array = sdfg.arrays[name]
            wrong = f'Redistribute "{self.label}": {connector} must '
            if connector == "_comm" and array.dtype not in dtypes.INTEGER_TYPES:
                raise ValueError(f"{wrong}be an integer that holds an MPI_Comm, got {name} of {array.dtype}")
            if connector == "_grid" and not isinstance(array, ProcessGrid):
                raise ValueError(f"{wrong}be a process grid, got {name}, of type {type(array).__name__}")
            if connector in RUN_TIME_CONNECTORS and array.dtype != dtypes.int64:
                raise ValueError(f"{wrong}hold 64-bit integers, got {name} of {array.dtype}")

    def _validate_overlap(self, state: SDFGState) -> None:
        source, target = self._memlet(INPUT, state), self._memlet(OUTPUT, state)
        if source.data == target.data and subsets.intersects(source.subset, target.subset) is not False:
            raise ValueError(
                f'Redistribute "{self.label}": input {source} and output {target} overlap; a tensor cannot be '
                "redistributed in place"
            )

    def _validate_symbols(self, sdfg: SDFG, state: SDFGState) -> None:
        unknown = self.free_symbols - state.symbols_defined_at(self).keys() - sdfg.constants.keys()
        if unknown:
            raise ValueError(
                f'Redistribute "{self.label}": the program does not know {", ".join(sorted(unknown))}, of which its '
                "sizes or options are made; declare symbols with sdfg.add_symbol"
            )

    def _validate_types(self, source: data.Data, target: data.Data) -> None:
        if source.dtype != target.dtype:
            raise ValueError(
                f'Redistribute "{self.label}": input and output need one element type, '
                f"got {source.dtype} and {target.dtype}"
            )
        for array in (source, target):
            if array.storage in (dtypes.StorageType.GPU_Global, dtypes.StorageType.GPU_Shared):
                raise ValueError(f'Redistribute "{self.label}": arrays must lie in main memory, got {array.storage}')
        if source.dtype.base_type not in ELEMENT_TYPES or source.dtype.veclen > 1:
            known = ", ".join(t.to_string() for t in ELEMENT_TYPES)
            raise ValueError(f'Redistribute "{self.label}": cannot move elements of {source.dtype}; possible: {known}')

    def _validate_local(self, side: str, distribution: AnyDistribution, subset: Any) -> None:
        """The array must hold what the first rank owns, which is never less than what others own."""
        extents = local_extents(subset, distribution)
        ndim = 1 if isinstance(distribution, TiledDistribution) else len(distribution.shape)
        if len(extents) != ndim:
            raise ValueError(
                f'Redistribute "{self.label}": the {side} of a distribution of {len(distribution.shape)} dimensions '
                f"needs a local array of {ndim}, got shape {tuple(extents)}"
            )
        if distribution.is_symbolic or isinstance(distribution, TiledDistribution):
            return
        first = distribution.owner([0] * ndim)
        needed = distribution.local_shape(first)
        if any(symbolic.simplify(have - need).is_negative for have, need in zip(extents, needed, strict=True)):
            raise ValueError(
                f'Redistribute "{self.label}": the local {side} has shape {tuple(extents)}, '
                f"but rank {first} owns {needed} of it"
            )


def plain_number(value: Any) -> Any:
    """A SymPy number as Python's; anything else as it is."""
    if getattr(value, "is_Integer", False):
        return int(value)
    return float(value) if getattr(value, "is_Float", False) else value


def local_extents(subset: Any, distribution: AnyDistribution | None) -> list[Any]:
    """Extents of a memlet's subset; dimensions of one element are left out where there are more than needed."""
    return [extent for extent, _ in local_dimensions(subset, [1] * subset.dims(), distribution)]


def local_dimensions(subset: Any, strides: Any, distribution: AnyDistribution | None) -> list[tuple[Any, Any]]:
    """(extent, stride in elements) per dimension of a memlet's subset of an array with these strides."""
    steps = [step for _, _, step in subset.ndrange()]
    dimensions = [(n, stride * step) for n, stride, step in zip(subset.size(), strides, steps, strict=True)]
    ndim = 1 if isinstance(distribution, TiledDistribution) or distribution is None else len(distribution.shape)
    while len(dimensions) > ndim and (1 in [extent for extent, _ in dimensions]):
        dimensions.pop(next(i for i, (extent, _) in enumerate(dimensions) if extent == 1))
    return dimensions


def differ(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Whether two lists of sizes differ for sure: symbols may turn out equal."""
    return any(symbolic.simplify(x - y).is_zero is False for x, y in zip(a, b, strict=True))

"""Base classes of the nodes of this library: connectors, checks before a program runs, sizes of arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import sympy
from dace import Memlet, data, dtypes, symbolic
from dace.data.distributed import ProcessGrid
from dace.sdfg import SDFG, SDFGState, nodes

from dace_redist.distribution import AnyDistribution, BoxDistribution, TiledDistribution
from dace_redist.library_nodes.views import overlap

#: Element types for arithmetic; the first four are those of BLAS and LAPACK.
NUMBERS = (
    *(dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128),
    *(dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64),
    *(dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64),
)

#: Connectors of the communicator: an integer that holds an ``MPI_Comm``, or a process grid.
COMMUNICATORS = ("_comm", "_grid")

#: Connectors of the local arrays of a node between distributions.
INPUT, OUTPUT = "_inp_buffer", "_out_buffer"


class RedistNode(nodes.LibraryNode):
    """
    Node that computes one output array from input arrays, which may have any strides.

    :cvar element_types: Possible element types; all arrays of a node have the same one.
    :cvar verb: Verb for the operation on elements, in error messages.
    :cvar collective: True if the node communicates, even if this rank's output is not used.
    :cvar takes_gpu_arrays: True if its arrays may lie on the GPU.
    :cvar gpu_remedy: Remedy for arrays on the GPU in error messages, if the node does not accept them.
    :cvar exchanges_halo: True if input and output may be one array, of which only margins are written.
    """

    element_types: ClassVar[tuple[dtypes.typeclass, ...]] = NUMBERS
    verb: ClassVar[str] = "compute with"
    collective: ClassVar[bool] = True
    takes_gpu_arrays: ClassVar[bool] = False
    gpu_remedy: ClassVar[str] = "copy it to main memory before"
    exchanges_halo: Any = False

    @property
    def title(self) -> str:
        """Kind and label, for error messages."""
        return f'{type(self).__name__} "{self.label}"'

    @property
    def operand_connectors(self) -> list[str]:
        """Connectors of the input arrays, in order."""
        raise NotImplementedError

    @property
    def output_connector(self) -> str:
        """Connector of the output array."""
        return str(next(iter(self.out_connectors)))

    @contextlib.contextmanager
    def naming(self, kind: type[Exception] | None = None, part: str = "") -> Iterator[None]:
        """Add the node, and a part of it, to the message of a ValueError or TypeError; raise it as ``kind``."""
        try:
            yield
        except (ValueError, TypeError) as error:
            raise (kind or type(error))(f"{self.title}: {part}{error}") from error

    def _set_factors(self, alpha: Any, beta: Any) -> None:
        for name, factor in (("alpha", alpha), ("beta", beta)):
            if isinstance(factor, complex) or (isinstance(factor, sympy.Basic) and factor.has(sympy.I)):
                raise TypeError(f"{self.title}: {name} must be real in a DaCe program, got {factor}")
            setattr(self, name, factor)

    def memlet(self, connector: str, state: SDFGState) -> Memlet:
        """Return the memlet of a connector; raise a ValueError if it is not connected exactly once."""
        edges = [e for e in state.in_edges(self) if e.dst_conn == connector]
        edges += [e for e in state.out_edges(self) if e.src_conn == connector]
        if len(edges) != 1 or edges[0].data.data is None:
            got = "an empty memlet" if len(edges) == 1 else len(edges)
            raise ValueError(f"{self.title}: connector {connector} needs exactly one edge of an array, got {got}")
        return edges[0].data

    def array(self, connector: str, state: SDFGState) -> data.Data:
        """Return the descriptor of the array at a connector."""
        return state.sdfg.arrays[self.memlet(connector, state).data]

    def validate(self, sdfg: SDFG, state: SDFGState) -> None:
        """
        Check what is known before the program runs.

        :raises ValueError: If a check fails; names the node, the expected and the given value.
        """
        self._validate_symbols(sdfg, state)
        self._validate_communicator(state)

    def validate_types(self, sdfg: SDFG, state: SDFGState) -> None:
        """Raise a ValueError unless all arrays are on a supported device and have one supported element type."""
        self._validate_memory(sdfg, state)
        arrays = [self.array(connector, state) for connector in (*self.operand_connectors, self.output_connector)]
        first = arrays[0].dtype
        if any(array.dtype != first for array in arrays):
            types = ", ".join(str(array.dtype) for array in arrays)
            raise ValueError(f"{self.title}: its arrays need one element type, got {types}")
        if first.base_type not in self.element_types or first.veclen > 1:
            known = ", ".join(t.to_string() for t in self.element_types)
            raise ValueError(f"{self.title}: cannot {self.verb} elements of {first}; possible: {known}")
        for array in arrays:
            if not isinstance(array, data.Array | data.Scalar):
                raise ValueError(f"{self.title}: needs arrays, got {type(array).__name__}")

    def _validate_memory(self, sdfg: SDFG, state: SDFGState) -> None:
        for connector in (*self.operand_connectors, self.output_connector):
            memlet = self.memlet(connector, state)
            array = sdfg.arrays[memlet.data]
            holds = f"{memlet.data} has {array.storage}"
            if memlet.wcr is not None and getattr(self, "beta", 0) == 0:  # automatic differentiation sets both
                raise ValueError(f"{self.title}: the wcr of {memlet} would be ignored; take beta=1 to add to the array")
            if lies_on_gpu(array) and not self.takes_gpu_arrays:
                raise ValueError(f"{self.title}: arrays must lie in main memory, but {holds}: {self.gpu_remedy}")
            if array.storage == dtypes.StorageType.GPU_Shared:
                raise ValueError(f"{self.title}: {holds}, which only a kernel sees; take StorageType.GPU_Global")

    def _validate_overlap(self, state: SDFGState) -> None:
        output = self.memlet(self.output_connector, state)
        for read in [self.memlet(connector, state) for connector in self.operand_connectors]:
            in_place = self.exchanges_halo and (read.data, read.subset) == (output.data, output.subset)
            if not in_place and (shared := overlap(read, output, state)):
                raise ValueError(f"{self.title}: input {read} and output {output} overlap in {shared}")

    def _validate_symbols(self, sdfg: SDFG, state: SDFGState) -> None:
        unknown = self.free_symbols - sdfg.symbols.keys() - sdfg.constants.keys()
        if unknown := unknown and unknown - state.symbols_defined_at(self).keys():  # by a map or a loop
            raise ValueError(
                f"{self.title}: the program does not know {', '.join(sorted(unknown))}, which its properties name; "
                "declare symbols with sdfg.add_symbol"
            )

    def _validate_communicator(self, state: SDFGState) -> None:
        for connector in sorted({*COMMUNICATORS} & set(self.in_connectors)):
            array = self.array(connector, state)
            name, wrong = self.memlet(connector, state).data, f"{self.title}: {connector} must be "
            if connector == "_comm" and array.dtype not in dtypes.INTEGER_TYPES:
                raise ValueError(f"{wrong}an integer that holds an MPI_Comm, got {name} of {array.dtype}")
            if connector == "_grid" and not isinstance(array, ProcessGrid):
                raise ValueError(f"{wrong}a process grid, got {name}, of type {type(array).__name__}")


def local_ndim(distribution: AnyDistribution) -> int:
    """Return the number of dimensions of local arrays in DaCe: at least 1, since DaCe has no arrays of 0 dimensions."""
    in_boxes = isinstance(distribution, BoxDistribution) and distribution.in_lists
    return 1 if in_boxes or isinstance(distribution, TiledDistribution) else max(len(distribution.shape), 1)


def lies_on_gpu(array: data.Data) -> bool:
    """True for an array in the global memory of the GPU."""
    return bool(array.storage == dtypes.StorageType.GPU_Global)


def symbols_of(values: Sequence[Any]) -> set[str]:
    """Return the names of the symbols in some expressions."""
    expressions = [value for value in values if not isinstance(value, int)]  # numbers may be many
    return {str(symbol) for value in expressions for symbol in symbolic.symlist(value).values()}


def plain_number(value: Any) -> Any:
    """Return a SymPy number as a Python number; any other value unchanged."""
    if getattr(value, "is_Integer", False):
        return int(value)
    return float(value) if getattr(value, "is_Float", False) else value


def dimensions_of(subset: Any, strides: Any, ndim: int) -> list[tuple[Any, Any]]:
    """
    Return (extent, stride in elements) of each dimension of a memlet's subset of an array.

    If there are more than ``ndim`` dimensions, those of one element are left out.
    """
    steps = [step for _, _, step in subset.ndrange()]
    dimensions = [(n, stride * step) for n, stride, step in zip(subset.size(), strides, steps, strict=True)]
    while len(dimensions) > ndim and (ones := [i for i, (extent, _) in enumerate(dimensions) if extent == 1]):
        dimensions.pop(ones[0])
    return dimensions


def simplified(expression: Any) -> Any:
    """
    Simplify a sum or product of sizes.

    Polynomials are only expanded, which suffices: SymPy's general simplification loads its physical units, which takes
    a third of a second.
    """
    expression = sympy.sympify(expression)
    return expression.expand() if expression.is_polynomial() else symbolic.simplify(expression)


def differ(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """True if two lists of sizes differ for all values of their symbols."""
    return any(simplified(x - y).is_zero is False for x, y in zip(a, b, strict=True))

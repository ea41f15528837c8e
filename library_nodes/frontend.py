"""Frontend of :func:`dace_redist.redistribute` in a ``@dace.program``, with the same arguments as outside."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import repeat
from typing import Any

import sympy
from dace import data, dtypes, serialize, symbolic
from dace.data.distributed import DistributedDescriptor, ProcessGrid
from dace.frontend.common import op_repository
from dace.frontend.python.common import SDFGConvertible, StringLiteral
from dace.memlet import Memlet
from dace.properties import make_properties
from dace.sdfg import SDFG, SDFGState

from dace_redist.distribution import AnyDistribution, BoxDistribution, Distribution, TiledDistribution
from dace_redist.library_nodes.node import INPUT, OUTPUT, lies_on_gpu
from dace_redist.library_nodes.properties import DistributionProperty
from dace_redist.library_nodes.redistribute import Redistribute
from dace_redist.redistribution.in_program import CallableInProgram, set_builder
from dace_redist.transform import PRECISION, element_type


@op_repository.replaces("dace_redist.redistribute")
@op_repository.replaces("dace_redist.redistribution.redistribute.redistribute")
def _redistribute(
    visitor: Any,
    sdfg: SDFG,
    state: SDFGState,
    array: str,
    source: Any,
    target: Any,
    comm: str | None = None,
    out: str | None = None,
    target_dtype: Any = None,
    **options: Any,
) -> str:
    """
    Add a ``Redistribute`` node.

    :param array: Name of the local source array.
    :param source: Its distribution, built outside or inside of the program; sizes may be symbols of the program.
    :param target: Distribution of ``out``.
    :param comm: Name of an integer that holds an ``MPI_Comm``, or of a process grid; default: the world.
    :param out: Name of the local target array; default: a new one, large enough for the part of any rank, on the GPU
        if ``array`` lies there.
    :param target_dtype: Element type of the target; default: that of ``out``, else of ``array``.
    :param options: Further arguments of :class:`Redistribute`, and options of its strategy.
    :return: Name of the local target array.
    :raises ValueError: If the sizes of an array are unknown, the strategy or an option is unknown, or a region
        does not cover the target and ``out`` is missing.
    :raises TypeError: If source or target is not a distribution.
    """
    source, target = (_built_inside(side, sdfg) for side in (source, target))
    if array not in sdfg.arrays or (out is not None and out not in sdfg.arrays):
        raise ValueError("redistribute: in a DaCe program array and out must be arrays whose sizes it knows")
    given = {name: _plain(value) for name, value in options.items()}
    node = Redistribute(f"redistribute_{array}_{out or 'new'}", source, target, **given)
    wanted = sdfg.arrays[out or array].dtype
    if target_dtype is not None:
        wanted = dtypes.dtype_to_typeclass(element_type(target_dtype).type)
    if out is None:
        out = _new_target(node, sdfg, array, target, wanted)
    if sdfg.arrays[out].dtype != wanted:
        raise TypeError(f"redistribute: out holds {sdfg.arrays[out].dtype}, but target_dtype is {wanted}")
    state.add_node(node)
    state.add_edge(state.add_read(array), None, node, INPUT, Memlet.from_array(array, sdfg.arrays[array]))
    state.add_edge(node, OUTPUT, state.add_write(out), None, Memlet.from_array(out, sdfg.arrays[out]))
    if comm is not None:
        grid = isinstance(sdfg.arrays.get(comm), ProcessGrid)
        connector, memlet = ("_grid", Memlet(data=comm)) if grid else ("_comm", Memlet(f"{comm}[0]"))
        node.add_in_connector(connector)
        state.add_edge(state.add_read(comm), None, node, connector, memlet)
    for number in (*source.encoded, *target.encoded, *node.region, node.alpha, node.beta, *node.options.values()):
        for name, symbol in symbolic.symlist(number).items():
            if name not in sdfg.symbols:
                sdfg.add_symbol(name, symbol.dtype)
    return out


CallableInProgram.__bases__ = (SDFGConvertible,)  # else DaCe forgets by which name a program calls a plan


@set_builder
def _plan_call(plan: Any, array: data.Data, out: data.Data | None) -> SDFG:
    """
    Return the SDFG of a call of a plan: a node with its strategy and options.

    :param array: Descriptor of the source array, of any sizes.
    :param out: Descriptor of the target array; None: a new one is returned, large enough for the part of any rank.
    :raises TypeError: If the plan moves several tensors, or permutes axes after a reshape, or an array has another
        element type than the plan.
    :raises ValueError: As of a call of ``dace_redist.redistribute`` in a program.
    """
    if isinstance(plan.source, list):
        raise TypeError("a plan of several tensors cannot be called in a DaCe program: call redistribute for each")
    sdfg = SDFG("redistribute_by_plan")
    arrays = {"array": (array, plan.dtype)} | ({} if out is None else {"out": (out, plan.target_dtype)})
    for name, (given, dtype) in arrays.items():
        if not isinstance(given, data.Array) or given.dtype.as_numpy_dtype() != dtype:
            got = f"{type(given).__name__} of {given.dtype.to_string()}" if isinstance(given, data.Data) else given
            raise TypeError(f"a plan: {name} must be an array of {dtype}, got {got}")
        inner = copy.deepcopy(given)
        inner.transient, inner.lifetime = False, dtypes.AllocationLifetime.Scope
        sdfg.add_datadesc(name, inner)
        for symbol in inner.free_symbols:
            if symbol.name not in sdfg.symbols:
                sdfg.add_symbol(symbol.name, symbol.dtype)
    closure = plan.__sdfg_closure__()
    for name, value in closure.items():
        sdfg.add_array(name, value.shape, dtypes.int64)
    if plan.schedule.transform.permutes_last and plan.axes is not None:
        raise TypeError("a plan that permutes axes after a reshape cannot be called in a DaCe program: call two plans")
    transform, how = plan.schedule.transform, {"strategy": plan.strategy, **plan.options}
    for name in ("axes", "region", "reshape", "conj", "op", *PRECISION):
        value = getattr(transform, name)
        how[name] = tuple(value) if isinstance(value, tuple) else value
    for name in ("alpha", "beta"):
        factor = complex(getattr(transform, name))
        how[name] = factor if factor.imag else int(factor.real) if factor.real.is_integer() else factor.real
    moved = None if out is None else "out"
    ends = plan.source, plan.target, next(iter(closure), None), moved, plan.target_dtype
    made = _redistribute(None, sdfg, sdfg.add_state(), "array", *ends, **how)
    if out is None:
        sdfg.arrays[made].transient = False
        sdfg.replace(made, "__return")
    sdfg.arg_names = list(arrays)
    return sdfg


def _new_target(node: Redistribute, sdfg: SDFG, array: str, target: AnyDistribution, dtype: dtypes.typeclass) -> str:
    """Add an array for the part of any rank, on the GPU if ``array`` lies there; return its name."""
    if not node.index_map.covers(target.shape):
        raise ValueError("redistribute: region leaves a part of the target as it is: pass its array as out")
    if node.beta != 0:
        raise ValueError("redistribute: beta needs the array whose elements it scales: pass it as out")
    storage = sdfg.arrays[array].storage if lies_on_gpu(sdfg.arrays[array]) else dtypes.StorageType.Default
    return str(sdfg.add_temp_transient(largest_local_shape(target), dtype, storage=storage)[0])


def _built_inside(distribution: Any, sdfg: SDFG) -> Any:
    """Return the distribution bound to a name in a program; other values unchanged."""
    descriptor = sdfg.arrays.get(distribution) if isinstance(distribution, str) else None
    return descriptor.distribution if isinstance(descriptor, DistributionDescriptor) else distribution


def _register_constructor(kind: type[AnyDistribution], name: str, make: Callable[..., AnyDistribution]) -> None:
    """Let programs build distributions by a class or one of its methods: a call adds a descriptor, returns its name."""

    def build(visitor: Any, sdfg: SDFG, state: SDFGState, *arguments: Any, **named: Any) -> str:
        made = make(*map(_plain, arguments), **{key: _plain(value) for key, value in named.items()})
        return str(sdfg.add_datadesc("__distribution", DistributionDescriptor(made), find_new_name=True))

    for module in ("", "dace_redist.", "dace_redist.distribution.", f"{kind.__module__}."):
        op_repository.replaces(module + name)(build)


for _kind in (Distribution, TiledDistribution, BoxDistribution):
    _register_constructor(_kind, _kind.__name__, _kind)
    for _name in (name for name, value in vars(_kind).items() if isinstance(value, classmethod)):
        _register_constructor(_kind, f"{_kind.__name__}.{_name}", getattr(_kind, _name))
    # A constant of a program is part of the key by which DaCe finds the compiled program of a call.
    dtypes._CONSTANT_TYPES.insert(0, _kind)


def _plain(value: Any) -> Any:
    """Return a literal of a program as a Python value: DaCe has a class for strings."""
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value))
    return value.value if isinstance(value, StringLiteral) else value


@make_properties
class DistributionDescriptor(DistributedDescriptor):
    """
    Descriptor of a name to which a program assigns a distribution that it builds.

    It needs no code and no memory; simplifying the program removes it.
    """

    distribution = DistributionProperty(desc="The distribution")

    def __init__(self, distribution: AnyDistribution) -> None:
        self.distribution = distribution
        places = (dtypes.StorageType.Default, None, dtypes.AllocationLifetime.SDFG, None)
        super().__init__(dtypes.int64, [1], True, *places)

    @classmethod
    def from_json(cls, json_obj: dict[str, Any], context: Any = None) -> DistributionDescriptor:
        """Return the descriptor from JSON."""
        made = cls(Distribution((), ()))
        serialize.set_properties_from_json(made, json_obj, context=context)
        return made


def largest_local_shape(distribution: AnyDistribution) -> tuple[Any, ...]:
    """
    Return the shape of a local array large enough for any rank; (1,) for a tensor of 0 dimensions, which DaCe lacks.

    :param distribution: Distribution, whose sizes may be symbols.
    """
    if isinstance(distribution, TiledDistribution):
        ranks = {int(rank) for rank in distribution.owner_of_tile.ravel()}
        return (max((distribution.local_shape(rank)[0] for rank in ranks), default=0),)
    if isinstance(distribution, BoxDistribution):
        return distribution.largest_local_shape
    if not distribution.is_symbolic:
        return tuple(distribution.core.largest_block()) or (1,)
    owned = map(_largest_extent, distribution.shape, distribution.dims, distribution.block, repeat(distribution.grid))
    return tuple(extent + 2 * halo for extent, halo in zip(owned, distribution.halo, strict=True))


def _largest_extent(extent: Any, dim: int | None, block: Any, grid: tuple[Any, ...]) -> Any:
    if dim is None:
        return extent
    if isinstance(block, tuple):
        return sympy.Max(*block)
    if isinstance(block, str):
        return symbolic.int_ceil(extent, grid[dim])
    return symbolic.int_ceil(symbolic.int_ceil(extent, block), grid[dim]) * block

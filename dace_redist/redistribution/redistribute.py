"""Function :func:`redistribute`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy.typing as npt
from mpi4py import MPI

from dace_redist.distribution import AnyDistribution
from dace_redist.integers import AnyBytes, AnyInt, AnyInts, AnyNumber
from dace_redist.redistribution.cache import NO_OPTIONS, Keywords, Settings, move, typed
from dace_redist.redistribution.distributed_array import DistributedArray, redistribute_known
from dace_redist.redistribution.forms import redistribute_in_form
from dace_redist.redistribution.problem import Distributions, Named, Types

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Lists = list[Any] | tuple[Any, ...]


@overload
def redistribute(array: DistributedArray, source: AnyDistribution, **how: Unpack[Keywords]) -> DistributedArray: ...
@overload
def redistribute(
    array: npt.NDArray[Any], source: AnyDistribution, target: AnyDistribution, **how: Unpack[Keywords]
) -> npt.NDArray[Any]: ...
@overload
def redistribute(
    array: _Lists, source: Distributions, target: Distributions | None = None, **how: Unpack[Keywords]
) -> list[Any]: ...
@overload
def redistribute(
    array: Mapping[str, Any] | None, source: Named, target: Named | None = None, **how: Any
) -> dict[str, Any]: ...
@overload
def redistribute(
    array: Any, source: Distributions | None = None, target: Distributions | None = None, **how: Unpack[Keywords]
) -> Any: ...
def redistribute(
    array: Any,
    source: Distributions | Named | None = None,
    target: Distributions | Named | None = None,
    *,
    comm: MPI.Intracomm | MPI.Intercomm | None = None,
    out: Any = None,
    strategy: str = "Auto",
    axes: AnyInts | Sequence[AnyInts | None] | None = None,
    region: Sequence[Any] | None = None,
    target_dtype: Types | None = None,
    alpha: AnyNumber | Sequence[AnyNumber] = 1,
    beta: AnyNumber | Sequence[AnyNumber] = 0,
    conj: bool | Sequence[bool] = False,
    op: str | Sequence[str | None] | None = None,
    reshape: AnyInts | Sequence[AnyInts | None] | None = None,
    wire: Types | None = None,
    within_nodes: bool | Sequence[bool] = False,
    accumulate: Types | None = None,
    reproducible: bool | Sequence[bool] = False,
    memory_bytes: AnyBytes | None = None,
    **options: AnyInt | float,
) -> Any:
    """
    Move a distributed tensor. Collective over ``comm``.

    Lists or tuples in the places of ``array``, ``source`` and ``target`` (and ``out``) move several tensors in one
    exchange, as :func:`dace_redist.plan` does; dicts do so by name, and the result is a dict. The first call with a
    pair of distributions makes a plan, which later calls reuse. Where the installation brings no library for the MPI,
    the first call on a machine builds it, and keeps it on disk for later processes.

    ``redistribute(array, target)`` takes an array that knows its distribution: a :class:`DistributedArray`, or one of
    another library, see :mod:`dace_redist.interop`. It returns a :class:`DistributedArray`; of lists, a list. Default
    of ``comm`` is the array's; a rank without such an array, which is an error on every rank, takes the world.

    ``comm`` may be an intercommunicator, to move between its groups: the group that passes arrays has the source, and
    gets None; the other passes None for ``array``. Both pass both distributions, with ranks of their groups. A group
    that waits for the other for an hour (``DACE_REDIST_GROUP_SECONDS``) gets an error.

    Parameters that are not listed here, and errors, are those of :func:`dace_redist.plan`.

    :param array: This rank's part of the source. Its shape is ``source.local_shape(rank)``, with any strides. A rank
        that owns nothing of the source may pass None, also in a list. An array of NumPy, or of
        CuPy, PyTorch or another library with ``__cuda_array_interface__`` or ``__dlpack__``, in main memory or on a
        GPU. Not a ``numpy.ma.MaskedArray``: redistribute its data and its mask.
    :param out: This rank's part of the target, not overlapping ``array``; in a halo exchange it may be ``array``. Its
        shape is ``target.local_shape(rank)``. Required with ``beta``, and with a ``region`` that does not cover the
        target. Default: a new C-order array of the library and on the device of ``array``; in main memory it is
        node-shared if the strategy copies directly into it. Without ``source`` it may be a :class:`DistributedArray`.
    :param target_dtype: Element type of the target; default: that of ``array``.
    :return: This rank's part of the target: ``out`` if given. Without ``source`` a :class:`DistributedArray`.
    :raises RedistributionError: If MPI or a GPU fails, or the other group does not call.
    :raises MemoryError: On every rank, if a new array does not fit into the memory of one.
    """
    change = axes, region, target_dtype, alpha, beta, conj, op, reshape, wire, within_nodes, accumulate, reproducible
    how: Settings = change, strategy, memory_bytes, typed(options) if options else NO_OPTIONS, None
    if isinstance(source, dict) or isinstance(target, dict) or isinstance(comm, MPI.Intercomm):
        return redistribute_in_form(array, source, target, comm, out, how)
    if target is None or source is None:
        return redistribute_known(array, target if source is None else source, comm, out, how)
    return move(array, source, target, comm, out, how)

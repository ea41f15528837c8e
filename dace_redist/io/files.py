"""Functions :func:`load` and :func:`save`. What needs MPI is imported at the first call."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, overload

import numpy as np
import numpy.typing as npt

from dace_redist.distribution import AnyDistribution, check_distribution
from dace_redist.errors import remedies
from dace_redist.integers import AnyBytes, AnyInt, AnyInts, checked_memory_bytes
from dace_redist.io.pieces import Selection, checked_ranks
from dace_redist.io.stored import Layout, StoredInfo, format_of, inspect_file, naming, new_names, open_same
from dace_redist.mpi.collective import check_congruent, checked_communicator, together
from dace_redist.mpi.launch import check_ranks
from dace_redist.redistribution.arrays import array_view
from dace_redist.redistribution.arrays.new import new_array
from dace_redist.strategies import find_strategy
from dace_redist.transform import Transform

if TYPE_CHECKING:
    from mpi4py import MPI
    from typing_extensions import Unpack

    from dace_redist.redistribution.distributed_array import DistributedArray

_Path = str | bytes | os.PathLike[str]


class _Reading(TypedDict, total=False):
    """Keyword arguments of :func:`load`, for type checkers."""

    comm: MPI.Intracomm | None
    name: str | None
    names: Sequence[str] | None
    index: Any
    target_dtype: npt.DTypeLike | None
    readers: AnyInt | AnyInts | None
    memory_bytes: AnyBytes | None
    strategy: str
    progress: bool


_Targets = Mapping[str, AnyDistribution] | Callable[[str, tuple[int, ...]], AnyDistribution]


@overload
def load(path: _Path, target: AnyDistribution, **how: Unpack[_Reading]) -> DistributedArray: ...
@overload
def load(path: _Path, target: _Targets, **how: Unpack[_Reading]) -> dict[str, DistributedArray]: ...
def load(
    path: _Path,
    target: Any,
    *,
    comm: MPI.Intracomm | None = None,
    name: str | None = None,
    names: Sequence[str] | None = None,
    index: Any = None,
    target_dtype: npt.DTypeLike | None = None,
    readers: AnyInt | AnyInts | None = None,
    memory_bytes: AnyBytes | None = None,
    strategy: str = "Auto",
    progress: bool = False,
) -> Any:
    """
    Read a distributed array from a file. Collective over ``comm``.

    Some ranks read long contiguous pieces or whole chunks, and exchanges bring the elements where they belong. If every
    rank's part consists of long contiguous runs, or of whole chunks, each rank reads its own. Runs are long from 1 MiB
    on, in ``.npy`` and ``.safetensors`` files from a block of their file system on, but at least 16 KiB. Of a shorter
    array each rank reads its part, whatever its runs.

    :param path: File ``.npy``, of HDF5 (``.h5``, ``.hdf5``, ``.hdf``, ``.he5``) or netCDF-4 (``.nc``, ``.nc4``),
        ``.safetensors``, index ``.safetensors.index.json`` of several, or folder ``.zarr``; a name without an ending is
        a folder of ``.npy`` files.
    :param target: Distribution of the result. For several arrays a dict of distributions by name, or a function of name
        and shape that returns one.
    :param names: Names for the function ``target``. Default: all arrays, see :func:`dace_redist.inspect_file`.
    :param comm: mpi4py communicator; default: the world.
    :param name: Dataset of an HDF5 file, or tensor of safetensors, default: its only one; path in a Zarr store,
        default: its root; name of a file in a folder, without ``.npy``.
    :param index: Part of the file's array, or of each of them, as of ``numpy.s_``: slices of positive step, integers
        and an Ellipsis. Default: all of it.
    :param target_dtype: Element type of the result; default: that of the file, in this machine's byte order.
    :param readers: Number of ranks that read, or a list of them. The others need not see the file. Default: one rank
        for each 4 MiB, at equal distances.
    :param memory_bytes: Maximum bytes of buffers per rank, or ``"1GiB"``. Default: pieces of 64 MiB, and the buffers of
        the strategy.
    :param strategy: Strategy of the exchanges.
    :param progress: True for a progress bar on rank 0, or a line every 10 seconds where the output is no terminal.
    :return: The array, in node-shared memory if there is enough; zeros in margins beyond its ends. Of several arrays a
        dict by name.
    :raises OSError: On every rank, if a rank that reads cannot open or read the file.
    :raises ValueError: On every rank, if an argument is invalid on one of them, or the file is damaged, or ranks see
        different arrays.
    :raises TypeError: On every rank, if elements of the file cannot be converted to ``target_dtype``.
    :raises RuntimeError: On every rank, if h5py or zarr is missing, or fails.
    """
    with remedies("dace_redist.load"):
        from dace_redist.io.access import Access, run_all
        from dace_redist.redistribution.distributed_array import DistributedArray

    comm = checked_communicator(comm)
    with together(comm):
        path, form = format_of(path)
        named, limit = checked_ranks("readers", readers, comm.size), checked_memory_bytes(memory_bytes)
    leader, several = named[0] if isinstance(named, tuple) else 0, isinstance(target, Mapping) or callable(target)
    targets = _targets(comm, path, target, name, names, leader) if several else {name: target}
    with together(comm):
        for key, side in targets.items():
            _check(key, side, comm.size)
    given = {"index": index, "target_dtype": target_dtype, "readers": named}
    _check_same(comm, targets, path=path, **given, memory_bytes=memory_bytes, strategy=strategy)
    layouts: dict[str | None, Layout] = {}
    with together(comm), naming(path):
        for key in targets if comm.rank == leader else ():
            with contextlib.closing(form.open_array(path, key)) as first:
                layouts[key] = first.layout
    layouts = comm.bcast(layouts, leader)
    with together(comm):
        read = [_Read(path, *one, layouts[one[0]], index, target_dtype, comm.rank) for one in targets.items()]
    how = limit, strategy, path, f"load {path}" if progress else ""
    parts = []
    for part in read:
        own = part.out.dtype == part.layout.dtype
        opened = functools.partial(open_same, form, path, part.name, part.layout)
        parts.append(Access(comm, part.selection, part.target, part.out, opened, *how, named, own))
    run_all(comm, path, parts, reading=True)
    arrays = {part.name: DistributedArray(part.out, part.target, comm) for part in read}
    return arrays if several else arrays[name]


def _targets(
    comm: MPI.Intracomm, path: str, target: Any, name: str | None, names: Any, leader: int
) -> dict[str | None, Any]:
    """Return the distributions of several arrays by name. Collective."""
    found: dict[str | None, StoredInfo] = {}
    with together(comm, {"names": names}):
        if name is not None:
            raise ValueError(f"name is for one array, got {name!r} and several: pass their names with the targets")
        if isinstance(target, Mapping):
            if names is not None:
                raise ValueError("names are for a function as target; a dict has its own")
            if not target:
                raise ValueError("target must have names, at least one")
        elif comm.rank == leader:
            found = inspect_file(path)
    if isinstance(target, Mapping):
        return {one: target[one] for one in sorted(target, key=str)}
    found = comm.bcast(found, leader)
    with together(comm):
        wanted = sorted(found, key=str) if names is None else list(names)
        if not wanted or not set(wanted) <= set(found):
            raise ValueError(f"names must be some of the arrays of {path!r}: {', '.join(map(str, found))}; got {names}")
        return {one: target(one, found[one].shape) for one in wanted}
    raise AssertionError  # for type checkers


class _Read:
    """Array to be read, and its part of the file."""

    def __init__(
        self, path: str, name: str | None, target: AnyDistribution, layout: Layout, index: Any, kind: Any, rank: int
    ) -> None:
        self.name, self.target, self.layout = name, target, layout
        self.selection = Selection.of(layout, index)
        shape, of = self.selection.selected.shape[layout.order], "" if name is None else f" of {name!r}"
        if shape != tuple(target.shape):
            raise ValueError(
                f"load: target{of} must have the shape {shape} of the array in {path!r}, got {target.shape}"
            )
        element = _converted(layout.dtype, kind, len(shape))
        zeros = any(target.halo)  # margins at the ends of the array
        self.out = new_array(None, target.local_shape(rank), element, "cpu", shared=True, zeros=zeros)


def save(
    path: _Path,
    array: DistributedArray | Mapping[str, DistributedArray],
    *,
    name: str | None = None,
    target_dtype: npt.DTypeLike | None = None,
    writers: AnyInt | AnyInts | None = None,
    memory_bytes: AnyBytes | None = None,
    strategy: str = "Auto",
    progress: bool = False,
    **storage: Any,
) -> None:
    """
    Write a distributed array to a file. Collective over the communicator of the array.

    The array is written beside the old file, with its mode and owner, and replaces it when it is complete: if anything
    fails, the old file is as it was. All else in an HDF5 or safetensors file, which is copied, or a Zarr store stays;
    consolidated metadata is renewed. An old array leaves its attributes and, if shape and element type are equal and
    ``storage`` is empty, its chunks, filters, fill value, links and dimension scales. Data of all files but Zarr's is
    on the disk when the function returns.

    :param path: File or folder, as for :func:`load`.
    :param array: Array to write; several as a dict by name. Those of an HDF5 or safetensors file replace the old ones
        together, others one after another when all are complete.
    :param name: Dataset of an HDF5 file, or tensor of safetensors, default: ``data``; else as for :func:`load`.
    :param target_dtype: Element type in the file; default: that of the array.
    :param writers: As ``readers`` of :func:`load`. An HDF5 dataset with any of ``storage`` is written by one rank.
    :param memory_bytes, strategy, progress: See :func:`load`.
    :param storage: Arguments of ``h5py.Group.create_dataset`` or ``zarr.create_array``; ``fortran_order`` of ``.npy``
        files; ``metadata`` of safetensors, a dict of texts. New arrays of a Zarr store have its format.
    :raises OSError: On every rank, if a rank that writes cannot, as on a full disk.
    :raises ValueError: On every rank, if an argument is invalid on one of them; if ``name`` lies below an array or on a
        link out of the file; if a dataset with dimension scales or further hard links cannot stay.
    :raises TypeError: On every rank, if elements cannot be converted to ``target_dtype``, or the format has no such
        type; or ``array`` is not a DistributedArray on one of them, which then takes the world for the communicator.
    :raises RuntimeError: On every rank, if h5py or zarr is missing, or fails.
    """
    with remedies("dace_redist.save"):
        from dace_redist.io.access import Access, replacing, run_all
        from dace_redist.redistribution.distributed_array import DistributedArray

    several, arrays = isinstance(array, Mapping), dict[str | None, Any]({name: array})
    if isinstance(array, Mapping):
        arrays = {key: array[key] for key in sorted(array, key=str)}
    known = (one.comm for one in arrays.values() if isinstance(one, DistributedArray))
    comm = checked_communicator(next(known, None))
    with together(comm):
        if not arrays or (several and name is not None):
            raise ValueError("array must have names, at least one, in place of the argument name")
        path, form = format_of(path)
        _check_storage(storage)
        named, limit = checked_ranks("writers", writers, comm.size), checked_memory_bytes(memory_bytes)
        kinds = {key: _saved_type(key, one, target_dtype, comm) for key, one in arrays.items()}
        names = new_names(arrays, form.RESERVED)
    sides = {key: one.distribution for key, one in arrays.items()}
    given = {
        "element_type": ", ".join(map(str, kinds.values())),
        "writers": named,
        "op": ", ".join(str(one.op) for one in arrays.values()),
        "storage": storage,
    }
    _check_same(comm, sides, path=path, **given, memory_bytes=memory_bytes, strategy=strategy)
    leader = named[0] if isinstance(named, tuple) else 0
    shapes = {key: side.shape for key, side in sides.items()}
    layouts = {names[key]: Layout(shape, kinds[key], (1,) * len(shape)) for key, shape in shapes.items()}
    create = functools.partial(form.create, path, layouts, dict.fromkeys(layouts, storage))
    with replacing(comm, path, leader, create) as made:
        how = limit, strategy, path, f"save {path}" if progress else ""
        parts = []
        for new, one in zip(made, arrays.values(), strict=True):
            own = new.layout.dtype == one.dtype and isinstance(one.local, np.ndarray) and one.local.flags.c_contiguous
            ranks, opened = (leader,) if new.one_writer else named, functools.partial(form.open_new, new)
            selection, side = Selection.of(new.layout), one.distribution
            parts.append(Access(comm, selection, side, one.local, opened, *how, ranks, own, one.op))
        run_all(comm, path, parts, reading=False)


def _check_storage(storage: Mapping[str, Any]) -> None:
    """Check arguments of libraries where these have no clear error."""
    own = sorted({"shape", "dtype", "data", "store"} & {*storage})
    if own:
        raise TypeError(f"save takes no {own[0]}: arrays have their shape and type in the file; see target_dtype")
    chunks = storage.get("chunks")
    if isinstance(chunks, tuple | list) and not all(chunks):
        raise ValueError(f"chunks must have at least 1 element along each axis, got {chunks}")


def _saved_type(name: str | None, array: Any, kind: Any, comm: MPI.Intracomm) -> np.dtype[Any]:
    """Check an array to be saved; return its element type in the file."""
    from dace_redist.redistribution.distributed_array import DistributedArray

    if not isinstance(array, DistributedArray):
        kind = type(array).__name__
        raise TypeError(f"array must be a DistributedArray, got {kind}: pass DistributedArray(array, distribution)")
    check_congruent(array.comm, comm)
    _check(name, array.distribution, comm.size)
    view = array_view("array", array.local)
    if view.device == "gpu":
        raise ValueError("save: array must lie in main memory, but lies on the GPU: copy it first")
    return _converted(view.dtype, kind, len(array.distribution.shape))


def _check(name: Any, distribution: Any, size: int) -> None:
    """Check arguments that loading and saving share."""
    check_distribution("target", distribution)
    check_ranks("target", distribution, size)
    if not isinstance(name, str | None):
        raise TypeError(f"name must be the name of an array in the file, or None, got {name!r}")


def _check_same(comm: MPI.Intracomm, sides: Mapping[str | None, AnyDistribution], **others: Any) -> None:
    """Check that ranks have equal arguments, names and distributions. Collective."""
    others["name"] = [*sides] if len(sides) > 1 else next(iter(sides))
    others["distribution"] = [(side, hash(side.encoded)) for side in sides.values()]  # whose text may leave out boxes
    with together(comm, others):
        find_strategy(others["strategy"])


def _converted(dtype: np.dtype[Any], target_dtype: Any, ndim: int) -> np.dtype[Any]:
    """Return the type that elements are converted to; a TypeError if they cannot be."""
    return Transform(ndim, dtype, target_dtype).target_dtype

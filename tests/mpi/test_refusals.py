"""Calls that are refused: the same error on all ranks, whether all of three make the call or one; then a call works."""

from __future__ import annotations

import copy
import functools
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributions import rows_to_columns
from mpi4py import MPI
from numpy.lib.stride_tricks import as_strided
from results import raise_anywhere

import dace_redist
from dace_redist import BoxDistribution, DistributedArray, Distribution

#: A part begins with a call that is right. A line is a call, the exception and a pattern of its words, which may be on
#: the next line. All ranks make the call; then one, while the others make the right one, but for those of "each rank".
TABLE = r"""
== move()
move(source=wide)  # ValueError: names ranks up to 3, .* start the program with mpiexec -n 4, or pass
move(target=TiledDistribution((6, 8), (6, 4), [[0, 9]]))  # ValueError: names ranks up to 9, but the communicator has
move(part.view("V8").astype([]))  # TypeError: has no fixed size: expected
move(part.astype(object), out=None)  # TypeError: has no fixed size: expected
move(source=None)  # TypeError: array must be a DistributedArray or one of another library if source is left out
move(target=Distribution((6, 9), [2]))  # ValueError: one global shape, got \(6, 8\) and \(6, 9\)
move(part[:, 1:])  # ValueError: array must have the shape \(2, 8\) that rank
move(part.tolist())  # TypeError: array must be an array of NumPy, .*got list
move(axes=(0, 0))  # ValueError: axes must name each of the 2 dimensions once, got \(0, 0\)
move(axes="ab")  # TypeError: axes must be a sequence of integers, got 'ab'
move(axes=(1, 0))  # ValueError: with axes \(1, 0\) a source of shape \(6, 8\) needs a target of shape \(8, 6\)
move(alpha=10**400)  # ValueError: alpha must be a number that float64 can hold, got 1000
move(conj=np.array(True))  # TypeError: conj must be True or False, got array
move(region=((0, 0), (0, 0), (2, 1)), out=None)  # ValueError: region leaves a part of the target as it is
move(out=out[:, :1])  # ValueError: out must have the shape \(6, \d\) that rank
move(out=out.astype("f4"))  # TypeError: out must hold float64, got float32; target_dtype=numpy.float32 converts
move(out=out.astype(">f8"))  # TypeError: out must hold float64, got >f8
move(out=frozen)  # ValueError: out is read-only: pass a writeable array
move(out=as_strided(out, out.shape, (8, 0)))  # ValueError: out has elements that share memory, by its shape .* a copy
move(memory[:16].reshape(2, 8), out=memory[15:33].reshape(6, 3)[:, : out.shape[1]])  # ValueError: array and out overlap
move(out=x)  # TypeError: out must .*; take its local array
move(memory_bytes=5)  # ValueError: memory_bytes is 5, but strategy Hierarchical needs at least \d+ bytes here
move(memory_bytes=300)  # ValueError: needs at least \d+ bytes here; Pipelined takes as little as \d+
move(memory_bytes=1 << 20, strategy="Pack")  # ValueError: which memory_bytes cannot bound; use Pipelined
move(memory_bytes="1X")  # ValueError: memory_bytes must be an amount such as 4GiB, .*, got '1X'
move(memory_bytes=[1])  # TypeError: memory_bytes must be an integer, got \[1\]
move(memory_bytes=99, strategy="Pipelined", chunk_bytes=80, depth=2)
# ValueError: at least \d+ bytes here with depth and chunk_bytes as given
move(strategy="Packed")  # ValueError: unknown strategy 'Packed' \(did you mean Pack\?\); choose from .*Pipelined
move(strategy="Pack", chunk_byte=8)  # ValueError: Pack does not take option 'chunk_byte'; it takes max_in_flight_bytes
move(strategy="Pipelined", chunk_bytes=0)  # ValueError: option chunk_bytes must be .*1.*got 0
move(strategy="Pipelined", chunk_bytes=1e6)  # TypeError: option chunk_bytes must be an integer .* got 1000000\.0
move(strategy="Pipelined", depth=True)  # TypeError: option depth must be an integer .*got True
move(strategy="Pipelined", growth=float("nan"))  # ValueError: option growth must be .*got nan
move(strategy="Threaded", threads=-1)  # ValueError: option threads must be .*got -1
redistribute(x)  # TypeError: target must be .*, got None
redistribute(x, "columns")  # TypeError: target must be a Distribution
redistribute(part, columns)  # TypeError: source is left out: .*got numpy.nd
redistribute(alone, columns)  # ValueError: these are 1 rank, comm has 3
redistribute([x, x], [rows])  # ValueError: lists of equal length
== each rank: move()
move(None, out=None)  # ValueError: array (is None on every rank: pass an empty array|must have the shape .* got None)
move(part if last else None)  # ValueError: array must have the shape \(2, 8\) that rank \d owns of the tensor, got None
redistribute(None, none, none, out=np.zeros((0, 8)), target_dtype="f8")  # ValueError: array is None on every rank: pass
redistribute([part, None], [rows, none], [columns, none_of_columns])
# ValueError: array\[1\] is None on every rank: pass an empty array
move(strategy="Pack" if last else "Auto")  # ValueError: strategy: Hierarchical on rank 0 and Pack on rank 2
move(**({"max_message_bytes": 64} if last else {}))  # ValueError: options: none on rank 0 and max_message_bytes=64
move(part.astype("f4" if last else "f8"), out=None)  # ValueError: dtype: float64 on rank 0 and float32 on rank 2
move(source=Distribution((6, 8), [3], block="ceil" if last else None))
# ValueError: source: Distribution.* on rank 0 and Distribution.*ceil.* on rank
move(target=TiledDistribution((6, 8), (6, 8), [[0]]) if last else columns, out=None)
# ValueError: target: Distribution.* on rank 0 and TiledDistribution.* on rank
move(target=BoxDistribution((6, 8), [((0, 0), (6, 8))], [0]) if last else columns, out=None)
# ValueError: target: Distribution.* on rank 0 and BoxDistribution.* on rank
redistribute(x if last else part, columns)  # TypeError: source is left out
move(comm=MPI.COMM_NULL)  # TypeError: comm must be an mpi4py intra-communicator
move(comm=MPI.REQUEST_NULL)  # TypeError: comm must be an mpi4py intra-communicator
move(comm=MPI.GROUP_EMPTY)  # TypeError: comm must be an mpi4py intra-communicator
move(comm="world")  # TypeError: comm must be an mpi4py intra-communicator
move(comm=0)  # TypeError: comm must be an mpi4py intra-communicator
redistribute(x, columns if last else rows)  # ValueError: the ranks differ in target: Distribution
x.redistribute(columns, out=y if last else x)  # ValueError: out must be distributed as target
move(**({"axes": (1, 0)} if last else {"reshape": (8, 6)}), target=turned, out=None)
# ValueError: axes, region or reshape: reshape to \(8, 6\) on rank 0 and axes \(1, 0\) on rank 2
== plan(rows, columns, "f8").free()
plan([rows], [columns, columns], "f8")  # ValueError: lists of equal length, at least 1, .*: got 1 and 2
plan([rows], columns, "f8")  # ValueError: got 1 and no list
plan([], [], "f8")  # ValueError: got 0 and 0
plan([rows] * 2, [columns] * 2, "f8", strategy="RAM")  # ValueError: unknown strategy 'RAM'
plan([rows] * 2, [columns] * 2, "f8", op=["sum", "sun"])  # ValueError: op
plan([rows] * 2, [columns] * 2, "f8", memory_bytes=99)  # ValueError: memory_bytes is for one tensor
plan([rows] * 2, [columns] * 2, "f8", alpha=[1, 2, 3])
# ValueError: alpha must be a list of 2 values, one per tensor, got 3
plan([rows] * 2, [columns] * 2, "f8", reshape=[(6, 8)] * 3)
# ValueError: reshape must be a list of 2 values, one per tensor, got 3
plan([rows] * 2, [columns] * 2, "f8", reshape=[4, 6])  # TypeError: reshape must be a sequence of integers, got 4
plan(rows, turned, "f8", reshape=(6, 8))  # ValueError: reshape must be the shape of the target, \(8, 6\), got \(6, 8\)
plan(vast, vast, "f8")  # ValueError: source of shape .* would have 9.22e.18 bytes: give smaller sizes
== each rank: plan(rows, columns, "f8").free()
plan([rows] * (1 + last), [columns] * (1 + last), "f8")  # ValueError: number of tensors: 1 on rank 0 and 2 on rank 2
plan(rows, turned, "f8", **({"axes": (1, 0)} if last else {"reshape": (8, 6)}))
# ValueError: the length of axes, region and reshape: 3 on rank 0 and 2 on rank 2
== gather(part, rows)
gather(part[1:], rows)  # ValueError: array must have the shape \(2, 8\)
gather(part, rows, root="0")  # TypeError: root must be an integer, got '0'
gather(part, rows, root=True)  # TypeError: root must be an integer, got True
x.gather(3)  # ValueError: root must be from 0 to 2, got 3
== scatter(whole if first else None, rows)
scatter(whole, rows, root=3)  # ValueError: root must be from 0 to 2, got 3
scatter(whole, "rows")  # TypeError: target must be a Distribution
== each rank: scatter(whole if first else None, rows)
scatter(None, rows)  # TypeError: whole must be an array of NumPy
scatter(whole.T, rows)  # ValueError: whole must have shape \(6, 8\), got \(8, 6\)
scatter(whole, rows, root=rank)  # ValueError: the ranks differ in root
save(path, part)  # TypeError: got ndarray: pass DistributedArray
x.to("numpy")  # ValueError: library must be one of .*, got 'numpy'
DistributedArray(part[1:], rows, comm)  # ValueError: local must have the shape \(2, 8\)
DistributedArray(part, rows, MPI.COMM_SELF)  # ValueError: up to 2, but the comm.* has 1
DistributedArray(part, (2,), comm)  # TypeError: distribution must be a Distribution, Til
DistributedArray([[1]], rows, comm)  # TypeError: local must be an array of NumPy
DistributedArray(part, rows, comm, op="avg")  # ValueError: op must be one of sum, prod, min, max, or None, got 'avg'
DistributedArray.from_function(lambda i: i, rows)
# TypeError: function must take an array of indices for each axis: too many
x[0]  # TypeError: no indices: call dace_redist.einsum
x.__setitem__(0, 1.0)  # TypeError: no indices: call dace_redist.einsum
bool(x)  # TypeError: no truth value: call dace_redist.einsum
x == x  # TypeError: numpy.equal takes no DistributedArray: call dace_redist.einsum .* take its local array
whole @ x  # TypeError: numpy.matmul takes no DistributedArray: call dace_redist.einsum
x + 1  # TypeError: numpy.add takes no DistributedArray: call dace_redist.einsum
np.ones(8) * x  # TypeError: takes no DistributedArray: call dace_redist.einsum for .*, allgather\(\) for
[np.sum(x), np.asarray(x)]  # TypeError: call dace_redist.einsum .* take its local array
np.asarray(x)  # TypeError: call dace_redist.einsum .* take its local array
np.isnan(x)  # TypeError: call dace_redist.einsum .* take its local array
[*x]  # TypeError: call dace_redist.einsum .* take its local array
None in [x]  # TypeError: call dace_redist.einsum .* take its local array
copy.deepcopy(started)  # TypeError: a request cannot be copied or pickled
pickle.dumps(started)  # TypeError: a request cannot be copied or pickled
copy.copy(made)  # TypeError: a plan cannot be copied or pickled
pickle.dumps(made)  # TypeError: a plan cannot be copied or pickled
idle([part])  # ValueError: array must be a list of 2 arrays, one per tensor, got 1
idle([part, part], out=[out, part])  # ValueError: out\[1\] must have the shape
== load(path, rows)
load(text, rows)  # ValueError: must end in one of .npy, .h5
load(path, "rows")  # TypeError: must be a Distribution, .* or BoxDistribution, got 'rows'
load(path, Distribution((8, 6), (3,)))  # ValueError: shape \(6, 8\) of .* got \(8, 6\)
load(path, Distribution((6, 8), (5,)))  # ValueError: ranks up to 4, but .* has 3
load(path, rows, target_dtype="i4")  # TypeError: cannot convert elements of float64
load(path, rows, readers=4)  # ValueError: readers must be a number from 1 to 3
load(path, rows, readers=[0, 0])  # ValueError: different ranks below 3
load(path, rows, readers="all")  # TypeError: readers must be a number of ranks
load(path, rows, index=np.s_[::-1])  # ValueError: steps of at least 1
load(path, rows, index=9)  # ValueError: index 9 is out of range
load(path, rows, index=[0, 1])  # TypeError: slices, integers and an Ellipsis
load(path, rows, index=np.s_[:, :, :])  # ValueError: at most one entry per axis
load(path, rows, memory_bytes=0)  # ValueError: memory_bytes must be at least 1
load(path, rows, strategy="Pck")  # ValueError: unknown strategy 'Pck'
load(path, rows, name=3)  # TypeError: name must be the name of an array .* got 3
load(path, {"u": flat})  # ValueError: name must be one of the datasets of .*a.h5': data; got 'u'
load(other, rows, name="x")  # ValueError: has no name, got name='x'
load(None, rows)  # TypeError: str, bytes or os.PathLike
load(rows, path)  # TypeError: path must be .*os.PathLike object, not Distribution
load(path.with_name("none.h5"), rows)  # FileNotFoundError: No such file or directory: '.*none.h5'
== each rank: load(path, rows)
load(path, rows, name="one" if last else "other")  # ValueError: ranks differ in name: 'other' on rank 0 and 'one'
load(path if last else other, rows)  # ValueError: the ranks differ in path: .*b.npy
== save(copied, x)
save(path, x, memory_bytes=0)  # ValueError: memory_bytes must be at least 1, got 0
save(path, x, memory_bytes=8)  # ValueError: must be at least 32 for chunks of .* got 8
save(text, x)  # ValueError: must end in one of
save(other, x, chunks=(2, 2))  # TypeError: takes fortran_order and no other
save(path, x, chunks=(9, 9))  # ValueError: [Cc]hunk
save(folder, x)  # ValueError: is a folder
save(path.with_name("none") / "a.npy", x)  # FileNotFoundError: No such file or directory
save("", x)  # ValueError: path must be the name of a file or folder, got ''
save(path.with_name("a.h5"), x, dtype="f4")  # TypeError: save takes no dtype: .* see target_dtype
save(path.with_name("a.zarr"), x, chunks=(0, 1))  # ValueError: chunks must have at least 1 element
save(path, x, writers=0)  # ValueError: writers must be a number from 1
save(path, x, target_dtype="i4")  # TypeError: cannot convert elements
== einsum("ij->j", x)
einsum("ij,jk->ik", x, x)  # ValueError: index 'j' has size 8 in operand 0 \('ij'\) but size 6 in operand 1 \('jk'\)
einsum("ii", x)  # ValueError: index 'i' has sizes 6 and 8 in operand 0 \('ii'\)
einsum("i1->i", x)  # ValueError: '1' in 'i1' is not an index; expected letters
einsum("ij->ik", x)  # ValueError: the result has the index 'k', which no operand has
einsum("ij,jk->ik", x)  # ValueError: einsum 'ij,jk->ik' has 2 operands, got 1 arrays
einsum("ijk->ik", x)  # ValueError: operand 0 has the indices 'ijk', but its array has 2 dimensions
einsum(3, x)  # TypeError: the subscripts must be a string such as 'ij,jk->ik', .* got 3
einsum(x, [0, "j"])  # TypeError: the subscripts must be a string such as .* or a list of axes .* got \[\[0, 'j'\]\]
einsum(x, [0, 1, 2])  # ValueError: operand 0 has the indices 'abc', but its array has 2 dimensions
einsum("ij,j->i", x, np.arange(8.0))  # TypeError: operand 1 is a NumPy array: pass DistributedArray\(array, dist.*repl
einsum("ij->i", x, target=rows)  # ValueError: the result has shape \(6,\), its target \(6, 8\)
einsum("ij->i", x, target=3)  # TypeError: target must be a Distribution
einsum("ij->i", x, target=Distribution((6,), (99,)))  # ValueError: the target distribution names ranks up to 98
einsum("ij->i", x, out=np.zeros(6))  # TypeError: out must be a DistributedArray, .*; got ndarray
einsum("ij->ij", x, out=single)  # TypeError: out must be as planned, of type float64, got float32
einsum("ij->ij", x, out=x, target=columns)  # ValueError: target is the distribution of out
einsum("ij->ij", x, out=partial)  # ValueError: out must be as planned, .*op='sum'
einsum("ij->ij", x, out=unwriteable)  # ValueError: out must be writeable on every rank
einsum("ij->i", cut)  # ValueError: local on rank . must have|shape
einsum("ij,kj,lj->ikl", x, x, x, optimize="nope")  # (KeyError|ValueError): Path optimizer 'nope' not found
einsum("ij,kj->ik", x, x, optimize="bestest")  # (KeyError|ValueError): Path optimizer 'bestest' not found
einsum("ij,kj,lj", x, x, x, optimize=[(0, 5)])  # ValueError: step 0 of the path takes operands \(0, 5\) of 3
einsum("ij,kj->ik", x, x, optimize=3)  # TypeError: optimize must be a name, .*, got 3
einsum("ij,kj->ik", x, x, memory_bytes=99)  # MemoryError: needs .* MiB per rank on 3 ranks, but memory_bytes is 99
einsum("ij->i", x, overrides=3)  # TypeError: overrides must be a dict of numbers of parts by index, got 3
einsum("ij,kj->ik", x, x, overrides={"z": 2})  # ValueError: there is no index 'z'; its indices are i, j, k
einsum("ij->ij", x, strategy="Pck")  # ValueError: unknown strategy 'Pck' .did you mean Pack
einsum("ij->ij", x, dtype="f4")  # TypeError: einsum takes no 'dtype': convert operands by
einsum(",ij->ij", np.datetime64("2026-01-01"), x)  # TypeError: cannot compute with datetime64
einsum("ij->i", DistributedArray.zeros(rows, "g", comm=comm))  # TypeError: cannot compute with float128
== einsum_plan("ij->ij", x).free()
einsum_plan("ij->ij", x, alpha=2)  # TypeError: einsum takes no 'alpha': a number is an operand
einsum_plan("ij->ij", rows)  # TypeError: dtype of operand 0 is missing
== each rank: einsum("ij->j", x)
einsum(",->", 1, 2)  # TypeError: einsum ',->': needs a distributed operand, got 2 numbers
einsum("ij->i" if last else "ij->j", x)  # ValueError: the ranks differ in the expression: 'ij->j' on rank 0
einsum(",ij->j", 1.0 + last, x)  # ValueError: the ranks differ in the numbers
einsum(",ij->ij", np.array(1 + 1e-10 * last), x)  # ValueError: the ranks differ in the numbers: .*0000000001
einsum("ij,->i", x, 3 if last else zero)  # (ValueError|TypeError): the ranks differ in the kinds of the operands
einsum("ij->i", single if last else x)  # ValueError: the ranks differ in operands
einsum("ij->ij", of_boxes(last))  # ValueError: the ranks differ in boxes
replicated(np.arange(8.0) + last)  # ValueError: the ranks differ in elements \(a checksum\)
== tune(moved)
tune(moved, strategies=["Pipelind"])  # ValueError: unknown strategy 'Pipelind' \(did you mean Pipelined
tune(moved, strategies="Pack")  # TypeError: strategies must be a list of names, got the string 'Pack'
tune(moved, limit_seconds=0)  # ValueError: limit_seconds must be positive, got 0
tune(moved, symbols={"N": 3})  # TypeError: tune does not take symbols with a redistribution
tune(moved, axes=(0, 1))  # TypeError: tune does not take axes with a schedule
tune(rows)  # TypeError: target must be a Distribution, TiledDistribution or BoxDistribution, got None
tune(schedule(wide, columns))  # ValueError: ranks up to 3, but .* has 3 ranks; start the program with mpiexec -n 4
tune(moved, memory="shared")  # ValueError: memory must be one of ordinary, shared-source, .*, got 'shared'
== each rank: tune(moved)
tune(moved, limit_seconds=0.5 + last)
# ValueError: the ranks differ in limit_seconds: 0\.5 on rank 0 and 1\.5 on rank 2
tune(schedule(rows, rows) if last else moved)  # ValueError: the ranks differ in what they tune:
== from_datatypes(good, good).free()
from_datatypes(types[1:], good)  # ValueError: must have . datatyp
from_datatypes(of_rows(1 << 32), good)  # ValueError: counts of source must fit 32 bits, got \[4294967296
from_datatypes((counts, [0.5] * 3, types), good)
# TypeError: displacements of source\[0\] must be an integer, got 0.5
from_datatypes((counts, places, [MPI.DATATYPE_NULL] * 3), good)  # ValueError: null or freed datatype
from_datatypes([8] * 3, good)  # TypeError: mpi4py datatype
from_datatypes(of_rows(3), good)
# RedistributionError: sends 24 bytes to rank ., which receives 16: both ranks must describe equally many
from_datatypes(good, good, strategy="Packed")  # ValueError: unknown strategy
== each rank: from_datatypes(good, good).free()
from_datatypes(good, good, strategy="RMA" if last else "Pack")  # ValueError: ranks differ in strategy: Pack on rank 0
== from_messages(blocks, blocks).free()
from_messages([(0, 0, (2,))], blocks)  # TypeError: sends\[0\] must be \(peer, offset, counts, strides\)
from_messages([(0, 0.5, (2,), (1,))], blocks)
# TypeError: sends\[0\] must be \(peer, .*: offset\[0\] must be an integer, got 0.5
from_messages([(1 << 31, 0, (2,), (1,))], blocks)
# TypeError: sends\[0\] must be \(peer, .*: peer must fit 32 bits, got \[2147483648
from_messages(None, blocks)  # TypeError: sends must be a list with an entry for each message, got None
from_messages([(0, 0, (2,), ())], blocks)  # ValueError: sends\[0\] must have as many strides as counts
from_messages([(3, 0, (2,), (1,))], blocks)
# RedistributionError: sends\[0\]: peer must be a rank of the communicator
from_messages([(0, 0, (-2,), (1,))], blocks)  # RedistributionError: sends\[0\]: counts must be at least 0, got -2
from_messages([(0, 0, (1,) * 11, (1,) * 11)], blocks)
# RedistributionError: sends\[0\]: ndim must be from 0 to 10, got 11
from_messages(blocks[:-1], blocks)  # RedistributionError: sends 0 elements to rank ., which receives 2
from_messages(blocks[:-1] + [(2, 0, (3,), (1,))], blocks)  # RedistributionError: sends 3 elements to rank
from_messages(blocks, flat_blocks)  # RedistributionError: a stride of what is received is 0
"""


QUICK: dict[str, Any] = {"strategies": ["Pack"], "limit_seconds": 0.02, "progress": False}
PARTS = re.split(r"^== ", TABLE, flags=re.MULTILINE)[1:]
ROW = re.compile(r"^([^#\n]+?)\s+# ([\w|()]+): (.+)$", re.MULTILINE)


def of_boxes(comm: Any, last: int) -> DistributedArray:
    """Return an array of boxes that differ in one that their text leaves out."""
    boxes = [((row, 4 * half), (1, 4)) for row in range(6) for half in range(2)]
    side = BoxDistribution((6, 8), boxes, [*[0] * 9, *[1] * 2, 1 - last])
    return DistributedArray(np.zeros(side.local_shape(comm.rank)), side, comm)


def of_rows(count: int) -> tuple[list[int], list[int], list[MPI.Datatype]]:
    """Return one side of an ``Alltoallw`` with so many numbers for each of 3 ranks."""
    return [count] * 3, [8 * count * rank for rank in range(3)], [MPI.DOUBLE] * 3


def names_of(comm: Any, folder: Path) -> dict[str, Any]:
    """Return what the calls name. Collective."""
    rows, columns, part, wanted = rows_to_columns(comm)
    whole, last = np.arange(48.0).reshape(6, 8), comm.rank == comm.size - 1
    x, single, unwriteable, cut = (DistributedArray(one.copy(), rows, comm) for one in (part, part, part, part))
    single.local, frozen = single.local.astype("f4"), wanted.copy()
    einsum = dace_redist.einsum
    assert einsum("ij->i", cut).shape == (6,) and einsum("ij->ij", x, out=unwriteable) is unwriteable
    frozen.flags.writeable = unwriteable.local.flags.writeable = False
    cut.local = cut.local[:1]
    made, idle = (dace_redist.plan([rows] * 2, [columns] * 2, "f8", comm=comm) for _ in range(2))
    copies, none = Distribution.replicated((6, 8), comm.size), Distribution((0, 8), (comm.size, 1))
    paths = {"path": folder / "a.h5", "other": folder / "b.npy", "copied": folder / "c.h5", "text": folder / "a.txt"}
    dace_redist.save(paths["path"], x)
    dace_redist.save(paths["other"], x)
    if last:
        (folder / "folder.npy").mkdir(exist_ok=True)

    def move(array: Any = part, source: Any = rows, target: Any = columns, **how: Any) -> Any:
        return dace_redist.redistribute(array, source, target, **{"comm": comm, "out": np.empty_like(wanted), **how})

    good = counts, places, types = of_rows(2)
    blocks, flat_blocks = ([(peer, 2 * peer, (2,), (stride,)) for peer in range(3)] for stride in (1, 0))
    public = {name: getattr(dace_redist, name) for name in dace_redist.__all__}
    collective = ("redistribute", "plan", "gather", "scatter", "load", "einsum_plan")
    return {
        **public,
        **{name: functools.partial(public[name], comm=comm) for name in collective},
        **{"from_datatypes": functools.partial(dace_redist.Plan.from_datatypes, comm=comm), "of_rows": of_rows},
        **{"from_messages": functools.partial(dace_redist.Plan.from_messages, dtype="f8", comm=comm)},
        **{
            "tune": functools.partial(dace_redist.tune, comm=comm, **QUICK),
            "moved": dace_redist.schedule(rows, columns),
        },
        **{"good": good, "counts": counts, "places": places, "types": types},
        **{"blocks": blocks, "flat_blocks": flat_blocks},
        **{"np": np, "copy": copy, "pickle": pickle, "as_strided": as_strided, "MPI": MPI},
        **paths,
        **{
            "comm": comm,
            "rank": comm.rank,
            "first": comm.rank == 0,
            "last": last,
            "move": move,
            "save": dace_redist.save,
        },
        **{"rows": rows, "columns": columns, "part": part, "out": wanted.copy(), "whole": whole, "frozen": frozen},
        **{"x": x, "single": single, "unwriteable": unwriteable, "cut": cut, "made": made, "idle": idle},
        **{"y": DistributedArray(wanted, columns, comm), "partial": DistributedArray(whole, copies, comm, op="sum")},
        **{"alone": DistributedArray(whole, Distribution.on_rank((6, 8), 0), MPI.COMM_SELF)},
        **{"wide": Distribution((6, 8), [4]), "turned": Distribution((8, 6), [3]), "flat": Distribution((6,), (3,))},
        **{"vast": Distribution((1 << 60,), (1,)), "memory": np.zeros(48), "folder": folder / "folder.npy"},
        **{
            "zero": DistributedArray(np.zeros(()), Distribution.replicated((), comm.size), comm),
            "none": none,
            "none_of_columns": Distribution((0, 8), (1, comm.size)),
        },
        **{"started": made.start([part, part]), "of_boxes": functools.partial(of_boxes, comm)},
    }


def said(call: str, names: dict[str, Any]) -> str:
    """Return the exception of a call with its words."""
    try:
        eval(call, names)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


@pytest.mark.mpi(ranks=[3], timeout=120)
@pytest.mark.parametrize("number", range(len(PARTS)))
def test_refused(comm, tmp_path, number):
    pytest.importorskip("h5py")
    right, rest = PARTS[number].split("\n", 1)
    each_rank, right = right.startswith("each rank: "), right.removeprefix("each rank: ")
    folder = Path(comm.bcast(tmp_path))
    names, wrong = names_of(comm, folder), []
    comm.Barrier()
    files = sorted(folder.rglob("*"))
    for call, kind, words in ROW.findall(rest):
        ways = [(call, rf"^{kind}: (?s:.*)({words})")]
        if not each_rank:  # another call of one rank may be an error by itself
            ways.append((call if names["last"] else right, f"^\\w+: (on rank 2: )?(?s:.*)({words})|differ"))
        for made, pattern in ways:
            print(made, flush=True)  # the last one is that of a hang
            text = said(made, names)
            wrong += [] if re.search(pattern, text) else [f"{call}, {made}: {text}, not {pattern}"]
            eval(right, names)
    raise_anywhere(comm, wrong)
    names["started"].wait()
    assert np.array_equal(names["move"](), names["out"])
    for name in ("path", "other"):
        assert np.array_equal(names["load"](names[name], names["rows"]).local, names["part"])
    assert comm.allreduce(sorted(folder.rglob("*")) == files, MPI.LAND) or "copied" in right

"""Program that redistributes and transposes by ScaLAPACK, and checks each element by a formula."""

import ctypes
import ctypes.util
import itertools
import os
import sys
import threading

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
found = os.environ.get("DACE_REDIST_SCALAPACK_LIBRARY") or ctypes.util.find_library("scalapack-openmpi")
library = ctypes.CDLL(found)  # for this module only, as Python loads modules
linked = ctypes.CDLL(None)  # where a compiled program finds its functions
pdtran = linked.pdtran_ if hasattr(linked, "pdtran_") else library.pdtran_
how = sys.argv[1:]


def pointer(value: object) -> ctypes.c_void_p:
    array = value if isinstance(value, np.ndarray) else np.array(value, "i4" if isinstance(value, int) else "f8")
    pointer.kept.append(array)
    return ctypes.c_void_p(array.ctypes.data)


pointer.kept = []


def context(rows: int, columns: int) -> int:
    made = ctypes.c_int()
    library.Cblacs_get(0, 0, ctypes.byref(made))
    library.Cblacs_gridinit(ctypes.byref(made), b"R", rows, columns)
    return made.value


def matrix(grid: tuple[int, int], ctxt: int, n: int, block: int, lld: int = 0) -> tuple[np.ndarray, ...]:
    """Rows, columns and values of the local part of A[i, j] = n i + j, and the descriptor."""
    rows, columns = (
        np.array([i for i in range(n) if i // block % parts == place], int)
        for parts, place in zip(grid, divmod(comm.rank, grid[1]), strict=True)
    )
    values = np.asfortranarray(n * rows[:, None] + columns, "f8")
    return rows, columns, values, np.array([1, ctxt, n, n, block, block, 0, 0, lld or len(rows)], "i4")


def moved(n: int, lld: int = 0) -> None:
    everyone, tall = context(1, comm.size), context(comm.size, 1)
    *_, A, a = matrix((comm.size, 1), tall, n, 13, lld)
    rows, columns, B, b = matrix((1, comm.size), everyone, n, 64)
    B[:] = -1
    library.pdgemr2d_(*map(pointer, (n, n, A, 1, 1, a, B, 1, 1, b, everyone)))
    assert np.array_equal(B, n * rows[:, None] + columns), "wrong redistribution"
    C = np.zeros_like(B)
    pdtran(*map(pointer, (n, n, 2.0, B, 1, 1, b, 0.0, C, 1, 1, b)))
    assert np.array_equal(C, 2.0 * (n * columns + rows[:, None])), "wrong transposition"
    library.Cblacs_gridexit(tall)
    library.Cblacs_gridexit(everyone)
    pointer.kept.clear()


def moved_among(ranks: tuple[int, ...]) -> None:
    """Redistribute among some of the ranks; ScaLAPACK's contexts have an order of processes."""
    made, members = ctypes.c_int(), np.array(ranks, "i4")
    library.Cblacs_get(0, 0, ctypes.byref(made))
    library.Cblacs_gridmap(ctypes.byref(made), ctypes.c_void_p(members.ctypes.data), 1, 1, len(ranks))
    if comm.rank in ranks:
        A = np.ones((100, 100), order="F")
        a, b = (np.array([1, made.value, 100, 100, 100, block, 0, 0, 100], "i4") for block in (7, 13))
        library.pdgemr2d_(*map(pointer, (100, 100, A, 1, 1, a, A.copy(), 1, 1, b, made.value)))
        library.Cblacs_gridexit(made)
    pointer.kept.clear()


class Mallinfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks")]
    _fields_ += [(name, ctypes.c_size_t) for name in ("fsmblks", "uordblks", "fordblks", "keepcost")]


def allocated() -> int:
    """Bytes of memory that malloc has given to this process."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Mallinfo
    return int(mallinfo().uordblks + mallinfo().hblkhd)


if "lld" in how:
    moved(800, lld=1)
if "freed" in how:
    everyone, freed = context(1, comm.size), context(1, comm.size)
    *_, A, a = matrix((1, comm.size), freed, 800, 64)
    library.Cblacs_gridexit(freed)
    library.pdgemr2d_(*map(pointer, (800, 800, A, 1, 1, a, A.copy("F"), 1, 1, a, everyone)))
if "at_once" in how:  # the other ranks do not call: both threads of rank 0 stay in the routine
    for everyone, tall in [(context(1, comm.size), context(comm.size, 1)) for _ in range(2)]:
        (*_, A, a), (*_, B, b) = matrix((comm.size, 1), tall, 800, 13), matrix((1, comm.size), everyone, 800, 64)
        arguments = [*map(pointer, (800, 800, A, 1, 1, a, B, 1, 1, b, everyone))]
        if comm.rank == 0:
            threading.Thread(target=library.pdgemr2d_, args=arguments).start()
    comm.Barrier()
for size in (10, 300, 800, 800):
    moved(size)
if "threads" in how:
    for _ in range(4):
        thread = threading.Thread(target=moved, args=(800,))
        thread.start()
        thread.join()
if "contexts" in how:
    for _ in range(int(how[-1])):
        moved(100)
if "sets" in how:
    orders = [order for size in range(1, comm.size + 1) for order in itertools.permutations(range(comm.size), size)]
    before, again = 0, orders[-4:] * 20  # these sets are refused: 256 others have communicators
    for number, order in enumerate(orders + again):
        if number == len(orders):
            before = allocated()
        moved_among(order)
    grown = comm.gather(allocated() - before)
    if comm.rank == 0:
        print("grown by", max(grown), "in", len(again))
comm.Barrier()
if comm.rank == 0:
    used = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
    handles = "Open MPI" in MPI.Get_library_version()  # are numbers, of which a new communicator has the first free one
    print("right", used, len(os.listdir("/proc/self/fd")), MPI.COMM_SELF.Dup().py2f() if handles else 0)

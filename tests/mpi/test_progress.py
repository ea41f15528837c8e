"""A rank that waits for others of its node lets MPI move what the program has begun beside the redistribution."""

from __future__ import annotations

import sys

import pytest
from launching import launch

PROGRAM = """
import numpy as np
from mpi4py import MPI
import dace_redist
from dace_redist import Distribution

comm = MPI.COMM_WORLD
rows, columns = Distribution((64, 64), (2,)), Distribution((64, 64), (1, 2))
whole = Distribution((64, 64), (2,), dims=(None, None))
A, B, partial = (np.ones(side.local_shape(comm.rank)) for side in (rows, columns, whole))

def in_a_call():
    dace_redist.redistribute(A, rows, columns, comm=comm, out=B)

def in_a_wait():
    with dace_redist.plan(rows, columns, "float64", comm=comm) as plan:
        plan.start(A, out=B).wait()

def in_a_list():
    dace_redist.redistribute([A, A], [rows, rows], [columns, columns], comm=comm)

def in_a_sum():
    dace_redist.redistribute(partial, whole, columns, comm=comm, op="sum", out=B)

for move in (in_a_call, in_a_wait, in_a_list, in_a_sum):
    message = np.full(1 << 20, float(comm.rank))
    move()  # what is made once is there
    if comm.rank == 0:
        request = comm.Isend(message, 1)
        move()
        request.Wait()
    else:
        comm.Recv(message, 0)
        assert not message.any()
        move()
    if comm.rank == 0:
        print(move.__name__, "done", flush=True)
"""


@pytest.mark.compile
def test_messages_of_the_program_arrive_while_a_rank_waits():
    # with Open MPI's own shared memory and cross-memory reads the receiver copies without the sender
    code, output = launch(
        2, [sys.executable, "-m", "mpi4py", "-c", PROGRAM], timeout=60, environment={"OMPI_MCA_btl": "tcp,self"}
    )
    assert code == 0, output
    assert output.split() == "in_a_call done in_a_wait done in_a_list done in_a_sum done".split(), output

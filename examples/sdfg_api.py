"""Builds an SDFG with a node of this package. Run: mpiexec -n 4 python examples/sdfg_api.py"""

import dace
import numpy as np
from dace.sdfg.utils import distributed_compile
from mpi4py import MPI

import dace_redist

columns = dace_redist.Distribution((8, 8), (4,), dims=(None, 0))
rows = dace_redist.Distribution((8, 8), (4,), dims=(0, None), ranks=(3, 2, 1, 0))  # the first rows on rank 3

sdfg = dace.SDFG("to_rows")
sdfg.add_array("A", [8, 2], dace.float64)
sdfg.add_array("B", [2, 8], dace.float64)
state = sdfg.add_state()
node = dace_redist.library_nodes.Redistribute("to_rows", columns, rows)
state.add_node(node)
state.add_edge(state.add_read("A"), None, node, "_inp_buffer", sdfg.make_array_memlet("A"))
state.add_edge(node, "_out_buffer", state.add_write("B"), None, sdfg.make_array_memlet("B"))
dace_redist.set_strategy(sdfg, "RMA", where="to_*")

comm = MPI.COMM_WORLD
program = distributed_compile(sdfg, comm)
whole, B = np.arange(64.0).reshape(8, 8), np.zeros((2, 8))
program(A=columns.local(whole, comm.rank), B=B)
assert np.array_equal(B, rows.local(whole, comm.rank))
if comm.rank == 0:
    print("rank 0 has the last rows")

"""Loops of stencils and recurrences: what each iteration exchanges, and its results."""

import dataclasses

import pytest
from distributed_simulation import SimulatedRanks
from kernels import KERNELS
from results import check

from dace_redist import distribute
from dace_redist.library_nodes import JointRedistribute, Redistribute
from dace_redist.library_nodes.tasklets import changing_symbols

pytestmark = pytest.mark.usefixtures("small_transients_share_memory")


def exchanges(name):
    """Return the program of a kernel on 4 ranks, and its exchanges."""
    program = distribute(KERNELS[name].program, 4, KERNELS[name].sizes)
    nodes = [node for node, _ in program.sdfg.all_nodes_recursive()]
    return program, [node for node in nodes if isinstance(node, Redistribute | JointRedistribute)]


@pytest.mark.parametrize(
    "name, expected",
    {"jacobi_1d": [3, 1, 3, 1], "heat_3d": [10, 1, 10, 1], "doitgen": [], "vadv": [], "hdiff": []}.items(),
)
def test_small_moves_of_an_iteration_are_one_exchange(name, expected):
    assert [len(getattr(node, "tensors", [node])) for node in exchanges(name)[1]] == expected


def test_columns_of_blocks_of_rows_have_one_plan():
    program, found = exchanges("adi")
    changing = [node.label for node in found if node.free_symbols & changing_symbols(program.sdfg)]
    assert len(found) > 14 and len(changing) == 4, changing


SMALL = {
    "fdtd_2d": dict(N=13, M=11, T=3),
    "adi": dict(N=9, T=2),
    "gramschmidt": dict(M=9, N=7),
    "vadv": dict(N=7, M=9, K=5),
    "cavity_flow": dict(N=9, T=2),
    "scattering_self_energies": dict(K=2, N=4, T=2, M=6, L=2, P=3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name, sizes", SMALL.items())
def test_kernels_give_what_numpy_gives(name, sizes):
    kernel = dataclasses.replace(KERNELS[name], sizes=sizes)
    given, program = kernel.arguments(), distribute(kernel.program, 4, sizes)
    check(SimulatedRanks(program).run(**given), kernel.expected(), given, name)

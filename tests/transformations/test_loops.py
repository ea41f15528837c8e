"""Loops of stencils and recurrences: what each iteration exchanges."""

import pytest
from programs import PROGRAMS

from dace_redist import distribute
from dace_redist.library_nodes import JointRedistribute, Redistribute
from dace_redist.library_nodes.tasklets import changing_symbols

pytestmark = pytest.mark.usefixtures("small_transients_share_memory")


def exchanges(name):
    """Return the program of a kernel on 4 ranks, and its exchanges."""
    program = distribute(PROGRAMS[name].program, 4, PROGRAMS[name].sizes)
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

"""Stock nodes are replaced, and everything of stock DaCe that nothing else uses is removed."""

from __future__ import annotations

import dace
import pytest
from dace.data.distributed import DistributedDescriptor
from dace.libraries.comm.nodes.dummy import Dummy
from dace.libraries.comm.nodes.redistribute import Redistribute as StockRedistribute
from dace.symbolic import int_floor
from sdfgs import redistributions, reread
from stock_programs import PROGRAMS, N, P, Q, parse

import dace_redist
from dace_redist import Distribution
from dace_redist.transformations import LowerRedistribute

SIMPLIFY = pytest.mark.parametrize("simplify", [True, False], ids=["simplified", "as written"])
#: What BlockScatter and BlockGather still use.
STAYS = {"scattered": {"square", "source"}, "gathered": {"rows", "__tmp1"}}

DISTRIBUTIONS = {
    "plain": (Distribution((8, 8), (2, 2), block=(4, 4)), Distribution((8, 8), (4, 1), block=(2, 8))),
    "symbolic": (
        Distribution((N * P, 4 * Q * Q), (P, Q), block=(N, 4 * Q)),
        Distribution((N * P, 4 * Q * Q), (Q, P), block=(int_floor(N * P, Q), int_floor(4 * Q * Q, P))),
    ),
    "correspondence": (
        Distribution((8, 8), (2, 4), block=(4, 2)),
        Distribution((8, 8), (2, 4), dims=(1, 0), block=(2, 4)),
    ),
    "first_of_sub_grids": (
        Distribution((8,), (2, 4), block=(4,), pins=(None, 0)),
        Distribution((8,), (2, 4), dims=(1,), block=(2,), pins=(0, None)),
    ),
    "other_sub_grids": (
        Distribution((8,), (2, 4), block=(4,), pins=(None, 3)),  # the column of rank 3
        Distribution((8,), (2, 4), dims=(1,), block=(2,), pins=(1, None)),  # the row of rank 6
    ),
    "replicas": (Distribution((8,), (2, 4), dims=(0,), block=(4,)), Distribution((8,), (2, 4), dims=(1,), block=(2,))),
}


def left_over(sdfg: dace.SDFG) -> set[str]:
    """Return the names of remaining nodes, descriptors and declarations of stock DaCe."""
    found = {str(n) for n, _ in sdfg.all_nodes_recursive() if isinstance(n, StockRedistribute)}
    for each in sdfg.all_sdfgs_recursive():
        found |= {name for name, d in each.arrays.items() if isinstance(d, DistributedDescriptor)}
        found |= {n.label for state in each.states() for n in state.nodes() if isinstance(n, Dummy)}
        found |= {n.data for state in each.states() for n in state.data_nodes() if n.data not in each.arrays}
    return found


def code(sdfg: dace.SDFG) -> str:
    """Return all init and exit code."""
    blocks = [b for each in sdfg.all_sdfgs_recursive() for b in (each.init_code, each.exit_code)]
    return "".join(block["frame"].as_string for block in blocks if "frame" in block).strip()


def check(sdfg: dace.SDFG, name: str) -> None:
    """Check that the SDFG is valid, also after a round trip, with as many nodes as the program, and nothing stock."""
    sdfg.validate()
    again = reread(sdfg)
    again.validate()
    for each in (sdfg, again):
        assert len(redistributions(each)) == PROGRAMS[name][1]
        assert left_over(each) == STAYS.get(name, set())
        assert "_send_types" not in code(each)
        assert bool(code(each)) == (name in STAYS)
    generated = again.generate_code()[0].clean_code
    assert generated.count("->run(") == PROGRAMS[name][1]
    assert "_send_types" not in generated
    if name not in STAYS:
        assert "MPI_" not in generated.replace("MPI_COMM_WORLD", "").replace("MPI_Init", "").replace("MPI_Finalize", "")


INLINED_WRONGLY = "calls_different"  # see test_inlined_programs_that_clash


@pytest.mark.parametrize(
    ("name", "simplify"),
    [(name, simplify) for name in PROGRAMS for simplify in (True, False) if not simplify or name != INLINED_WRONGLY],
)
def test_lower_all(name: str, simplify: bool):
    sdfg = parse(name, simplify)
    nodes = dace_redist.transformations.lower_all(sdfg)
    assert nodes == redistributions(sdfg)
    check(sdfg, name)
    sdfg.simplify()
    check(sdfg, name)


@SIMPLIFY
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions(name: str, simplify: bool):
    (node,) = dace_redist.transformations.lower_all(parse(name, simplify))
    assert list(map(str, node.distributions())) == list(map(str, DISTRIBUTIONS[name]))


def test_sizes_of_the_caller_arrive():
    sdfg = parse("calls_with_sizes")
    (node,) = dace_redist.transformations.lower_all(sdfg)
    assert node.distributions()[0] == Distribution((12, 4), (2, 1), block=(6, 4))
    assert not sdfg.free_symbols


@SIMPLIFY
def test_one_at_a_time(simplify: bool):
    """Descriptors of the second node are kept until it is replaced, too."""
    sdfg = parse("there_and_back", simplify)
    assert sdfg.apply_transformations(LowerRedistribute) == 1
    (left,) = sdfg.rdistrarrays
    assert left in ("there", "back")
    assert left_over(sdfg) >= {left, "square", "rows", "in_square", "in_rows"}
    assert code(sdfg).count("_send_types = new") == 1
    for name in ("square", "rows"):
        assert code(sdfg).count(f"&__state->{name});") == 2  # made once, freed once
    sdfg.validate()
    assert sdfg.apply_transformations(LowerRedistribute) == 1
    check(sdfg, "there_and_back")


def test_inlined_programs_that_clash():
    """Stock DaCe lets the second program use the fields of the first; which were meant cannot be known any more."""
    sdfg = parse(INLINED_WRONGLY)
    message = r'^Redistribute "\w+": inlining left different descriptors that are all called "\w+"; .*simplify=False'
    with pytest.raises(ValueError, match=message):
        dace_redist.transformations.lower_all(sdfg)
    before = parse(INLINED_WRONGLY, simplify=False)
    dace_redist.transformations.lower_all(before)
    before.simplify()
    check(before, INLINED_WRONGLY)
    assert {node.distributions()[1].grid for node in redistributions(before)} == {(4, 1), (1, 4)}


REFUSED = {
    "no grid": (lambda sdfg: setattr(sdfg.subarrays["source"], "pgrid", None), "is on no process grid"),
    "no sub-array": (lambda sdfg: sdfg.arrays.pop("source"), 'there is no descriptor "source"'),
    "no descriptor": (lambda sdfg: sdfg.arrays.pop("__tmp0"), "there is no descriptor of that name"),
    "sub-grid of a sub-grid": (lambda sdfg: nest_grid(sdfg), "is on the sub-grid of a sub-grid"),
}


def nest_grid(sdfg: dace.SDFG) -> None:
    outer = sdfg.add_pgrid(parent_grid=sdfg.add_pgrid([4, 2, 2]), color=[True, True, False])
    sdfg.subarrays["source"].pgrid = sdfg.add_pgrid(parent_grid=outer, color=[True, True])


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str):
    change, message = REFUSED[case]
    sdfg = parse("plain")
    change(sdfg)
    with pytest.raises(ValueError, match=f'^Redistribute "__tmp0": .*{message}'):
        dace_redist.transformations.lower_all(sdfg)
    assert sum(isinstance(n, StockRedistribute) for n, _ in sdfg.all_nodes_recursive()) == 1

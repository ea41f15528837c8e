"""Values from outside a function: those of the call count, or an error says which has changed."""

from types import SimpleNamespace

import dace
import numpy as np
import pytest
from distributed_simulation import SimulatedRanks

from dace_redist import Distribution, distribute
from dace_redist.einsum.placement import Placement
from dace_redist.transformations import DistributeEinsum

integer, real, flag, turn, single, steps, offset = 2, 2.0, True, 2j, np.float32(2), 1, 1.0
factors, table, settings = [2.0, 1.0], {"dt": 2.0}, SimpleNamespace(factor=2.0)
rebound, modified = np.full(4, 2.0), np.full(4, 2.0)


def doubled(A):
    return 2.0 * A


def tripled(A):
    return 3.0 * A


function = doubled


def added(A):
    return A + offset


nested = dace.program(added)


def everything():
    factor = 2.0

    @dace.program
    def program(A: dace.complex128[4], s=2.0, K=modified):
        B = A * integer * real * single * turn * factors[0] + table["dt"] * settings.factor - A * factor
        if flag:
            B = B * 2.0
        for _ in range(steps):
            B = function(B) + rebound
        return nested(B) + modified * s * K

    def change():
        nonlocal factor
        factor = 3.0

    return program, change


#: Other values by name; arrays changed in place and default arguments need no new program.
CHANGED = {
    **{"integer": 3, "real": 2, "flag": False, "turn": 3j, "single": np.float64(2), "steps": 3, "offset": 3.0},
    **{"factors": [3.0, 1.0], "table": {"dt": 3.0}, "settings": SimpleNamespace(factor=3.0)},
    **{"function": tripled, "rebound": np.full(4, 3.0), "factor": None, "modified": None},
}


@pytest.mark.parametrize("name", CHANGED)
def test_values_at_the_call_count(name: str, monkeypatch: pytest.MonkeyPatch):
    program, change = everything()
    first, A, before = distribute(program, 1), np.arange(4.0) + 1j, modified.copy()
    if name == "modified":
        modified[:] = 3.0
    elif name == "factor":
        change()
    else:
        monkeypatch.setitem(globals(), name, CHANGED[name])
    distributed = [distribute(program, 1)]
    if name == "modified":
        distributed.append(first)
    else:
        with pytest.raises(ValueError, match=f'": .*{name}.* when the program was distributed: distribute it again'):
            first.run(A=A)
    monkeypatch.setitem(globals(), "nested", added)
    for one in distributed:
        (found,) = SimulatedRanks(one).run(A=A).values()
        np.testing.assert_array_equal(found, program.f(A))
    modified[:] = before


def test_a_pass_keeps_its_arguments_in_json():
    rows, options = Distribution((8, 4), (4, 1), block="ceil"), {"memory_bytes": 1 << 30, "overrides": {"C": {"i": 2}}}
    made = DistributeEinsum(4, {dace.symbol("N"): 8}, placements={"A": rows}, **options)
    read = DistributeEinsum.from_json(made.to_json())
    assert (read.ranks, read.sizes) == (4, {"N": 8})
    assert read.options == {**options, "placements": {"A": Placement.of(rows)}}

"""Values from outside a function: those of the call count, in this process and in a later one, or an error names it."""

import json
import subprocess
import sys
from pathlib import Path

import dace
import numpy as np
import pytest
import rebound_values
from distributed_simulation import SimulatedRanks
from random_programs import load
from rebound_values import kept_and_planned, outcome, rebound
from seeds import seed, some

from dace_redist import Distribution, distribute
from dace_redist.einsum.placement import Placement
from dace_redist.transformations import DistributeEinsum

FIRST, COUNT = seed(7000), some(60)


@pytest.mark.slow
@pytest.mark.fuzz
def test_a_value_that_is_rebound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The second program is not taken for the first one; a run of the first is an error."""
    monkeypatch.setenv("DACE_REDIST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DACE_REDIST_KEEP_PLANS", "1")
    monkeypatch.syspath_prepend(tmp_path)
    refused = 0
    for number in range(FIRST, FIRST + COUNT):
        case, what = rebound(number), f"seed {number}"
        module = load(case.first, tmp_path, f"rebound_{number}")
        before = outcome(module.program)
        if not before.startswith("["):
            refused += 1
            continue
        first = distribute(module.program, 2)
        monkeypatch.setattr(module, "value", eval(case.expression, vars(module)))
        kept, planned = kept_and_planned(module.program)
        assert kept == planned, f"{what}, {case.kind}"
        if planned != before:
            with pytest.raises(ValueError, match='" *:? .* when the program was distributed: distribute it again'):
                first.recipe.captured.check()
    assert refused <= COUNT // 3
    command = [sys.executable, rebound_values.__file__, str(tmp_path), str(FIRST), str(COUNT)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
    wrong = [number for number, (kept, planned) in enumerate(found, FIRST) if kept != planned]
    assert not wrong, f"in a second process: seeds {wrong}"


factor, modified, table = 2.0, np.full(4, 2.0), {"dt": [1.0, 2.0]}


@dace.program
def program(A: dace.float64[4], K=modified):
    return A * factor * table["dt"][1] + modified * K


def test_arrays_may_be_changed_in_place():
    distributed, A, before = distribute(program, 1), np.arange(4.0), modified.copy()
    modified[:] = 3.0
    distributed.recipe.captured.check()
    (found,) = SimulatedRanks(distributed).run(A=A).values()
    np.testing.assert_array_equal(found, program.f(A))
    modified[:] = before


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda patch: patch.setitem(globals(), "factor", 3.0), "factor is 3.0, but was 2.0"),
        (lambda patch: patch.delitem(globals(), "factor"), "factor is not there, but was 2.0"),
        (lambda patch: patch.setitem(table, "dt", [1.0, 4.0]), r"table\['dt'\]\[1\] is 4.0, but was 2.0"),
        (lambda patch: patch.setitem(globals(), "modified", np.full(4, 2.0)), "modified is another object than"),
    ],
)
def test_errors_name_the_value(change, text: str, monkeypatch: pytest.MonkeyPatch):
    distributed = distribute(program, 1)
    change(monkeypatch)
    with pytest.raises(ValueError, match=f'^"program": {text} when the program was distributed: distribute it again'):
        distributed.run(A=np.arange(4.0))


def test_a_pass_keeps_its_arguments_in_json():
    rows, options = Distribution((8, 4), (4, 1), block="ceil"), {"memory_bytes": 1 << 30, "overrides": {"C": {"i": 2}}}
    made = DistributeEinsum(4, {dace.symbol("N"): 8}, placements={"A": rows}, **options)
    read = DistributeEinsum.from_json(made.to_json())
    assert (read.ranks, read.sizes) == (4, {"N": 8})
    assert read.options == {**options, "placements": {"A": Placement.of(rows)}}

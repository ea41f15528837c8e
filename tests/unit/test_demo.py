"""Results of benchmarks/einsum/demo.py for given measurements: verdicts, the table, the picture."""

from __future__ import annotations

import demo
import pytest


def record(strategy: str, seconds: list[float]) -> dict:
    samples = {"contract T": [0.001] * 4, "redistribute T": seconds, "redistribute U": seconds, "total": seconds}
    medians = {step: sorted(times)[2] for step, times in samples.items()}
    case = {"sizes": dict.fromkeys("IJKLM", 24), "ranks": 4}
    return case | {"strategy": strategy, "samples": samples, "seconds": medians}


REFERENCE = record(demo.REFERENCE, [0.010, 0.011, 0.012, 0.013])
FASTER = record("Pack", [0.005, 0.006, 0.006, 0.007])
SLOWER = record("Pipelined", [0.020, 0.021, 0.024, 0.023])
UNCLEAR = record("RMA", [0.012, 0.008, 0.014, 0.011])


@pytest.mark.parametrize(
    ("other", "verdict"), [(FASTER, "faster"), (SLOWER, "slower"), (UNCLEAR, "no clear difference")]
)
def test_verdict(other: dict, verdict: str) -> None:
    assert demo.compared(other, REFERENCE)[1] == verdict


def test_table_says_who_is_slower() -> None:
    lines = demo.table([REFERENCE, FASTER, SLOWER, UNCLEAR]).splitlines()
    assert "step 2: redistribute T" in lines
    assert any(line.startswith("Datatype") and "1.00" in line and "12.00" in line for line in lines)
    assert any(line.startswith("Pack") and "1.92x  faster" in line for line in lines)
    assert any(line.endswith("machine: Pipelined.") for line in lines)

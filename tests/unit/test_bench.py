"""The benchmarks without MPI: cases, bounds, tables, requirements, figures, command line, the demo's verdicts."""

from __future__ import annotations

import json

import demo
import manual
import manual_texts
import numpy as np
import pytest
from bench import bench
from redistribution import arrays, catalogue, figures, run, tables

from dace_redist import Distribution, Schedule, TiledDistribution, schedule
from dace_redist.cli import run_command


def cli(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        run_command(bench, "bench.py", words)
    return ended.value.code, capsys.readouterr()


@pytest.mark.parametrize("preset", catalogue.PRESETS)
def test_every_case_can_be_planned(preset):
    found = catalogue.load(preset)
    groups = {"seed", "figures", "kernels", "pencil", "transpose", "ragged", "tiles", "runs", "layouts"}
    groups |= {"messages"} if preset != "large" else set()
    assert {case.group for case in found.cases} == groups <= set(found.groups)
    assert {case.group for case in found.select([])} == groups - {"messages"}
    for case in found.cases:
        assert 2 <= case.ranks <= (64 if case.group == "messages" else 12)
        if case.within is not None:  # the parts must lie inside of the larger arrays
            for side, at in ((case.source, case.within.source_at), (case.target, case.within.target_at)):
                ends = [a + n for a, n in zip(at, side.local_shape(0), strict=True)]
                assert all(end <= n for end, n in zip(ends, case.within.shape, strict=True))


@pytest.mark.parametrize("slab", [1, 7, 1 << 20])
@pytest.mark.parametrize("dtype", ["int32", "float64", "complex128"])
def test_values_tell_where_elements_belong(slab, dtype, monkeypatch):
    monkeypatch.setattr(arrays, "_SLAB", slab)
    shape = (5, 7, 4)
    whole = np.zeros(shape, dtype)
    arrays.fill(whole, Distribution(shape, (1, 1, 1)), 0)
    assert len(np.unique(whole)) == whole.size
    owner = np.arange(8).reshape(2, 2, 2) % 3
    blocks, tiles = Distribution(shape, (3, 2), block=(1, "balanced", None)), TiledDistribution(shape, (3, 4, 2), owner)
    for distribution in (blocks, tiles):
        for rank in range(distribution.ranks_needed):
            local = np.zeros(distribution.local_shape(rank), dtype)
            arrays.fill(local, distribution, rank)
            assert np.array_equal(local, distribution.local(whole, rank))
            assert arrays.is_right(local, distribution, rank)
            if local.size:
                local.flat[-1] += 1
                assert not arrays.is_right(local, distribution, rank)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sed"], "no case or group is called 'sed' in this preset; did you mean seed"),
        (["nothing-like-it"], "the groups are seed, figures"),
        (["--strategies", "Pakc"], "'Pakc' is not one of"),
        (["--variants", "common"], "'common' is not one of"),
        (["--rate", "fast"], "'fast' is no rate; expected a number and one of bit, kbit, mbit, gbit"),
        (["--preset", "huge"], "'huge' is not one of"),
        (["--leest", "9"], "No such option"),
        (["--summary", "missing.jsonl"], "missing.jsonl"),
    ],
)
def test_what_the_command_does_not_understand_is_one_line(capsys, words, message):
    code, printed = cli(capsys, *words)
    assert code == 2
    assert printed.err.count("\n") == 1
    assert message in printed.err


def test_a_mesh_of_dtensor_splits_as_the_distributions_do():
    """Along each axis of the mesh in turn, blocks of ceil(n/p) elements: what torch.chunk makes."""
    for case in (case for case in catalogue.load("tiny").cases if case.dtensor is not None):
        mesh, whole = case.dtensor.mesh, np.arange(np.prod(case.shape)).reshape(case.shape)
        sides = (case.source, case.dtensor.source), (case.target, case.dtensor.target)
        for distribution, placements in sides:
            for rank, coords in enumerate(np.ndindex(*mesh)):
                part = whole
                for parts, coord, axis in zip(mesh, coords, placements, strict=True):
                    if axis is not None:
                        each = -(-part.shape[axis] // parts)
                        part = part.take(range(coord * each, min(part.shape[axis], (coord + 1) * each)), axis)
                assert np.array_equal(part, distribution.local(whole, rank)), (case.name, rank)


def test_bounds():
    # Rows of 4 x 4 float64 on 4 ranks become columns: every rank sends 8 bytes to each other and keeps 8.
    moved = schedule(Distribution((4, 4), (4, 1)), Distribution((4, 4), (1, 4)))
    assert moved.bound(8) == 4 and moved.bound(8, copies=2) == 7
    assert moved.bound(8, node_of=[0, 0, 1, 1]) == 4
    assert moved.bound(8, node_of=[7, 3, 3, 3]) == 3
    assert moved.bound(8, node_of=[0, 0, 0, 0]) == 0
    assert run.bounds_of(moved, [0, 0, 0, 0], 4.0, None) == {"copy": 4.0, "bound": 7.0}
    assert run.bounds_of(moved, [0, 0, 1, 1], 4.0, 8.0) == {"bound": 4.0}
    several = Schedule.joined([moved, moved.inverse()])
    assert several.bound(8, copies=2) == 14
    with pytest.raises(ValueError, match="bytes_per_second must be positive, got 0"):
        moved.bound(0)
    with pytest.raises(ValueError, match="node_of must have the node of each of 4 ranks"):
        moved.bound(1, node_of=[0])


def results():
    where = {"nodes": 1, "cores": 2, "mpi": "Open MPI", "processor": "one", "commit": "abc", "ranks": 12}
    common = {"group": "seed", "preset": "default", "series": "seed", "x_name": "bytes of it", "environment": where}
    common |= {"ranks": 12, "bytes": 10**6, "shape": [3, 4], "dtype": "int32", "options": {}, "variant": "ordinary"}
    return [
        common
        | {"case": f"seed-k{k}", "x": k, "method": method, "kind": kind, "strategy": method * (kind == "strategy")}
        | {"median": seconds, "low": 0.9 * seconds, "high": 1.2 * seconds, "repetitions": 7}
        for k, factor in ((12, 1.0), (16, 2.25))
        for method, kind, seconds in (("Auto", "strategy", 2.0), ("Alltoallw", "peer", 4.0 * factor))
    ]


def test_summary_and_the_last_of_two_results(capsys, tmp_path):
    path = tmp_path / "results.jsonl"
    again = results()[0] | {"median": 1.0}
    path.write_text("".join(json.dumps(line) + "\n" for line in [*results(), again]))
    found = tables.read([path])
    assert tables.speedups(found, "Auto", ["Alltoallw"]) == {("seed-k12", 1): 4.0, ("seed-k16", 1): 4.5}
    code, printed = cli(capsys, "--summary", str(path))
    assert not code
    assert printed.out.split()[-4:] == ["2", "4.24", "4.00", "seed-k12"]
    path.write_text("{}\n")
    with pytest.raises(ValueError, match=r"results.jsonl: line 1 is no result"):
        tables.read([path])


@pytest.mark.slow
def test_a_series_is_drawn():
    (panel,) = figures.draw_series(results()).axes
    drawn = {line.get_label(): [value.tolist() for value in line.get_data()] for line in panel.get_lines()}
    names = {"dace-redist": "Auto", "MPI_Alltoallw": "Alltoallw"}
    rows = {name: [row for row in results() if row["method"] == method] for name, method in names.items()}
    assert drawn == {name: [[r["x"] for r in own], [1e3 * r["median"] for r in own]] for name, own in rows.items()}


def test_results_fill_the_tables_of_the_manual():
    page = "| with | cases | NumPy | shared |\n|---|---|---|---|\n"
    page += "| `MPI_Alltoallw`, as others call it | 110 | 2.21 (0.98) | 3.51 (1.36) |\n"
    page += "| redistribute, then transpose | 1 | 5.4 | 9.3 |\n| 2MM, 3MM, TTMc | by hand | 4 | 14 |\n"
    page += "| the same | Heat, `resplit` | 4 | 1.1 |\n"
    page += "| start to first result | 1.2 |"
    shared = [row | {"method": "Auto, shared-target", "median": 1.0} for row in results() if row["method"] == "Auto"]
    rows = list(manual.redistribution([*results(), *shared]))
    seconds = {"axes=(1, 0)": 1.0, "without": 2.0, "without, then transpose": 3.0}
    of_axes, heat = {"comparison": "axes", "shape": [4, 4]}, {"comparison": "libraries", "shape": [4, 4]}
    compared = [of_axes | {"what": what, "seconds": seconds} for what in ("ordinary", "node-shared")]
    compared += [heat | {"what": "heat, resplit", "seconds": {"ours": 2.0, "own": own}} for own in (3.0, 5.0)]
    rows += manual.comparisons(compared)
    run = {"ranks": 4, "preset": "S", "seconds": {"total": 0.5}, "against": {"by hand, stock": 4.0}}
    rows += manual.einsums([run | {"kernel": kernel} for kernel in manual.BY_HAND])
    rows += manual.overheads([{"row": "start", "values": [1.0, 1.3, 9.0]}])
    assert manual.updated(page, rows).splitlines()[2:] == [
        "| `MPI_Alltoallw`, as others call it | 2 | 3.00 (2.00) | 6.00 (4.00) |",
        "| redistribute, then transpose | 1 | 3.00 | 3.00 |",
        "| 2MM, 3MM, TTMc | by hand | 4 | 8.00 (8.00) |",
        "| the same | Heat, `resplit` | 4 | 2.50 |",
        "| start to first result | 0.77 |",
    ]
    with pytest.raises(ValueError, match="0 rows of the performance page have the words 'DTensor'"):
        manual.updated(page, [("DTensor", ["1"])])


@pytest.mark.lint
def test_the_tables_of_the_manual_are_those_of_the_results():
    rows, of_gpus = manual.rows_of_results(), list(manual_texts.gpu(manual.results("gpu")))
    assert len(rows) > 40 and len(of_gpus) == 7
    for page, found in ((manual.PERFORMANCE, rows), (manual.GPU, of_gpus)):
        assert manual.updated(page.read_text(), found) == page.read_text()
    assert manual.missing_phrases() == []


def test_demo_shows_ours_first_then_the_best_strategies_and_what_is_missing():
    medians = {"stock DaCe": 0.012, "Pack": 0.008, "Auto": 0.004, "RMA": 0.006, "plain copy": 0.002}
    facts = {"shape": [4, 6], "dtype": "int32", "bytes": 24_000_000, "ranks": 2}
    methods = {method: facts | {"method": method, "median": median} for method, median in medians.items()}
    skipped = {"method": "Auto, shared-target", "skipped": "no memory"}
    lines = demo.redistribution([*methods.values(), skipped], methods).splitlines()
    starts = [line[:20].strip() for line in lines[4:9]]
    assert starts == ["dace-redist, default", "RMA", "Pack", "DaCe's own node", "plain copy of the pa"]
    assert lines[4].split()[-5:] == ["4", "ms", "6.0", "3.00", "50%"]
    assert lines[-1] == "not measured: Auto, shared-target: no memory"

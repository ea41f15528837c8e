"""The benchmark without MPI: its cases, bounds, tables, requirements, figures and command line."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pytest
from redistribution import arrays, bounds, catalogue, dtensor, figures, peers, requirements, scalapack, stock, tables
from redistribution.command import bench

from dace_redist import Distribution, TiledDistribution, schedule
from dace_redist.cli import run_command
from dace_redist.tuning.report import parsec_bound


def cli(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        run_command(bench, "bench.py", words)
    return ended.value.code, capsys.readouterr()


@pytest.mark.parametrize("preset", catalogue.PRESETS)
def test_every_case_can_be_planned(preset):
    found = catalogue.load(preset)
    groups = {"seed", "figures", "kernels", "pencil", "transpose", "ragged", "tiles", "runs", "layouts"}
    assert {case.group for case in found.cases} == set(found.groups) == groups
    for case in found.cases:
        assert 2 <= case.ranks <= 12
        if case.within is not None:  # the parts must lie inside of the larger arrays
            for side, at in ((case.source, case.within.source_at), (case.target, case.within.target_at)):
                ends = [a + n for a, n in zip(at, side.local_shape(0), strict=True)]
                assert all(end <= n for end, n in zip(ends, case.within.shape, strict=True))


def test_the_seed_case_is_that_of_the_paper():
    case = catalogue.load().select(["seed-k24"])[0]
    assert (case.shape, str(case.dtype), case.ranks) == ((48, 24, 24, 72, 288), "int32", 12)
    assert case.source == Distribution(case.shape, (2, 1, 1, 3, 2))
    assert case.target == Distribution(case.shape, (1, 1, 1, 1, 12))
    assert [c.name for c in catalogue.load().select(["seed"])] == [f"seed-k{k}" for k in (8, 12, 16, 20, 24)]


def test_a_file_of_cases_that_is_wrong_is_named(tmp_path):
    path = tmp_path / "mine.json"
    entry = {
        "name": "a",
        "group": "g",
        "shape": [4],
        "dtype": "int32",
        "source": {"grid": [2]},
        "target": {"grid": [1]},
    }

    def load(**changed):
        path.write_text(json.dumps({"groups": {"g": "a group"}, "cases": [entry | changed]}))
        return catalogue.load("default", path)

    assert load().cases[0].ranks == 2
    for changed, message in (
        ({"dtype": "int33"}, "case 'a': .*int33"),
        ({"source": {"grid": [0]}}, "case 'a': "),
        ({"group": "h"}, "case 'a': unknown group 'h'"),
        ({"choices": [{"strategy": "Pack", "depth": 2}]}, "case 'a': strategy Pack does not take option 'depth'"),
    ):
        with pytest.raises(ValueError, match=message):
            load(**changed)
    path.write_text("{")
    with pytest.raises(ValueError, match=r"mine.json holds no cases"):
        catalogue.load("default", path)


@pytest.mark.parametrize("slab", [1, 7, 1 << 20])
@pytest.mark.parametrize("dtype", ["int32", "float64", "complex128"])
def test_values_tell_where_elements_belong(slab, dtype, monkeypatch):
    monkeypatch.setattr(arrays, "_SLAB", slab)
    shape = (5, 7, 4)
    whole = np.zeros(shape, dtype)
    arrays.fill(whole, Distribution(shape, (1, 1, 1)), 0)
    assert len(np.unique(whole)) == whole.size
    owner = np.arange(8).reshape(2, 2, 2) % 3
    for distribution in (
        Distribution(shape, (3, 2), block=(1, "balanced", None)),
        TiledDistribution(shape, (3, 4, 2), owner),
    ):
        for rank in range(distribution.ranks_needed):
            local = np.zeros(distribution.local_shape(rank), dtype)
            arrays.fill(local, distribution, rank)
            assert np.array_equal(local, distribution.local(whole, rank))
            assert arrays.is_right(local, distribution, rank)
            if local.size:
                local.flat[-1] += 1
                assert not arrays.is_right(local, distribution, rank)


def test_what_stock_dace_cannot_express():
    reasons = {case.name: stock.why_not(case) for case in catalogue.load().cases}
    possible = {name for name, reason in reasons.items() if reason is None}
    assert {"seed-k8", "block-k4", "2mm-ik-8", "ttmc-deijc-8", "owners-transposed-960", "runs-4B"} <= possible
    assert "blocks of one size" in reasons["cyclic-same-960"]
    assert "whole arrays" in reasons["nas-mg-x-A"]
    assert "tiles" in reasons["specfem3d-oc"]
    assert "blocks of one size" in reasons["short-last"]


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("pencil-to-pencil-240", (1, 2)),
        ("pencil-to-pencil-yx-240", (0, 1)),
        ("rows-to-columns-960", (0, 1)),
        ("seed-k8", None),
        ("slab-to-pencil-240", None),
        ("owners-transposed-960", None),
        ("nas-mg-x-A", None),
        ("prime-balanced", None),
    ],
)
def test_transfers_between_pencils(name, axes):
    assert peers.pencil_axes(catalogue.load().select([name])[0]) == axes


def test_scalapack_needs_a_matrix_in_blocks_of_one_size():
    chosen = {case.name: case for case in catalogue.load().cases}
    assert "ScaLAPACK redistributes matrices" in scalapack.why_not(chosen["seed-k8"])
    assert "blocks of one size" in scalapack.why_not(chosen["prime-balanced"])


def test_bounds_between_nodes():
    # Rows of 4 x 4 float64 on 4 ranks become columns: every rank sends 8 bytes to each other and keeps 8.
    the_schedule = schedule(Distribution((4, 4), (4, 1)), Distribution((4, 4), (1, 4)))
    traffic = bounds.NodeTraffic.of(the_schedule, [0, 0, 1, 1])
    assert traffic == bounds.NodeTraffic(remote=(32, 32), local=(32, 32))
    assert traffic.wire_seconds(rate=16.0) == 2.0
    assert traffic.bound_seconds(rate=16.0, memory_rate=32.0) == 2.0 + 2.0 + 1.0
    # Formula 5 says the same as formula 4 where all nodes have the same to do.
    assert 32 / parsec_bound(32, 32, 16.0, 32.0) == pytest.approx(5.0)
    uneven = bounds.NodeTraffic.of(the_schedule, [0, 1, 1, 1])
    assert uneven == bounds.NodeTraffic(remote=(24, 24), local=(8, 72))


@pytest.mark.parametrize(("text", "rate"), [("1gbit", 125e6), ("2.5Mbit", 312500.0), ("800bit", 100.0)])
def test_rates(text, rate):
    assert bounds.parse_rate(text) == rate


def record(case="seed-k12", method="Auto", median=1.0, nodes=1, **changed):
    where = {"nodes": nodes, "cores": 2, "mpi": "Open MPI", "processor": "one", "commit": "abc", "ranks": 12}
    line = {"case": case, "group": "seed", "preset": "default", "method": method, "median": median, "series": "seed"}
    line |= {"low": 0.9 * median, "high": 1.2 * median, "repetitions": 9, "environment": where, "options": {}}
    line |= {"variant": "shared-target" if "shared-target" in method else "ordinary", "kind": "strategy"}
    line |= {"strategy": method.split(",")[0], "ranks": 12, "bytes": 10**6, "shape": [3, 4], "dtype": "int32"}
    line |= {"x": float(case[-2:]) if case[-2:].isdigit() else 0, "x_name": "bytes of it", "largest_message": 10**6}
    return line | changed


def results():
    rows = []
    for case, seconds in (("seed-k12", 4.0), ("seed-k16", 9.0)):
        rows.append(record(case, "MPI (stock)", seconds, kind="stock", ratio_to_stock=1.0, share_of_copy=1 / seconds))
        for method, median in (("Auto", 2.0), ("Auto, shared-target", 1.0), ("Pack", 1.5)):
            facts = {"ratio_to_stock": seconds / median, "share_of_copy": 1.0 / median}
            facts |= {"chosen": {"strategy": "Pack", "options": {}, "recorded": case == "seed-k12"}}
            rows.append(record(case, method, median, **facts))
        rows.append(record(case, "plain copy", 1.0, kind="bound", ratio_to_stock=seconds, share_of_copy=1.0))
    return rows


def test_requirements_are_computed_from_medians():
    rows = {row.what: row for row in requirements.rows(results())}
    one = rows["Auto, share of the plain copy, seed-k12, shared-target"]
    assert (one.required, one.seen, one.is_met) == (0.8, 1.0, True)
    mean = rows["Auto to stock, seed k = 12, 16, 24, shared-target: mean"]
    assert mean.seen == pytest.approx(6.0)
    assert mean.cases == 2
    worst = rows["Auto to stock, all on one node, ordinary: worst"]
    assert (worst.seen, worst.worst) == (2.0, "seed-k12")
    best = rows["Auto after tuning to the best single strategy, ordinary: worst"]
    assert best.seen == 0.75
    assert best.cases == 1  # in the other case Auto was the default
    assert best.is_met is False
    assert rows["Auto to ScaLAPACK, ordinary: mean"].seen is None
    assert rows["Auto, share of the wire, 2 nodes, messages >= 1 MB: worst"].is_met is None


def test_requirements_between_nodes_look_at_large_messages_only():
    rows = [record(nodes=2, share_of_wire=0.95), record("small", nodes=2, share_of_wire=0.1, largest_message=1000)]
    rows.append(record(nodes=2, method="MPI (stock)", median=3.0))
    seen = {row.what: row for row in requirements.rows(rows)}
    assert seen["Auto, share of the wire, 2 nodes, messages >= 1 MB: worst"].seen == 0.95
    assert seen["Auto to stock, 2 nodes: worst"].seen == 3.0
    assert seen["Auto to stock, all on one node, ordinary: worst"].seen is None


def test_tables_and_the_last_of_two_results(tmp_path):
    path = tmp_path / "results.jsonl"
    lines = [*results(), {"case": "a", "group": "seed", "preset": "default", "method": "RMA", "skipped": "why"}]
    lines.append(record("seed-k12", "Pack", 5.0, ratio_to_stock=0.8, share_of_copy=0.2))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = tables.read([path])
    assert [r["median"] for r in found if r["case"] == "seed-k12" and r["method"] == "Pack"] == [5.0]
    table = tables.case_table([r for r in found if r["case"] == "seed-k12"]).splitlines()
    assert [line.split("  ")[0].strip() for line in table[3:]] == [
        "Auto, shared-target", "plain copy", "Auto", "MPI (stock)", "Pack"
    ]  # fmt: skip
    assert "MISSED" in tables.requirements_table(found)
    path.write_text("{}\n")
    with pytest.raises(ValueError, match=r"results.jsonl: line 1 is no result"):
        tables.read([path])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.234, "1.23 s"), (0.0512, "51.2 ms"), (2e-6, "2 µs"), (4e-8, "0.04 µs"), (0.9996, "1000 ms")],
)
def test_seconds(seconds, text):
    assert tables.format_seconds(seconds) == text


@pytest.mark.slow
def test_every_figure_is_drawn_in_both_formats(tmp_path):
    files = figures.draw_all(results() + [record(nodes=2, share_of_wire=0.9)], tmp_path / "new" / "folder")
    names = {path.stem for path in files}
    assert {"times-seed", "stock-seed", "bound-seed", "series-seed", "times-seed-2-nodes"} <= names
    assert {path.suffix for path in files} == {".png", ".svg"}
    for path in files:
        head = path.read_bytes()[:200]
        assert head.startswith(b"\x89PNG") if path.suffix == ".png" else b"<?xml" in head
    svg = (tmp_path / "new" / "folder" / "times-seed.svg").read_text()
    assert "median time, s" in svg
    assert "Auto, shared-target" in svg
    with pytest.raises(ValueError, match="nothing to draw"):
        figures.draw_all([], tmp_path)


def test_the_command_lists_cases(capsys):
    code, printed = cli(capsys, "--list", "seed", "runs-4B")
    assert not code
    assert printed.out.splitlines()[0].startswith("seed: ")
    assert "seed-k24" in printed.out
    assert "runs-4B" in printed.out
    assert "block-k4" not in printed.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sed"], "no case or group is called 'sed' in this preset; did you mean seed"),
        (["--cases", "nothing-like-it"], "there are the groups seed, figures"),
        (["--strategies", "Pakc"], "'Pakc' is not one of"),
        (["--variants", "common"], "'common' is not one of"),
        (["--rate", "fast"], "'fast' is no rate; expected a number and one of bit, kbit, mbit, gbit"),
        (["--preset", "huge"], "'huge' is not one of"),
        (["--least", "9", "--most", "8"], "--most 8 is less than --least 9"),
        (["--precison", "0.1"], "No such option"),
        (["--plot", "missing.jsonl", "figures"], "missing.jsonl"),
    ],
)
def test_what_the_command_does_not_understand_is_one_line(capsys, words, message):
    code, printed = cli(capsys, *words)
    assert code == 2
    assert printed.err.count("\n") == 1
    assert message in printed.err


def test_results_are_summarised(capsys, tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in results()))
    code, printed = cli(capsys, "--summary", str(path))
    assert not code
    assert "must reach" in printed.out
    assert "Geometric means" in printed.out


def test_what_is_installed_imports_nothing_of_the_benchmarks():
    root = Path(__file__).parents[2]
    folders = [root / "benchmarks", root / "benchmarks" / "einsum"]
    theirs = {path.stem for folder in folders for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert {"redistribution", "deinsum", "bench"} <= theirs
    for room in ("dace_redist", "library_nodes", "transformations"):
        for path in (root / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
                assert not theirs & {name.split(".")[0] for name in names}, path


def test_a_mesh_of_dtensor_splits_as_the_distributions_do():
    """Along each axis of the mesh in turn, blocks of ceil(n/p) elements: what torch.chunk makes."""
    found = [(case, mesh) for case in catalogue.load("tiny").cases if (mesh := dtensor.mesh_of(case)) is not None]
    assert {"seed-k2", "slab-to-pencil-24", "owners-transposed-96"} <= {case.name for case, _ in found}
    assert all(dtensor.mesh_of(catalogue.load("tiny").select([name])[0]) is None for name in ("2mm-ik-4", "all-to-one"))
    for case, (mesh, *sides) in found:
        whole = np.arange(np.prod(case.shape)).reshape(case.shape)
        for distribution, placements in zip((case.source, case.target), sides, strict=True):
            for rank, coords in enumerate(np.ndindex(*mesh)):
                part = whole
                for parts, coord, axis in zip(mesh, coords, placements, strict=True):
                    if axis is not None:
                        each = -(-part.shape[axis] // parts)
                        part = part.take(range(coord * each, min(part.shape[axis], (coord + 1) * each)), axis)
                assert np.array_equal(part, distribution.local(whole, rank)), (case.name, rank)

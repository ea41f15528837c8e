"""The machine profile: read, written, refused where it is damaged, ignored where it is of something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dace_redist
from dace_redist.mpi.topology import Topology
from dace_redist.tuning import profile as machine_profile
from dace_redist.tuning.files import profile_path
from dace_redist.tuning.profile import Curve, Surface, default_profile, fastest, for_topology, load, save
from dace_redist.tuning.report import profile_text

DEFAULT = default_profile()
HERE = Topology(DEFAULT.machine, DEFAULT.mpi, (0, 0))


def written(path: Path, *keys: Any, value: Any) -> Path:
    """Write the default profile with one entry changed."""
    content = json.loads(machine_profile.DEFAULT_PROFILE.read_text())
    place = content
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    path.write_text(json.dumps(content))
    return path


def test_a_curve_is_linear_between_sizes_and_keeps_its_last_rate():
    curve = Curve(nbytes=[10, 100], seconds=[1.0, 4.0])
    assert [curve.at(n) for n in (1, 10, 40, 100, 200)] == [1.0, 1.0, 2.0, 4.0, 8.0]
    assert curve.latency == 1.0 and curve.rate == 25.0


def test_a_surface_is_logarithmic_between_what_was_measured_and_constant_beyond():
    surface = Surface(footprints=[100, 10000], runs=[4, 64], seconds_per_byte=[[8.0, 2.0], [32.0, 8.0]])
    assert surface.at(100, 16) == pytest.approx(4.0)
    assert surface.at(1000, 64) == pytest.approx(4.0)
    assert surface.at(1, 1) == pytest.approx(8.0) and surface.at(1e9, 1e9) == pytest.approx(8.0)


def test_round_trip(tmp_path: Path):
    path = tmp_path / "new" / "machine.json"
    save(DEFAULT, path)
    assert load(path) == (DEFAULT, "")
    assert json.loads(path.read_text())["version"] == machine_profile.VERSION


def test_of_several_rounds_the_least_seconds_count():
    plain = DEFAULT.model_dump()
    plain["node"]["messages"]["seconds"][0] *= 0.5
    plain["copies"]["pack"]["seconds_per_byte"][1][2] *= 2.0
    other = DEFAULT.model_validate(plain)
    both = fastest([DEFAULT, other])
    assert both.node is not None and other.node is not None
    assert both.node.messages == other.node.messages
    assert both.copies == DEFAULT.copies


@pytest.mark.parametrize(
    "topology, said",
    [
        (Topology("Slow Processor", DEFAULT.mpi, (0, 0)), f"another machine ({DEFAULT.machine}, here Slow Processor)"),
        (Topology(DEFAULT.machine, "MPICH 5", (0, 0)), f"another MPI ({DEFAULT.mpi}, here MPICH 5)"),
    ],
)
def test_of_another_machine_it_is_ignored_with_a_line(topology: Topology, said: str):
    profile, ignored = for_topology(machine_profile.DEFAULT_PROFILE, topology)
    assert profile is None and said in ignored and "calibrate again here" in ignored and "\n" not in ignored


def test_here_it_is_taken():
    assert for_topology(machine_profile.DEFAULT_PROFILE, HERE) == (DEFAULT, "")


def test_of_another_release_or_without_what_is_needed_it_is_ignored(tmp_path: Path):
    old = written(tmp_path / "old.json", "package", value="0.0.1")
    assert f"another version of dace-redist (0.0.1, here {dace_redist.__version__})" in for_topology(old, HERE)[1]
    one = written(tmp_path / "one.json", "network", value=None)
    assert "it was made on one node" in for_topology(one, Topology(DEFAULT.machine, DEFAULT.mpi, (0, 1)))[1]
    alone = written(tmp_path / "alone.json", "node", value=None)
    assert "it was made with one rank per node" in for_topology(alone, HERE)[1]


def test_of_another_format_version_it_is_ignored_with_a_line(tmp_path: Path):
    profile, ignored = load(written(tmp_path / "machine.json", "version", value=99))
    assert profile is None
    assert "is ignored: it is a machine profile of version 99, this package reads and writes version 2" in ignored


def with_gpu(name: str = "NVIDIA H200") -> machine_profile.MachineProfile:
    """Return the default profile with a GPU that has the figures of main memory."""
    plain = DEFAULT.model_dump()
    node, copies = plain["node"], plain["copies"]
    plain["device"] = {
        "name": name,
        "launch": 1e-5,
        "copies": copies,
        "to_main_memory": node["messages"],
        "to_gpu": node["messages"],
        "node": {kind: node[kind] for kind in ("messages", "push", "latency")},
        "network": plain["network"],
    }
    return DEFAULT.model_validate(plain)


def test_figures_of_a_gpu_are_optional(tmp_path: Path):
    for profile in (DEFAULT, with_gpu()):
        save(profile, tmp_path / "machine.json")
        assert load(tmp_path / "machine.json") == (profile, "")
        assert ("device" in json.loads((tmp_path / "machine.json").read_text())) == (profile.device is not None)
    assert "GPU" not in profile_text(DEFAULT)
    assert "GPU                 NVIDIA H200; 10 us for a kernel" in profile_text(with_gpu())
    both = fastest([with_gpu(), with_gpu()])
    assert both.device == with_gpu().device and fastest([with_gpu(), DEFAULT]).device is None


def test_for_arrays_on_a_gpu_it_holds_for_its_model():
    here = Topology(DEFAULT.machine, DEFAULT.mpi, (0, 0), "NVIDIA H200")
    assert DEFAULT.why_not(here) == "" and DEFAULT.why_not(here, True) == "it was made where no GPU could be used"
    assert with_gpu().why_not(here, True) == ""
    assert with_gpu("NVIDIA A100").why_not(here, True) == "it is of another GPU (NVIDIA A100, here NVIDIA H200)"


@pytest.mark.parametrize("part", ["node", "network"])
def test_a_gpu_section_has_the_parts_that_the_profile_has(tmp_path: Path, part: str):
    plain = with_gpu().model_dump()
    plain["device"][part] = None
    (tmp_path / "machine.json").write_text(json.dumps(plain))
    with pytest.raises(ValueError, match=f"is damaged: the whole: .*device.{part} must be there where {part} is"):
        load(tmp_path / "machine.json")


@pytest.mark.parametrize(
    "keys, value, said",
    [
        (("node", "messages", "seconds", 2), -1.0, "node.messages.seconds.2: Input should be greater than 0"),
        (
            ("copies", "pack", "seconds_per_byte", 0, 1),
            0.0,
            "copies.pack.seconds_per_byte.0.1: Input should be greater",
        ),
        (("network", "link", "seconds"), [float("nan")], "network.link.seconds.0: Input should be"),
        (
            ("node", "messages", "nbytes", 0),
            10**9,
            "node.messages.nbytes: Value error, expected sizes in ascending order",
        ),
        (("node", "push", "seconds_per_byte"), [[1e-9]], "node.push: Value error, expected 4 x 9 numbers, got 1 rows"),
        (("node", "staged"), None, "the whole: Value error, node must have pull, staged and datatypes"),
        (("node", "messages", "seconds"), [1.0], "node.messages: Value error, expected seconds of 7 sizes, got 1"),
        (("cores_per_node",), 0, "cores_per_node: Input should be greater than or equal to 1"),
        (("ranks_per_node",), "two", "ranks_per_node: Input should be a valid integer"),
        (("colour",), "red", "colour: Extra inputs are not permitted"),
        (("copies",), None, "copies: Input should be"),
    ],
)
def test_impossible_values_name_the_file_and_the_field(tmp_path: Path, keys: tuple[Any, ...], value: Any, said: str):
    path = written(tmp_path / "machine.json", *keys, value=value)
    with pytest.raises(ValueError) as error:
        load(path)
    assert f"machine profile {path} is damaged: {said}" in str(error.value)
    assert "dace-redist calibrate" in str(error.value) and "DACE_REDIST_MACHINE" in str(error.value)


@pytest.mark.parametrize(
    "text, said",
    [
        ('{"format": "dace-redist mach', "is not valid JSON"),
        ('{"format": "x"}', "is not a machine profile"),
        ("[]", "not"),
    ],
)
def test_damaged_and_foreign_files_are_refused(tmp_path: Path, text: str, said: str):
    path = tmp_path / "machine.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        load(path)


def test_where_it_lies(tmp_path: Path, monkeypatch):
    monkeypatch.delenv("DACE_REDIST_MACHINE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert profile_path() == tmp_path / "dace-redist" / "machine.json"
    monkeypatch.setenv("DACE_REDIST_MACHINE", "/some/where.json")
    assert profile_path() == Path("/some/where.json")
    assert profile_path("other.json") == Path("other.json")
    with pytest.raises(TypeError, match="machine must be the path of a file, got 3"):
        profile_path(3)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="cannot be written.*--output"):
        save(DEFAULT, tmp_path / "file" / "machine.json")

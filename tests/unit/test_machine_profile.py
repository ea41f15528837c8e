"""The machine profile: read, written, refused where it is damaged, ignored where it is of something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dace_redist
from dace_redist.mpi.topology import Topology
from dace_redist.tuning import profile as machine_profile
from dace_redist.tuning.profile import Curve, Surface, default_profile, for_topology, load

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
    machine_profile.FILE.replace(path, DEFAULT)
    assert load(path) == (DEFAULT, "")
    assert json.loads(path.read_text())["version"] == machine_profile.FILE.version


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


def test_of_another_release_or_without_what_is_needed_it_is_ignored(tmp_path: Path):
    old = written(tmp_path / "old.json", "package", value="0.0.1")
    assert f"another version of dace-redist (0.0.1, here {dace_redist.__version__})" in for_topology(old, HERE)[1]
    one = written(tmp_path / "one.json", "network", value=None)
    assert "it was made on one node" in for_topology(one, Topology(DEFAULT.machine, DEFAULT.mpi, (0, 1)))[1]
    alone = written(tmp_path / "alone.json", "node", value=None)
    assert "it was made with one rank per node" in for_topology(alone, HERE)[1]


@pytest.mark.parametrize(
    "keys, value, said",
    [
        (("node", "messages", "seconds", 2), -1.0, "node.messages.seconds.2: Input should be greater than 0"),
        (("network", "link", "seconds"), [float("nan")], "network.link.seconds.0: Input should be"),
        (
            ("node", "messages", "nbytes", 0),
            10**9,
            "node.messages.nbytes: Value error, expected sizes in ascending order",
        ),
        (("node", "push", "seconds_per_byte"), [[1e-9]], "node.push: Value error, expected 4 x 9 numbers, got 1 rows"),
        (("cores_per_node",), 0, "cores_per_node: Input should be greater than or equal to 1"),
        (("copies", "pack", "seconds_per_byte", 0, 0), 1e-320, "copies.pack.seconds_per_byte.0.0: Input should be"),
        (("ranks_per_node",), 10**400, "ranks_per_node: Input should be less than"),
        (("node", "latency"), {}, "the whole: Value error, node.latency must have datatypes, messages, shared"),
        (("colour",), "red", "colour: Extra inputs are not permitted"),
    ],
)
def test_impossible_values_name_the_file_and_the_field(tmp_path: Path, keys: tuple[Any, ...], value: Any, said: str):
    path = written(tmp_path / "machine.json", *keys, value=value)
    with pytest.raises(ValueError) as error:
        load(path)
    assert f"machine profile {path} is damaged: {said}" in str(error.value)
    assert "dace-redist calibrate" in str(error.value) and "DACE_REDIST_MACHINE" in str(error.value)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="cannot be written.*--output"):
        machine_profile.FILE.replace(tmp_path / "file" / "machine.json", DEFAULT)

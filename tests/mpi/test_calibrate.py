"""``dace-redist calibrate``: a machine profile is made, with tiny sizes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dace_redist.mpi.launch import launch

SIZES = {
    "footprints": (1 << 10, 8 << 10),
    "runs": (8, 64),
    "read_runs": (16 << 10,),
    "items": (8,),
    "messages": (8, 4 << 10),
}


@pytest.mark.compile
@pytest.mark.mpi(ranks=[3], timeout=120)
def test_a_profile_of_two_nodes(comm, monkeypatch):
    """The nodes are pretended: what is between them goes through memory, too."""
    import tempfile

    from dace_redist import Distribution, schedule
    from dace_redist.mpi.topology import Topology
    from dace_redist.selection import machine_profile
    from dace_redist.selection.cost_model import CostModel
    from dace_redist.selection.problem_key import Problem
    from dace_redist.tuning import calibrate as calibrating

    with tempfile.TemporaryDirectory() as folder:
        path = Path(comm.bcast(folder)) / "machine.json"
        sizes = calibrating.Sizes(**SIZES)
        nodes = Topology("processor", "MPI", (0, 0, 1))
        monkeypatch.setattr(calibrating, "topology_of", lambda _: nodes)
        made = calibrating.calibrate(comm, output=path, sizes=sizes, limit_seconds=1, progress=False)
        assert comm.allgather(made) == [made] * 3
        assert machine_profile.load(path) == (made, "")
        assert (made.nodes, made.ranks_per_node, made.machine) == (2, 2, "processor")
        assert made.node is not None and made.node.read.runs == [16 << 10] and made.node.staged.sent.runs == [8, 64]
        assert made.network is not None and made.network.messages.nbytes == [8, 4 << 10]
        assert "nodes of 2 ranks" in str(made) and "of a node's link" in str(made)
        moved = schedule(Distribution((66, 66), (3, 1)), Distribution((66, 66), (1, 3)))
        model = CostModel(Problem(moved), made, nodes.node_of)
        assert 1e-7 < model.estimates()[0].seconds < 1

        monkeypatch.setattr(calibrating, "topology_of", lambda _: Topology("processor", "MPI", (0, 1, 2)))
        alone = calibrating.calibrate(comm, output=path, sizes=sizes, limit_seconds=1, progress=False)
        assert alone.node is None and alone.network is not None
        with pytest.raises(TypeError, match="machine must be the path of a file, got 3"):
            calibrating.calibrate(comm, output=3)
        comm.Barrier()


@pytest.mark.compile
def test_a_file_that_cannot_be_written_is_found_out_first(tmp_path: Path):
    (tmp_path / "file").write_text("")
    argv = [sys.executable, "-m", "dace_redist.cli", "calibrate", "--output", str(tmp_path / "file" / "machine.json")]
    code, printed = launch(2, argv, 60)
    assert code == 2 and "Traceback" not in printed
    assert printed.count("dace-redist: machine profile") == 1 and "name another file with --output" in printed

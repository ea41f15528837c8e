"""``dace-redist calibrate``: a machine profile is made, with tiny sizes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

#: With which a profile is made within seconds.
SIZES = {
    "footprints": (1 << 10, 8 << 10),
    "runs": (8, 64),
    "exchanged_runs": (8, 16 << 10),
    "items": (8,),
    "messages": (8, 4 << 10),
    "network_chunks": (1 << 10,),
}


def but_for_windows(timed: Callable[..., float | None]) -> Callable[..., float | None]:
    """Return a measurement for an MPI without windows."""
    return lambda *given, **options: None if "RMA" in given else timed(*given, **options)


@pytest.mark.mpi(ranks=[3], timeout=120)
def test_a_profile_of_two_nodes(comm, monkeypatch):
    """The nodes are pretended: what is between them goes through memory, too."""
    import tempfile

    from dace_redist import Distribution, schedule
    from dace_redist.measuring import calibrate as calibrating
    from dace_redist.mpi.topology import Topology
    from dace_redist.tuning import profile as machine_profile
    from dace_redist.tuning.cost_model import CostModel
    from dace_redist.tuning.problem import Problem
    from dace_redist.tuning.report import profile_text

    with tempfile.TemporaryDirectory() as folder:
        path = Path(comm.bcast(folder)) / "machine.json"
        sizes = calibrating.Sizes(**SIZES)
        nodes = Topology("processor", "MPI", (0, 0, 1))
        monkeypatch.setattr(calibrating, "topology_of", lambda _: nodes)
        monkeypatch.setattr(calibrating.os, "cpu_count", lambda: 1)
        made = calibrating.calibrate(comm, output=path, sizes=sizes, limit_seconds=0.3, progress=False)
        assert comm.allgather(made) == [made] * 3
        assert machine_profile.load(path) == (made, "")
        assert (made.nodes, made.ranks_per_node, made.machine) == (2, 2, "processor")
        assert made.node is not None and made.node.staged.runs == [8, 16 << 10]
        assert made.network is not None and made.network.messages.nbytes == [8, 4 << 10]
        said = profile_text(made)
        assert "staged" in said and "nodes of 2 ranks" in said and "network link" in said
        moved = schedule(Distribution((66, 66), (3, 1)), Distribution((66, 66), (1, 3)))
        model = CostModel(Problem(moved), made, nodes.node_of)
        assert 1e-7 < model.estimates()[0].seconds < 1

        timed_exchanges = calibrating.TimedExchanges
        shift, cyclic = timed_exchanges.shift, timed_exchanges.cyclic
        with monkeypatch.context() as without_windows:
            for name, timed in (("shift", shift), ("cyclic", cyclic)):
                without_windows.setattr(timed_exchanges, name, but_for_windows(timed))
            made = calibrating.calibrate(comm, output=path, sizes=sizes, limit_seconds=0.3, progress=False)
        assert made.node is not None and "puts" not in made.node.latency
        assert "RMA" not in [one.strategy for one in CostModel(Problem(moved), made, nodes.node_of).estimates()]

        monkeypatch.setattr(calibrating, "topology_of", lambda _: Topology("processor", "MPI", (0, 1, 2)))
        alone = calibrating.calibrate(comm, output=path, sizes=sizes, limit_seconds=0.3, progress=False)
        assert alone.node is None and alone.network is not None
        with pytest.raises(TypeError, match="machine must be the path of a file, got 3"):
            calibrating.calibrate(comm, output=3)
        comm.Barrier()


def profile_in_which(comm, path: Path, **faster: float) -> None:
    """Save the profile of the package for this machine, with some rates of a node multiplied by a factor."""
    from dace_redist import __version__
    from dace_redist.mpi.topology import topology_of
    from dace_redist.tuning import profile as machine_profile

    here = topology_of(comm)
    plain = machine_profile.default_profile().model_dump()
    plain |= {"machine": here.machine, "mpi": here.mpi, "package": __version__}
    for name, factor in faster.items():
        side = plain["node"][name]
        side["seconds_per_byte"] = [[seconds / factor for seconds in row] for row in side["seconds_per_byte"]]
    if comm.rank == 0:
        machine_profile.FILE.replace(path, machine_profile.MachineProfile.model_validate(plain))
    comm.Barrier()


@pytest.mark.dace
@pytest.mark.mpi(ranks=[3], timeout=180)
def test_auto_takes_what_the_profile_predicts(comm, tmp_path: Path, monkeypatch, caplog):
    import numpy as np

    import dace_redist
    from dace_redist import Distribution
    from dace_redist.redistribution.cache import plans_in_use
    from dace_redist.tuning.auto import choose_all
    from dace_redist.tuning.problem import Problem

    folder = comm.bcast(tmp_path)
    profile, record = folder / "machine.json", folder / "tuning.json"
    # only rank 0 reads: the others may see another file, or none
    monkeypatch.setenv("DACE_REDIST_MACHINE", str(profile if comm.rank == 0 else folder / "none.json"))
    monkeypatch.setenv("DACE_REDIST_RECORD", str(record))
    rows, columns = Distribution((600, 600), (3, 1)), Distribution((600, 600), (1, 3))
    moved = dace_redist.schedule(rows, columns)

    def chosen(memory: str = "ordinary") -> tuple[str, bool, str]:
        choice = choose_all([Problem(moved, memory)], comm)[0]
        assert comm.allgather(choice) == [choice] * 3
        return choice.strategy, choice.predicted, choice.reason

    assert chosen() == ("Hierarchical", False, "nothing was measured")
    profile_in_which(comm, profile, staged=0.001, datatypes=1000, push=1000)
    assert chosen()[:2] == ("Datatype", True) and "predicted to take" in chosen()[2]
    assert chosen("shared-target")[:2] == ("Hierarchical", True)
    whole = np.arange(360000.0).reshape(600, 600)
    out = dace_redist.shared_empty(columns.local_shape(comm.rank)) * 0
    dace_redist.redistribute(rows.local(whole, comm.rank), rows, columns, comm=comm, out=out)
    assert np.array_equal(out, columns.local(whole, comm.rank))
    assert plans_in_use(comm)[-1] == ("Datatype", {})

    found = dace_redist.tune(moved, comm=comm, limit_seconds=0.3, progress=False)  # starts with what is predicted
    rounds = found.problems[0].measured
    assert rounds[0].round == "all strategies"
    left_out = {one.strategy: one.note for one in rounds if one.note.startswith("not measured: predicted to take")}
    again = {one.strategy for one in rounds if one.round == "all strategies again"}
    assert again >= {"Pack", "Shared", "Datatype"} if again else {"Shared"} <= set(left_out)
    assert "not measured" in str(found) or again
    assert chosen()[1:] == (False, f"measured, in {record}")
    if comm.rank == 0:
        record.unlink()
    comm.Barrier()

    if comm.rank == 0:
        profile.write_text(profile.read_text().replace(dace_redist.__version__, "0.0.1"))
    comm.Barrier()
    assert chosen() == ("Hierarchical", False, "nothing was measured")
    if comm.rank == 0:
        assert "it is of another version of dace-redist (0.0.1, here" in caplog.text and caplog.text.count("0.0.1") == 1
        profile.write_text("{")
    comm.Barrier()
    with pytest.raises(ValueError, match=r"machine profile .*machine\.json is not valid JSON"):
        chosen()

"""Distributed programs give what NumPy gives; what cannot run is refused on every rank, and nobody waits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from builds import planned
from results import by_numpy, check_gathered

from dace_redist import Distribution, RedistributionError, TiledDistribution

pytestmark = [pytest.mark.compile, pytest.mark.dace]


@pytest.fixture(autouse=True)
def _shared_tensors_and_quick_compilation(monkeypatch):
    monkeypatch.setenv("DACE_compiler_cpu_args", "-fPIC -O0 -w")
    monkeypatch.setattr("dace_redist.transformations.distribute.emit.storage.MIN_BYTES", 1)  # tensors are small here


def distributed(comm: Any, name: str, **options: Any) -> Any:
    from programs import PROGRAMS

    return planned(comm, PROGRAMS[name].program, PROGRAMS[name].sizes, **options)


def check(comm: Any, name: str, program: Any = None, **sizes: int) -> None:
    """Scatter random arguments, run a program, gather and compare all results."""
    from programs import PROGRAMS

    program, one = program or distributed(comm, name), PROGRAMS[name].with_sizes(**sizes)
    program.compile(comm)
    check_gathered(comm, program, one.arguments(), one.expected(), name, tolerance=1e-12)


@pytest.mark.mpi(ranks=[3], timeout=200)
def test_inputs_and_outputs_of_any_distribution(comm):
    """Balanced blocks stay where they are; what no grid has is moved."""
    from programs import PROGRAMS

    sizes = PROGRAMS["mttkrp"].sizes
    size_x, size_b, size_a = ((*map(sizes.get, names),) for names in ("IJK", "JR", "IR"))
    tiles = np.arange(size_a[0]).reshape(-1, 1) % 3
    placements = {
        "X": Distribution.split(size_x, 0, 3),
        "B": Distribution.block_cyclic(size_b, (3, 1), (1, 2)),
        "__return": TiledDistribution(size_a, (1, size_a[1]), tiles),
    }
    program = distributed(comm, "mttkrp", placements=placements, overrides={"__return": {"i": 3}})
    assert not [move for move in program.plan.moves if move.tensor == "X"]
    assert {name: program.tensor(name).distribution for name in ("B", "__return")} == {
        name: placements[name] for name in ("B", "__return")
    }
    check(comm, "mttkrp", program)
    with pytest.raises(ValueError, match=r"B has the shape .* but its distribution is of .*: distribute the program"):
        program.with_sizes(J=sizes["J"] + 1)


@pytest.mark.mpi(ranks=[3], timeout=200)
def test_scalars(comm):
    scalars = distributed(comm, "scalars")
    parts = scalars.scatter(np.eye(7), np.ones(7), alpha=2)
    whole = scalars.gather(scalars.run(**{**parts, "alpha": 2}))  # a number, though the program's is float64
    assert comm.rank != 0 or np.allclose(whole, 2 + 7 + 1 / 7)
    given = (np.eye(7), np.ones(7), 2.0) if comm.rank == 0 else (None,) * 3
    called = scalars(*given[:2], alpha=given[2])
    assert np.array_equal(called, whole) if comm.rank == 0 else called is None


@pytest.mark.mpi(ranks=[4], timeout=300)
def test_a_loop_with_shared_tensors_and_other_sizes(comm):
    """One program, compiled once, for several sizes, some of which leave ranks without work."""
    program = distributed(comm, "sweeps")
    check(comm, "sweeps", program)
    for sizes in (dict(I=16, J=8, K=12, R=4), dict(I=2, J=3, K=1, R=2)):
        check(comm, "sweeps", program.with_sizes(**sizes), **sizes)


@pytest.mark.mpi(ranks=[4], timeout=300)
def test_extents_of_0(comm):
    """Results are NumPy's, in programs that were planned for such sizes, and for others."""
    from programs import PROGRAMS

    for name, empty in (("sweeps", "J"), ("linear_systems", "N")):
        one = PROGRAMS[name].with_sizes(**{empty: 0})
        check(comm, name, planned(comm, one.program, one.sizes), **one.sizes)
    program = distributed(comm, "mttkrp")
    for empty in "IJKR":
        check(comm, "mttkrp", program.with_sizes(**{empty: 0}), **{empty: 0})


@pytest.mark.mpi(ranks=[4], timeout=400)
def test_other_communicators_than_the_world(comm):
    """Ranks in another order, sub-communicators whose programs run at the same time, and one after the other."""
    reordered = comm.Split(0, -comm.rank)
    check(reordered, "linear_systems")
    for turn in range(2):
        half = comm.Split(comm.rank % 2, -comm.rank)
        program = distributed(half, "linear_systems")
        for _ in range(2):
            check(half, "linear_systems", program)
        if turn == 0:
            half.Free()  # the next one may get its handle
    if comm.rank < 3:
        first = comm.Create_group(comm.group.Incl([2, 0, 1]))
        check(first, "mttkrp")
        first.Free()
    comm.Barrier()
    check(comm, "linear_systems")
    reordered.Free()


@pytest.mark.mpi(ranks=[3], timeout=200)
def test_bad_arguments_are_refused_on_every_rank(comm):
    from mpi4py import MPI
    from programs import PROGRAMS

    from dace_redist import distribute
    from dace_redist.native.program import Program

    run = Program.run
    mttkrp, sizes, given = PROGRAMS["mttkrp"].program, PROGRAMS["mttkrp"].sizes, PROGRAMS["mttkrp"].arguments()
    program = distribute(mttkrp, comm.size, sizes)
    local = program.scatter(**given)

    def run_and_fail(*arguments: Any) -> None:
        run(*arguments)
        raise RedistributionError("out of memory")

    def no_array(*_: Any, **__: Any) -> None:
        raise MemoryError("no memory left")

    def refused(match: str, call: Any, kind: type = ValueError) -> None:
        with pytest.raises(kind, match=match):
            call()

    wrong = {**local, "B": local["B"].astype("float32")} if comm.rank == 1 else local
    refused("B must hold float64, got float32 on rank 1", lambda: program.run(**wrong))
    short = {**local, "X": local["X"][..., :-1]} if comm.rank == 2 else local
    refused(r"rank 2 holds .* of X", lambda: program.run(**short))
    refused("the part of C is missing", lambda: program.run(X=local["X"], B=local["B"]))
    refused("no tensor D", lambda: program.run(**local, D=local["C"]))
    refused("X must have shape", lambda: program.scatter(X=given["X"][1:]))
    refused("no rank has X", lambda: program.scatter(X=None))
    refused(
        r"scatter: B must hold float64, got complex128, of which that may lose .* B.astype\(np.float64\)",
        lambda: program.scatter(B=given["B"] * 1j),
    )
    refused("gather: B must hold float64, got float128", lambda: program.gather(local["B"].astype("longdouble"), "B"))
    refused("no tensor 'Y'", lambda: program.scatter(Y=given["X"]))
    refused("given twice", lambda: program.scatter(given["X"], X=given["X"]))
    refused("has 3 inputs", lambda: program.scatter(1, 2, 3, 4))
    refused("over 2 ranks, but the world has 3", lambda: distribute(mttkrp, 2, sizes).run(**local))
    refused("rank . holds", lambda: program.gather(np.zeros((1, 1))))
    refused("intra-communicator", lambda: program.run(comm=3, **local), TypeError)
    odd = comm.rank == 1  # one rank that does something else than the others
    elsewhere = "" if odd else "on rank 1: "
    refused("differ in the tensor to gather", lambda: program.gather(local["B"], "B" if odd else "C"))
    refused("differ in the tensor to gather", lambda: program.gather(local["B"], "Q" if odd else "B"))
    refused("no tensor 'Q'", lambda: program.gather(local["B"], "Q"))
    refused("has 3 inputs", lambda: program.scatter(*[None] * (4 if odd else 3)))
    refused("differ in the tensors to scatter", lambda: program.scatter(**{"B" if odd else "C": None}))
    other = program.with_sizes(R=2) if odd else program
    refused("differ in the distributed program and its sizes", lambda: other.run(**local))
    held = program.outputs["__return"].distribution.local_shape(comm.rank)
    shared = local["X"].reshape(-1)[: math.prod(held)].reshape(held)
    refused("__return is written in place, but shares memory with X", lambda: program.run(**local, __return=shared))
    fixed = np.zeros(held)
    fixed.flags.writeable = not odd
    refused("must be a C-contiguous, writeable NumPy array", lambda: program.run(**local, __return=fixed))
    with pytest.MonkeyPatch.context() as patch:  # a step that fails on one rank
        patch.setattr("dace_redist.native.program.Program.run", run_and_fail if odd else Program.run)
        refused(elsewhere + "out of memory", lambda: program.run(**local), RedistributionError)
    with pytest.MonkeyPatch.context() as patch:  # a part that one rank cannot hold
        if odd:
            patch.setattr("dace_redist.transformations.distribute.runtime.run.new_array", no_array)
        refused(elsewhere + "no memory left", lambda: program.scatter(**given), MemoryError)
    half = comm.Split(comm.rank // 2)
    refused("over 3 ranks, but the communicator has", lambda: program.run(comm=half, **local))
    half.Free()
    own = MPI.COMM_SELF if odd else None  # the others must raise, not wait
    for call in (
        lambda: program.run(comm=own, **local),
        lambda: program.with_sizes(R=2).compile(own),
        lambda: program.scatter(**given, comm=own),
        lambda: program.gather(local["B"], "B", comm=own),
    ):
        refused(elsewhere + "the program is distributed over 3 ranks, but the communicator has 1", call)
    refused(elsewhere + "comm must be", lambda: program.run(comm=3 if odd else None, **local), TypeError)
    whole = program.gather(program.run(**local))  # still works
    assert comm.rank != 0 or np.allclose(whole, np.einsum("ijk,ja,ka->ia", *given.values()))


@pytest.mark.mpi(ranks=[2])
def test_elements_of_a_type_that_loses_something_are_refused(comm):
    from programs.einsums import integers

    program = planned(comm, integers, {})
    for bad in (2.9, np.full(4, 2.9), [1, 2, 3, 4.5]):
        with pytest.raises(ValueError, match="scatter: A must hold int64, got float64"):
            program.scatter(A=bad)
    for bad, why in ((300, "300"), (-1, "-1"), (np.int64(1), "got int64"), (2.0, "got float64")):
        with pytest.raises(ValueError, match=f"scatter: k must hold uint8.*{why}"):
            program.scatter(k=bad)
    with pytest.raises(ValueError, match="gather: __return must hold int64, got float64"):
        program.gather(np.zeros(2))
    parts = program.scatter(A=[1, 2, 3, 4], k=2)
    assert parts["A"].dtype == np.int64 and parts["k"] == 2


@pytest.mark.mpi(ranks=[3], timeout=200)
def test_tensors_of_one_rank_are_scattered(comm):
    from programs import PROGRAMS

    program, given = distributed(comm, "mttkrp"), PROGRAMS["mttkrp"].arguments()
    scalars = distributed(comm, "scalars")
    assert scalars.scatter(alpha=np.array([2.5]))["alpha"] == 2.5  # as DaCe holds it
    mine = {name: array if comm.rank == 1 else None for name, array in given.items()}
    parts = program.scatter(**mine)
    for name, tensor in program.inputs.items():
        assert np.array_equal(parts[name], tensor.distribution.local(given[name], comm.rank))
    assert np.array_equal(program.scatter(B=given["B"].astype("float32"))["B"], parts["B"].astype("float32"))


@pytest.mark.mpi(ranks=[4], timeout=400)
def test_other_types(comm):
    from programs.einsums import SIZES, other_types
    from programs.program import Program, sizes_of

    one = Program(other_types, sizes_of(other_types, SIZES))
    program, given = planned(comm, other_types, one.sizes), one.arguments()
    for name in ("G", "GS", "GC"):
        given[name] += 2 * np.eye(*given[name].shape, dtype=given[name].dtype)
    check_gathered(comm, program, given, by_numpy(other_types.f, given), tolerance=1e-12, single=1e-5)
    singular = {**given, "G": np.ones_like(given["G"])}
    local = program.scatter(**singular)  # of ranks without columns of the solution, too, it is an error
    message = r"einsums\.py:\d+: .*: (on rank 0: )?the 3 x 3 matrix is singular"
    with pytest.raises(RedistributionError, match=message):
        program.run(**local)
    program.run(**program.scatter(**given))

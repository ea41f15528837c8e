"""Predictions on machines that are described: their files, what decides the time, and the command line."""

from __future__ import annotations

import json

import pytest

from dace_redist import Distribution, schedule
from dace_redist.einsum import Einsum, Statement, plan_einsums
from dace_redist.simulation import simulate
from dace_redist.simulation.machine import Machine, names
from dace_redist.simulation.program import simulate_plan
from dace_redist.simulation.redistribution import simulate_schedule

NETWORK = "network: {kind: switch, ports: 8, link: 1 GB/s, latency: 2 us}\n"
SWITCH = "nodes: 8\ncores: 4\nflops: 10 GFLOP/s\nmemory: 20 GB/s\n" + NETWORK
ROWS, COLUMNS = Distribution((2048, 2048), (8,)), Distribution((2048, 2048), (1, 8))
NBYTES = 2048 * 2048 * 8


@pytest.fixture
def machine(tmp_path):
    def written(text: str = SWITCH):
        path = tmp_path / "machine.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return written


# Machine files


def test_machines_of_the_package():
    assert {"fat-tree", "laptop", "piz-daint", "torus"} <= set(names())
    machines = {name: Machine.load(name) for name in names()}
    assert machines["piz-daint"].network.nodes == 14 * 6 * 16 * 4 == machines["piz-daint"].nodes
    assert machines["laptop"].network is None


def test_units_and_defaults(machine):
    found = Machine.load(machine())
    assert (found.nodes, found.cores, found.flops, found.memory, found.core_copy) == (8, 4.0, 1e10, 2e10, None)
    assert (found.network.link, found.network.latency, found.network.hop) == (1e9, 2e-6, 1e-7)
    bits = Machine.load(machine(SWITCH.replace("link: 1 GB/s", "link: 8 Gbit/s")))
    assert bits.network.link == 1e9
    for nodes in ("", "nodes:\n", "nodes: ~\n"):
        assert Machine.load(machine(SWITCH.replace("nodes: 8\n", nodes))).nodes == 8  # as the network has
    nothing = Machine.load(machine(SWITCH.replace("nodes: 8", "copy:\nname:\nprofile: null")))
    assert (nothing.name, nothing.core_copy) == ("machine", None) and nothing.profile == found.profile


@pytest.mark.parametrize(
    "old, new, message",
    [
        (
            "cores: 4",
            "cores: four",
            r"line 2: cores must be the number of cores of a node, from 0.001 to a million, got 'four'",
        ),
        ("nodes: 8", "nodes: 8.0", r"line 1: nodes must be the number of nodes, at least 1, got '8.0'"),
        ("nodes: 8\ncores: 4", "cores: 4\nnodes: 1000000", r"line 2: nodes must be at most 8, which .*, got 1000000"),
        ("cores: 4\n", "", r"line 1: cores is missing, expected the number of cores of a node"),
        (
            "10 GFLOP/s",
            "10 GB/s",
            "line 3: flops must be what a core computes, from 1 FLOP/s to 1e9 TFLOP/s with "
            "its unit, such as 40 GFLOP/s",
        ),
        ("memory: 20 GB/s", "memory: 1\nmemory: 2", r"line 5: memory is given twice"),
        (NETWORK, "", r"line 1: network is missing, expected one for 8 nodes"),
        (NETWORK, "network:\n", r"line 5: expected fields such as 'nodes: 4', got ''"),
        ("cores: 4", "cores:", r"line 2: cores must be the number of cores of a node, from 0.001 to a million, got ''"),
        (NETWORK, "network: fast\n", r"line 5: expected fields such as 'nodes: 4', got 'fast'"),
        ("kind: switch", "kind: star", r"line 5: kind must be one of switch, fat-tree, dragonfly, torus, got 'star'"),
        (
            "latency: 2 us",
            "latency: 2 miles",
            r"line 5: latency must be .* a time above 0 and at most 1000 s with its unit, such as .*, got '2 miles'",
        ),
        ("link: 1 GB/s", "link: 12", r"line 5: link must be .* with its unit, such as 10 GB/s or .*, got '12'"),
        (
            "ports: 8",
            "ports: 8, ports2: 3",
            r"line 5: ports2 is unknown here; expected are kind, link, latency, hop, ports",
        ),
        ("kind: switch, ports: 8", "kind: torus, dims: [2, 0]", r"line 5: dims must be a list .*, got \[2, 0\]"),
        (SWITCH, "", r"machine\.yaml is empty, expected fields such as"),
        (SWITCH, "x" * 99, r"line 1: expected fields such as 'nodes: 4', got 'x{56} \.\.\.'$"),
        (SWITCH, "- 3\n", r"line 1: expected fields such as 'nodes: 4', got \[3\]"),
        (
            "cores: 4",
            "cores: 4\nprofile: none.json",
            r"line 3: the profile none\.json cannot be used: there is no file .*/none\.json; make it with dace-redist",
        ),
        ("nodes: 8", "[1]: 2\nnodes: 8", r"line 1: \[1\] is unknown here"),
        ("memory:", "mem:", r"line 4: mem is unknown here; expected are name, nodes, cores, flops, memory"),
        ("cores: 4", "cores: 1e-300", r"line 2: cores must be .* from 0.001 to a million, got '1e-300'"),
        ("ports: 8", f"ports: {10**20}", r"line 5: expected a network of at most 20,000,000 links, got 200,000,0"),
        ("kind: switch, ports: 8", f"kind: torus, dims: {[1] * 70}", r"line 5: dims must be a list of up to 32 such"),
    ],
)
def test_errors_of_machine_files_name_the_line(machine, old, new, message):
    assert old in SWITCH
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        Machine.load(machine(SWITCH.replace(old, new)))


def test_more_ranks_than_the_machine_has(machine):
    moved = schedule(ROWS, COLUMNS)
    message = "8 ranks need 3 nodes with 3 per node, but a laptop has 1; up to 3 ranks fit"
    with pytest.raises(ValueError, match=message):
        simulate(moved, "laptop", ranks_per_node=3)
    assert simulate(moved, machine()).job.nodes == 2  # of 4 cores


# What decides the time


def test_links_of_nodes_decide_where_they_are_slow(machine):
    """One rank per node: 7/8 of a rank's rows leave its node at 1 GB/s."""
    simulated = simulate_schedule(schedule(ROWS, COLUMNS), machine(), ranks_per_node=1)
    sent = NBYTES / 8 * 7 / 8
    assert (simulated.link.nbytes, simulated.nbytes) == (sent, NBYTES * 7 / 8)
    times = {one.strategy: one.seconds for one in simulated.estimates}
    assert times["Pipelined"] == pytest.approx(sent / 1e9, rel=2e-3)  # copies meanwhile, but for a chunk
    assert times["Pipelined"] < times["Pack"] < 2 * times["Pipelined"]
    assert times["Pack"] == pytest.approx(times["Datatype"], rel=0.01)
    assert simulated.seconds == min(times.values())


def test_a_thin_tree_is_slower_and_a_route_through_it_longer(machine):
    moved = schedule(ROWS, COLUMNS)
    tree = SWITCH.replace("kind: switch, ports: 8", "kind: fat-tree, down: [2, 4], up: [1, UP], hop: 1 ms")
    thin, full = (simulate_schedule(moved, machine(tree.replace("UP", str(up))), ranks_per_node=1) for up in (1, 2))
    assert thin.link.name.startswith("level-1 uplink")
    assert thin.link.nbytes == 2 * 6 * NBYTES / 64  # two nodes, six on other switches
    assert full.link.name == "link from node 0"
    latency = full.model.estimate("Pack").terms.latency
    assert 0.002 < latency < 0.0021  # two links more than between neighbours


def test_ranks_on_a_node_take_no_link(machine):
    simulated = simulate_schedule(schedule(ROWS, COLUMNS), machine(), ranks_per_node=8)
    assert simulated.link.name == ""
    assert "Shared" in {one.strategy for one in simulated.estimates}
    fewer = simulate_schedule(
        schedule(ROWS, COLUMNS), machine(SWITCH.replace("cores: 4", "cores: 2")), ranks_per_node=8
    )
    assert fewer.seconds == pytest.approx(2 * simulated.seconds, rel=0.2)


def test_strategies_that_cannot_be_simulated(machine):
    moved = schedule(ROWS, COLUMNS)
    with pytest.raises(ValueError, match="unknown strategy 'Packed'"):
        simulate(moved, machine(), strategies=["Packed"])
    with pytest.raises(ValueError, match="strategy Shared cannot be simulated here"):
        simulate(moved, machine(), ranks_per_node=1, strategies=["Shared"])
    only = simulate(moved, machine(), strategies=["Pack", "Auto"])
    assert {one.strategy for one in only.estimates} == {"Pack", "Hierarchical"}


# Programs of einsums


def product(ranks: int, **options):
    statement = Statement(Einsum.parse("ij,jk->ik"), ("A", "B"), "C")
    return plan_einsums([statement], {"A": (1024, 1024), "B": (1024, 1024)}, ranks, **options)


def test_a_product_of_matrices(machine):
    """Each rank computes 1/8 of 2 n^3 operations; two ranks add their sums of 512 x 512 elements, half each."""
    simulated = simulate_plan(product(8), machine(), ranks_per_node=1)
    contract, reduce = simulated.steps
    assert contract.seconds == pytest.approx(2 * 1024**3 / 8 / 4e10)
    assert reduce.link.nbytes == 512 * 512 * 8 / 2
    assert reduce.nbytes == 8 * reduce.link.nbytes
    assert reduce.seconds == pytest.approx(reduce.link.seconds + reduce.work, rel=0.01)
    assert simulated.seconds == pytest.approx(sum(simulated.by_kind.values()))
    assert simulate_plan(product(1), machine(), ranks_per_node=1).by_kind["reduce"] == 0


# The command line


REDISTRIBUTION = ("simulate", "--shape", "2048,2048", "--from", "8", "--to", "1,8")
EINSUMS = ("simulate", "ij,jk->ik; ik,kl->il", "--sizes", "i=512,j=512,k=512,l=512")


def test_command_for_a_redistribution(run, machine):
    text = run(*REDISTRIBUTION, "--machine", machine(), "--ranks-per-node", 1)[1]
    assert "machine: 8 nodes of 4 cores, switch" in text
    assert "link      link from node 0 carries most: 3.5 MiB in 3.67 ms" in text
    found = json.loads(run(*REDISTRIBUTION, "--machine", machine(), "--strategy", "Pack", "--json")[1])
    assert [one["strategy"] for one in found["strategies"]] == ["Pack"]
    assert (found["ranks"], found["nodes"]) == (8, 2)


@pytest.mark.slow
@pytest.mark.parametrize("weak", [False, True])
def test_command_for_scaling(run, machine, tmp_path, weak):
    words = [*EINSUMS, "--ranks", "8,1,2", "--machine", machine(), "--ranks-per-node", 1, *["--weak"] * weak]
    found = json.loads(run(*words, "--json", "--plot", tmp_path / "scaling.png")[1])
    runs = found["runs"]
    assert [one["ranks"] for one in runs] == [1, 2, 8]
    contracted = [one["seconds_by_kind"]["contract"] for one in runs]
    assert contracted[2] == pytest.approx(contracted[0] / (1 if weak else 8), rel=0.02)
    assert runs[0]["efficiency"] == 1 > runs[2]["efficiency"]
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")
    table = run(*words)[1].splitlines()
    assert len(table) == 6 and "efficiency" in table[2]

"""Routes through networks: checked against shortest paths in a graph of the same network, and bytes on links."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest

from dace_redist.simulation.network import Dragonfly, FatTree, Torus
from dace_redist.simulation.redistribution import LinkLoads

COMMON = {"link": 10.0, "latency": 1.0, "hop": 0.5}
TREE = FatTree.model_construct(**COMMON, down=(4, 3, 2), up=(1, 2, 2), trunk=20.0)
TORUS = Torus.model_construct(**COMMON, dims=(4, 3, 2), trunk=5.0)
PARTS = {"groups": 3, "chassis": 2, "routers": 4, "nodes_per_router": 2, "cables": 2}
DRAGONFLY = Dragonfly.model_construct(**COMMON, **PARTS, chassis_link=5.0, group_link=6.0, cable=7.0)


def route(network, source: int, target: int) -> list[str]:
    """Return the names of the links of one message, as a set in the order of their kinds."""
    stages = network.routes(np.array([source]), np.array([target]))
    return [network.link_name(int(link)) for which, links in stages for _, link in zip(which, links, strict=True)]


def pairs(network):
    return itertools.permutations(range(network.nodes), 2)


def dragonfly_graph() -> nx.Graph:
    """Routers by group, chassis and slot."""
    graph, of_group = nx.Graph(), DRAGONFLY.chassis * DRAGONFLY.routers
    for group, (a, b) in itertools.product(range(3), itertools.combinations(range(of_group), 2)):
        if a // 4 == b // 4 or a % 4 == b % 4:
            graph.add_edge((group, a), (group, b))
    return graph


def test_torus_routes_are_the_shortest():
    distances = dict(nx.all_pairs_shortest_path_length(nx.grid_graph(TORUS.dims[::-1], periodic=True)))
    at = [tuple(map(int, np.unravel_index(node, TORUS.dims))) for node in range(TORUS.nodes)]
    for a, b in pairs(TORUS):
        assert len(route(TORUS, a, b)) == 2 + distances[at[a]][at[b]]
    # Dimension 0, nodes 0, 6, 12, 18: from 0 to 18 it is one step back, over the end.
    assert route(TORUS, 0, 18) == ["link from node 0", "link to node 18", "link -1 along dimension 0 from node 0"]


def test_dragonfly_routes_within_a_group_are_the_shortest():
    distances = dict(nx.all_pairs_shortest_path_length(dragonfly_graph()))
    for a, b in pairs(DRAGONFLY):
        (group, router), (other, end) = (divmod(node // 2, 8) for node in (a, b))
        if group == other:
            assert len(route(DRAGONFLY, a, b)) == 2 + distances[group, router][group, end]
        else:
            links = route(DRAGONFLY, a, b)
            assert len([name for name in links if name.startswith("cable")]) == 1
            assert len(links) <= 2 + 2 + 1 + 2


def test_fat_tree_routes_go_up_to_the_first_common_switch():
    for a, b in pairs(TREE):
        levels = 1 + (a // 4 != b // 4) + (a // 12 != b // 12)
        assert len(route(TREE, a, b)) == 2 * levels


def test_fat_tree_spreads_a_shift_over_all_links():
    """With as many links up as down, a shift loads every link that it takes by one message (Zahavi, 2010)."""
    network = FatTree.model_construct(**COMMON, down=(4, 4), up=(1, 4), trunk=10.0)
    nodes = np.arange(16)
    for shift in range(1, 16):
        loads = LinkLoads(network, nodes)
        loads.add(nodes, (nodes + shift) % 16, np.ones(16, np.int64))
        assert loads.nbytes.max() == 1


@pytest.mark.parametrize("network", [TREE, TORUS, DRAGONFLY], ids=lambda network: network.kind)
def test_link_loads(network):
    """Ranks on one node take no link; each byte that leaves a node enters another; the slowest link decides."""
    ranks = 2 * network.nodes
    senders, receivers = np.divmod(np.arange(ranks**2), ranks)
    nbytes = np.random.default_rng(0).integers(0, 1000, ranks**2)
    node_of = np.arange(ranks) // 2
    loads = LinkLoads(network, node_of)
    loads.add(senders, receivers, nbytes)
    for first, node in ((0, node_of[senders]), (network.nodes, node_of[receivers])):
        leaving = np.where(node_of[senders] != node_of[receivers], nbytes, 0)
        expected = np.bincount(node, leaving, network.nodes)
        assert np.array_equal(loads.nbytes[first : first + network.nodes], expected)
    assert loads.longest == max(len(route(network, a, b)) for a, b in pairs(network))
    assert loads.latency == (loads.longest - 2) * network.hop
    numbers = {network.link_name(link): link for link in range(len(network.rates))}
    for link in loads.busiest():
        number = numbers[link.name]
        assert link.seconds == link.nbytes / network.rates[number] == loads.nbytes[number] / network.rates[number]
    busiest = max(link.seconds for link in loads.busiest())
    assert busiest == pytest.approx((loads.nbytes / network.rates).max())

"""Bytes of a redistribution between nodes: equal to a count by elements, reduced by renumbering, and shown."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from dace_redist import Distribution, TiledDistribution, cli, node_weights, relabel, schedule

TILES = TiledDistribution((12, 9), (4, 3), np.arange(9).reshape(3, 3) % 6)
PAIRS = [
    (Distribution((12, 9), (6, 1)), Distribution((12, 9), (1, 6))),
    (Distribution((12, 9), (3, 2)), Distribution((12, 9), (2, 3), ranks=(5, 3, 1, 0, 2, 4))),
    (Distribution((12, 9), (6, 1), block=(1, None)), TILES),
    (Distribution((12, 9), (3, 2)), Distribution((12, 9), (2, 3), dims=(0, None))),  # replicas
]
NODES = [(0, 0, 0, 1, 1, 1), (0, 1, 0, 1, 0, 1), (0, 1, 2, 3, 4, 5), (7,) * 6]


def owners(distribution, index):
    return [rank for rank in range(6) if holds(distribution, rank, index)]


def holds(distribution, rank, index):
    axes = distribution.global_index(rank)
    return all(place in np.asarray(axis) for place, axis in zip(index, axes, strict=True))


@pytest.mark.parametrize("nodes", NODES)
@pytest.mark.parametrize("pair", PAIRS[:2])
def test_bytes_are_those_of_elements_that_change_their_node(pair, nodes):
    source, target = pair
    crossing = 0
    for index in np.ndindex(*source.shape):
        (before,), (after,) = owners(source, index), owners(target, index)
        crossing += nodes[before] != nodes[after]
    assert schedule(source, target).bytes_between_nodes(nodes) == 8 * crossing


@pytest.mark.parametrize("pair", PAIRS)
def test_bytes_are_those_of_the_volume_matrix(pair):
    found = schedule(*pair, dtype="float32")
    volumes = found.volume_matrix()
    for nodes in NODES:
        other = np.not_equal.outer(nodes, nodes)
        assert found.bytes_between_nodes(nodes) == volumes[other].sum()
    assert found.bytes_between_nodes(range(6)) == found.bytes_moved()
    with pytest.raises(ValueError, match="node of each of 6 ranks"):
        found.bytes_between_nodes([0, 0, 1])


@pytest.mark.parametrize("nodes", NODES[:2])
@pytest.mark.parametrize("pair", PAIRS)
def test_renumbered_ranks_send_no_more_between_nodes(pair, nodes):
    source, target = pair
    better = relabel(source, target, weights=node_weights(nodes))
    given, found = (schedule(source, side).bytes_between_nodes(nodes) for side in (target, better))
    assert found <= given


def test_whole_nodes_are_swapped():
    source = Distribution((8, 8), (4, 1))
    target = Distribution((8, 8), (2, 2), ranks=(2, 3, 0, 1))  # the upper half on the node that has the lower one
    better = relabel(source, target, weights=node_weights([0, 0, 1, 1]))
    assert schedule(source, target).bytes_between_nodes([0, 0, 1, 1]) == 512
    assert schedule(source, better).bytes_between_nodes([0, 0, 1, 1]) == 0


def explained(*words):
    done = CliRunner().invoke(cli.cli, ["explain", "--shape", "8,8", "--from", "4", *words])
    assert done.exit_code == 0, done.output
    return done.output


def test_explain_says_what_leaves_its_node():
    words = ["--to", "2,2", "--to-ranks", "2,3,0,1", "--ranks-per-node", "2"]
    lines = explained(*words).splitlines()
    assert "nodes     2: 512 B (100.0 %) moved between them, 0 B (0.0 %) between ranks of a node" in lines
    assert any("node_weights" in line and "512 B (100.0 %)" in line for line in lines)
    found = json.loads(explained(*words, "--json"))
    assert found["node_of_rank"] == [0, 0, 1, 1]
    assert (found["bytes_between_nodes"], found["bytes_within_nodes"]) == (512, 0)
    assert found["bytes_between_nodes_saved_by_relabelling"] == 512
    assert "bytes_between_nodes" not in json.loads(explained("--to", "2,2", "--json"))
    assert "nodes  " not in explained("--to", "2,2")

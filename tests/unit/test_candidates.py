"""Candidates of the tuner: sensible values of the options of a strategy, and errors for misspelt names."""

from __future__ import annotations

import pytest

from dace_redist import Distribution, schedule
from dace_redist.measuring.search import sensible, space
from dace_redist.mpi.topology import Topology
from dace_redist.strategies import OPTIONS, STRATEGIES
from dace_redist.tuning.record import Winner

HERE = Topology("m", "M", (0, 0, 0, 0))
MOVES = schedule(Distribution((256, 256), [4]), Distribution((256, 256), [1, 4]))  # messages of 32 KiB


def test_every_strategy_but_stock_is_tried_with_its_defaults():
    assert set(space(None, None).strategies) == set(STRATEGIES)
    nodes = Topology("m", "M", (0, 0, 1, 1))
    assert space(None, None).first(nodes) == [Winner(strategy=one, options={}) for one in space(None, None).strategies]


def test_on_one_node_hierarchical_and_aggregated_are_shared():
    tried = [name for name in space(None, None).strategies if name not in ("Hierarchical", "Aggregated")]
    assert [w.strategy for w in space(None, None).first(HERE)] == tried
    assert [w.strategy for w in space(["Hierarchical"], None).first(HERE)] == ["Hierarchical"]


def test_options_vary_around_the_best():
    best = Winner(strategy="Pipelined", options={"depth": 4})
    varied = space(None, {"growth": [1.0, 2.0, 4.0]}).varied(best, "growth", MOVES, HERE)
    assert [winner.options for winner in varied] == [{"depth": 4, "growth": 2.0}, {"depth": 4, "growth": 4.0}]
    back = space(None, None).varied(best, "depth", MOVES, HERE)
    assert [winner.options for winner in back] == [{}, {"depth": 2}]
    assert space(None, None).varied(best, "max_message_bytes", MOVES, HERE) == []


def test_pieces_larger_than_any_message_are_tried_once():
    usual = OPTIONS["chunk_bytes"].default
    assert sensible("chunk_bytes", (usual, 1 << 10, 64 << 10, 2 << 20), MOVES, HERE, usual) == (usual, 1 << 10)
    assert sensible("chunk_bytes", (1 << 10, 64 << 10, 2 << 20), MOVES, HERE, usual) == (1 << 10, 64 << 10)
    nothing = schedule(MOVES.source, MOVES.source)
    usual = OPTIONS["slot_bytes"].default
    assert sensible("slot_bytes", (usual, 16 << 10), nothing, HERE, usual) == (usual,)


def test_on_gpus_chunks_vary_around_their_default_there():
    large = schedule(Distribution((4096, 4096), [4]), Distribution((4096, 4096), [1, 4]))  # messages of 8 MiB
    tried = space(["Pipelined"], None, memory="gpu")
    assert tried.first(HERE) == [Winner(strategy="Pipelined", options={})]
    varied = tried.varied(tried.first(HERE)[0], "chunk_bytes", large, HERE)
    assert [winner.options["chunk_bytes"] for winner in varied] == [512 << 10, 2 << 20, 8 << 20]
    back = tried.varied(varied[0], "chunk_bytes", large, HERE)
    assert [winner.options for winner in back] == [{}, {"chunk_bytes": 2 << 20}, {"chunk_bytes": 8 << 20}]
    usual = OPTIONS["chunk_bytes"].default  # not the default there
    first = space(["Pipelined"], {"chunk_bytes": [usual]}, memory="gpu").first(HERE)
    assert first == [Winner(strategy="Pipelined", options={"chunk_bytes": usual})]


def test_strategies_that_do_not_move_such_arrays():
    said = "strategy Datatype cannot be tuned with gpu-source arrays; choose from Pack, Pipelined, "
    with pytest.raises(ValueError, match=said):
        space(["Datatype"], None, "gpu-source")
    with pytest.raises(ValueError, match="unknown strategy 'NCCL'"):
        space(["NCCL"], None, "gpu")

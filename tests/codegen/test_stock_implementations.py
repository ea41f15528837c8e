"""Strategies as implementations of DaCe's own nodes: named by the node, or by DaCe's configuration."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import dace
import pytest
from dace.config import set_temporary
from dace.libraries import comm
from dace.libraries.comm.nodes import Bcast
from dace.libraries.comm.nodes.redistribute import Redistribute as StockRedistribute
from sdfgs import redistributions
from stock_programs import parse

import dace_redist
from dace_redist.library_nodes.stock import follow_configuration
from dace_redist.strategies import STRATEGIES
from dace_redist.transformations import OptimizeRedistributions, lower_all

DEFAULT = "library__comm__default_implementation"


@dace.program
def broadcast(A: dace.float64[4]):
    dace.comm.Bcast(A)


@pytest.fixture
def sdfg() -> dace.SDFG:
    return parse("plain")


@contextlib.contextmanager
def configured(**values: str) -> Iterator[None]:
    """Import the package with other values in DaCe's configuration."""
    before = {node: dict(node.implementations) for node in comm._dace_library_nodes}
    with contextlib.ExitStack() as stack:
        for path, value in values.items():
            stack.enter_context(set_temporary(*path.split("__"), value=value))
        follow_configuration()
        yield
    for node, implementations in before.items():
        node.implementations = implementations
    follow_configuration()


def stock_nodes(sdfg: dace.SDFG) -> list[Any]:
    return [node for node, _ in sdfg.all_nodes_recursive() if isinstance(node, StockRedistribute)]


def codes(sdfg: dace.SDFG) -> Iterator[str]:
    """Return the code of the tasklets that communicate."""
    sdfg.expand_library_nodes()
    for node, _ in sdfg.all_nodes_recursive():
        if isinstance(node, dace.nodes.Tasklet):
            code = node.code_init.as_string + node.code.as_string
            if "dace_redist" in code or "MPI_" in code:
                yield code


def is_ours(sdfg: dace.SDFG, strategy: str) -> bool:
    (code,) = codes(sdfg)
    return f'"{strategy}")' in code and "->run(" in code


def is_stock(sdfg: dace.SDFG) -> bool:
    (code,) = codes(sdfg)
    return "MPI_Isend" in code and "dace_redist" not in code


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_node_or_the_configuration_names_the_strategy(sdfg: dace.SDFG, strategy: str):
    with configured(**{DEFAULT: strategy}):
        assert is_ours(parse("plain"), strategy)
    (node,) = stock_nodes(sdfg)
    node.implementation = strategy
    assert is_ours(sdfg, strategy)


def test_by_default_the_node_is_stock(sdfg: dace.SDFG):
    assert is_stock(sdfg)


def test_with_the_hook_the_default_is_the_configured_strategy_or_ours():
    for default, expected in (("MPI", "Hierarchical"), ("Pack", "Pack")):
        with configured(call_hooks="dace_redist.hook", **{DEFAULT: default}):
            sdfg = parse("plain")
            assert is_ours(sdfg, expected)


def test_without_the_hook_and_a_configured_strategy_nothing_of_dace_changes():
    assert StockRedistribute.default_implementation == "MPI"
    assert set(Bcast.implementations) == {"MPI", "NCCL"}


def test_nodes_without_the_configured_strategy_keep_mpi():
    sdfg = broadcast.to_sdfg()
    with configured(**{DEFAULT: "Pipelined"}):
        (code,) = codes(sdfg)
    assert "MPI_Bcast" in code


def test_a_descriptor_that_cannot_be_expressed(sdfg: dace.SDFG):
    (node,) = stock_nodes(sdfg)
    node.implementation = "Pack"
    for part in sdfg.subarrays.values():
        part.pgrid = None
    with pytest.raises(ValueError, match='Subarray ".*" is on no process grid'):
        sdfg.expand_library_nodes()


def test_replacing_a_node_keeps_its_strategy(sdfg: dace.SDFG):
    (node,) = stock_nodes(sdfg)
    node.implementation = "RMA"
    (ours,) = lower_all(sdfg)
    assert ours.strategy == "RMA"
    with configured(**{DEFAULT: "Pack"}):
        assert [node.strategy for node in lower_all(parse("plain"))] == ["Pack"]


def test_optimize_leaves_a_node_that_names_mpi(sdfg: dace.SDFG):
    (node,) = stock_nodes(sdfg)
    node.implementation = "MPI"
    dace_redist.optimize(sdfg)
    assert stock_nodes(sdfg) == [node] and not redistributions(sdfg)
    assert is_stock(copy.deepcopy(sdfg))
    OptimizeRedistributions(permissive=True).apply_pass(sdfg, {})
    assert not stock_nodes(sdfg)

"""Table of the expansions of all nodes; importing this module registers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dace import library
from dace.libraries.comm.environments.mpi import MPI
from dace.sdfg import SDFG, SDFGState, nodes
from dace.transformation.transformation import ExpandTransformation

from dace_redist.library_nodes.contraction import CUBLAS, Contraction
from dace_redist.library_nodes.environment import BlasEnvironment, CublasEnvironment, RuntimeEnvironment
from dace_redist.library_nodes.joint_redistribute import JointRedistribute
from dace_redist.library_nodes.linear_solve import LinearSolve
from dace_redist.library_nodes.node import RedistNode
from dace_redist.library_nodes.redistribute import Redistribute
from dace_redist.library_nodes.redistribute_wait import RedistributeWait
from dace_redist.library_nodes.stock_code import stock_tasklet
from dace_redist.library_nodes.sum_replicas import SumReplicas
from dace_redist.library_nodes.tasklets import (
    add_device_environment,
    contraction_tasklet,
    cublas_tasklet,
    joint_tasklet,
    linear_solve_tasklet,
    plan_tasklet,
    sum_replicas_tasklet,
    wait_tasklet,
)
from dace_redist.strategies import STRATEGIES, host_strategies


class Expansion(NamedTuple):
    """
    Implementation of a node.

    :param node: Class of the node.
    :param name: Name of the implementation.
    :param tasklet: Function of node, state, SDFG and ``name`` that returns the tasklet.
    :param environment: Environment of the tasklet.
    """

    node: type[RedistNode]
    name: str
    tasklet: Callable[[Any, SDFGState, SDFG, str], nodes.Tasklet]
    environment: type = RuntimeEnvironment


EXPANSIONS = (
    Expansion(Redistribute, "MPI", stock_tasklet, MPI),
    *(Expansion(Redistribute, name, plan_tasklet) for name in STRATEGIES if name != "MPI"),
    *(Expansion(JointRedistribute, name, joint_tasklet) for name in host_strategies()),
    Expansion(RedistributeWait, "pure", wait_tasklet),
    Expansion(SumReplicas, "MPI", sum_replicas_tasklet),
    Expansion(Contraction, "BLAS", contraction_tasklet, BlasEnvironment),
    Expansion(Contraction, CUBLAS, cublas_tasklet, CublasEnvironment),
    Expansion(LinearSolve, "LAPACK", linear_solve_tasklet, BlasEnvironment),
)


def _register(expansion: Expansion) -> None:
    def expand(node: RedistNode, state: SDFGState, sdfg: SDFG) -> nodes.Tasklet:
        return expansion.tasklet(node, state, sdfg, expansion.name)

    members = {
        "__doc__": f"Expands {expansion.node.__name__} by {expansion.name}.",
        "__module__": __name__,
        "environments": [expansion.environment],
        "expansion": staticmethod(expand),
    }
    if expansion.tasklet is plan_tasklet:
        members["postprocessing"] = staticmethod(add_device_environment)
    made = type(f"Expand{expansion.node.__name__}{expansion.name}", (ExpandTransformation,), members)
    globals()[made.__name__] = library.register_expansion(expansion.node, expansion.name)(made)


for _expansion in EXPANSIONS:
    _register(_expansion)

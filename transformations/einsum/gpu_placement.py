"""Distributed programs whose tensors lie on the GPU: which statements are possible there, and the rewrite."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dace import SDFG, Memlet, data, dtypes
from dace.sdfg import nodes
from dace.sdfg import utils as sdutil
from dace.sdfg.state import SDFGState

from dace_redist.library_nodes import Contraction, LinearSolve, Redistribute, SumReplicas
from dace_redist.library_nodes.contraction import CUBLAS
from dace_redist.library_nodes.node import NUMBERS
from dace_redist.transformations.einsum.steps import Body, all_items, all_steps

_REMEDY = 'distribute the program with device="cpu"'


def check_for_gpu(sdfg: SDFG, body: Body) -> None:
    """
    Makes sure that a program can run on the GPU.

    :param sdfg: The SDFG that the body was read from.
    :raises ValueError: If not; names the statement.
    """
    scalars = sorted({name for item in all_items(body) for name in getattr(item, "scalars", ())})
    if scalars:
        raise ValueError(
            f'"{sdfg.name}": a condition, a bound or an index reads {", ".join(scalars)}, which the processor would '
            f"have to fetch from the GPU; {_REMEDY}"
        )
    for step in all_steps(body):
        label, dtype = step.statement.label, sdfg.arrays[step.statement.result].dtype
        if step.reduction:
            raise ValueError(f"{label}: {step.reduction} along axes is not computed on the GPU; {_REMEDY}")
        computes = not step.statement.elementwise and step.moved is None
        if computes and dtype not in NUMBERS[:4]:
            raise ValueError(f"{label}: cuBLAS multiplies no elements of {dtype}; {_REMEDY}")


def place_on_gpu(
    sdfg: SDFG, read: tuple[str, ...], written: tuple[str, ...], keep_transients: bool, there: Collection[str] = ()
) -> None:
    """
    Has a program compute on the GPU: its arguments in main memory are copied there before and back after.

    :param sdfg: What each rank runs, all on the processor; changed.
    :param read: Names of the arguments that it reads.
    :param written: Names of those that it writes.
    :param keep_transients: Whether memory on the GPU is allocated once for all runs.
    :param there: Names of the arguments that lie on the GPU already; the others are in main memory.
    :raises ValueError: If it solves a linear system; names the statement.
    """
    for state in sdfg.states():
        for node in state.nodes():
            if isinstance(node, LinearSolve):
                raise ValueError(f"{node.statement}: linear systems are not solved on the GPU; {_REMEDY}")
            if isinstance(node, SumReplicas):
                _replace_sum(node, state)
            elif isinstance(node, Contraction):
                node.implementation = CUBLAS
            elif isinstance(node, nodes.MapEntry):
                node.map.schedule = dtypes.ScheduleType.GPU_Device
                node.map.gpu_block_size = [256, 1, 1] if len(node.map.params) == 1 else [32, 8, 1]
    for name in there:
        sdfg.arrays[name].storage = dtypes.StorageType.GPU_Global
    copies = _copies_on_gpu(sdfg)
    for array in sdfg.arrays.values():
        if array.transient:
            array.storage = dtypes.StorageType.GPU_Global
            if (
                keep_transients
                and array.lifetime == dtypes.AllocationLifetime.Scope
                and not isinstance(array, data.View)
            ):
                array.lifetime = dtypes.AllocationLifetime.Persistent
    (last,) = (block for block in sdfg.nodes() if sdfg.out_degree(block) == 0)
    before = {name: copied for name, copied in copies.items() if name in read}
    after = {copied: name for name, copied in copies.items() if name in written}
    if before:
        _add_copies(sdfg.add_state_before(sdfg.start_block, "to_the_gpu", is_start_block=True), before)
    if after:
        _add_copies(sdfg.add_state_after(last, "from_the_gpu"), after)


def _copies_on_gpu(sdfg: SDFG) -> dict[str, str]:
    """
    Gives each argument in main memory an array on the GPU, which takes its place.

    :return: Their names by those of the arguments.
    """
    copies: dict[str, str] = {}
    for name, array in list(sdfg.arrays.items()):
        if not array.transient and array.storage != dtypes.StorageType.GPU_Global:
            made = sdfg.add_transient(f"gpu_{name.lstrip('_')}", array.shape, array.dtype, find_new_name=True)
            copies[name] = str(made[0])
    for state in sdfg.states():
        state.replace_dict(copies)
    return copies


def _replace_sum(adding: SumReplicas, state: SDFGState) -> None:
    """Puts a redistribution that reduces in the place of a sum, which knows main memory only."""
    node = Redistribute(adding.label, *adding.distributions(), op="sum")
    state.add_node(node)
    sdutil.change_edge_dest(state, adding, node)
    sdutil.change_edge_src(state, adding, node)
    state.remove_node(adding)


def _add_copies(state: SDFGState, targets: Mapping[str, str]) -> None:
    """Adds copies of whole arrays; ``targets`` has their names by the sources'."""
    for source, target in targets.items():
        memlet = Memlet.from_array(source, state.sdfg.arrays[source])
        state.add_nedge(state.add_read(source), state.add_write(target), memlet)

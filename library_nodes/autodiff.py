"""Backward implementation of ``Redistribute`` for ``dace.autodiff``, which loads slowly: registered when it is used."""

from __future__ import annotations

from typing import Any

from dace.autodiff import AutoDiffException, BackwardContext, BackwardImplementation, BackwardResult
from dace.registry import autoregister_params

from dace_redist.library_nodes.node import COMMUNICATORS, INPUT, OUTPUT
from dace_redist.library_nodes.redistribute import Redistribute


@autoregister_params(node_type=Redistribute, name="redistribute")
class RedistributeBackward(BackwardImplementation):
    """Adjoint of a redistribution, see :meth:`dace_redist.Plan.adjoint`; adds to the gradient of the input."""

    @staticmethod
    def backward(
        forward_node: Redistribute, context: BackwardContext, given_gradients: Any, required_gradients: Any
    ) -> tuple[Redistribute, BackwardResult]:
        """Add the node of the way back; raise an AutoDiffException if there is none."""
        node = adjoint_node(forward_node)
        context.backward_state.add_node(node)
        for connector in {*COMMUNICATORS} & {*forward_node.in_connectors}:
            node.add_in_connector(connector)
        return node, BackwardResult(required_grad_names={INPUT: OUTPUT}, given_grad_names={OUTPUT: INPUT})


def adjoint_node(forward: Redistribute) -> Redistribute:
    """
    Return the node that adds the gradients of a node's input, with the same strategy and options.

    :raises AutoDiffException: If the node is non-blocking or not linear, leaves a part of its output unchanged, or a
        distribution has a halo or boxes that do not hold each element once.
    """
    source, target = forward.distributions()
    index_map = forward.index_map
    if any((*source.halo, *target.halo)):
        raise AutoDiffException(
            f"{forward.title}: gradients in a halo are not added in a DaCe program: differentiate a program without "
            "halo, or call dace_redist.Plan.adjoint between programs"
        )
    try:
        source_replicas, target_replicas = source.replicas, target.replicas
    except ValueError as error:  # of boxes
        raise AutoDiffException(f"{forward.title}: {error}") from None
    linear = forward.beta == 0 and forward.op in ("", "sum")
    permutes_last = forward.reshapes and bool(forward.axes)
    if forward.nonblocking or not linear or permutes_last or not index_map.covers(target.shape):
        raise AutoDiffException(
            f'{forward.title}: only a blocking node with beta=0, no op but "sum", not both axes and a reshape (take a '
            "node for each), and a region that covers the output can be differentiated"
        )
    back = index_map.inverse(source.shape)
    return Redistribute(
        f"{forward.label}_backward",
        target,
        source,
        forward.strategy,
        axes=back.axes,
        region=back.region,
        reshape=back.reshape,
        alpha=forward.alpha if forward.op else forward.alpha * (1.0 / source_replicas),
        beta=1,
        conj=forward.conj,
        op=None if target_replicas == 1 else "sum",
        **(forward.precision if target_replicas > 1 else {"wire": forward.wire, "within_nodes": forward.within_nodes}),
        **forward.options,
    )

"""Functions :func:`einsum` and :func:`einsum_plan`. What they need is imported at the first call."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dace_redist.errors import remedies

if TYPE_CHECKING:
    import numpy.typing as npt
    from mpi4py import MPI

    from dace_redist.distribution import AnyDistribution
    from dace_redist.einsum.executor import ExecutablePlan
    from dace_redist.integers import AnyBytes, AnyInt
    from dace_redist.redistribution.distributed_array import DistributedArray


@functools.cache  # an import statement takes longer than a small product
def _calls() -> Any:
    with remedies("dace_redist.einsum"):
        from dace_redist.einsum import cache

    return cache


def einsum(
    expression: Any,
    *arrays: Any,
    target: AnyDistribution | None = None,
    out: DistributedArray | npt.NDArray[Any] | None = None,
    optimize: Any = "auto",
    memory_bytes: AnyBytes | None = None,
    overrides: Mapping[str, AnyInt] | None = None,
    strategy: str = "Auto",
    **options: AnyInt | float,
) -> DistributedArray:
    """
    Evaluate Einstein's summation convention on distributed arrays, as ``numpy.einsum`` does. Collective.

    Contraction order, process grids and redistributions are planned for little communication, as in Ziogas et al.,
    Deinsum (SC'22). The first call of an expression plans; calls with equal distributions and types reuse the plan.

    >>> C = dace_redist.einsum("ij,jk->ik", A, B)

    :param expression: Indices of operands and result, as in NumPy: ``"ijk,ja,ka->ia"``. ``...``, repeated indices and a
        result that is left out have NumPy's meaning. Axes of one element are broadcast. NumPy's other form has the
        operands, each before a list of its indices, then those of the result: ``einsum(A, [0, 1], B, [1, 2], [0, 2])``.
    :param arrays: The operands: a :class:`DistributedArray` of any distribution, an array of another library (see
        :mod:`dace_redist.interop`), a number, or a NumPy array that all ranks have whole,
        ``replicated(array)``. Replicas that are partial results (``op``) are reduced first; halos are ignored.
    :param target: Distribution of the result. Default: where the plan leaves it.
    :param out: Array for the result, of its element type, in place of ``target``; or this rank's part of it, an array
        of NumPy, with ``target``. It may be an operand without ``op``.
    :param optimize: Contraction order: ``"auto"``, a name, path or optimizer of opt_einsum or cotengra, False for
        one step, or NumPy's pair of a name and a maximum of elements. An optimizer runs on rank 0.
    :param memory_bytes: Maximum bytes of a rank, also as ``"4GiB"``, without workspace of contractions. Default: no
        limit, and buffers are kept from call to call.
    :param overrides: Process grid: number of parts by index, 1 where left out.
    :param strategy, options: Strategy of the redistributions, and its options, as of :func:`dace_redist.plan`; also
        ``wire`` and ``within_nodes`` of all redistributions, ``accumulate`` and ``reproducible`` of sums of partial
        results. They are checked also if nothing moves.
    :return: The result, of NumPy's type: ``numpy.result_type`` of the operands. A scalar has shape ``()`` and, without
        ``target``, is replicated on all ranks.
    :raises ValueError: On every rank, if an argument is invalid on one of them, or if ranks pass different ones. Names
        the expression, the operand and the index.
    :raises TypeError: On every rank, if an argument has the wrong type, or is one of ``numpy.einsum`` or
        :func:`dace_redist.redistribute` only, such as ``dtype`` or ``alpha``; names what does the same.
    :raises MemoryError: On every rank, before anything is allocated, if ``memory_bytes`` does not suffice.
    :raises RedistributionError: If MPI fails.
    """
    how = target, out, optimize, memory_bytes, overrides, strategy, options
    result: DistributedArray = _calls().evaluate(arrays, expression, *how)
    return result


def einsum_plan(
    expression: str,
    *distributions: AnyDistribution | DistributedArray | None,
    dtype: npt.DTypeLike | Sequence[npt.DTypeLike] | None = None,
    comm: MPI.Intracomm | None = None,
    target: AnyDistribution | None = None,
    optimize: Any = "auto",
    memory_bytes: AnyBytes | None = None,
    overrides: Mapping[str, AnyInt] | None = None,
    strategy: str = "Auto",
    **options: AnyInt | float,
) -> ExecutablePlan:
    """
    Plan an einsum that runs repeatedly. Collective over ``comm``.

    The plan prints groups, grids and moves with their bytes; ``plot``, ``to_json`` and ``to_goal`` show it, too.

    >>> with dace_redist.einsum_plan("ij,jk->ik", rows, columns, dtype="float64") as plan:
    ...     C = plan(A, B)

    :param distributions: Distribution of each operand, or an array that has it; None for a number.
    :param dtype: Element type of all operands, or a list of one for each. Default: that of the operands that are
        arrays.
    :param comm: mpi4py communicator; default: that of an operand that is an array, else the world.
    :return: The plan, which is called with the operands.

    Other parameters, and errors, are those of :func:`einsum`.
    """
    how = optimize, memory_bytes, overrides, strategy, options
    plan: ExecutablePlan = _calls().planned_einsum(distributions, dtype, comm, expression, target, None, *how)
    return plan

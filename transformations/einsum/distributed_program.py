"""Distributes a program of einsums over MPI ranks, and runs it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dace_redist.distribution import Distribution
from dace_redist.einsum.placement import Placement
from dace_redist.einsum.plan import EinsumPlan

if TYPE_CHECKING:
    from dace import SDFG

    from dace_redist.transformations.einsum.distributed_sdfg import DistributedArguments
    from dace_redist.transformations.einsum.steps import Body

Array = npt.NDArray[Any]


class DistributedTensor:
    """
    An input or output of a distributed program.

    :param name: Its name in the program.
    :param placement: How it lies on the ranks, whatever its size.
    :param shape: Its global shape.
    :param dtype: Type of its elements.
    """

    def __init__(self, name: str, placement: Placement, shape: Sequence[int], dtype: npt.DTypeLike) -> None:
        self.name, self.placement, self.dtype = name, placement, np.dtype(dtype)
        self.shape = tuple(shape)

    @cached_property
    def distribution(self) -> Distribution:
        """Which rank holds what. A scalar is a vector of one element."""
        return self.placement.distribution(self.shape)

    def __repr__(self) -> str:
        return f"DistributedTensor({self.name!r}, shape={self.shape}, dtype={self.dtype}, {self.placement})"


@dataclass(eq=False)
class DistributedProgram:
    """
    A program of einsums and its distributed twin, made by :func:`distribute`.

    Planning needs no MPI: ``print(program)`` and :meth:`plot` work anywhere. :meth:`scatter`, :meth:`run` and
    :meth:`gather` are collective over a communicator with as many ranks as were planned for.

    :param source: The program it was made from.
    :param body: Its statements.
    :param plan: Order of the contractions, groups, grids, and what is moved.
    :param sdfg: The program that each rank runs. It takes this rank's parts, and a symbol for each of their extents.
    :param arguments: What it takes, in terms of the sizes.
    :param keep_transients: Whether transients are allocated once for all runs.
    :param sizes: Values of the program's symbols.
    """

    source: SDFG
    body: Body
    plan: EinsumPlan
    sdfg: SDFG
    arguments: DistributedArguments
    keep_transients: bool
    sizes: dict[str, int]

    def __repr__(self) -> str:
        return f"DistributedProgram({self.source.name!r}, {self.ranks} ranks, {self.sizes})"

    @property
    def ranks(self) -> int:
        """Number of ranks the program runs on."""
        return self.plan.ranks

    @cached_property
    def inputs(self) -> dict[str, DistributedTensor]:
        """The tensors that the program reads, by name, in the order of its parameters."""
        return {name: self._tensor(name, *end) for name, end in self.arguments.inputs.items()}

    @cached_property
    def outputs(self) -> dict[str, DistributedTensor]:
        """The tensors that the program writes, by name; what it returns is called ``__return``."""
        return {name: self._tensor(name, *end) for name, end in self.arguments.outputs.items()}

    def with_sizes(self, **sizes: int) -> DistributedProgram:
        """
        The same program, with the same grids, for other values of its symbols.

        It is compiled again only if for the new sizes a tensor must be moved that could stay where it was.

        :raises ValueError: If a name is not one of the program's symbols, or a size is none.
        """
        unknown = sorted(set(sizes) - set(self.sizes))
        if unknown:
            raise ValueError(f"the program has no size {', '.join(unknown)}; it has {', '.join(self.sizes) or 'none'}")
        from dace import SDFG

        from dace_redist.transformations.einsum.distribute_einsum import shapes_of

        sizes = {**self.sizes, **sizes}
        shapes_of(self.source, sizes)
        if self.arguments.hold_for(sizes):
            return replace(self, sizes=sizes)
        return self.built_in(SDFG(self.sdfg.name), sizes)

    def built_in(self, target: SDFG, sizes: Mapping[str, int]) -> DistributedProgram:
        """
        The same plan, for these values of the symbols.

        :param target: An empty SDFG to build it in.
        """
        from dace_redist.transformations.einsum.distributed_sdfg import build_distributed

        arguments = build_distributed(target, self.source, self.body, self.plan, sizes, self.keep_transients)
        return replace(self, sdfg=target, arguments=arguments, sizes=dict(sizes))

    def scatter(self, *arrays: Array | None, comm: Any = None, **named: Array | None) -> dict[str, Array]:
        """
        Cut this rank's parts out of whole tensors. Collective.

        :param arrays: Whole tensors in the order of :attr:`inputs`. A rank that has none passes None: it gets its part
            from the first rank that has the tensor.
        :param named: The same by name.
        :param comm: As for :meth:`run`.
        :return: By name; what :meth:`run` takes.
        :raises ValueError: On every rank, if a tensor is unknown, is on no rank, or has another shape.
        """
        from dace_redist.transformations.einsum.run import scatter

        return scatter(self, arrays, named, comm)

    def compile(self, comm: Any = None) -> None:
        """
        Compiles the program, unless it was compiled before, and loads it; the first run does so otherwise. Collective.

        :param comm: As for :meth:`run`.
        :raises ValueError: On every rank, if the communicator has not the number of ranks planned for.
        :raises RuntimeError: On every rank, if the compiler fails.
        """
        from dace_redist.transformations.einsum.run import compile_program

        compile_program(self, comm)

    @cached_property
    def identity(self) -> tuple[str, dict[str, int]]:
        """What all ranks must have alike: a name that stands for :attr:`sdfg`, as it is now, and the sizes."""
        return f"{self.sdfg.name}-{self.sdfg.hash_sdfg()[:16]}", self.sizes

    def run(self, comm: Any = None, **local: Array) -> Any:
        """
        Runs the program. Collective; the first run compiles it unless :meth:`compile` did.

        :param local: This rank's part of each input, of the shape that its distribution says; tensors that the program
            writes in place are changed, and may be given if they are outputs only.
        :param comm: mpi4py intra-communicator with as many ranks as planned for, in any order; default: the world. What
            the program holds for a communicator is freed with it.
        :return: This rank's part of the program's return value (a tuple, if it returns several); without one the
            written parts by name.
        :raises ValueError: On every rank, if an input is missing, unknown, or of the wrong shape or type on any of
            them, or if the communicator has not the number of ranks planned for.
        :raises RedistributionError: On every rank, at the end of the run, if a step failed on one of them (a singular
            matrix, memory that ran out, ranks that disagree): what the run wrote is then undefined, and the program can
            be run again. Only where a call of MPI fails on one rank may the others wait for it in theirs.
        """
        from dace_redist.transformations.einsum.run import run

        return run(self, local, comm)

    def gather(self, local: Array, name: str | None = None, comm: Any = None) -> Array | None:
        """
        The whole of an output, from its parts. Collective.

        :param local: This rank's part.
        :param name: Which tensor; may be left out if the program has one output.
        :param comm: As for :meth:`run`.
        :return: The whole tensor on rank 0, None elsewhere.
        :raises ValueError: On every rank, if the tensor is unknown or a part has the wrong shape.
        """
        from dace_redist.transformations.einsum.run import gather

        return gather(self, name, local, comm)

    def tensor(self, name: str | None = None) -> DistributedTensor:
        """
        An output or input by name.

        :param name: Default: the only output.
        :raises ValueError: If there is no such tensor, or several.
        """
        if name is None:
            if len(self.outputs) != 1:
                raise ValueError(f"the program has {len(self.outputs)} outputs: say which of {', '.join(self.outputs)}")
            (name,) = self.outputs
        known = {**self.inputs, **self.outputs}
        if name not in known:
            raise ValueError(f"the program has no tensor {name!r}; it has {', '.join(known)}")
        return known[name]

    def __str__(self) -> str:
        return str(self.plan)

    def plot(self, path: str | Path) -> None:
        """
        Draw tensors, groups with their grids, and redistributions with their volume.

        :param path: File to write; its ending says the format: .png, .svg or .pdf.
        """
        self.plan.plot(path)

    def local_extents(self, rank: int) -> dict[str, int]:
        """
        Values of the symbols that :attr:`sdfg` takes for a rank: those of the program and its local extents.

        :param rank: Rank in the communicator.
        """
        from dace_redist.transformations.einsum.distributed_sdfg import in_numbers

        values = dict(self.sizes)
        for symbol, extent in self.arguments.extents.items():
            shape = in_numbers(extent.shape, self.sizes)
            values[symbol] = extent.placement.distribution(shape).local_shape(rank)[extent.axis]
        return values

    def _tensor(self, name: str, placement: Placement, shape: Sequence[Any]) -> DistributedTensor:
        from dace_redist.transformations.einsum.distributed_sdfg import in_numbers

        return DistributedTensor(
            name, placement, in_numbers(shape, self.sizes), self.sdfg.arrays[name].dtype.as_numpy_dtype()
        )


def distribute(
    program: Any,
    ranks: int,
    sizes: Mapping[str, int] | None = None,
    *,
    memory_bytes: int | None = None,
    node_size: int | None = None,
    placements: Mapping[str, Placement | Distribution] | None = None,
    overrides: Mapping[str, Mapping[str, int]] | None = None,
) -> DistributedProgram:
    """
    The distributed twin of a program of einsums. Not collective; needs no MPI.

    Contractions are ordered, grouped and given process grids such that little is moved between ranks, the way of
    Ziogas et al., Deinsum (SC'22), with the redistributions between the groups in the account.

    :param program: A ``@dace.program`` or SDFG with any number of ``np.einsum``, ``@``, ``np.tensordot``, ``np.dot``,
        ``np.matmul``, ``np.inner``, ``np.outer``, ``np.vdot``, ``np.trace``, ``np.linalg.norm``, transpositions, sums
        over axes, elementwise expressions of whole arrays, ``np.linalg.inv`` and ``np.linalg.solve``, whose matrix
        every rank has whole, and ``for`` loops around them.
    :param ranks: Number of ranks it shall run on.
    :param sizes: Values of the symbols in its shapes. The plan is made for them; the program keeps its symbols, see
        :meth:`DistributedProgram.with_sizes`.
    :param memory_bytes: What a rank may hold at most; None: no limit, and intermediates are kept from run to run.
    :param node_size: Ranks per node, if several share one: grids are then laid over the nodes such that little is
        moved between nodes.
    :param placements: Where inputs or outputs are, by name, if that is not the planner's choice.
    :param overrides: Grids, by the name of the tensor that is computed: ``{"T": {"i": 2, "k": 4}}``.
    :raises ValueError: If a statement cannot be distributed, a size is missing, or something given does not fit; says
        which statement, why, and what would help.
    :raises MemoryError: If a rank would have to hold more than ``memory_bytes``; says how much and for which statement.
    :raises TypeError: If ``program`` is neither a program nor an SDFG, or what must be a mapping is none.
    """
    import dace
    from dace.frontend.python.parser import DaceProgram

    from dace_redist.transformations.einsum.distribute_einsum import distribute_sdfg
    from dace_redist.transformations.einsum.frontend import parse

    if isinstance(program, DaceProgram):
        sdfg = parse(program)
    elif isinstance(program, dace.SDFG):
        sdfg = copy.deepcopy(program)
        sdfg.simplify()
    else:
        raise TypeError(f"distribute: expected a @dace.program or an SDFG, got {type(program).__name__}")
    if isinstance(ranks, bool) or not isinstance(ranks, int | np.integer) or ranks < 1:
        raise ValueError(f"distribute: ranks must be an integer of at least 1, got {ranks!r}")
    mappings = {"sizes": sizes, "placements": placements, "overrides": overrides}
    grids = {f"overrides[{key!r}]": grid for key, grid in overrides.items()} if isinstance(overrides, Mapping) else {}
    for name, value in {**mappings, **grids}.items():
        if value is not None and not isinstance(value, Mapping):
            raise TypeError(f"distribute: {name} must be a dict, got {value!r}")
    return distribute_sdfg(
        sdfg,
        int(ranks),
        sizes or {},
        memory_bytes=memory_bytes,
        node_size=node_size,
        placements=placements,
        overrides=overrides,
    )

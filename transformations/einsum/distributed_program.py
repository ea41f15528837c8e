"""A program of einsums, distributed over MPI ranks: what it takes and returns, and how it is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from dace import SDFG, data

from dace_redist.einsum.placement import Placement
from dace_redist.einsum.plan import EinsumPlan
from dace_redist.einsum.traffic import same_place
from dace_redist.transformations.einsum.distributed_sdfg import emit_program
from dace_redist.transformations.einsum.distributed_tensor import DistributedTensor
from dace_redist.transformations.einsum.gpu_placement import place_on_gpu
from dace_redist.transformations.einsum.kept_strategies import take_strategies
from dace_redist.transformations.einsum.local_arrays import Diagonal, PlacedShape
from dace_redist.transformations.einsum.program_name import ProgramName
from dace_redist.transformations.einsum.reading import logical_shape
from dace_redist.transformations.einsum.sizes import in_numbers, shapes_of
from dace_redist.transformations.einsum.steps import Body
from dace_redist.transformations.einsum.transient_memory import place_transients
from dace_redist.transformations.redistribution.fuse_reduction import fuse_sums

if TYPE_CHECKING:
    from dace_redist.simulation.program import SimulatedProgram

Array = npt.NDArray[Any]


@dataclass(eq=False)
class DistributedProgram:
    """
    A program of einsums, distributed over MPI ranks; made by :func:`dace_redist.distribute`.

    Planning needs no MPI: ``print(program)`` and :meth:`plot` work anywhere. :meth:`scatter`, :meth:`compile`,
    :meth:`run` and :meth:`gather` are collective over a communicator with as many ranks as were planned for.

    :param source: The program it was made from.
    :param body: The statements of that program.
    :param plan: Order of the contractions, their process grids, and what is moved between them.
    :param sdfg: What each rank runs: a program of this rank's parts, with a symbol for each of their extents.
    :param sizes: Values of the symbols in ``source``.
    :param keep_transients: Whether transients are allocated once for all runs.
    :param input_names: The tensors that it reads, in the order of the parameters. A tensor that is written first, but
        in a loop that may run zero times, is among them.
    :param output_names: The tensors that it writes.
    :param extents: For each symbol of ``sdfg`` that is an extent of this rank's part: the split axis it belongs to, or
        the diagonal of which the part holds elements.
    :param starts: The same for the first index of this rank's part.
    :param same: Pairs of placements, with a tensor's shape, for which ``sdfg`` has one array: with these sizes every
        rank holds the same elements under both.
    :param closure: Whole arrays that the Python function uses without having them as arguments, by the name that
        ``sdfg`` has for them. Every rank has them, and :meth:`run` takes its part of them by itself.
    :param device: ``"cpu"`` or ``"gpu"``: where ``sdfg`` computes.
    :param arguments: ``"cpu"`` or ``"gpu"``: where this rank's parts of the tensors that it takes and writes lie. Those
        of scalars and of ``closure`` are in main memory.
    """

    source: SDFG
    body: Body
    plan: EinsumPlan
    sdfg: SDFG
    sizes: dict[str, int]
    keep_transients: bool
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    extents: dict[str, PlacedShape | Diagonal]
    starts: dict[str, PlacedShape]
    same: tuple[tuple[Placement, Placement, tuple[Any, ...]], ...]
    closure: Mapping[str, Array] = field(default_factory=dict, repr=False)
    device: str = "cpu"
    arguments: str = "cpu"
    _name: ProgramName = field(default_factory=ProgramName, repr=False)

    @classmethod
    def build(
        cls,
        target: SDFG,
        source: SDFG,
        body: Body,
        plan: EinsumPlan,
        sizes: Mapping[str, int],
        keep_transients: bool,
        closure: Mapping[str, Array],
        device: str = "cpu",
        arguments: str = "cpu",
    ) -> DistributedProgram:
        """
        Builds a program, see :func:`~dace_redist.transformations.einsum.distributed_sdfg.emit_program`.

        :param target: An empty SDFG, which becomes what each rank runs.
        :param device: ``"cpu"`` or ``"gpu"``: where it computes.
        :param arguments: ``"cpu"`` or ``"gpu"``: where its arguments lie.
        :raises ValueError: If it writes to an array of the closure, or a statement is not for the GPU.
        """
        arrays, read, written = emit_program(target, source, body, plan, sizes)
        known = (source, body, plan, target, dict(sizes), keep_transients)
        changed = [name.removeprefix("__g_") for name in written if name in closure]
        if changed:
            raise ValueError(
                f'"{source.name}" writes to {", ".join(changed)}, which is none of its arguments; make it one'
            )
        read = tuple(name for name in read if name not in closure)
        found = (arrays.extents, arrays.starts, arrays.same)
        program = cls(*known, read, written, *found, closure, device, arguments)
        fuse_sums(target, program.sizes)
        if device == "gpu":
            place_on_gpu(target, (*read, *closure), written, keep_transients, program.gpu_arguments)
        elif keep_transients:  # the first touch of new memory costs as much as its use
            place_transients(target, program.local_extents())
        return program

    def __repr__(self) -> str:
        return f"DistributedProgram({self.source.name!r}, {self.ranks} ranks, {self.sizes})"

    def __str__(self) -> str:
        return str(self.plan)

    def plot(self, path: str | Path) -> None:
        """
        Draw the tensors, the contractions with their process grids, and the redistributions with their volume.

        :param path: File to write; its ending says the format: .png, .svg or .pdf.
        """
        self.plan.plot(path)

    def simulate(self, machine: str | Path, **options: Any) -> SimulatedProgram:
        """
        Predict what one run takes on a machine that is described, step by step.

        :param machine: Path of a machine file, or name of a machine that ships with the package.
        :param options: See :func:`dace_redist.simulation.program.simulate_plan`.
        """
        from dace_redist.simulation.program import simulate_plan

        return simulate_plan(self.plan, machine, **options)

    @property
    def ranks(self) -> int:
        """Number of ranks it runs on."""
        return self.plan.ranks

    @cached_property
    def inputs(self) -> dict[str, DistributedTensor]:
        """The tensors that it reads, by name, in the order of the parameters."""
        return {name: self._tensor(name) for name in self.input_names}

    @cached_property
    def outputs(self) -> dict[str, DistributedTensor]:
        """The tensors that it writes, by name; what it returns is called ``__return``."""
        return {name: self._tensor(name) for name in self.output_names}

    @cached_property
    def gpu_arguments(self) -> frozenset[str]:
        """Names of the inputs and outputs of which this rank's parts lie on the GPU."""
        tensors = {**self.inputs, **self.outputs} if self.arguments == "gpu" else {}
        return frozenset(name for name, tensor in tensors.items() if tensor.shape)

    def closure_parts(self, rank: int) -> dict[str, Array]:
        """A rank's parts of the arrays in :attr:`closure`."""
        tensors = {name: self._tensor(name) for name in self.closure}
        return {
            name: np.ascontiguousarray(tensor.distribution.local(self._closure_value(tensor), rank))
            for name, tensor in tensors.items()
        }

    def _closure_value(self, tensor: DistributedTensor) -> Array:
        value = np.asarray(self.closure[tensor.name])
        if value.dtype != tensor.dtype or value.shape != tensor.whole_shape:
            raise ValueError(
                f'"{self.source.name}": {tensor.name.removeprefix("__g_")} was an array of {tensor.dtype}, '
                f"shape {tensor.whole_shape}, when the program was distributed, and is one of {value.dtype}, "
                f"shape {value.shape}"
            )
        return value

    def _tensor(self, name: str) -> DistributedTensor:
        array = self.source.arrays[name]
        shape, dtype = in_numbers(logical_shape(array), self.sizes), np.dtype(array.dtype.as_numpy_dtype())
        returned = name.startswith("__return")  # DaCe returns scalars as vectors
        is_vector = not shape and isinstance(array, data.Array) and not returned
        return DistributedTensor(name, self.plan.homes[name], shape, dtype, is_vector)

    def tensor(self, name: str | None = None) -> DistributedTensor:
        """
        An output or input by name.

        :param name: Default: the only output.
        :raises ValueError: If there is no such tensor, or no name is given and there are several outputs.
        """
        if name is None:
            if len(self.outputs) != 1:
                raise ValueError(f"the program has {len(self.outputs)} outputs: say which of {', '.join(self.outputs)}")
            (name,) = self.outputs
        known = {**self.inputs, **self.outputs}
        if name not in known:
            raise ValueError(f"the program has no tensor {name!r}; it has {', '.join(known)}")
        return known[name]

    def with_sizes(self, /, **sizes: int) -> DistributedProgram:
        """
        The same program, on the same process grids, for other values of its symbols.

        It is compiled again only if for the new sizes a tensor must be moved that could stay where it was; strategies
        and options of the redistributions in :attr:`sdfg` are kept, other changes to it are not made again then.

        :raises ValueError: If a name is not one of the program's symbols, or a value is not possible.
        """
        unknown = sorted(set(sizes) - set(self.sizes))
        if unknown:
            raise ValueError(f"the program has no size {', '.join(unknown)}; it has {', '.join(self.sizes) or 'none'}")
        sizes = {**self.sizes, **sizes}
        shapes_of(self.source, sizes)
        if all(same_place(first, second, in_numbers(shape, sizes)) for first, second, shape in self.same):
            return replace(self, sizes=sizes)
        return self.built_in(SDFG(self.sdfg.name), sizes)

    def built_in(self, target: SDFG, sizes: Mapping[str, int]) -> DistributedProgram:
        """
        The same program for these values of the symbols, built anew, with the strategies that :attr:`sdfg` has.

        :param target: An empty SDFG, which becomes what each rank runs.
        :param sizes: Values of the symbols.
        """
        known = (self.source, self.body, self.plan, sizes, self.keep_transients, self.closure)
        made = self.build(target, *known, self.device, self.arguments)
        take_strategies(made.sdfg, self.sdfg)
        return made

    def local_extents(self, rank: int | None = None) -> dict[str, int]:
        """
        Values of all symbols of :attr:`sdfg` on a rank: the sizes, and extents and first indices of its parts.

        :param rank: Rank in the communicator; None: for each extent the rank on which it is largest.
        """
        values = dict(self.sizes)
        for symbol, held in self.extents.items():
            if isinstance(held, Diagonal):
                values[symbol] = held.value(self.sizes, rank)
                continue
            placement, shape = held
            distribution = placement.distribution(in_numbers(shape, self.sizes))
            (values[symbol],) = distribution.local_shape(placement.ranks[0] if rank is None else rank)
        for symbol, (placement, shape) in self.starts.items():
            (index,) = placement.distribution(in_numbers(shape, self.sizes)).global_index(rank or 0)
            values[symbol] = int(index[0]) if len(index) else 0
        return values

    @property
    def identity(self) -> tuple[str, dict[str, int]]:
        """What all ranks must have alike: a name that stands for :attr:`sdfg`, as it is now, and the sizes."""
        return self._name.of(self.sdfg), self.sizes

    def scatter(self, /, *arrays: Array | None, comm: Any = None, **named: Array | None) -> dict[str, Any]:
        """
        Cut this rank's parts out of whole tensors. Collective.

        :param arrays: Whole tensors in the order of :attr:`inputs`. A rank that has none passes None: it gets its part
            from the first rank that has the tensor.
        :param named: The same by name.
        :param comm: As for :meth:`run`.
        :return: By name; what :meth:`run` takes: NumPy arrays, or ``DeviceArray`` where parts lie on the GPU.
        :raises ValueError: On every rank, if a tensor is unknown, is on no rank, or has another shape, or if its
            elements are of a type that the program's cannot hold without loss, as float64 in int64.
        """
        return _run_module().scatter(self, arrays, named, comm)

    def compile(self, comm: Any = None) -> None:
        """
        Compiles the program, unless it was compiled before, and loads it; the first run, or the first after
        :attr:`sdfg` was changed, does so otherwise. Collective.

        :param comm: As for :meth:`run`.
        :raises ValueError: On every rank, if the communicator has not the number of ranks planned for.
        :raises RuntimeError: On every rank, if the compiler fails.
        """
        _run_module().compile_program(self, comm)

    def run(self, /, comm: Any = None, **local: Any) -> Any:
        """
        Runs the program. Collective; the first run compiles it unless :meth:`compile` did.

        Where :attr:`arguments` lie on the GPU, a run comes after what was enqueued before on their stream, and what is
        enqueued there afterwards finds the result.

        :param local: This rank's part of each input, of the shape and type that :attr:`inputs` says (scalars may be
            numbers); tensors that the program writes in place are changed, and may be given if they are outputs only.
        :param comm: mpi4py intra-communicator with as many ranks as planned for, in any order; default: the world. What
            the program holds for a communicator is freed with it.
        :return: This rank's part of the program's return value (a tuple, if it returns several); without one the
            written parts by name. New parts on the GPU are of the library of those given.
        :raises ValueError: On every rank, if an input is missing, unknown, or of the wrong shape or type on any of
            them, or if the communicator has not the number of ranks planned for.
        :raises RedistributionError: On every rank, at the end of the run, if a step failed on one of them (a singular
            matrix, memory that ran out, ranks that disagree): what the run wrote is then undefined, and the program can
            be run again. Only if an MPI call fails on one rank may the others block in theirs.
        """
        return _run_module().run(self, local, comm)

    def gather(self, local: Any, name: str | None = None, comm: Any = None) -> Array | None:
        """
        The whole of an output, from its parts. Collective.

        :param local: This rank's part.
        :param name: Which tensor; may be left out if the program has one output.
        :param comm: As for :meth:`run`.
        :return: The whole tensor on rank 0, None elsewhere.
        :raises ValueError: On every rank, if the tensor is unknown or a part has the wrong shape or type.
        """
        return _run_module().gather(self, name, local, comm)


def _run_module() -> Any:
    """The module that runs programs. Its import initialises MPI, which planning does not need."""
    from dace_redist.transformations.einsum import run

    return run

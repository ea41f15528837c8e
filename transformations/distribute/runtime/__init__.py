"""Program of einsums, distributed over MPI ranks: its inputs and outputs, and its execution."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from dace import SDFG, data

from dace_redist.einsum.placement import Given
from dace_redist.einsum.plan import EinsumPlan
from dace_redist.transformations.distribute.emit import Recipe
from dace_redist.transformations.distribute.emit.arrays import DistributedTensor, LocalSymbols
from dace_redist.transformations.distribute.ir import check_sizes, in_numbers, logical_shape, shapes_of
from dace_redist.transformations.patterns import changed

Array = npt.NDArray[Any]

#: Pickled state of each SDFG when its name was last computed, and the name.
_names: weakref.WeakKeyDictionary[SDFG, tuple[bytes, str]] = weakref.WeakKeyDictionary()


@dataclass(eq=False)
class DistributedProgram:
    """
    Program of einsums, distributed over MPI ranks; made by :func:`dace_redist.distribute`.

    Planning needs no MPI: ``print(program)`` and :meth:`plot` work anywhere. :meth:`scatter`, :meth:`compile`,
    :meth:`run`, :meth:`gather` and a call are collective over a communicator with the planned number of ranks.

    :param built: Program of a rank as it was built: see :attr:`sdfg`.
    :param symbols: Meaning of the other symbols of ``sdfg``.
    :param input_names: Names of the tensors read, in the order of the parameters. They include a tensor that is written
        first, but in a loop that may run zero times.
    """

    recipe: Recipe
    sizes: dict[str, int]
    built: SDFG
    symbols: LocalSymbols
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]

    def __repr__(self) -> str:
        return f"DistributedProgram({self.recipe.source.name!r}, {self.ranks} ranks, {self.sizes})"

    def __str__(self) -> str:
        return str(self.plan)

    # Facts

    @property
    def sdfg(self) -> SDFG:
        """
        Program of a rank, on this rank's parts, with a symbol for each of their extents.

        It may be changed, before :meth:`compile` or the first run after this attribute, or ``set_strategy``, was used.
        """
        changed.add(self.built)
        return self.built

    @property
    def plan(self) -> EinsumPlan:
        """Plan: order of the contractions, their process grids, and the redistributions between them."""
        return self.recipe.plan

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.plan.ranks

    @cached_property
    def inputs(self) -> dict[str, DistributedTensor]:
        """Tensors read, by name, in the order of the parameters."""
        return {name: self._tensor(name) for name in self.input_names}

    @cached_property
    def outputs(self) -> dict[str, DistributedTensor]:
        """Tensors written, by name; the return value is called ``__return``."""
        return {name: self._tensor(name) for name in self.output_names}

    @cached_property
    def unused(self) -> frozenset[str]:
        """Names of the parameters that the program neither reads nor writes; calls ignore what is passed for them."""
        return frozenset(self.recipe.source.arg_names) - {*self.input_names, *self.output_names}

    @cached_property
    def scalars(self) -> dict[str, np.dtype[Any]]:
        """Types of the scalar inputs that every rank has."""
        everywhere = ((n, t) for n, t in self.inputs.items() if not t.shape and t.distribution.replicas == self.ranks)
        return {name: tensor.dtype for name, tensor in everywhere}

    @cached_property
    def gpu_arguments(self) -> frozenset[str]:
        """Names of the inputs and outputs whose local parts lie on the GPU."""
        return self.recipe.on_gpu((*self.input_names, *self.output_names))

    def tensor(self, name: str | None = None) -> DistributedTensor:
        """
        Return an output or input by name.

        :param name: Default: the only output.
        :raises ValueError: If the name is unknown, or missing with several outputs.
        """
        if name is None:
            if len(self.outputs) != 1:
                raise ValueError(f"the program has {len(self.outputs)} outputs: say which of {', '.join(self.outputs)}")
            (name,) = self.outputs
        known = {**self.inputs, **self.outputs}
        if name not in known:
            raise ValueError(f"the program has no tensor {name!r}; it has {', '.join(known)}")
        return known[name]

    def _tensor(self, name: str) -> DistributedTensor:
        array = self.recipe.source.arrays[name]
        shape, dtype = in_numbers(logical_shape(array), self.sizes), np.dtype(array.dtype.as_numpy_dtype())
        returned = name.startswith("__return")  # DaCe returns scalars as vectors
        is_vector = not shape and isinstance(array, data.Array) and not returned
        return DistributedTensor(name, self.plan.homes[name], shape, dtype, is_vector)

    def closure_parts(self, rank: int) -> dict[str, Array]:
        """Return a rank's parts of the arrays in the closure."""
        parts = {}
        for tensor in map(self._tensor, self.recipe.closure):
            value = np.asarray(self.recipe.closure[tensor.name])
            if value.dtype != tensor.dtype or value.shape != tensor.whole_shape:
                raise ValueError(
                    f'"{self.recipe.source.name}": {tensor.name.removeprefix("__g_")} was an array of {tensor.dtype}, '
                    f"shape {tensor.whole_shape}, when the program was distributed, and is one of {value.dtype}, "
                    f"shape {value.shape}"
                )
            parts[tensor.name] = np.ascontiguousarray(tensor.distribution.local(value, rank))
        return parts

    def local_extents(self, rank: int | None = None) -> dict[str, int]:
        """
        Return the values of all symbols of :attr:`sdfg` on a rank: sizes, and extents and first indices of its parts.

        :param rank: Rank in the communicator; None: for each extent the rank on which it is largest.
        """
        return self.symbols.values(self.sizes, rank)

    @property
    def identity(self) -> tuple[str, dict[str, int]]:
        """Key that must be equal on all ranks: a name for the present state of :attr:`sdfg`, and the sizes."""
        sdfg, known = self.built, _names.get(self.built)
        # Pickling detects every change, also in nodes and memlets, thirty times as fast as hashing. But it takes longer
        # than a run of a small program.
        if known is None or sdfg in changed:
            changed.discard(sdfg)
            if known is None or known[0] != pickle.dumps(sdfg):
                name = f"{sdfg.name}-{sdfg.hash_sdfg()[:16]}"
                known = _names[sdfg] = (pickle.dumps(sdfg), name)  # hashing fills caches of the SDFG
        return known[1], self.sizes

    def plot(self, path: str | Path) -> None:
        """
        Draw the plan.

        :param path: File to write; its suffix selects the format: .png, .svg or .pdf.
        """
        self.plan.plot(path)

    # Other sizes

    def with_sizes(self, /, **sizes: int) -> DistributedProgram:
        """
        Return the program for other values of its symbols, on the same process grids.

        It is compiled again only if the new sizes require a redistribution that was redundant before. Strategies and
        options of the redistributions in :attr:`sdfg` are then kept, other changes to it are lost.

        :raises ValueError: If a name is not one of the program's symbols, or a value is invalid.
        """
        unknown = sorted(set(sizes) - set(self.sizes))
        if unknown:
            raise ValueError(f"the program has no size {', '.join(unknown)}; it has {', '.join(self.sizes) or 'none'}")
        sizes = {**self.sizes, **sizes}
        check_sizes(self.recipe.source, sizes)
        shapes = shapes_of(self.recipe.source, sizes, self.recipe.body)
        for name, home in self.plan.homes.items():
            if isinstance(home, Given) and tuple(home.whole.shape) != shapes.get(name):
                raise ValueError(
                    f"{name} has the shape {shapes.get(name)} for these sizes, but its distribution is of "
                    f"{home.whole.shape}: distribute the program again, with another one"
                )
        if self.symbols.allow(sizes):
            return replace(self, sizes=sizes)
        return self.built_in(SDFG(self.built.name), sizes)

    def built_in(self, target: SDFG, sizes: Mapping[str, int]) -> DistributedProgram:
        """
        Build the program again for values of the symbols, with the strategies of :attr:`sdfg`.

        :param target: An empty SDFG, which becomes the program of a rank.
        """
        return DistributedProgram(self.recipe, dict(sizes), *self.recipe.build(target, sizes, self.built))

    # Running

    def scatter(self, /, *arrays: Array | None, comm: Any = None, **named: Array | None) -> dict[str, Any]:
        """
        Cut this rank's parts out of whole tensors. Collective.

        :param arrays: Whole tensors in the order of :attr:`inputs`, or of all parameters. A rank without one passes
            None; the first rank that has the tensor sends its part. Ranks that have it must have the same one.
        :param named: Further tensors by name. Parameters that the function does not use are ignored.
        :param comm: As for :meth:`run`.
        :return: Local parts by name, arguments of :meth:`run`: NumPy arrays, or ``DeviceArray`` for parts on the GPU.
        :raises ValueError: On every rank, if a tensor is unknown, is on no rank, differs between ranks (a sample is
            compared), has another shape, or has an element type that cannot be converted to the program's without loss,
            as float64 to int64.
        """
        return _running().scatter(self, arrays, named, comm)

    def compile(self, comm: Any = None) -> None:
        """
        Compile the program if need be, and load it. Collective.

        Otherwise the first run does so, and the first run after a change of :attr:`sdfg`.

        :param comm: As for :meth:`run`.
        :raises ValueError: On every rank, if the communicator has not the planned number of ranks.
        :raises RuntimeError: On every rank, if the compiler fails.
        """
        _running().compile_program(self, comm)

    def run(self, /, comm: Any = None, **local: Any) -> Any:
        """
        Run the program. Collective; the first run compiles it unless :meth:`compile` did.

        Call it in Python's main thread, in which errors of steps are raised. With arguments on the GPU, a run is
        ordered on their stream, after work enqueued before and ahead of work enqueued afterwards.

        :param local: This rank's part of each input, with shape and type of :attr:`inputs` (scalars may be numbers).
            Tensors that the program writes in place are changed; they may be given also if they are outputs only.
        :param comm: mpi4py intra-communicator with the planned number of ranks, in any order; default: the world.
            Resources of the program for a communicator are freed with it.
        :return: This rank's part of the return value, or a tuple; without one the written parts by name. New parts on
            the GPU are of the library of those given.
        :raises ValueError: On every rank, if an argument is invalid on one of them, scalars differ between ranks, the
            communicator has not the planned number of ranks, or a global value that the function uses has changed since
            the program was distributed.
        :raises RedistributionError: On every rank, at the end of the run, if a step failed on one of them, as for a
            singular matrix. What the run wrote is then undefined, and the program can be run again. Only if an MPI call
            fails on one rank may the others block in theirs.
        """
        return _running().run(self, local, comm)

    def gather(self, local: Any, name: str | None = None, comm: Any = None) -> Array | None:
        """
        Return the whole of an output, from its parts. Collective.

        :param name: The tensor; may be left out if the program has one output.
        :param comm: As for :meth:`run`.
        :return: The whole tensor on rank 0, None elsewhere.
        :raises ValueError: On every rank, if the tensor is unknown or a part has the wrong shape or type.
        """
        return _running().gather(self, name, local, comm)

    def __call__(self, /, *arrays: Array | None, comm: Any = None, **named: Array | None) -> Any:
        """
        Scatter whole tensors, run the program, and gather what it returns: ``program(X=X, B=B)``. Collective.

        :param arrays: As for :meth:`scatter`; likewise ``named``.
        :param comm: As for :meth:`run`.
        :return: On rank 0 the return value, or a tuple; without one the written tensors by name. None elsewhere. What
            rank 0 passed for tensors that the program writes is changed there: NumPy arrays of exactly their types.
        :raises ValueError: As :meth:`scatter`; likewise all that :meth:`run` raises.
        """
        return _running().call(self, arrays, named, comm)


def _running() -> Any:
    """Return the module that runs programs; importing it initialises MPI, which planning does not need."""
    from dace_redist.transformations.distribute.runtime import run

    return run

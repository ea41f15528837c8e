"""Parts of a distributed program that need no MPI: its plan, inputs, outputs, sizes, and checks of arguments."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from dace import SDFG, data

from dace_redist.einsum.placement import Given
from dace_redist.einsum.plan import EinsumPlan
from dace_redist.redistribution.arrays import ArrayView, sample_of
from dace_redist.transformations.distribute.emit import Recipe
from dace_redist.transformations.distribute.emit.arrays import DistributedTensor, LocalSymbols
from dace_redist.transformations.distribute.ir import check_sizes, in_numbers, logical_shape, shapes_of
from dace_redist.transformations.patterns import changed

if TYPE_CHECKING:
    from typing_extensions import Self

Array = npt.NDArray[Any]

#: Pickled state of each SDFG when its name was last computed, and the name.
_names: weakref.WeakKeyDictionary[SDFG, tuple[bytes, str]] = weakref.WeakKeyDictionary()


@dataclass(eq=False)
class ProgramFacts:
    """
    Plan of a program, and the program of a rank as it was built.

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
        return f"{type(self).__name__}({self.recipe.source.name!r}, {self.ranks} ranks, {self.sizes})"

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
        """Tensors read, by name, in the order of the parameters; each has ``distribution``, ``shape`` and ``dtype``."""
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

    def named(self, name: str) -> Self:
        """Return the program, whose unchanged :attr:`sdfg` is known to have a name: that of :attr:`identity`."""
        _names[self.built] = (pickle.dumps(self.built), name)
        return self

    def plot(self, path: str | Path) -> None:
        """
        Draw the plan.

        :param path: File to write; its suffix selects the format: .png, .svg or .pdf.
        """
        self.plan.plot(path)

    # Other sizes

    def with_sizes(self, /, **sizes: int) -> Self:
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

    def built_in(self, target: SDFG, sizes: Mapping[str, int]) -> Self:
        """
        Build the program again for values of the symbols, with the strategies of :attr:`sdfg`.

        :param target: An empty SDFG, which becomes the program of a rank.
        """
        return type(self)(self.recipe, dict(sizes), *self.recipe.build(target, sizes, self.built))


# Checks of arguments


def check_in_place(tensor: DistributedTensor, array: Any) -> None:
    """Raise an error unless rank 0's whole array can hold, and show, what the program writes to it."""
    plain = isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray) and array.flags.writeable
    if not plain or array.dtype.newbyteorder("=") != tensor.dtype:
        kind, dtype = type(array).__name__, getattr(array, "dtype", "numbers")
        raise ValueError(
            f"the program writes {tensor.name} in place: pass a writeable NumPy array of {tensor.dtype} on rank 0, got "
            f"{'' if plain else 'a read-only or other object, '}{kind} of {dtype}"
        )


def shared_values(program: ProgramFacts, local: Mapping[str, Any]) -> dict[str, Any]:
    """Return what all ranks have alike: scalars, and samples of the closure's arrays."""
    closure = program.recipe.closure.items()
    values = {f"the array {name.removeprefix('__g_')}": sample_of(np.asarray(whole)).hex() for name, whole in closure}
    for name, dtype in program.scalars.items():
        try:
            values[name] = np.asarray(local[name], dtype).ravel().tolist()
        except Exception:  # another error follows
            values[name] = local.get(name)
    return values


def check_apart(arrays: Mapping[str, ArrayView], written: Collection[str]) -> None:
    """Raise an error if an array that is written in place shares memory with another one."""
    for name in written:
        for other, array in arrays.items():
            if other != name and arrays[name].device == array.device and arrays[name].overlaps(array):
                raise ValueError(f"run: {name} is written in place, but shares memory with {other}; pass a copy")

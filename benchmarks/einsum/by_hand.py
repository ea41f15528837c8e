"""Kernels distributed by hand, with the redistributions of stock DaCe or of this package."""

import contextlib
import copy
import io
import warnings
from collections.abc import Iterator

import numpy as np
from by_hand_kernels import PARTS, WORLD, Kernel
from dace.codegen.compiled_sdfg import CompiledSDFG
from dace.sdfg import utils
from einsum_cases import elements

import dace_redist
from dace_redist.mpi.collective import sleeping_barrier

STOCK = "stock"
TOLERANCE = 1e-10  # largest relative error of a right result


class ByHand:
    """
    A kernel distributed by hand, built and with its operands. Collective.

    :param kernel: The kernel.
    :param extents: Length of every mode.
    :param strategy: Strategy of its redistributions, or ``"stock"``.
    :raises ValueError: If the program does not fit the number of ranks or the extents.
    """

    def __init__(self, kernel: Kernel, extents: dict[str, int], strategy: str) -> None:
        _check(kernel, extents, strategy)
        self.kernel, self.extents = kernel, extents
        self.compiled = _built(kernel, strategy)
        self.operands = {name: _block(kernel, name, extents) for name in kernel.operands}
        given = kernel.symbols(extents) | self.operands
        self._given = {name: given[name] for name in self.compiled.sdfg.arglist() if name in given}
        self.result: np.ndarray | None = None

    def __call__(self) -> None:
        """Run the kernel."""
        self.result = self.compiled(**self._given)

    def error(self) -> float:
        """Return the largest relative error of the last result. Collective; each rank computes its block by NumPy."""
        modes, grid = self.kernel.result
        blocks = {m: _clipped(r, self.extents[m]) for m, r in self.kernel.blocks(grid, self.extents).items()}
        ranges = {m: blocks[m] if m in modes else range(extent) for m, extent in self.extents.items()}
        whole = [(name, term) for name, (term, _) in self.kernel.operands.items()]
        parts = [elements(name, [ranges[m] for m in term], [self.extents[m] for m in term]) for name, term in whole]
        expected = np.einsum(f"{self.kernel.einsum.split('->')[0]}->{modes}", *parts, optimize="optimal")
        got = self.result[tuple(slice(n) for n in expected.shape)]
        error = float(np.max(abs(got - expected) / expected)) if expected.size else 0.0
        return max(WORLD.allgather(error if np.isfinite(error) else np.inf))


class _SleepingCommunicator:
    """Communicator for ``distributed_compile``; ranks sleep while rank 0 compiles."""

    Get_rank, allgather = WORLD.Get_rank, WORLD.allgather

    def bcast(self, value, root: int = 0):
        sleeping_barrier(WORLD)
        return WORLD.bcast(value, root)


def _built(kernel: Kernel, strategy: str) -> CompiledSDFG:
    """Compile a kernel with a strategy on rank 0, and load it on all. Collective."""
    sdfg = None
    with _quiet():
        if WORLD.rank == 0:
            sdfg = copy.deepcopy(kernel.program.to_sdfg())
            sdfg.name = f"{kernel.program.f.__name__}_{strategy.lower()}"
            if strategy != STOCK:
                dace_redist.set_strategy(sdfg, strategy)
        return utils.distributed_compile(sdfg, _SleepingCommunicator())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide the output of stock DaCe while it parses and expands a Redistribute: debug prints, warnings about itself."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"dace\.")
        yield


def _clipped(indices: range, extent: int) -> range:
    return range(min(indices.start, extent), min(indices.stop, extent))


def _block(kernel: Kernel, name: str, extents: dict[str, int]) -> np.ndarray:
    """Return this rank's block of an operand; zero where it passes the end of the tensor."""
    term, grid = kernel.operands[name]
    ranges = [kernel.blocks(grid, extents)[mode] for mode in term]
    block, inside = (
        np.zeros([len(r) for r in ranges]),
        [_clipped(r, extents[m]) for r, m in zip(ranges, term, strict=True)],
    )
    block[tuple(slice(len(r)) for r in inside)] = elements(name, inside, [extents[mode] for mode in term])
    return block


def _check(kernel: Kernel, extents: dict[str, int], strategy: str) -> None:
    """:raises ValueError: If no grids fit the ranks, or stock DaCe would hang, whose blocks must divide the tensor."""
    for grid in kernel.grids:
        if WORLD.size not in PARTS[grid]:
            raise ValueError(f"programs by hand need one of {', '.join(map(str, PARTS[grid]))} ranks, got {WORLD.size}")
        for mode, parts in zip(grid, PARTS[grid][WORLD.size], strict=True):
            if strategy == STOCK and extents[mode] % parts:
                raise ValueError(
                    f"stock DaCe needs lengths that are multiples of {parts}, got {mode} = {extents[mode]}"
                )

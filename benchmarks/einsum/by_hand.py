"""Kernels distributed by hand as Deinsum does it, with the redistributions of stock DaCe or of this package."""

import math
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

import numpy as np
from dace.frontend.common import op_repository
from dace.frontend.python.replacements import mpi as dace_mpi
from deinsum import GRIDS as PARTS
from einsum_cases import elements
from mpi4py import MPI
from text_program import TextProgram

WORLD = MPI.COMM_WORLD
STOCK = "stock"


@op_repository.replaces("dace.comm.Reduce")
def _reduce(pv, sdfg, state, buffer, op, root=0, grid=None):
    """
    Take an ``MPI.Op`` in ``dace.comm.Reduce``, as ``dace.comm.Allreduce`` does.

    DaCe 2.0.0b1 accepts no operator there: neither ``MPI.SUM`` nor a string literal (it stays a ``StringLiteral``).
    """
    return dace_mpi._Reduce(pv, sdfg, state, buffer, dace_mpi._mpi4py_to_MPI(MPI, op), root, grid)


@dataclass(frozen=True)
class Step:
    """
    Product of two tensors on a process grid of its own.

    :param left: Modes of the first one, one letter each, in its order.
    :param right: Modes of the second one; the last of them is the last one of the result.
    :param result: Modes of the result.
    :param grid: Modes that the axes of the process grid split.
    """

    left: str
    right: str
    result: str
    grid: str

    @property
    def summed(self) -> str:
        """The mode that is summed over."""
        return next(mode for mode in self.left if mode not in self.result)


#: Steps by kernel. Modes of partial results are in Deinsum's order.
KERNELS = {
    "mm2": (Step("ij", "jk", "ik", "ijk"), Step("ik", "kl", "il", "ikl")),
    "mm3": (Step("ij", "jk", "ik", "ijk"), Step("kl", "lm", "km", "klm"), Step("ik", "km", "im", "ikm")),
    "ttmc": (
        Step("ijklm", "me", "ijkle", "ijklme"),
        Step("ijkle", "ld", "eijkd", "ijklde"),
        Step("eijkd", "kc", "deijc", "ijkcde"),
        Step("deijc", "jb", "cdeib", "ijbcde"),
    ),
}


def operands(steps: tuple[Step, ...]) -> dict[str, int]:
    """Return the modes of each operand, which name it, and the step that takes it."""
    results = {step.result for step in steps}
    return {term: n for n, step in enumerate(steps) for term in (step.left, step.right) if term not in results}


def values(steps: tuple[Step, ...], extents: dict[str, int], ranks: int) -> dict[str, int]:
    """Return the symbols of a program: ``Ni``: extent of mode i; ``Pi1``: parts on grid 1; ``Li1``: a block."""
    found = {f"N{mode}": extent for mode, extent in extents.items()}
    for n, step in enumerate(steps):
        for mode, parts in zip(step.grid, PARTS[step.grid][ranks], strict=True):
            found |= {f"P{mode}{n}": parts, f"L{mode}{n}": math.ceil(extents[mode] / parts)}
    return found


def program_text(name: str, steps: tuple[Step, ...]) -> str:
    """Return a program of stock DaCe, in which ``ik_1`` is the tensor ``ik`` on the grid of step 1."""
    symbols = sorted(values(steps, dict.fromkeys("".join(step.grid for step in steps), 1), 1))
    arguments = [f"{term}_{n}: dace.float64[{_local(term, n)}]" for term, n in operands(steps).items()]
    made_by = {step.result: n for n, step in enumerate(steps)}
    lines = []
    for n, step in enumerate(steps):
        lines.append(f"grid{n} = dace.comm.Cart_create([{', '.join(f'P{mode}{n}' for mode in step.grid)}])")
        for term in (step.left, step.right):
            if term in made_by:
                lines += _redistribution(term, (made_by[term], steps[made_by[term]].grid), (n, step.grid))
        lines += _product(step, n)
        lines.append(_sub_grid("reduce", (n, step.grid), set(step.grid) - set(step.result)))
        if n < len(steps) - 1:
            lines.append(f"dace.comm.Reduce({step.result}_{n}, MPI.SUM, grid=reduce{n})")
        else:
            lines.append(f"dace.comm.Allreduce(MPI.IN_PLACE, {step.result}_{n}, MPI.SUM, grid=reduce{n})")
            lines.append(f"return {step.result}_{n}")
    head = "import dace\nimport numpy as np\nfrom mpi4py import MPI\n\n"
    head += f"{', '.join(symbols)} = (dace.symbol(name, dace.int64) for name in {symbols})"
    return "\n    ".join([f"{head}\n\n@dace.program\ndef {name}({', '.join(arguments)}):", *lines])


def _local(term: str, n: int) -> str:
    return ", ".join(f"L{mode}{n}" for mode in term)


def _sub_grid(name: str, grid: tuple[int, str], modes: Collection[str], more: str = "") -> str:
    n, axes = grid
    return f"{name}{n} = dace.comm.Cart_sub(grid{n}, {[mode in modes for mode in axes]}{more})"


def _redistribution(term: str, source: tuple[int, str], target: tuple[int, str]) -> list[str]:
    """Return lines that bring a reduced tensor to another grid, and to its replicas there."""
    lines = []
    for name, grid in ((f"{term}_source", source), (f"{term}_target", target)):
        kept = [mode for mode in grid[1] if mode in term]
        dims = tuple(map(kept.index, term))
        shapes = f"({', '.join(f'N{mode}' for mode in term)}), ({_local(term, grid[0])})"
        lines.append(_sub_grid(f"{name}_grid", grid, term, ", exact_grid=0"))
        lines.append(f"{name} = dace.comm.Subarray({shapes}, dace.float64, {name}_grid{grid[0]}, {dims})")
    before, after = f"{term}_{source[0]}", f"{term}_{target[0]}"
    return [
        *lines,
        f"{after} = np.zeros(({_local(term, target[0])}), np.float64)",
        f"dace.comm.Redistribute({before}, {term}_source, {after}, {term}_target)",
        _sub_grid(f"{term}_bcast", target, set(target[1]) - set(term)),
        f"dace.comm.Bcast({after}, grid={term}_bcast{target[0]})",
    ]


def _product(step: Step, n: int) -> list[str]:
    """Return loops that walk rows; DaCe's own expansion without a BLAS is 100 times slower."""
    last, outer = step.right[-1], [mode for mode in step.left if mode != step.summed]
    left, right, result = (f"{term}_{n}[{', '.join(term)}]" for term in (step.left, step.right, step.result))
    return [
        f"{step.result}_{n} = np.zeros(({_local(step.result, n)}), np.float64)",
        f"for {', '.join(outer)} in dace.map[{', '.join(f'0:L{mode}{n}' for mode in outer)}]:",
        f"    for {step.summed} in range(L{step.summed}{n}):",
        f"        for {last} in dace.map[0:L{last}{n}]:",
        f"            {result} += {left} * {right}",
    ]


class ByHand:
    """
    A kernel distributed by hand, built and with its operands. Collective.

    :param name: The kernel, one of :data:`KERNELS`.
    :param extents: Length of every mode.
    :param strategy: Strategy of its redistributions, or ``"stock"``.
    :raises ValueError: If the program does not fit the number of ranks or the extents.
    """

    def __init__(self, name: str, extents: dict[str, int], strategy: str) -> None:
        self._steps, self._extents = KERNELS[name], extents
        _check(self._steps, extents, strategy)
        symbols, last = values(self._steps, extents, WORLD.size), len(self._steps) - 1
        text = program_text(name, self._steps)
        self._program = TextProgram(name, text, symbols, None if strategy == STOCK else strategy)
        self.result = np.zeros([symbols[f"L{mode}{last}"] for mode in self._steps[last].result])
        self._arrays = {f"{term}_{n}": self._block(term, n) for term, n in operands(self._steps).items()}
        self._arrays["__return"] = self.result

    def __call__(self) -> None:
        """Run the kernel."""
        self._program.run(self._arrays)

    def error(self) -> float:
        """Return the largest relative error of the last result. Collective; each rank computes its block by NumPy."""
        last = len(self._steps) - 1
        modes, blocks = self._steps[last].result, self._ranges(last)
        ranges = {m: blocks[m] if m in modes else range(extent) for m, extent in self._extents.items()}
        terms = operands(self._steps)
        whole = [elements(term, [ranges[m] for m in term], [self._extents[m] for m in term]) for term in terms]
        expected = np.einsum(f"{','.join(terms)}->{modes}", *whole, optimize="optimal")
        got = self.result[tuple(map(slice, expected.shape))]
        error = float(np.max(abs(got - expected) / expected)) if expected.size else 0.0
        return max(WORLD.allgather(error if np.isfinite(error) else np.inf))

    def _ranges(self, n: int) -> dict[str, range]:
        """Return this rank's indices of every mode on the grid of a step."""
        grid = self._steps[n].grid
        parts = PARTS[grid][WORLD.size]
        found = {}
        for mode, count, at in zip(grid, parts, np.unravel_index(WORLD.rank, parts), strict=True):
            extent = self._extents[mode]
            each = math.ceil(extent / count)
            found[mode] = range(min(int(at) * each, extent), min((int(at) + 1) * each, extent))
        return found

    def _block(self, term: str, n: int) -> np.ndarray:
        """Return this rank's block of an operand; zero where it passes the end of the tensor."""
        inside = [self._ranges(n)[mode] for mode in term]
        sizes = values(self._steps, self._extents, WORLD.size)
        block = np.zeros([sizes[f"L{mode}{n}"] for mode in term])
        block[tuple(slice(len(r)) for r in inside)] = elements(term, inside, [self._extents[mode] for mode in term])
        return block


def _check(steps: tuple[Step, ...], extents: dict[str, int], strategy: str) -> None:
    """:raises ValueError: If no grids fit the ranks, or stock DaCe would hang, whose blocks must divide the tensor."""
    for grid in (step.grid for step in steps):
        if WORLD.size not in PARTS[grid]:
            raise ValueError(f"programs by hand need one of {', '.join(map(str, PARTS[grid]))} ranks, got {WORLD.size}")
        for mode, parts in zip(grid, PARTS[grid][WORLD.size], strict=True):
            if strategy == STOCK and extents[mode] % parts:
                raise ValueError(f"stock DaCe needs multiples of {parts} as lengths, got {mode} = {extents[mode]}")

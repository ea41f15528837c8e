"""Sizes of the kernels, and operands that every rank can compute."""

import functools
import unittest.mock
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import einsum_kernels as programs
import numpy as np
from deinsum import kernels
from deinsum_kernels import KERNELS

PRESETS = ("S", "M", "weak", "paper")
SLAB = 1 << 24  # elements of an operand that are made at once
SYMBOLS = {"IJKLMOW": 0, "PQRTV": 1}  # which of a case's two lengths a symbol is


@dataclass(frozen=True)
class EinsumCase:
    """
    A kernel and its sizes, as two lengths: tensor modes and factor ranks, or occupied and virtual orbitals.

    :param program: The ``@dace.program``.
    :param small: Lengths of preset S: well below a second on two cores.
    :param medium: Lengths of preset M: seconds.
    :param indices: Number of indices whose product is its work: weak scaling keeps the work per rank.
    :param published: Deinsum's kernel of these sizes, see ``benchmarks/einsum/deinsum.json``.
    :param shift: Number subtracted from operands, whose elements are otherwise in (0, 1]: without it the first singular
        vectors of a tensor dominate, and Gram matrices are nearly singular.
    :param paper: Else: number of ranks and lengths in Irmler et al., Node-Aware Processor Grids, table 2.
    """

    program: Callable
    small: tuple[int, ...]
    medium: tuple[int, ...]
    indices: int
    published: str | None = None
    shift: float = 0.0
    paper: tuple[int, tuple[int, ...]] | None = None

    @property
    def name(self) -> str:
        return self.program.f.__name__

    def sizes(self, preset: str, ranks: int) -> dict[str, int]:
        """
        Values of the program's symbols.

        :param preset: ``S``, ``M``, ``weak`` (S on one rank, the same work per rank on more) or ``paper``.
        """
        lengths = self._lengths(preset, ranks)
        return {name: lengths[at] for name in self.symbols for group, at in SYMBOLS.items() if name in group}

    @property
    def symbols(self) -> list[str]:
        return sorted({str(n) for annotation in self.program.f.__annotations__.values() for n in annotation.shape})

    def operand(self, name: str, indices: Sequence[Any], shape: Sequence[int], xp: Any = np) -> Any:
        """Return a part of an operand, see :func:`elements`, made in slabs to save memory."""
        made = xp.empty([len(along) for along in indices])
        rows = max(1, SLAB // max(1, made.size // max(1, len(made))))
        for first in range(0, len(made), rows):
            slab = [indices[0][first : first + rows], *indices[1:]]
            made[first : first + rows] = elements(name, slab, shape, xp) - self.shift
        return made

    def _lengths(self, preset: str, ranks: int) -> tuple[int, ...]:
        if preset in ("S", "M"):
            return self.small if preset == "S" else self.medium
        if preset == "weak":
            return self._grown(self.small, ranks)
        if self.published is None:
            if self.paper is None:
                raise ValueError(f"{self.name} has no sizes in a paper: take another preset")
            return self._grown(self.paper[1], ranks / self.paper[0])
        lengths = kernels()[self.published].lengths
        return lengths.get(ranks) or self._grown(lengths[1], ranks)

    def _grown(self, lengths: tuple[int, ...], ratio: float) -> tuple[int, ...]:
        return tuple(max(1, round(length * ratio ** (1 / self.indices))) for length in lengths)


_MM = {"small": (1024,), "medium": (2048,), "indices": 3}
_ORDER_3 = {"small": (192, 24), "medium": (400, 32), "indices": 4}
_ORDER_5 = {"small": (24, 12), "medium": (36, 16), "indices": 6}
_ORBITALS = {"small": (12, 48), "medium": (16, 96), "indices": 6, "paper": (32 * 72, (116, 1161))}

_OF_DEINSUM = zip(KERNELS, [_MM] * 3 + [_ORDER_3] * 3 + [_ORDER_5] * 4, kernels(), strict=True)
CASES = {
    case.name: case
    for case in (
        *(EinsumCase(kernel, **lengths, published=name) for kernel, lengths, name in _OF_DEINSUM),
        EinsumCase(programs.snapshots, small=(96, 16), medium=(200, 32), indices=5),
        EinsumCase(programs.rings, **_ORBITALS),
        EinsumCase(programs.ladder, **_ORBITALS),
        EinsumCase(programs.tucker, **_ORDER_3, published="MTTKRP-O3-M0", shift=0.5),
        EinsumCase(programs.cp, **_ORDER_3, published="MTTKRP-O3-M0", shift=0.5),
    )
}

#: Names of the kernels of Deinsum.
DEINSUM = [kernel.f.__name__ for kernel in KERNELS]


def elements(name: str, indices: Sequence[Any], shape: Sequence[int], xp: Any = np) -> Any:
    """
    Return elements of an operand in (0, 1], a hash of their global index: any rank can make any part.

    :param name: Name of the operand.
    :param indices: Global indices wanted along each axis.
    :param shape: Its global shape.
    :param xp: NumPy, or CuPy for elements on a GPU.
    """
    position = xp.asarray(sum(map(ord, name)), np.uint64)
    for along, extent in zip(xp.ix_(*(xp.asarray(np.asarray(i, np.uint64)) for i in indices)), shape, strict=True):
        position = position * np.uint64(extent) + along
    bits = position * np.uint64(0x9E3779B97F4A7C15)  # Fibonacci hashing, then a xor-shift and multiply
    bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return ((bits >> np.uint64(11)) + np.uint64(1)) / 2.0**53


def everything(shape: Sequence[int]) -> list[range]:
    """Return the indices of all elements."""
    return [range(extent) for extent in shape]


def numpy_result(program: Callable, operands: dict[str, np.ndarray]) -> Any:
    """
    Return NumPy's result of a program; operands that the program writes in place are changed.

    Einsums of more than two operands are evaluated in pairs, which is not NumPy's default.
    """
    pairwise = functools.partial(np.einsum, optimize="greedy")
    with unittest.mock.patch.object(np, "einsum", pairwise):
        return program.f(**operands)

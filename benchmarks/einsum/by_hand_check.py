"""Operands of kernels distributed by hand, and checks against NumPy. An element follows from its global index."""

import math

import numpy as np
from by_hand_kernel import WORLD, Kernel
from mpi4py import MPI


def values(name: str, ranges: list[range], extents: list[int]) -> np.ndarray:
    """Return elements in (0, 1] of an operand, a hash of their global index; zero where ``ranges`` pass ``extents``."""
    values = np.zeros([len(indices) for indices in ranges])
    valid = [_clip(indices, extent) for indices, extent in zip(ranges, extents, strict=True)]
    rest = np.uint64(0)  # global index but for the first mode
    for position, extent in zip(np.ix_(*(np.array(v, np.uint64) for v in valid[1:])), extents[1:], strict=True):
        rest = rest * np.uint64(extent) + position
    inside = tuple(slice(len(v)) for v in valid[1:])
    for row, first in enumerate(valid[0]):  # row by row, because the temporaries are as large as what they compute
        bits = (rest + np.uint64(sum(map(ord, name)) + first * math.prod(extents[1:]))) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
        values[row][inside] = ((bits >> np.uint64(11)) + np.uint64(1)) / 2.0**53
    return values


def _clip(indices: range, extent: int) -> range:
    return range(min(indices.start, extent), min(indices.stop, extent))


def operands(kernel: Kernel, extents: dict[str, int]) -> dict[str, np.ndarray]:
    """Return this rank's block of each operand."""
    arrays = {}
    for name, (modes, grid) in kernel.operands.items():
        block = kernel.blocks(grid, WORLD.rank, extents)
        arrays[name] = values(name, [block[mode] for mode in modes], [extents[mode] for mode in modes])
    return arrays


def relative_errors(kernel: Kernel, results: list[np.ndarray], extents: dict[str, int]) -> list[float]:
    """Return the maximum relative error of each result; NumPy computes blocks, a slab of the first mode at a time."""
    modes, grid = kernel.result
    block = {mode: _clip(r, extents[mode]) for mode, r in kernel.blocks(grid, WORLD.rank, extents).items()}
    ranges = {mode: block[mode] if mode in modes else range(extent) for mode, extent in extents.items()}
    results = [result[tuple(slice(len(ranges[mode])) for mode in modes)] for result in results]
    inputs, axis = kernel.einsum.split("->")[0], modes.index("i")
    largest = max(math.prod(len(ranges[m]) for m in term.replace("i", "")) for term in inputs.split(","))
    step, errors = max(1, 2**24 // max(1, largest)), np.zeros(len(results))
    for lo in range(0, len(ranges["i"]), step):
        slab = ranges | {"i": ranges["i"][lo : lo + step]}
        terms = [
            values(name, [slab[m] for m in term], [extents[m] for m in term])
            for (name, (term, _)) in kernel.operands.items()
        ]
        expected = np.einsum(f"{inputs}->{modes}", *terms, optimize="optimal")
        for number, result in enumerate(results if expected.size else []):
            error = np.abs(result.take(range(lo, lo + len(slab["i"])), axis) - expected) / expected
            errors[number] = max(errors[number], np.nan_to_num(error, nan=np.inf).max())
    WORLD.Allreduce(MPI.IN_PLACE, errors, MPI.MAX)
    return errors.tolist()

"""Stock DaCe's own redistribution as users write it, compiled: the baseline of the benchmark."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
from text_program import TextProgram

from dace_redist.distribution import AnyDistribution, Distribution
from redistribution.catalogue import Case

#: The program, as a user of DaCe writes it. A process grid is a sub-grid of the whole one.
_SOURCE = """\
import dace

{symbols} = (dace.symbol(name, dace.int64) for name in "{symbols}".replace(",", "").split())


@dace.program
def stock(source: dace.{dtype}[{source_extents}], target: dace.{dtype}[{target_extents}]):
    source_whole = dace.comm.Cart_create([{source_grid}])
    source_grid = dace.comm.Cart_sub(source_whole, {source_kept}, exact_grid=0)
    before = dace.comm.Subarray(({extents},), source, process_grid=source_grid, correspondence={source_dims})
    target_whole = dace.comm.Cart_create([{target_grid}])
    target_grid = dace.comm.Cart_sub(target_whole, {target_kept}, exact_grid=0)
    after = dace.comm.Subarray(({extents},), target, process_grid=target_grid, correspondence={target_dims})
    dace.comm.Redistribute(source, before, target, after)
"""


def why_not(case: Case) -> str | None:
    """Return the reason why stock DaCe cannot express a case; None if it can."""
    if not case.is_whole:
        return "stock DaCe takes whole arrays in C order only"
    for side, distribution in (("source", case.source), ("target", case.target)):
        reason = _why_not(distribution)
        if reason:
            return f"stock DaCe {reason} (its {side})"
    return None


def _why_not(distribution: AnyDistribution) -> str | None:
    if not isinstance(distribution, Distribution):
        return "knows no tiles"
    if distribution.ranks is not None:
        return "numbers ranks row by row only"
    if any(pin not in (None, 0) for pin in distribution.pins):
        return "is used with the sub-grid of rank 0 only"
    kept = {axis for axis, pin in enumerate(distribution.pins) if pin is None}
    if kept != {axis for axis in distribution.dims if axis is not None}:
        return "knows no replicas"
    if None in distribution.dims:
        return "needs a grid axis for every tensor axis"
    for extent, block, axis in zip(distribution.shape, distribution.block, distribution.dims, strict=True):
        parts = 1 if axis is None else distribution.grid[axis]
        if extent % parts or block not in ("ceil", "balanced", extent // parts):
            return "knows only blocks of one size, one each"
    return None


class Stock:
    """
    A case as a compiled stock program. Making and freeing it is collective over the world.

    :raises ValueError: On every rank, if stock DaCe cannot express the case.
    """

    def __init__(self, case: Case) -> None:
        if reason := why_not(case):
            raise ValueError(reason)
        self._program = TextProgram("stock", _text(case), _values(case))
        self.free = self._program.free

    def run(self, source: npt.NDArray[Any], target: npt.NDArray[Any]) -> None:
        """Redistribute. Collective over the ranks of the case."""
        self._program.run({"source": source, "target": target})


def _sides(case: Case) -> tuple[tuple[str, Distribution], tuple[str, Distribution]]:
    assert isinstance(case.source, Distribution) and isinstance(case.target, Distribution)
    return ("source", case.source), ("target", case.target)


def _names(prefix: str, count: int) -> str:
    return ", ".join(f"{prefix}{i}" for i in range(count))


def _text(case: Case) -> str:
    words: dict[str, str] = {"dtype": str(case.dtype), "extents": _names("N", len(case.shape))}
    for side, distribution in _sides(case):
        letter = side[0].upper()
        kept = [axis for axis, pin in enumerate(distribution.pins) if pin is None]
        words[f"{side}_extents"] = _names(f"{letter}L", len(case.shape))
        words[f"{side}_grid"] = _names(f"{letter}P", len(distribution.grid))
        words[f"{side}_kept"] = str([pin is None for pin in distribution.pins])
        words[f"{side}_dims"] = str(tuple(kept.index(axis) for axis in distribution.dims if axis is not None))
    lists = ["extents", *(f"{side}_{what}" for side in ("source", "target") for what in ("extents", "grid"))]
    words["symbols"] = ", ".join(words[name] for name in lists)
    return _SOURCE.format(**words)


def _values(case: Case) -> dict[str, int]:
    """Return the values of the program's symbols."""
    values = {f"N{i}": n for i, n in enumerate(case.shape)}
    for side, distribution in _sides(case):
        letter = side[0].upper()
        for i, (extent, axis) in enumerate(zip(case.shape, distribution.dims, strict=True)):
            values[f"{letter}L{i}"] = extent // (1 if axis is None else distribution.grid[axis])
        values |= {f"{letter}P{i}": parts for i, parts in enumerate(distribution.grid)}
    return values

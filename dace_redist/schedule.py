"""Schedules of redistributions. Start reading at: schedule."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from dace_redist import _core
from dace_redist.distribution import AnyDistribution, BoxDistribution, check_distribution
from dace_redist.integers import AnyInts, AnyNumber, checked_reshape
from dace_redist.report.replay import Replayed, Step
from dace_redist.traffic import Traffic
from dace_redist.transform import Transform


class Schedule(Traffic, Replayed):
    """Messages that turn one distribution into another, made by :func:`schedule`, and what shows them."""

    @staticmethod
    def joined(tensors: Sequence[Schedule]) -> Schedule:
        """
        Return the schedule of tensors that move in one exchange, joined for each pair of ranks, as by ``Pack``.

        :raises ValueError: If there are none, or as of :class:`dace_redist.traffic.Traffic`.
        """
        if not tensors:
            raise ValueError("Schedule: needs at least one tensor")
        first, *others = tensors
        return dataclasses.replace(first, others=tuple(others)) if others else first

    def inverse(self) -> Schedule:
        """Return the schedule of the way back; errors as of :meth:`dace_redist.Plan.inverse`."""
        self._check_single()
        return Schedule(self.target, self.source, self.transform.inverse(self.source.shape))

    def adjoint(self, *, source_partial: bool = True, target_partial: bool = True) -> Schedule:
        """Return the schedule of the adjoint; see :meth:`dace_redist.Plan.adjoint`."""
        self._check_single()
        if any((*self.source.halo, *self.target.halo)):
            raise ValueError(
                "adjoint: gradients in a halo take exchanges of their own, which a schedule does not have: take "
                "Plan.adjoint, or distributions without halo"
            )
        try:
            shares = self.source.replicas if source_partial and not self.reduces else 1
            reduces = target_partial and self.target.replicas > 1
        except ValueError as error:  # of boxes
            raise ValueError(
                f"adjoint: {error}; if all that hold an element have one gradient, pass source_partial=False or "
                "target_partial=False"
            ) from None
        return Schedule(self.target, self.source, self.transform.adjoint(self.source.shape, shares, reduces))

    def __str__(self) -> str:
        """Return the report: messages, bytes, run lengths, the busiest rank, the share that stays local."""
        from dace_redist.report import text

        return text.text(self)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain numbers, lists and dictionaries."""
        from dace_redist.report import as_json

        return as_json.to_json(self)

    def plot(self, path: str | Path) -> None:
        """
        Draw the owners in source and target, of the first tensor, and the volumes between ranks.

        :param path: File to write; its ending says the format: .png, .svg or .pdf.
        :raises ValueError: If the format is unknown.
        :raises FileNotFoundError: If the folder does not exist.
        """
        from dace_redist.report import canvas, figure

        canvas.save(lambda: figure.draw(self), path)

    def steps(self) -> tuple[int, list[Step]]:
        """Return the number of ranks, and the one step of the exchange."""
        return self.ranks, [Step(self)]


def schedule(
    source: AnyDistribution,
    target: AnyDistribution,
    dtype: npt.DTypeLike = "float64",
    *,
    axes: AnyInts | None = None,
    region: Sequence[AnyInts] | None = None,
    target_dtype: npt.DTypeLike | None = None,
    alpha: AnyNumber = 1,
    beta: AnyNumber = 0,
    conj: bool = False,
    op: str | None = None,
    reshape: AnyInts | None = None,
    wire: npt.DTypeLike | None = None,
    within_nodes: bool = False,
    accumulate: npt.DTypeLike | None = None,
    reproducible: bool = False,
) -> Schedule:
    """
    Return the messages that turn one distribution into another. Local; needs no MPI.

    Parameters that are not listed here are those of :func:`dace_redist.plan`.

    :param source, target, dtype: See :func:`dace_redist.plan`.
    :raises TypeError: If source or target is not a distribution, or a type has no fixed size or is not computed with.
    :raises ValueError: If an argument is invalid, or a size is a symbol.
    """
    for name, distribution in (("source", source), ("target", target)):
        check_distribution(name, distribution)
    reshape = checked_reshape(reshape, target.shape)
    operation = target_dtype, axes, region, alpha, beta, conj, op, reshape, wire, within_nodes, accumulate, reproducible
    change = Transform(len(source.shape), dtype, *operation)  # type: ignore[arg-type]
    check_shapes(source, target, change)
    if op is not None and isinstance(source, BoxDistribution):
        raise ValueError(
            "op reduces replicas of a Distribution; overlapping boxes of a source hold equal elements: describe "
            "partial results by a grid axis that no tensor axis names"
        )
    if (accumulate is not None or reproducible) and isinstance(target, BoxDistribution) and any(target.halo):
        raise ValueError(
            "accumulate and reproducible need a target without halo where it is in boxes, which may not hold the "
            "elements of the margins: exchange the halo afterwards"
        )
    return Schedule(source, target, change)


def check_shapes(source: AnyDistribution, target: AnyDistribution, change: Transform) -> None:
    """
    Check axes, region and reshape against the shapes of both distributions, all of which are numbers.

    :raises ValueError: If they do not fit.
    """
    _core.check_index_map(source.core, target.core, change.encoded)

"""Checks of the arrays of a call against a problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dace_redist.redistribution.arrays import PLACES, ArrayView, Views
from dace_redist.redistribution.problem import Problem
from dace_redist.schedule import Schedule
from dace_redist.transform import COMPUTED_TYPES


def check_arrays(problem: Problem, views: Views, rank: int, new: bool = False) -> None:
    """
    Check that arrays are this rank's parts of the tensors, targets writeable and apart from all others.

    :param new: True if the targets are new arrays, which must be fully defined.
    """
    for number, tensor in enumerate(problem.tensors):
        sides = (
            ("array", views.sources[number], tensor.source, tensor.dtype),
            ("out", views.targets[number], tensor.target, tensor.target_dtype),
        )
        for side, view, distribution, dtype in sides[: 1 if new else 2]:
            name = views.name(side, number, problem.lists)
            check_part(name, view, tuple(distribution.core.local_shape(rank)), dtype, rank)
        if new:
            check_covered(tensor, tensor.target.core.local_shape(rank))
    _check_apart(views, problem)


def check_devices(problem: Problem, views: Views) -> None:
    """Check that arrays lie on the devices of a problem; with one on a GPU, that strides are regular."""
    for side, parts, device in zip(("array", "out"), views, problem.device, strict=True):
        for number, view in enumerate(parts):
            name = views.name(side, number, problem.lists)
            if view is None or view.size == 0:
                continue
            if view.device != device:
                raise ValueError(
                    f"{name} must lie {PLACES[device]}, for which the plan was made, but lies {PLACES[view.device]}"
                )
            if problem.on_gpu and not view.is_plain:
                raise ValueError(
                    f"{name} has strides {view.strides}, which do not count elements forward: copy it first"
                )


def _check_apart(views: Views, problem: Problem) -> None:
    lists = problem.lists
    for number, target in enumerate(views.targets):
        if target is None:
            continue
        name = views.name("out", number, lists)
        target.check_writeable(name)
        for side, others in (("array", views.sources), ("out", views.targets[:number])):
            for other, view in enumerate(others):
                in_place = side == "array" and other == number and problem.tensors[number].exchanges_halo
                if view is not None and view.overlaps(target) and not (in_place and view.is_same_as(target)):
                    raise ValueError(
                        f"{views.name(side, other, lists)} and {name} overlap; a tensor cannot be redistributed in "
                        "place, except to its own distribution with a halo and in the same array"
                    )


def check_part(name: str, view: ArrayView | None, shape: tuple[int, ...], dtype: np.dtype[Any], rank: int) -> None:
    """Check shape and element type of this rank's part of a tensor."""
    empty = 0 in shape and (view is None or view.size == 0)
    if not empty and (view is None or view.shape != shape):
        given = "None" if view is None else f"shape {view.shape}"
        raise ValueError(f"{name} must have the shape {shape} that rank {rank} owns of the tensor, got {given}")
    if view is not None and view.dtype != dtype:
        converts = name.startswith("out") and {str(dtype), str(view.dtype)} <= {*COMPUTED_TYPES}
        hint = f"; target_dtype=numpy.{view.dtype} converts on the way" if converts else ""
        raise TypeError(f"{name} must hold {dtype}, got {view.dtype}{hint}")


def check_covered(tensor: Schedule, shape: Sequence[int]) -> None:
    """Check that a redistribution defines all elements of a new array of a shape."""
    if 0 in shape:  # as on ranks that own nothing of the target
        return
    if tensor.transform.beta != 0:
        raise ValueError("beta needs the array whose elements it scales: pass it as out")
    if not tensor.transform.covers(tensor.target.shape):
        raise ValueError("region leaves a part of the target as it is: pass the array that has it as out")

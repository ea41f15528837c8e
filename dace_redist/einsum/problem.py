"""Checked arguments of the planner."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

from dace_redist.distribution import AnyDistribution
from dace_redist.einsum.groupings import EinsumStep
from dace_redist.einsum.placement import Given, Home, home_of
from dace_redist.einsum.statement import Statement
from dace_redist.integers import checked_nbytes


@dataclasses.dataclass
class EinsumProblem:
    """
    Checked arguments of :func:`plan_einsums`.

    :raises ValueError: If an argument is invalid; names the statement or the tensor.
    """

    statements: tuple[Statement, ...]
    shapes: Mapping[str, tuple[int, ...]]
    ranks: int
    itemsize: int = 8
    memory_bytes: int | None = None
    node_size: int | None = None
    placements: Mapping[str, Home | AnyDistribution] = dataclasses.field(default_factory=dict)
    outputs: Sequence[str] | None = None
    overrides: Mapping[str | int, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    optimize: Any = "auto"

    def __post_init__(self) -> None:
        for name in ("ranks", "itemsize", "node_size"):
            value: int | None = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, Integral) or value < 1):
                raise ValueError(f"plan_einsums: {name} must be an integer of at least 1, got {value!r}")
        if not self.statements:
            raise ValueError("plan_einsums: there are no statements to plan")
        #: Shape of every tensor.
        self.sizes = {name: tuple(int(size) for size in shape) for name, shape in self.shapes.items()}
        #: Size of every index of each statement.
        self.extents: list[dict[str, int]] = []
        for statement in self.statements:
            self.extents.append(statement.extents(self.sizes))
            self.sizes[statement.result] = tuple(self.extents[-1][index] for index in statement.einsum.result)
        for name, shape in self.sizes.items():
            checked_nbytes(name, shape, self.itemsize)
        #: Homes that the user gives.
        self.homes = {name: self._home(name, given) for name, given in self.placements.items()}
        #: Names of the tensors needed at the end.
        self.wanted = self._wanted()

    @property
    def tensors(self) -> list[str]:
        """Names of all tensors of the program."""
        return list(dict.fromkeys(name for s in self.statements for name in (*s.operands, *s.at_home, s.result)))

    def _home(self, name: str, given: Home | AnyDistribution) -> Home:
        """Return the user's home of a tensor, checked."""
        if name not in self.tensors:
            raise ValueError(f"placements: no tensor is called {name!r}; choose from {', '.join(self.tensors)}")
        home, shape = home_of(given), self.sizes[name]
        if isinstance(home, Given):
            if getattr(home.whole, "is_symbolic", False):
                raise ValueError(f"placements: {name!r} needs a distribution of sizes in numbers, got {home.whole}")
            last = home.whole.ranks_needed - 1
            if tuple(home.whole.shape[axis] for axis in home.axes) != shape:
                raise ValueError(f"placements: {name!r} has shape {shape}, its distribution {home.whole.shape}")
        else:
            last = max(home.ranks)
            if len(home.dims) != len(shape):
                raise ValueError(f"placements: {name!r} has {len(shape)} axes, its placement {len(home.dims)}")
        if last >= self.ranks:
            raise ValueError(f"placements: {name!r} lies on rank {last}, but there are only {self.ranks} ranks")
        return home

    def _wanted(self) -> tuple[str, ...]:
        results = dict.fromkeys(s.result for s in self.statements)
        if self.outputs is None:
            later = [(n, name) for n, s in enumerate(self.statements) for name in s.operands]
            last = {s.result: n for n, s in enumerate(self.statements)}
            return tuple(r for r in results if not any(name == r and n > last[r] for n, name in later))
        for name in self.outputs:
            if name not in results:
                raise ValueError(f"outputs: no statement writes {name!r}; written are {', '.join(results)}")
        return tuple(self.outputs)

    def override(self, step: EinsumStep) -> dict[str, int] | None:
        """Return the user's grid for a step, as number of parts by index; None if the user leaves it free."""
        if step.result in self.overrides:
            return dict(self.overrides[step.result])
        if step.statement in self.overrides:
            given = self.overrides[step.statement]
            return {index: parts for index, parts in given.items() if index in step.einsum.indices}
        return None

    def check_overrides(self, steps: Sequence[EinsumStep]) -> None:
        """
        Check the user's grids against the steps.

        :raises ValueError: If a name, an index or a number of parts is invalid.
        """
        results = [step.result for step in steps]
        for key in self.overrides:
            if key not in results and not (isinstance(key, int) and 0 <= key < len(self.statements)):
                raise ValueError(
                    f"overrides: {key!r} is neither the number of a statement (0 to {len(self.statements) - 1}) "
                    f"nor a tensor that is written: {', '.join(results)}"
                )
        for step in steps:
            override = self.override(step)
            if override is not None:
                self._check_grid(step, override)
        for number, statement in enumerate(self.statements):
            unknown = set(self.overrides.get(number, ())) - set(statement.einsum.indices)
            if unknown:
                raise _unknown_index(number, unknown, statement.einsum.indices)

    def _check_grid(self, step: EinsumStep, grid: Mapping[str, int]) -> None:
        einsum = step.einsum
        unknown = set(grid) - set(einsum.indices)
        if unknown:
            raise _unknown_index(step.result, unknown, einsum.indices)
        for index, parts in grid.items():
            most = 1 if index in step.whole else max(step.extents[index], 1)
            if not (isinstance(parts, Integral) and 1 <= parts <= most):
                raise ValueError(
                    f"overrides[{step.result!r}]: index {index!r} can have 1 to {most} parts, got {parts!r}"
                )
        if math.prod(grid.values()) > self.ranks:
            raise ValueError(
                f"overrides[{step.result!r}]: the grid {dict(grid)} needs {math.prod(grid.values())} ranks, "
                f"but there are {self.ranks}"
            )


def _unknown_index(key: str | int, unknown: set[str], indices: str) -> ValueError:
    return ValueError(
        f"overrides[{key!r}]: there is no index {sorted(unknown)[0]!r}; its indices are {', '.join(indices)}"
    )

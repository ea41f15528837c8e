"""
The ten kernels of Deinsum with its published sizes and grids, and the traffic of these grids.

Source: Ziogas et al., Deinsum: Practically I/O Optimal Multilinear Algebra, SC 2022, arXiv 2206.08301; the data and the
files it is from: ``deinsum.json``. ``tests/unit/test_einsum_cases.py`` compares our plans with them.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from pathlib import Path

import numpy as np

from dace_redist.einsum import Einsum, EinsumPlan, Group, Statement, plan_einsums
from dace_redist.einsum.dataflow import EinsumProgram, planned
from dace_redist.einsum.grids import given_grid
from dace_redist.einsum.groupings import contraction_trees
from dace_redist.einsum.problem import EinsumProblem


@dataclasses.dataclass(frozen=True)
class PublishedKernel:
    """
    One of the kernels.

    :param name: As in the paper.
    :param einsum: What it computes.
    :param groups: Deinsum's groups: the einsum of each, and the indices of its grid in the order of its ranks.
    :param lengths: By number of ranks: length of every tensor mode and, where there are any, rank of the factors.
    :param grids: By indices and number of ranks.
    """

    name: str
    einsum: Einsum
    groups: tuple[tuple[Einsum, str], ...]
    lengths: dict[int, tuple[int, ...]]
    grids: dict[str, dict[int, tuple[int, ...]]]

    @property
    def operands(self) -> tuple[str, ...]:
        """Names of the operands' tensors."""
        return tuple(f"{'T' if len(operand) > 2 else 'M'}_{operand}" for operand in self.einsum.operands)

    def extents(self, ranks: int) -> dict[str, int]:
        """Size of every index, in weak scaling."""
        return self.extents_of(*self.lengths[ranks])

    def extents_of(self, length: int, rank: int = 0) -> dict[str, int]:
        """Size of every index for these lengths: modes are called i to m, indices of factors a to e."""
        return {index: length if index >= "i" else rank for index in self.einsum.indices}

    def shapes(self, extents: dict[str, int]) -> dict[str, tuple[int, ...]]:
        """Shape of every operand."""
        return {
            name: tuple(extents[index] for index in operand)
            for name, operand in zip(self.operands, self.einsum.operands, strict=True)
        }

    def plan(self, ranks: int) -> EinsumPlan:
        """Our plan at the published size."""
        statement = Statement(self.einsum, self.operands, "out", self.name)
        return plan_einsums([statement], self.shapes(self.extents(ranks)), ranks)

    def published_plan(self, ranks: int) -> EinsumPlan:
        """
        A plan with Deinsum's groups and grids, and its numbering of the ranks.

        Its reductions scatter or go to one rank, whatever moves less.
        """
        program = self._published_program(ranks)
        grids = [dict(zip(indices, self.grids[indices][ranks], strict=True)) for _, indices in self.groups]
        options = [given_grid(step, grid, ranks) for step, grid in zip(program.steps, grids, strict=True)]
        found = []
        for rows in itertools.product(*(range(len(option)) for option in options)):
            numbered = zip(options, rows, self.groups, strict=True)
            groups = [_as_numbered(option.group(row), indices) for option, row, (_, indices) in numbered]
            found.append(planned(program, groups))
        return min(found, key=lambda plan: plan.bytes_per_rank)

    def _published_program(self, ranks: int) -> EinsumProgram:
        names = dict(zip(self.einsum.operands, self.operands, strict=True))
        statements: list[Statement] = []
        for einsum, _ in self.groups:
            for operand in (*einsum.operands, einsum.result):
                names.setdefault(operand, f"T_{operand}")
            operands = tuple(names[operand] for operand in einsum.operands)
            statements.append(Statement(einsum, operands, names[einsum.result], self.name))
        problem = EinsumProblem(tuple(statements), self.shapes(self.extents(ranks)), ranks)
        trees = contraction_trees(statements, problem.extents, problem.sizes)
        return EinsumProgram(problem, tuple(min(tree.groupings(), key=len)[0] for tree in trees))


def _as_numbered(group: Group, indices: str) -> Group:
    """Return the group with its ranks row-major in the given order of the indices."""
    ranks = np.arange(len(group.ranks)).reshape([group.parts[index] for index in indices])
    order = [indices.index(index) for index in group.einsum.indices]
    return group.with_ranks(ranks.transpose(order).ravel().tolist())


_DATA = json.loads(Path(__file__).with_name("deinsum.json").read_text())


def _by_ranks(table: dict[str, list[int]]) -> dict[int, tuple[int, ...]]:
    return {int(ranks): tuple(values) for ranks, values in table.items()}


#: Grid shapes, by the tensor modes that a grid splits, and by number of ranks.
GRIDS = {indices: _by_ranks(table) for indices, table in _DATA["grids"].items()}


@functools.cache
def kernels() -> dict[str, PublishedKernel]:
    """Return the ten kernels by name."""
    found = {}
    for entry in _DATA["kernels"]:
        groups = tuple((Einsum.parse(group["einsum"]), group["grid"]) for group in entry["groups"])
        lengths = _by_ranks(_DATA["sizes"][entry["sizes"]])
        own = {indices: GRIDS[indices] for _, indices in groups}
        found[entry["name"]] = PublishedKernel(entry["name"], Einsum.parse(entry["einsum"]), groups, lengths, own)
    return found

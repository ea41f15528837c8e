"""Plans for einsum programs on many ranks: order, groups, grids, and what is moved. Needs neither DaCe nor MPI."""

from __future__ import annotations

from dace_redist.einsum.expression import Einsum
from dace_redist.einsum.placement import Placement
from dace_redist.einsum.plan import Group, Move, Plan, Reduction
from dace_redist.einsum.planner import plan_einsums
from dace_redist.einsum.statement import Statement

__all__ = ["Einsum", "Group", "Move", "Placement", "Plan", "Reduction", "Statement", "plan_einsums"]

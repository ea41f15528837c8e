"""Plans for einsum programs on many ranks, and einsums of distributed arrays. Plans need neither DaCe nor MPI."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dace_redist.einsum.expression import Einsum
    from dace_redist.einsum.placement import Placement
    from dace_redist.einsum.plan import EinsumPlan
    from dace_redist.einsum.planner import plan_einsums
    from dace_redist.einsum.program import Group, Move, Reduction
    from dace_redist.einsum.statement import Statement

__all__ = ["Einsum", "EinsumPlan", "Group", "Move", "Placement", "Reduction", "Statement", "plan_einsums"]

#: Modules of the names that are not in ``program``. SciPy and opt_einsum are imported at the planner's first use.
_MODULES = {
    "Einsum": "expression",
    "EinsumPlan": "plan",
    "Placement": "placement",
    "Statement": "statement",
    "plan_einsums": "planner",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'program')}"), name)

"""Seeds and numbers of random cases, which the environment changes."""

from __future__ import annotations

import os

#: Share of the cases that a test draws: all in `make test-full` and `make fuzz`, fewest under further MPIs.
SHARE = float(os.environ.get("DACE_REDIST_SHARE", 0.35))


def seed(usual: int = 0) -> int:
    """Return ``DACE_REDIST_SEED``, or the usual seed."""
    return int(os.environ.get("DACE_REDIST_SEED", usual))


def some(cases: int) -> int:
    """Return ``DACE_REDIST_EXAMPLES``, or this run's share of a number of cases."""
    return int(os.environ.get("DACE_REDIST_EXAMPLES", round(cases * SHARE)))

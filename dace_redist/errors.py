"""Exceptions of the package."""

import contextlib
import os
from collections.abc import Iterator

#: Names of the last release that are gone, and their replacements.
REMOVED = {
    "calibrate": "use tune",
    "explain --memory": "use tune --memory",
    "explain --plot-model": "use tune",
    "explain --profile": "use tune",
    "DACE_REDIST_MACHINE": "use tune, which needs no machine profile",
    "RelabelGrid": "renumber the ranks of distributions by dace_redist.relabel",
    "simulate": "use to_smpi or to_goal of a schedule or a plan of einsums, and SimGrid",
    "strategy NCCL": "use Hierarchical",
}


def removed(name: str) -> str:
    """Return an error about a name of :data:`REMOVED`; ``""`` for any other name."""
    return f"{name} is removed: {REMOVED[name]}" if name in REMOVED else ""


class RedistributionError(Exception):
    """
    Redistribution that could not be planned or carried out.

    Raised on every rank when the ranks disagree, or when a rank's arrays do not fit; on the failing rank when a call
    of MPI fails. The text says which node, what was expected, what was given.
    """


class BuildError(RuntimeError):
    """Library of the package that could not be built; says why, and what to install."""


@contextlib.contextmanager
def naming_file(what: str, path: str | os.PathLike[str], remedy: str) -> Iterator[None]:
    """Have an OSError in the block name the file that cannot be written, and the remedy."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{what} {path} cannot be written: {error}; {remedy}") from None

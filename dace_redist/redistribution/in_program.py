"""Calls of plans in DaCe programs; ``dace_redist.library_nodes``, which needs no MPI, enters what builds their SDFG."""

from __future__ import annotations

import ast
import contextlib
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

#: Array of a call's SDFG that holds the communicator of the plan, unless that is the world.
COMMUNICATOR = "__plan_comm"

_builders: list[Callable[..., Any]] = []


def set_builder(build: Callable[..., Any]) -> Callable[..., Any]:
    """Set the function of a plan and of the descriptors of its arrays that returns the SDFG of a call; return it."""
    _builders[:] = [build]
    return build


class _Convertible:
    """Base that ``dace_redist.library_nodes`` replaces by DaCe's ``SDFGConvertible``."""


class CallableInProgram(_Convertible):
    """DaCe's interface ``SDFGConvertible`` of a plan, without importing DaCe."""

    _comm: Any
    _handle: int
    _native: Any

    @property
    def if_not_freed(self) -> CallableInProgram:
        """The plan; a ValueError if it was freed. DaCe evaluates it at each call of a program that calls the plan."""
        if self._native is None:
            raise ValueError(f"the program calls a plan that was freed: {self!r}")
        return self

    def __sdfg__(self, array: Any, out: Any = None) -> Any:
        """Return the SDFG of a call; raise a TypeError if the library nodes are not loaded."""
        if not _builders:
            raise TypeError("a plan cannot be called in this DaCe program: import dace before dace_redist")
        return _builders[0](self, array, out)

    def __sdfg_signature__(self) -> tuple[list[str], list[str]]:
        """Return the names of the arguments, and those of constants."""
        return ["array", "out"], []

    def __sdfg_closure__(self, reevaluate: dict[str, str] | None = None) -> dict[str, np.ndarray]:
        """Return the arrays that DaCe passes besides the arguments."""
        from mpi4py import MPI

        return {} if self._comm == MPI.COMM_WORLD else {COMMUNICATOR: self._communicator}

    def closure_resolver(self, constant_args: Any, given_args: Any, parent_closure: Any = None) -> Any:
        """Return the arrays of :meth:`__sdfg_closure__` with their descriptors, for the program that calls the plan."""
        from dace.data import create_datadescriptor
        from dace.frontend.python.common import SDFGClosure

        closure = SDFGClosure()
        for name, value in self.if_not_freed.__sdfg_closure__().items():
            now = functools.partial(lambda name: self.if_not_freed.__sdfg_closure__()[name], name)
            closure.closure_arrays[name] = (name, create_datadescriptor(value), now, False)
        if parent_closure is not None:  # a constant is part of the key by which DaCe finds the compiled program
            with contextlib.suppress(SyntaxError):  # of its name, which DaCe forgets without the library nodes
                call: Any = ast.parse(parent_closure.closure_sdfgs[id(self)][0], mode="eval").body
                parent_closure.closure_constants[f"{ast.unparse(call.func)}.if_not_freed"] = self
        return closure

    @functools.cached_property
    def _communicator(self) -> np.ndarray:
        return np.array([self._handle])  # no constant of the program: its value differs between ranks

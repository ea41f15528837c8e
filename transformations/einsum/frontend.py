"""Parses a program such that every ``np.einsum`` stays one node, with all its operands, as do linear systems."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import os
import re
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import dace
from dace import SDFG, SDFGState, dtypes
from dace.frontend.common import op_repository
from dace.frontend.python.newast import ProgramVisitor
from dace.frontend.python.parser import DaceProgram

from dace_redist.transformations.einsum.numpy_arrays import ARRAY_ATTRIBUTES, ARRAY_FUNCTIONS, ARRAY_METHODS
from dace_redist.transformations.einsum.numpy_differences import body_of, warn_of_names, warning_of_integers
from dace_redist.transformations.einsum.numpy_functions import METHODS, REPLACEMENTS
from dace_redist.transformations.einsum.numpy_reductions import REDUCING_METHODS, REDUCTIONS
from dace_redist.transformations.einsum.numpy_statements import PATCHES
from dace_redist.transformations.einsum.simplification import naming_invalid_statements, remove_report, simplify
from dace_redist.transformations.einsum.steps import source_line

_METHODS = METHODS | ARRAY_METHODS | REDUCING_METHODS
_DACE = os.path.join(os.path.dirname(dace.__file__), "")


def parse(program: DaceProgram) -> SDFG:
    """
    The simplified SDFG of a program, whose einsums and linear systems are nodes.

    DaCe's own frontend takes einsums apart into pairs of operands and maps, in the order in which they are written. It
    names states after lines, which tells where a node comes from as long as states are not fused.

    :param program: A ``@dace.program``.
    :raises ValueError: If a statement cannot be read; names it.
    :warns UserWarning: Where DaCe computes something else than NumPy; names the statement.
    """
    warn_of_names(program.f)
    with _own_nodes(), naming_invalid_statements(), _naming_the_statement(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Performance warning: Automatically creating callback")  # an error follows
        sdfg = program.to_sdfg(simplify=False, use_cache=False)
    file = inspect.getsourcefile(program.f) or ""
    for state in sdfg.states():
        _say_where_from(state, file)
    simplify(sdfg)
    return sdfg


def returned_names(function: Callable[..., Any]) -> dict[str, str]:
    """
    What the SDFG of a program calls the variables that it returns: ``__return``, or ``__return_0`` and so on.

    :param function: The Python function of the program.
    """
    last = body_of(function)[-1:]
    value = last[0].value if last and isinstance(last[0], ast.Return) else None
    if isinstance(value, ast.Name):
        return {value.id: "__return"}
    parts = value.elts if isinstance(value, ast.Tuple) else []
    return {part.id: f"__return_{number}" for number, part in enumerate(parts) if isinstance(part, ast.Name)}


@contextlib.contextmanager
def _own_nodes() -> Iterator[None]:
    known = op_repository.Replacements
    repositories = functions, methods, attributes = known._rep, known._method_rep, known._attr_rep
    before = [dict(repository) for repository in repositories]
    functions.update(REPLACEMENTS | ARRAY_FUNCTIONS | REDUCTIONS)
    functions.update(warning_of_integers(functions))
    kinds = ("Array", "Scalar", "View", "ArrayView")
    methods.update({(kind, name): method for kind in kinds for name, method in _METHODS.items()})
    methods.update(warning_of_integers(methods))
    attributes.update({(kind, name): own for kind in kinds for name, own in ARRAY_ATTRIBUTES.items()})
    replaced = [(kind, name, getattr(kind, name)) for kind, name, _ in PATCHES]
    try:
        for kind, name, own in PATCHES:
            setattr(kind, name, own)
        yield
    finally:
        for kind, name, own in replaced:
            setattr(kind, name, own)
        for repository, kept in zip(repositories, before, strict=True):
            repository.clear()
            repository.update(kept)


@contextlib.contextmanager
def _naming_the_statement() -> Iterator[None]:
    """DaCe prints the statement that it cannot read; here the error says it."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    except Exception as error:
        remove_report(error)
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        frames = [frame for frame in frames if isinstance(frame.f_locals.get("self"), ProgramVisitor)]
        if not frames:
            raise
        where = source_line(frames[-1].f_locals["self"].current_lineinfo)
        raise ValueError(f"{where}: {_why(error, frames[-1].f_code.co_name)}") from error
    print(printed.getvalue(), end="")


def _why(error: Exception, function: str) -> str:
    if isinstance(error, ValueError):
        return str(error)
    if isinstance(error, KeyError) and function == "parse_program":  # after all statements: what is returned is renamed
        return f"it returns {error.args[0]} more than once; return it once, or np.copy({error.args[0]}) besides"
    said = str(getattr(error, "message", error)).rstrip(".")
    return (
        f"DaCe cannot read it ({type(error).__name__}: {said}); write it as np.einsum, @, or an elementwise expression "
        "of whole arrays"
    )


def _say_where_from(state: SDFGState, file: str) -> None:
    """Nodes get the line that the state is named after, where they do not know theirs."""
    line = re.search(r"_(\d+)(_\d+)?(_nested_call_.*)?$", state.label)
    for node in state.nodes():
        known = getattr(node, "debuginfo", None)
        if line and (known is None or known.filename != file):
            node.debuginfo = dtypes.DebugInfo(int(line[1]), filename=file)
        elif known is not None and (known.filename or "").startswith(_DACE):
            node.debuginfo = None

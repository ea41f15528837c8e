"""
Parsing of a program such that every ``np.einsum`` and every linear system remains one node with all its operands.

During parsing, functions of DaCe's frontend are replaced: see ``dace_repairs``. Start reading at: parse.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import threading
import traceback
import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import dace
from dace import SDFG, SDFGState, dtypes
from dace.config import set_temporary
from dace.dtypes import DebugInfo
from dace.frontend.common import op_repository
from dace.frontend.python.common import DaceSyntaxError
from dace.frontend.python.newast import ProgramVisitor
from dace.frontend.python.parser import DaceProgram

from dace_redist.transformations.distribute.read import numpy_functions, numpy_operations, ufuncs
from dace_redist.transformations.distribute.read.dace_repairs import assignments, statements  # noqa: F401 (stand-ins)
from dace_redist.transformations.distribute.read.dace_repairs.replaced import PATCHES, dace_attribute
from dace_redist.transformations.distribute.read.location import source_line, why
from dace_redist.transformations.distribute.read.simplify import (
    check_indices,
    count_apart,
    naming_invalid_statements,
    remove_report,
    simplify,
)

_DACE = os.path.join(os.path.dirname(dace.__file__), "")
_parsing = threading.RLock()  # DaCe's tables and methods are global to the process


_tables = [
    dace_attribute(op_repository.Replacements, name)
    for name in ("_rep", "_method_rep", "_attr_rep", "_oprep", "_ufunc_rep")
]


def parse(program: DaceProgram) -> SDFG:
    """
    Return the simplified SDFG of a program, whose einsums and linear systems are nodes.

    DaCe's own frontend splits einsums into pairs of operands and maps, in the order in which they are written. It names
    states after lines, which locates a node until states are fused. Not thread-safe: other threads must neither parse
    programs with DaCe nor print meanwhile, since the replaced functions are global to the process.

    :raises ValueError: If a statement cannot be read; names it.
    """
    with _parsing, _replaced(), naming_invalid_statements(), _naming_the_statement(program), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Performance warning: Automatically creating callback")  # an error follows
        with set_temporary("compiler", "lineinfo", value="given"):  # not "inspect": it inspects the call stack
            sdfg = program.to_sdfg(simplify=False, use_cache=False)
    file = inspect.getsourcefile(program.f) or ""
    for state in sdfg.states():
        _say_where_from(state, file)
    for one in sdfg.all_sdfgs_recursive():
        count_apart(one)
        check_indices(one)
    with _parsing, _replaced():  # which DaCe's removal of what nothing reads needs, too
        simplify(sdfg)
    return sdfg


@contextlib.contextmanager
def _replaced() -> Iterator[None]:
    """Replace DaCe's functions by those of this package."""
    kinds = ("Array", "Scalar", "View", "ArrayView")
    methods = numpy_functions.METHODS | numpy_operations.METHODS | ufuncs.METHODS
    attributes = {"T": numpy_functions.METHODS["transpose"]} | ufuncs.ATTRIBUTES
    own: list[dict[Any, Any]] = [
        numpy_functions.FUNCTIONS | numpy_operations.FUNCTIONS | ufuncs.FUNCTIONS,
        {(kind, name): method for kind in kinds for name, method in methods.items()},
        {(kind, name): attribute for kind in kinds for name, attribute in attributes.items()},
        {(*ends, "MatMult"): numpy_functions.FUNCTIONS["numpy.matmul"] for ends in product(kinds, kinds)}
        | ufuncs.OPERATIONS,
        ufuncs.UFUNCS,
    ]
    before = [dict(table) for table in _tables]
    try:
        for table, functions in zip(_tables, own, strict=True):
            table.update(functions)
        for (kind, name), (function, _) in PATCHES.items():
            setattr(kind, name, function)
        yield
    finally:
        for (kind, name), (_, function) in PATCHES.items():
            setattr(kind, name, function)
        for table, functions in zip(_tables, before, strict=True):
            table.clear()
            table.update(functions)


@contextlib.contextmanager
def _naming_the_statement(program: DaceProgram) -> Iterator[None]:
    """Add the statement that DaCe cannot read, or else the program, to the error; DaCe only prints it."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    except Exception as error:
        remove_report(error)
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        frames = [frame for frame in frames if isinstance(frame.f_locals.get("self"), ProgramVisitor)]
        code, function = program.f.__code__, frames[-1].f_code.co_name if frames else ""
        if frames:
            where = source_line(frames[-1].f_locals["self"].current_lineinfo)
        elif isinstance(error, DaceSyntaxError):  # before the visitor: of constants of the program
            where = source_line(DebugInfo(error.node.lineno, filename=error.visitor.filename))
        else:
            where = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}: {code.co_name}"
        raise ValueError(f"{where}: {why(error, function)}") from error
    print(printed.getvalue(), end="")


def _say_where_from(state: SDFGState, file: str) -> None:
    """Give nodes without a line the line that their state is named after."""
    line = re.search(r"_(\d+)(_\d+)?(_nested_call_.*)?$", state.label)
    for node in state.nodes():
        known = getattr(node, "debuginfo", None)
        if line and (known is None or known.filename != file):
            node.debuginfo = dtypes.DebugInfo(int(line[1]), filename=file)
        elif known is not None and (known.filename or "").startswith(_DACE):
            node.debuginfo = None

"""
Parsing of a program such that every ``np.einsum`` and every linear system remains one node with all its operands.

During parsing, functions of DaCe's frontend are replaced: see ``replaced.py``. Start reading at: parse.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import inspect
import io
import os
import re
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import dace
from dace import SDFG, Memlet, SDFGState, dtypes, symbolic
from dace.config import set_temporary
from dace.dtypes import DebugInfo
from dace.frontend.common import op_repository
from dace.frontend.python import newast, parser
from dace.frontend.python.cached_program import DaceProgramCache
from dace.frontend.python.common import DaceSyntaxError
from dace.frontend.python.nested_call import NestedCall
from dace.frontend.python.newast import ProgramVisitor
from dace.frontend.python.parser import DaceProgram
from dace.sdfg import nodes, propagation
from dace.subsets import Range

from dace_redist.transformations.distribute.read import numpy_functions, numpy_operations, ufuncs
from dace_redist.transformations.distribute.read.assignments import sliced_axes
from dace_redist.transformations.distribute.read.location import EARLY_RETURN, INSTEAD, source_line, why
from dace_redist.transformations.distribute.read.parameters import assigned_names
from dace_redist.transformations.distribute.read.replaced import PATCHES, dace_attribute, in_place_of
from dace_redist.transformations.distribute.read.simplify import (
    check_indices,
    count_apart,
    naming_invalid_statements,
    remove_report,
    simplify,
)
from dace_redist.transformations.distribute.read.sizes import with_floats

_DACE = os.path.join(os.path.dirname(dace.__file__), "")
_parsing = threading.RLock()  # DaCe's tables and methods are global to the process


_tables = [
    dace_attribute(op_repository.Replacements, name)
    for name in ("_rep", "_method_rep", "_attr_rep", "_oprep", "_ufunc_rep")
]
_globals_of = dace_attribute(parser, "_get_locals_and_globals")


def parse(program: DaceProgram) -> SDFG:
    """
    Return the simplified SDFG of a program, whose einsums and linear systems are nodes.

    DaCe's own frontend splits einsums into pairs of operands and maps, in the order in which they are written. It names
    states after lines, which locates a node until states are fused. Not thread-safe: other threads must neither parse
    programs with DaCe nor print meanwhile, since the replaced functions are global to the process.

    :raises ValueError: If a statement cannot be read; names it.
    """
    with _parsing, _replaced(), naming_invalid_statements(), _naming_the_statement(), warnings.catch_warnings():
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
def _naming_the_statement() -> Iterator[None]:
    """Add the statement that DaCe cannot read to the error; DaCe only prints it."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    except Exception as error:
        remove_report(error)
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        frames = [frame for frame in frames if isinstance(frame.f_locals.get("self"), ProgramVisitor)]
        if frames:
            where, function = frames[-1].f_locals["self"].current_lineinfo, frames[-1].f_code.co_name
        elif isinstance(error, DaceSyntaxError):  # before the visitor: of constants of the program
            where, function = DebugInfo(error.node.lineno, filename=error.visitor.filename), ""
        else:
            raise
        raise ValueError(f"{source_line(where)}: {why(error, function)}") from error
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


# What stands in for methods of DaCe's classes


@in_place_of(DaceProgram, "closure_resolver")
@in_place_of(DaceProgram, "_generate_pdp")
def _with_present_values(read: Any, program: DaceProgram, *arguments: Any, **options: Any) -> Any:
    """Read a program with the present values of its globals."""
    program.global_vars = {**program.global_vars, **_globals_of(program.f)}
    cache, program._cache = program._cache, DaceProgramCache(program._eval_closure)
    try:
        return read(program, *arguments, **options)
    finally:
        program._cache = cache


@in_place_of(ProgramVisitor, "create_callback")
def _refuse_callback(_: Any, visitor: Any, node: ast.Call, create_graph: bool = True) -> Any:
    _at(visitor, node)
    called = ast.unparse(getattr(node.func, "oldnode", None) or node.func)
    name = called.split(".")[-1].removeprefix("__dace_callback_")
    instead = next((text for key, text in INSTEAD.items() if name == key or name.endswith(f"_{key}")), "")
    raise ValueError(
        f"cannot be distributed: DaCe does not know this function ({called.replace('numpy.', 'np.')}) and would call "
        f"it in Python; {instead or 'write it as np.einsum or elementwise'}"
    )


@in_place_of(ProgramVisitor, "visit_Return")
def _refuse_early_return(visit: Any, visitor: Any, node: ast.Return) -> Any:
    if isinstance(visitor.cfg_target, SDFG):
        return visit(visitor, node)
    _at(visitor, node)
    raise ValueError(EARLY_RETURN)


def _at(visitor: Any, node: ast.expr | ast.stmt) -> None:
    """Set the line that errors name; DaCe still holds the previous one."""
    visitor.current_lineinfo = DebugInfo(node.lineno, filename=visitor.filename)


@in_place_of(NestedCall, "add_state")
def _add_state_after_the_last(_: Any, call: NestedCall, label: str | None = None) -> SDFGState:
    call.count += 1
    call.last_state = call.last_state.parent_graph.add_state_after(call.last_state, label)
    return call.last_state


@in_place_of(dtypes.pointer, "to_string")
def _name_of_elements(_: Any, kind: dtypes.pointer) -> str:
    return str(kind.base_type.to_string())


@in_place_of(propagation, "propagate_memlet")
def _propagate_elements(propagate: Any, state: Any, memlet: Memlet, scope: Any, *rest: Any, **options: Any) -> Memlet:
    """Return the memlet of a box, if the iterations of a map use one element of it each."""
    near = state.out_edges(scope) if isinstance(scope, nodes.EntryNode) else state.in_edges(scope)
    same = all(edge.data.subset == memlet.subset for edge in near if edge.data.data == memlet.data)
    if isinstance(scope, nodes.MapEntry | nodes.MapExit) and same and memlet.wcr is None and not memlet.dynamic:
        ranges = dict(zip(scope.map.params, scope.map.range.ndrange(), strict=True))
        box = [_image(part, ranges) for part in memlet.subset.ndrange()]
        if None not in box:
            return Memlet(data=memlet.data, subset=Range(box))
    return propagate(state, memlet, scope, *rest, **options)


def _image(part: tuple[Any, Any, Any], ranges: Mapping[str, tuple[Any, Any, Any]]) -> tuple[Any, Any, Any] | None:
    """Return the range of an index, of which an iteration uses one value; None if it is no index plus a constant."""
    names = {str(symbol) for symbol in part[0].free_symbols} & {*ranges}
    if part[0] != part[1] or len(names) > 1:
        return None
    if not names:
        return part
    (name,) = names
    offset = part[0] - next(symbol for symbol in part[0].free_symbols if str(symbol) == name)
    begin, end, step = ranges[name]
    return None if name in map(str, offset.free_symbols) else (begin + offset, end + offset, step)


@in_place_of(newast, "_subset_is_local_symbol_dependent")
def _varies_in_maps_only(varies: Any, subset: Range, visitor: Any) -> bool:
    """Return True if iterations of a map may add to one element."""
    return bool(visitor.map_symbols) and bool(varies(subset, visitor))


@in_place_of(ProgramVisitor, "_visit_test")
def _visit_test_by_arrays(visit: Any, visitor: Any, node: ast.expr) -> tuple[Any, Any, Any]:
    """Read a condition with the arrays bound to its variables."""
    condition, otherwise, region = visit(visitor, node)
    names = {name: array for name, array in visitor.variables.items() if array != name and isinstance(array, str)}
    if region is None and names:
        pattern = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")
        condition, otherwise = (pattern.sub(lambda found: names[found[1]], text) for text in (condition, otherwise))
    return with_floats(condition), with_floats(otherwise), region


@in_place_of(ProgramVisitor, "visit_For")
def _visit_for_keeping_variables(visit: Any, visitor: Any, node: ast.For) -> Any:
    """Read a loop; after it, its variable and those of loops in it are symbols."""
    _check_variable(visitor, node)
    state, loops = visit(visitor, node), [loop.target for loop in ast.walk(node) if isinstance(loop, ast.For)]
    names = {target.id for target in loops if isinstance(target, ast.Name)} & {*visitor.sdfg.symbols}
    visitor.globals = visitor.globals | {name: symbolic.symbol(name, dtypes.int64) for name in names}
    return state


def _check_variable(visitor: Any, node: ast.For) -> None:
    """Raise an error for a loop whose variable has other values, too, for which DaCe has another variable."""
    used = {name.id for name in ast.walk(node.iter) if isinstance(name, ast.Name)}
    used |= {*visitor.variables} | assigned_names(*node.body)
    variables = [name.id for name in ast.walk(node.target) if isinstance(name, ast.Name) and name.id in used]
    if variables:
        _at(visitor, node)
        raise ValueError(
            f"{variables[0]} has values other than those of the loop over it: give the loop's variable another name"
        )


@in_place_of(ProgramVisitor, "visit_NamedExpr")
def _visit_named(visit: Any, visitor: Any, node: ast.NamedExpr) -> Any:
    visit(visitor, node)
    return visitor.visit(ast.copy_location(ast.Name(node.target.id, ast.Load()), node))


class _SlicedRange(Range):
    """Range whose sliced axes are kept even if they have one element, as in ``A[:, 0:1]``."""

    sliced: tuple[int, ...] = ()

    def __deepcopy__(self, memo: Any) -> _SlicedRange:
        return _sliced_range(super().__deepcopy__(memo), self.sliced)

    def squeeze(self, ignore_indices: Sequence[int] | None = None, offset: bool = True) -> Any:
        return super().squeeze([*(ignore_indices or ()), *self.sliced], offset)


def _sliced_range(whole: Range, sliced: tuple[int, ...]) -> _SlicedRange:
    part = _SlicedRange(list(zip(*zip(*whole.ranges, strict=True), whole.tile_sizes, strict=True)))
    part.sliced = sliced
    return part


@in_place_of(ProgramVisitor, "_add_read_slice")
def _add_read_slice_with_axes(read: Any, visitor: Any, array: str, node: ast.Subscript, expr: Any) -> Any:
    """Read a part of an array with the axes that NumPy keeps."""
    sliced = sliced_axes(node, len(expr.subset) + len(expr.new_axes or ()))
    if sliced:
        expr, node = copy.copy(expr), copy.copy(node)
        expr.subset, node.slice = _sliced_range(expr.subset, tuple(sliced)), ast.Slice()
    part = read(visitor, array, node, expr)
    if isinstance(part, str) and part in visitor.sdfg.arrays and part != array:
        visitor.sdfg.arrays[part].debuginfo = visitor.current_lineinfo
    return part

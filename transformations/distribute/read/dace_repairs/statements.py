"""Statements, calls, conditions and parts of arrays, where DaCe's frontend differs from Python and NumPy."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from dace import SDFG, Memlet, SDFGState, dtypes, symbolic
from dace.dtypes import DebugInfo
from dace.frontend.common import op_repository as oprepo
from dace.frontend.python import astutils, newast, parser
from dace.frontend.python.cached_program import DaceProgramCache
from dace.frontend.python.nested_call import NestedCall
from dace.frontend.python.newast import ProgramVisitor
from dace.frontend.python.parser import DaceProgram
from dace.frontend.python.replacements import array_creation, operators, ufunc
from dace.sdfg import nodes, propagation
from dace.subsets import Range

from dace_redist.transformations.distribute.read.dace_repairs.assignments import sliced_axes
from dace_redist.transformations.distribute.read.dace_repairs.parameters import assigned_names
from dace_redist.transformations.distribute.read.dace_repairs.replaced import (
    dace_attribute,
    in_place_of,
    replace_by,
)
from dace_redist.transformations.distribute.read.location import EARLY_RETURN, INSTEAD
from dace_redist.transformations.distribute.read.sizes import type_of_sizes, unparse, with_floats

_globals_of = dace_attribute(parser, "_get_locals_and_globals")


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
        ends = node.value is None and node is visitor.program_ast.body[-1]
        return None if ends else visit(visitor, node)
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
    types = {**visitor.sdfg.symbols, **{name: array.dtype for name, array in visitor.sdfg.arrays.items()}}
    floats = {name for name, kind in types.items() if kind in dtypes.FLOAT_TYPES}
    return with_floats(condition, floats), with_floats(otherwise, floats), region


@in_place_of(ProgramVisitor, "visit_Attribute")
def _refuse_unknown_attributes(visit: Any, visitor: Any, node: ast.Attribute) -> Any:
    found = visit(visitor, node)
    array = visitor.sdfg.arrays.get(found) if isinstance(found, str) and "." not in found else None
    unknown = array is not None and oprepo.Replacements.get_attribute(type(array), node.attr) is None
    if node.attr == "strides" or (unknown and not callable(getattr(np.ndarray, node.attr, None))):  # else a method
        _at(visitor, node)
        raise ValueError(
            f"cannot be distributed: it reads the attribute {node.attr} of an array; known are shape, size, ndim, "
            "dtype, T, real and imag"
        )
    return found


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


@in_place_of(ProgramVisitor, "visit_If")
def _visit_if_in_turn(visit: Any, visitor: Any, node: ast.If) -> Any:
    """Read ``if a and x[i]:`` as an ``if`` in an ``if``."""
    first, later = _in_turn(node.test)
    if later and not node.orelse:
        inner = ast.copy_location(ast.If(later, node.body, []), node)
        node = ast.copy_location(ast.If(first, [inner], []), node)
    return visit(visitor, node)


@in_place_of(ProgramVisitor, "visit_While")
def _visit_while_in_turn(visit: Any, visitor: Any, node: ast.While) -> Any:
    """Read ``while a and x[i]:`` as ``while a:`` with a ``break`` unless ``x[i]``."""
    first, later = _in_turn(node.test)
    if later and not node.orelse:
        end = ast.If(ast.UnaryOp(ast.Not(), later), [ast.Break()], [])
        ast.fix_missing_locations(ast.copy_location(end, node))
        node = ast.copy_location(ast.While(first, [end, *node.body], []), node)
    return visit(visitor, node)


def _in_turn(test: ast.expr) -> tuple[ast.expr, ast.expr | None]:
    """Return the operand of ``and`` that is read first, and the others if they have elements of arrays, else None."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        first, *others = test.values
        if any(isinstance(part, ast.Subscript) for other in others for part in ast.walk(other)):
            return first, others[0] if len(others) == 1 else ast.copy_location(ast.BoolOp(ast.And(), others), test)
    return test, None


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
    indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    for text in (ast.unparse(index) for index in indices if isinstance(index, ast.List)):
        raise ValueError(
            f"{text} is a list of indices: assign q = np.array({text}) outside the function, and index by q"
        )
    sliced = sliced_axes(node, len(expr.subset) + len(expr.new_axes or ()))
    if sliced:
        expr, node = copy.copy(expr), copy.copy(node)
        expr.subset, node.slice = _sliced_range(expr.subset, tuple(sliced)), ast.Slice()
    part = read(visitor, array, node, expr)
    if isinstance(part, str) and part in visitor.sdfg.arrays and part != array:
        visitor.sdfg.arrays[part].debuginfo = visitor.current_lineinfo
    return part


replace_by(unparse, (astutils, "unparse"))
replace_by(type_of_sizes, *((module, "sym_type") for module in (newast, operators, ufunc, array_creation)))

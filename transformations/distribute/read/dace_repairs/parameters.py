"""Arguments of programs that get new values or are changed in place, as in Python."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from dace import data
from dace.frontend.python.newast import ProgramVisitor
from dace.utils import find_new_name

from dace_redist.transformations.distribute.read.dace_repairs.replaced import in_place_of

SEQUENCE = (ast.Tuple, ast.List)


@in_place_of(ProgramVisitor, "parse_program")
def _parse_with_own_arguments(parse: Any, visitor: Any, program: ast.AST, is_tasklet: bool = False) -> Any:
    """
    Read a function whose arguments may get new values, which become variables of their own.

    A scalar argument declared as ``float`` is a number of Python; one declared as ``dace.float64`` may be one.

    :raises ValueError: If an array is changed in place where it may still be that of the caller.
    """
    if isinstance(program, ast.FunctionDef) and not is_tasklet:
        for argument in program.args.args:
            array = visitor.sdfg.arrays.get(argument.arg)
            if isinstance(array, data.Scalar):
                array.of_literals = getattr(argument.annotation, "id", "") in ("int", "float", "complex") or None
        assigned = assigned_names(program)
        added = {name_of(node.target) for node in ast.walk(program) if isinstance(node, ast.AugAssign)}
        scalars = {name for name, array in visitor.scope_arrays.items() if isinstance(array, data.Scalar)}
        for name in sorted({*visitor.scope_arrays} & assigned - scalars):
            _check_new_first(name, program.body)
        for name in sorted({*visitor.scope_arrays} & assigned | scalars & added):
            names = [node for node in ast.walk(program) if isinstance(node, ast.Name)]
            own = find_new_name(f"{name}_value", {node.id for node in names})
            for node in names:
                node.id = own if node.id == name else node.id
            copied = ast.copy_location(ast.parse(f"{own} = numpy.copy({name})").body[0], program.body[0])
            program.body.insert(0, ast.fix_missing_locations(copied))
    return parse(visitor, program, is_tasklet)


def assigned_names(*parts: ast.AST) -> set[str]:
    """Return the variables that statements assign a value to, other than ``a += b`` and the variables of loops."""
    targets: list[ast.expr] = []
    for node in (inner for outer in parts for inner in ast.walk(outer)):
        targets += node.targets if isinstance(node, ast.Assign) else []
        targets += [node.target] if isinstance(node, ast.AnnAssign | ast.NamedExpr) else []
    return {name_of(one) for target in targets for one in elements_of(target)} - {""}


def _check_new_first(name: str, body: Sequence[ast.stmt]) -> bool:
    """
    Raise an error unless an array has got a new value wherever statements change it in place.

    :return: True if it has one after the statements, whatever branches and loops run.
    """
    for statement in body:
        blocks = [getattr(statement, part, []) for part in ("body", "orelse")]
        new = [_check_new_first(name, block) for block in blocks]
        if isinstance(statement, ast.If) and all(new):
            return True
        targets = [*getattr(statement, "targets", []), getattr(statement, "target", None)]
        parts = [one for target in targets if isinstance(target, ast.expr) for one in elements_of(target)]
        if any(name_of(one) == name for one in parts) and not isinstance(statement, ast.AugAssign):
            return True
        if any(name_of(getattr(one, "value", one)) == name for one in parts):
            raise ValueError(
                f"{ast.unparse(statement)}: {name} may still be the array of the caller, which NumPy changes; give "
                f"the new value that {name} gets elsewhere another name"
            )
    return False


def elements_of(node: ast.expr) -> list[ast.expr]:
    """Return the elements of a tuple or list, and of those in it; else the expression itself."""
    return [one for part in node.elts for one in elements_of(part)] if isinstance(node, SEQUENCE) else [node]


def name_of(node: ast.AST) -> str:
    """Return the name that an expression is, or nothing."""
    return node.id if isinstance(node, ast.Name) else ""

"""Warnings of statements whose results in DaCe and NumPy differ."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from dace.dtypes import DebugInfo

from dace_redist.transformations.distribute.read.location import source_line

#: Functions and methods whose result is a view of their first operand in NumPy.
_VIEWS = ("transpose", "reshape", "swapaxes", "moveaxis", "diagonal", "diag", "ravel")


def warn_of_names(function: Callable[..., Any]) -> None:
    """
    Warn of aliasing that differs from NumPy.

    DaCe writes into an argument when its name is assigned to. Transposed arrays and slices are copies, which matters
    if they or the array change later.

    :param function: The Python function of a program; ignored if its source is unavailable.
    """
    body, file = body_of(function), inspect.getsourcefile(function)
    arguments = set(inspect.signature(function).parameters)
    for view, viewed, line in _changed_views(body, arguments):
        _warn(
            DebugInfo(line, filename=file),
            f"{view} is a copy of {viewed} here, but shares its elements in NumPy, and one of them is changed later. "
            f"Write np.copy(...) to have a copy in NumPy, too",
        )
    for name in _assigned(body):
        if name.id in arguments:
            _warn(
                DebugInfo(name.lineno, filename=file),
                f"writes into the argument {name.id}; in NumPy the name stands for another array afterwards. "
                f"Write {name.id}[:] = ..., or take another name",
            )


def body_of(function: Callable[..., Any]) -> list[ast.stmt]:
    """Return the statements of a Python function with their lines in its file; empty without a source."""
    try:
        lines, first = inspect.getsourcelines(function)
        (definition,) = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return []
    ast.increment_lineno(definition, first - 1)
    return definition.body if isinstance(definition, ast.FunctionDef) else []


def _assigned(body: list[ast.stmt]) -> Iterator[ast.Name]:
    """Yield the names that plain assignments bind, in the order of the program."""
    for node in (inner for statement in body for inner in ast.walk(statement)):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            yield from (part for part in parts if isinstance(part, ast.Name))


def _changed_views(body: list[ast.stmt], arguments: set[str]) -> Iterator[tuple[str, str, int]]:
    """Yield NumPy views for which a copy makes a difference: the view, the array, the line."""
    nodes = [inner for statement in body for inner in ast.walk(statement)]
    read = [(node.id, node.lineno) for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    changed = [(name, node.lineno) for node in nodes for name in _changed_in_place(node)]
    bound = [(node.targets[0], node.value, node.lineno) for node in nodes if isinstance(node, ast.Assign)]
    views = [(name.id, _viewed(value), line) for name, value, line in bound if isinstance(name, ast.Name)]
    views = [(view, viewed, line) for view, viewed, line in views if viewed not in ("", view)]
    owner: dict[str, str] = {}
    for view, viewed, _ in views:
        owner.setdefault(view, owner.get(viewed, viewed))
    for view, viewed, line in views:
        sharing = {name for name, known in owner.items() if known == owner[view]} | {owner[view]}
        for name, at in changed:
            others = sharing - {name}
            seen = any(reader in others and place > at for reader, place in read) or bool(others & arguments)
            if at > line and name in sharing and view in (name, *others) and seen:
                yield view, viewed, line
                break


def _changed_in_place(node: ast.AST) -> list[str]:
    """Return the names of the arrays that a statement writes into."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    if isinstance(node, ast.Assign):
        targets = [target for target in targets if isinstance(target, ast.Subscript)]
    bases = [target.value if isinstance(target, ast.Subscript) else target for target in targets]
    return [base.id for base in bases if isinstance(base, ast.Name)]


def _viewed(value: ast.expr) -> str:
    """Return the name of the array that an expression is a view of in NumPy; empty without one."""
    base: ast.AST | None = None
    if isinstance(value, ast.Attribute) and value.attr == "T":
        base = value.value
    elif isinstance(value, ast.Subscript) and any(isinstance(node, ast.Slice) for node in ast.walk(value.slice)):
        base = value.value
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _VIEWS:
        of_numpy = isinstance(value.func.value, ast.Name) and value.func.value.id in ("np", "numpy")
        base = value.args[0] if of_numpy and value.args else value.func.value
    elif isinstance(value, ast.Call) and ast.unparse(value.func).endswith("einsum") and len(value.args) == 2:
        subscripts, operand = value.args
        term, _, result = str(getattr(subscripts, "value", "")).replace(" ", "").partition("->")
        base = operand if set(term) == set(result) else None  # nothing is summed
    return base.id if isinstance(base, ast.Name) else ""


def warning_of_integers(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """
    Return a function of arrays that warns if the result type differs from NumPy's, as for integers.

    :param name: ``"sum"``, ``"mean"`` or ``"trace"``.
    :param function: DaCe's replacement of it.
    """

    @functools.wraps(function)
    def add(visitor: Any, sdfg: Any, state: Any, array: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(array, str) and array in sdfg.arrays:
            dtype = sdfg.arrays[array].dtype.as_numpy_dtype()
            ones = np.ones((1, 1), dtype)
            wanted = (np.mean(ones) if name == "mean" else np.sum(ones)).dtype
            if wanted != dtype and dtype.kind in ("biu" if name == "mean" else "iu"):
                _warn(
                    visitor.current_lineinfo,
                    f"the {name} of {array} is {dtype} here, but {wanted} in NumPy; take that of "
                    f"{array}.astype(np.{wanted})",
                )
        return function(visitor, sdfg, state, array, *arguments, **options)

    return add


def _warn(line: Any, what: str) -> None:
    warnings.warn(f"{source_line(line)}: {what}", UserWarning, stacklevel=2)

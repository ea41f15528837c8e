"""Warns of statements that DaCe reads otherwise than NumPy computes them."""

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

from dace_redist.transformations.einsum.steps import source_line


def warn_of_rebound_arguments(function: Callable[..., Any]) -> None:
    """
    Warns of assignments to the names of arguments: DaCe writes into the argument.

    :param function: The Python function of a program; nothing is done if its source is not known.
    """
    arguments = set(inspect.signature(function).parameters)
    for name in _assigned(body_of(function)):
        if name.id in arguments:
            line = DebugInfo(name.lineno, filename=inspect.getsourcefile(function))
            _warn(
                line,
                f"writes into the argument {name.id}; in NumPy the name stands for another array afterwards. "
                f"Write {name.id}[:] = ..., or take another name",
            )


def body_of(function: Callable[..., Any]) -> list[ast.stmt]:
    """The statements of a Python function, with their lines in its file; none if its source is not known."""
    try:
        lines, first = inspect.getsourcelines(function)
        (definition,) = ast.parse(textwrap.dedent("".join(lines))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return []
    ast.increment_lineno(definition, first - 1)
    return definition.body if isinstance(definition, ast.FunctionDef) else []


def _assigned(body: list[ast.stmt]) -> Iterator[ast.Name]:
    """Names that plain assignments bind, in the order of the program."""
    for node in (inner for statement in body for inner in ast.walk(statement)):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            yield from (part for part in parts if isinstance(part, ast.Name))


def warning_of_integers(known: dict[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """
    Means and sums, which warn where they are of integers and have another type than NumPy's.

    :param known: Means, sums and traces by the keys that DaCe has for them; others are left out.
    """
    wrapped = {}
    for key, function in known.items():
        name = key[1] if isinstance(key, tuple) else key.removeprefix("numpy.")
        if name in ("sum", "mean", "trace"):
            wrapped[key] = _warning(name, function)
    return wrapped


def _warning(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def add(visitor: Any, sdfg: Any, state: Any, array: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(array, str) and array in sdfg.arrays:
            given = sdfg.arrays[array].dtype.as_numpy_dtype()
            ones = np.ones((1, 1), given)
            wanted = (np.mean(ones) if name == "mean" else np.sum(ones)).dtype
            if wanted != given and (name == "mean" or given.kind in "iu") and given.kind in "biu":
                _warn(
                    visitor.current_lineinfo,
                    f"the {name} of {array} is {given} here, but {wanted} in NumPy; take that of "
                    f"{array}.astype(np.{wanted})",
                )
        return function(visitor, sdfg, state, array, *arguments, **options)

    return add


def _warn(line: Any, what: str) -> None:
    warnings.warn(f"{source_line(line)}: {what}", UserWarning, stacklevel=2)

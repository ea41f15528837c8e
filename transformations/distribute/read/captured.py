"""Values from outside a program's functions, which are constants or arrays of the distributed program."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from contextlib import suppress
from operator import is_
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np
from dace import dtypes
from dace.frontend.python.astutils import function_to_ast
from dace.frontend.python.parser import DaceProgram

_BY_IDENTITY = (np.ndarray, FunctionType, DaceProgram)
_UNCHANGED = (ModuleType, BuiltinFunctionType, type, np.ufunc, type(np.dot), dtypes.typeclass)


class Captured:
    """Values that a program and the functions it calls were read with. A pickled copy, for other ranks, has none."""

    def __init__(self, programs: Iterable[DaceProgram] = ()) -> None:
        self._used: list[tuple[DaceProgram, Any, dict[str, Any]]] = []
        for one in programs:
            found = dict(outside_values(one, function_to_ast(one.f)[0].body[0].body))
            self._used.append((one, compile(f"[{', '.join(found)}]", one.name, "eval"), found))

    def __reduce__(self) -> Any:
        return Captured, ()

    def check(self) -> None:
        """Raise a ValueError if a value has changed, or an array is another one."""
        for program, code, known in self._used:
            now = _evaluated(code, program)
            if not all(map(is_, known.values(), now)):
                for (text, old), new in zip(known.items(), now, strict=True):
                    replaced = isinstance(new, _BY_IDENTITY)
                    if new is not old and (replaced or type(new) is not type(old) or repr(new) != repr(old)):
                        what = "is another object than" if replaced else f"is {new!r}, but was {old!r}"
                        raise ValueError(
                            f'"{program.name}": {text} {what} when the program was distributed: distribute it again, '
                            f"or make {text} an argument"
                        )


def programs_of(program: Any) -> Iterator[DaceProgram]:
    """Yield a program that was read, and those that it calls."""
    if isinstance(program, DaceProgram) and program.resolver is not None:
        yield program
        for _, called in program.resolver.closure_sdfgs.values():
            yield from programs_of(called)


def _evaluated(code: Any, program: DaceProgram, **own: Any) -> Any:
    """Return the value of code in the scope around a function, where ``own`` are its variables."""
    cells = zip(program.f.__code__.co_freevars, program.f.__closure__ or (), strict=True)
    names = {name: cell.cell_contents for name, cell in cells}
    return eval(code, program.f.__globals__, {**own, program.objname: program.methodobj, **names})


def outside_values(program: DaceProgram, nodes: Iterable[ast.AST]) -> Iterator[tuple[str, Any]]:
    """Yield the longest chains of names, attributes and elements that have a value outside a function, with it."""
    variables = dict.fromkeys(program.f.__code__.co_varnames, ast)  # a module, which is passed over
    for node in nodes:
        text, value = ast.unparse(node), ...
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            with suppress(Exception):
                base = None if isinstance(node, ast.Name) else _evaluated(ast.unparse(node.value), program, **variables)
                if not isinstance(base, np.ndarray):  # whose parts are other objects each time
                    value = _evaluated(text, program, **variables)
        if value is ...:
            yield from outside_values(program, ast.iter_child_nodes(node))
        elif isinstance(value, list | tuple | dict | set):  # whose elements may change
            yield f"repr({text})", repr(value)
        elif not isinstance(value, _UNCHANGED):
            yield text, value

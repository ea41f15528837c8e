"""Values from outside a program's functions, which are constants or arrays of the distributed program."""

from __future__ import annotations

import ast
import inspect
import io
import pickle
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import sympy
from dace import SDFG, dtypes
from dace.frontend.python.astutils import function_to_ast
from dace.frontend.python.parser import DaceProgram

#: Packages of known versions, which no module of a user can hide: what they define is known by its name.
_LIBRARIES = {"builtins", "types", "enum", "math", "operator", "numpy", "sympy", "dace", "dace_redist"}
#: Value of the variables of a function, and of names that have none.
_NOTHING: Any = type("Nothing", (), {"__repr__": lambda _: "not there"})()


class Known(NamedTuple):
    """Value by its content, at any depth, and by the identity of objects in it: arrays, functions, objects of users."""

    content: bytes
    objects: list[Any]

    def is_as(self, other: Known) -> bool:
        """Compare; bound methods are other objects at each look, which are equal."""
        same = self.content == other.content and len(self.objects) == len(other.objects)
        pairs = zip(self.objects, other.objects, strict=False)
        return same and all(a is b or isinstance(a, MethodType) and a == b for a, b in pairs)


class _Pickler(pickle.Pickler):
    """Pickler whose texts of equal values are equal; it collects objects known by identity and writes their places."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.fast, self.objects = True, list[Any]()  # fast: does not refer to equal parts that are one object

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, dtypes.typeclass):
            return str(value.to_json())
        if isinstance(value, sympy.Symbol):
            return f"{value} {getattr(value, 'dtype', '')} {sorted(value.assumptions0.items())}"
        module = getattr(value if hasattr(value, "__qualname__") else type(value), "__module__", None) or ""
        module = value.__name__ if isinstance(value, ModuleType) else module
        by_identity = isinstance(value, np.ndarray | DaceProgram | MethodType | SDFG)
        if by_identity or module.split(".")[0] not in _LIBRARIES:
            self.objects.append(value)
            return len(self.objects)
        return f"module {module}" if isinstance(value, ModuleType) else None


def known(value: Any) -> Known:
    """Return what determines a value."""
    pickler = _Pickler(file := io.BytesIO())
    try:
        pickler.dump(value)
    except Exception:  # it has no text, or contains itself
        return Known(b"", [value])
    return Known(file.getvalue(), pickler.objects)


class _Function(NamedTuple):
    """Function that DaCe reads, and its parameter for the object whose method it is, with the object."""

    code: FunctionType
    own: tuple[str, Any] = ("", None)

    @classmethod
    def of(cls, value: Any) -> _Function | None:
        """Return the function of a program, method or object that is called; None for other values."""
        if isinstance(value, FunctionType):
            return cls(value)
        if isinstance(value, DaceProgram):
            return cls(value.f, (value.objname or "", value.methodobj))
        if isinstance(value, MethodType) and isinstance(value.__func__, FunctionType):
            return cls(value.__func__, ("".join(value.__func__.__code__.co_varnames[:1]), value.__self__))
        called = inspect.getattr_static(type(value), "__call__", None)
        return cls.of(value.__call__) if isinstance(called, FunctionType | DaceProgram) else None

    def evaluated(self, text: Any, **variables: Any) -> Any:
        """Return the value of an expression in the scope around the function; ``_NOTHING`` if it has none."""
        with suppress(Exception):
            cells = zip(self.code.__code__.co_freevars, self.code.__closure__ or (), strict=True)
            names = {self.own[0]: self.own[1], **{name: cell.cell_contents for name, cell in cells}}
            return eval(text, self.code.__globals__, {**variables, **names})
        return _NOTHING

    def outside(self) -> dict[str, Any]:
        """Return the values from outside in body, annotations, defaults and decorator's arguments, by expression."""
        inside = {*self.code.__code__.co_varnames, *self.code.__code__.co_cellvars} - {self.own[0]}
        with suppress(TypeError, SyntaxError, AttributeError):  # a lambda, or no source: DaCe cannot read it
            tree = function_to_ast(self.code)[0].body[0]
            calls = [one for one in tree.decorator_list if isinstance(one, ast.Call)]  # not what they call
            nodes = [tree.args, *(part for one in calls for part in (*one.args, *one.keywords)), *tree.body]
            return dict(self._values(nodes, dict.fromkeys(inside, _NOTHING)))
        return {}

    def _values(self, nodes: Iterable[ast.AST], variables: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        """
        Yield the longest chains of names, attributes and elements that have a value outside the function, with it.

        An object that is made anew at each look, as ``dace.map[0:N]``, is no value, but the names in it are.
        """
        for node in nodes:
            value, is_chain = _NOTHING, isinstance(node, ast.Name | ast.Attribute | ast.Subscript)
            if is_chain and not any(isinstance(part, ast.Call) for part in ast.walk(node)):
                base = None if isinstance(node, ast.Name) else self.evaluated(ast.unparse(node.value), **variables)
                if not isinstance(base, np.ndarray):  # whose parts are other objects each time
                    value, again = (self.evaluated(ast.unparse(node), **variables) for _ in range(2))
                    plain = isinstance(value, np.ndarray | MethodType) or not (
                        hasattr(value, "__dict__") or callable(value)
                    )
                    value = value if value is again or plain else _NOTHING
            if value is not _NOTHING:
                yield ast.unparse(node), value
            else:
                yield from self._values(ast.iter_child_nodes(node), variables)


class Captured:
    """Values that a program and the functions it calls were read with. A pickled copy, for other ranks, has none."""

    def __init__(self, program: Any = None) -> None:
        self._used: list[tuple[_Function, dict[str, tuple[Any, Known, Any]], Any]] = []  # also the text for an error
        self._number(program)

    def __reduce__(self) -> Any:
        return Captured, ()

    def _number(self, value: Any) -> int | None:
        """Return the number of a function that DaCe reads, added with those that it uses; None for other values."""
        function = _Function.of(value)
        if function is None:
            return None
        for number, (other, *_) in enumerate(self._used):
            if other.code is function.code and other.own[1] is function.own[1]:
                return number
        number, values = len(self._used), function.outside()
        facts = {text: (one, as_known := known(one), as_known.objects or repr(one)) for text, one in values.items()}
        self._used.append((function, facts, compile(f"[{', '.join(values)}]", "values", "eval")))
        for _, one, _ in facts.values():
            for called in one.objects:
                self._number(called)
        return number

    def check(self) -> None:
        """Raise a ValueError if a value has changed, or an array is another one."""
        for function, facts, code in self._used:
            now = function.evaluated(code)
            now = [*map(function.evaluated, facts)] if now is _NOTHING else now  # else it would be known which is not
            for (text, (old, as_known, shown)), new in zip(facts.items(), now, strict=True):
                if new is old and not isinstance(new, list | dict | set | tuple) or known(new).is_as(as_known):
                    continue
                replaced = new is not _NOTHING and (known(new).objects or as_known.objects)
                what = "is another object than" if replaced else f"is {new!r}, but was {shown}"
                raise ValueError(
                    f'"{function.code.__name__}": {text} {what} when the program was distributed: distribute it again, '
                    f"or make {text} an argument"
                )

    def facts(self) -> list[str] | None:
        """Return texts that determine what the functions compute; None if a value is known by identity only."""
        facts = list[str]()
        for (code, own), values, _ in self._used:
            try:
                facts += [inspect.getsourcefile(code) or "", str(code.__code__.co_firstlineno), inspect.getsource(code)]
            except (OSError, TypeError):
                return None
            around = known([own[1], code.__annotations__, code.__defaults__, code.__kwdefaults__])
            called = [self._number(value) for _, one, _ in values.values() for value in one.objects]
            if around.objects or None in called or hasattr(code, "__wrapped__") or code.__name__ == "<lambda>":
                return None
            facts += [around.content.hex(), *(f"{text} = {one.content.hex()}" for text, (_, one, _) in values.items())]
            facts.append(str(called))
        return facts

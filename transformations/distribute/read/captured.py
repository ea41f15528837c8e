"""Values from outside a program's functions, which are constants or arrays of the distributed program."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from enum import Enum
from operator import is_
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import sympy
from dace import data, dtypes
from dace.frontend.python.astutils import function_to_ast
from dace.frontend.python.parser import DaceProgram

#: Packages whose version is known to those who compare texts: what has a name in them is known by it.
_LIBRARIES = {*sys.stdlib_module_names, "numpy", "sympy", "opt_einsum", "dace", "dace_redist"}
_LITERALS = (bool, int, float, complex, str, bytes, range, type(None), type(...))


class UnknownValueError(Exception):
    """The value is determined by no text: it is known by identity."""


class _Nothing:
    """Stand-in for variables of a function, and for names without a value: has no attributes or elements."""

    def __getattribute__(self, name: str) -> Any:
        raise AttributeError(name)

    def __repr__(self) -> str:
        return "not there"


_NOTHING: Any = _Nothing()


class _Function(NamedTuple):
    """
    Function that DaCe reads.

    :param own: The object whose method it is, by the name of its parameter.
    :param options: Those of its decorator that change what DaCe reads.
    """

    code: FunctionType
    own: dict[str, Any]
    options: tuple[Any, ...] = ()

    def evaluated(self, text: Any, **variables: Any) -> Any:
        """Return the value of an expression in the scope around the function."""
        cells = zip(self.code.__code__.co_freevars, self.code.__closure__ or (), strict=True)
        names = {"__defaults__": (self.code.__defaults__, self.code.__kwdefaults__)}
        names |= {name: cell.cell_contents for name, cell in cells}
        return eval(text, self.code.__globals__, {**variables, **self.own, **names})

    def nodes(self) -> list[ast.AST]:
        """Return the expressions that DaCe evaluates: the body, and annotations that are texts."""
        kinds = [kind for kind in self.code.__annotations__.values() if isinstance(kind, str)]
        kinds += ["__defaults__"] * bool(self.code.__defaults__ or self.code.__kwdefaults__)
        return [*function_to_ast(self.code)[0].body[0].body, *(ast.parse(kind, mode="eval").body for kind in kinds)]


class Captured:
    """Values that a program and the functions it calls were read with. A pickled copy, for other ranks, has none."""

    def __init__(self, program: Any = None) -> None:
        self._used: list[tuple[_Function, tuple[str, ...], Any, list[Any]]] = []
        self._leaves: list[list[tuple[str, Any]]] = []
        self._follow(program)

    def __reduce__(self) -> Any:
        return Captured, ()

    def _follow(self, value: Any) -> None:
        """Add a function, and those that it uses."""
        function = _function_of(value)
        if function is None or self._number(function) is not None:
            return
        roots = dict(outside_values(function, _nodes_of(function)))
        code = compile(f"[{', '.join(roots)}]", function.code.__name__, "eval")
        self._used.append((function, tuple(roots), code, list(roots.values())))
        self._leaves.append([leaf for text, root in roots.items() for leaf in leaves(text, root)])
        for _, leaf in self._leaves[-1]:
            self._follow(leaf)

    def _number(self, function: _Function) -> int | None:
        key = [function.code, *function.own.values()]
        for number, (known, *_) in enumerate(self._used):
            if len(key) == 1 + len(known.own) and all(map(is_, key, [known.code, *known.own.values()])):
                return number
        return None

    def check(self) -> None:
        """Raise a ValueError if a value has changed, or an array is another one."""
        for (function, texts, code, roots), known in zip(self._used, self._leaves, strict=True):
            with suppress(Exception):  # a name has no value any more, which the second look says
                if len(roots) == len(known) and all(map(is_, roots, function.evaluated(code))):
                    continue
            now = [leaf for text in texts for leaf in leaves(text, _value_at(function, text))]
            for (text, old), (place, new) in zip(known, now, strict=False):
                if place != text or not _same(old, new):
                    replaced = _is_unknown(new) and new is not _NOTHING
                    what = "is another object than" if replaced else f"is {new!r}, but was {old!r}"
                    raise ValueError(
                        f'"{function.code.__name__}": {text} {what} when the program was distributed: distribute it '
                        f"again, or make {text} an argument"
                    )

    def facts(self) -> Iterator[str]:
        """
        Yield texts that determine what the functions compute.

        :raises UnknownValueError: If a value is known by identity only, as an array or the object of a method.
        """
        for (function, *_), known in zip(self._used, self._leaves, strict=True):
            if function.own or hasattr(function.code, "__wrapped__"):
                raise UnknownValueError
            code = function.code
            yield from (inspect.getsourcefile(code) or "", str(code.__code__.co_firstlineno), inspect.getsource(code))
            for text, value in leaves("", [list(code.__annotations__.items()), *function.options]):
                yield f"{text} = {text_of(value)}"
            for text, value in known:
                called = _function_of(value)
                yield f"{text} = {text_of(value) if called is None else f'function {self._number(called)}'}"


def _function_of(value: Any) -> _Function | None:
    """Return the function that DaCe reads for a value; None for libraries' functions, which it knows, and the rest."""
    if isinstance(value, DaceProgram):
        own = {value.objname: value.methodobj} if value.objname else {}
        options = (value.dec_args, value.resolve_functions, value.ignore_type_hints, value.use_explicit_cf)
        return _Function(value.f, own, options)
    if isinstance(value, FunctionType):
        return _Function(value, {}) if _is_unknown(value) else None
    if isinstance(value, MethodType):
        function = _function_of(value.__func__)
        return function and function._replace(own={function.code.__code__.co_varnames[0]: value.__self__})
    called = isinstance(getattr(type(value), "__call__", None), FunctionType | DaceProgram)
    return _function_of(value.__call__) if called else None


def _nodes_of(function: _Function) -> list[ast.AST]:
    try:
        return function.nodes()
    except (TypeError, OSError, SyntaxError, AttributeError):  # a lambda, or no source, which DaCe cannot read
        return []


def _value_at(function: _Function, text: str) -> Any:
    try:
        return function.evaluated(text)
    except Exception:
        return _NOTHING


def _same(old: Any, new: Any) -> bool:
    """Compare values by their texts, and others by identity."""
    with suppress(UnknownValueError):
        return new is old or text_of(new) == text_of(old)
    return False


def _is_unknown(value: Any) -> bool:
    try:
        text_of(value)
    except UnknownValueError:
        return True
    return False


def outside_values(function: _Function, nodes: Iterable[ast.AST]) -> Iterator[tuple[str, Any]]:
    """
    Yield the longest chains of names, attributes and elements that have a value outside a function, with it.

    An object that is made anew at each look, as ``dace.map[0:N]``, is no value, but the names in it are.
    """
    code = function.code.__code__
    variables = dict.fromkeys((*code.co_varnames, *code.co_cellvars), _NOTHING)
    for node in nodes:
        text, value = ast.unparse(node), ...
        chain = isinstance(node, ast.Name | ast.Attribute | ast.Subscript)
        if chain and not any(isinstance(part, ast.Call) for part in ast.walk(node)):
            with suppress(Exception):
                base = None if isinstance(node, ast.Name) else function.evaluated(ast.unparse(node.value), **variables)
                if not isinstance(base, np.ndarray):  # whose parts are other objects each time
                    first, second = (function.evaluated(text, **variables) for _ in range(2))
                    looks = zip(leaves(text, first), leaves(text, second), strict=True)
                    made = [one for (_, one), (_, other) in looks if one is not other and _is_unknown(one)]
                    value = first if all(isinstance(one, np.ndarray) for one in made) else ...
        if value is ...:
            yield from outside_values(function, ast.iter_child_nodes(node))
        elif value is not _NOTHING:
            yield text, value


def leaves(text: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a value, or the elements of a container, at any depth, with their texts."""
    kind, parts = type(value), dict[str, Any]()
    if kind in (list, tuple):
        parts = {f"{text}[{n}]": element for n, element in enumerate(value)}
    elif kind is dict:
        for n, (key, element) in enumerate(value.items()):
            parts |= {f"list({text})[{n}]": key, f"{text}[{key!r}]": element}
    elif kind in (set, frozenset):
        parts = {f"sorted({text}, key=repr)[{n}]": element for n, element in enumerate(sorted(value, key=repr))}
    elif kind is slice:
        parts = {f"{text}.{name}": getattr(value, name) for name in ("start", "stop", "step")}
    elif kind is MethodType:
        parts = {f"{text}.{name}": getattr(value, name) for name in ("__self__", "__func__")}
    else:
        yield text, value
        return
    yield f"the kind of {text}", f"{kind.__name__} of {len(parts)}"
    for place, element in parts.items():
        yield from leaves(place, element)


def text_of(value: Any) -> str:
    """
    Return a text that determines a value.

    :raises UnknownValueError: If only its identity does.
    """
    kind = type(value)
    if kind in _LITERALS:
        return f"{kind.__name__} {value!r}"
    if isinstance(value, np.generic) and not value.dtype.hasobject:
        return f"{value.dtype!r} {value.tobytes().hex()}"
    if isinstance(value, np.dtype):
        return f"dtype {value!r}"
    if isinstance(value, Enum):
        return f"{kind.__qualname__}.{value.name} {text_of(value.value)}"
    if isinstance(value, dtypes.typeclass | data.Data | sympy.Basic):
        free = [(str(one), str(getattr(one, "dtype", "")), *getattr(one, "assumptions0", {}).items()) for one in _symbols(value)]
        return f"{sympy.srepr(value) if isinstance(value, sympy.Basic) else value.to_json()} {sorted(free)}"
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__qualname__", "")
    module = name if isinstance(value, ModuleType) else getattr(value, "__module__", None) or ""
    with suppress(AttributeError, KeyError):
        found = sys.modules[module]
        found = found if found is value else functools.reduce(getattr, name.split("."), found)
        if found is value and module.split(".")[0] in _LIBRARIES:
            return f"{kind.__name__} {module} {name}"
    raise UnknownValueError


def _symbols(value: Any) -> Iterable[Any]:
    return getattr(value, "free_symbols", ())

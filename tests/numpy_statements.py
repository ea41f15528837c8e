"""Statements of NumPy's functions and operators on all types and special values, and programs of many of them."""

from __future__ import annotations

import contextlib
import copy
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
from random_programs import load

TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)
#: Statements that NumPy computes, and distributed programs do not.
REFUSED = (
    r"np\.(modf|frexp|divmod|ldexp|spacing|logaddexp2?|angle|prod|round|var|bitwise_count|linalg\.norm)\(|"
    r"\.prod\(|complex\d+\.max\(|np\.(rint|exp2|expm1|log2|log1p|reciprocal|fmax|fmin|max|min|argmax|argmin)\(.*complex|"
    r"reciprocal\(._[bui]|(\*\*=?|power\(.*,) (._int|n|np.int)|f(min|max)\(.*j|0j|(==|!=|<=?|>=?) (-1|300)$|^(-1|300) <"
)
#: Reasons for which any statement may be refused.
REASONS = r"float16|a number of Python, and of|to which it would be converted|cannot compute with elements of bool"
#: Statements whose results are rounded in another way, and the largest difference in units in the last place.
ROUNDED = r"\*\*|exp|log|sin|cos|tan|sqrt|cbrt|pow|hypot|deg|rad|sum|mean|trace|abs|sign|/.*(complex|j)|\*.*complex|@"
UNITS = 16

_UFUNCS = [one for name, one in vars(np).items() if isinstance(one, np.ufunc) and name == one.__name__]
_SIGNS = ("+", "-", "*", "/", "//", "%", "**", "<<", ">>", "|", "^", "&", "==", "!=", "<", "<=", ">", ">=")
_NUMBERS = ("0", "1", "-1", "3", "300", "0.5", "-2.0", "2j", "True", "np.float32(0.5)", "np.int64(2)", "n", "f")
_REDUCTIONS = "sum mean max min argmax argmin any all prod var trace linalg.norm".split()
#: Statements on an array ``a``, or two of them, and a scalar ``s``.
UNARY = [
    *(f"np.{one.__name__}(a)" for one in _UFUNCS if one.nin == 1),
    *("-a", "+a", "~a", "abs(a)", "a.real", "a.imag", "np.real(a)", "np.imag(a)", "a.conj()", "np.conj(a)"),
    *("2 ** a", "0.5 ** a", "a ** 2", "a ** 0.5", "np.clip(a, 1, 3)", "a.clip(0.5, None)", "np.where(a, a, 0)"),
    *(f"a {sign} {number}" for sign in _SIGNS for number in _NUMBERS),
    *(f"{number} {sign} a" for sign in ("-", "/", "//", "%", "<") for number in _NUMBERS),
    *(f"np.{name}(a, {n})" for name in ("maximum", "fmin", "power", "copysign", "gcd") for n in _NUMBERS),
    *(f"np.where(a == a, {number}, a)" for number in _NUMBERS),
    *(f"np.{name}(a{options})" for name in _REDUCTIONS for options in ("", ", axis=0", ", axis=1")),
    *("a.sum()", "a.max(axis=1)", "np.where(a != 0, 2, 3)", "np.sum(a, axis=1, keepdims=True)", "a.prod()"),
    *("a.T @ a", "np.cumsum(a, 0)", "np.cumsum(a, axis=-1)"),
]
BINARY = [
    *(f"np.{one.__name__}(a, b)" for one in _UFUNCS if one.nin == 2 and one.signature is None),
    *(f"a {sign} {other}" for sign in _SIGNS for other in ("b", "s")),
    *(f"s {sign} b" for sign in ("-", "//", "%", "<")),
    *("np.where(a, a, b)", "np.where(a == b, b, a)", "np.clip(a, b, a)", "np.where(s, a, b)"),
]
#: Statements that every run tries.
ALWAYS = [
    *("np.argmax(a_float32, axis=1)", "np.argmin(a_float64)"),  # the first NaN counts
    *("a_float32 ** f", "np.power(a_float64, np.float32(0.5))", "c **= 0.5  # a_complex64"),  # by square roots
    "a_complex64 ** -1",  # by reciprocals
    *("a_float32 * 2**70", "a_complex128 + 100000000000000000000"),  # no literals in C++
    *("np.fmin(a_int64, np.int64(2))", "np.gcd(a_int64, np.int64(2))"),  # of a number instead of a scalar
    "np.clip(a_bool, b_complex128, a_bool)",  # bounds that are not numbers
    *("np.clip(a_bool, 1, b_int8)", "np.clip(a_int8, b_uint16, b_float32)"),  # types of all three operands together
    *("a_bool.T @ a_bool", "np.reciprocal(a_bool)"),  # refused
    *("a_bool.conj()", "np.conj(a_bool)"),  # bool, and int8
]
IN_PLACE = [f"{sign}= {other}" for sign in _SIGNS[:12] for other in ("b", "s", "3", "0.5", "2j", "f")]


def values(dtype: str) -> np.ndarray:
    """Return special values of a type."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.array([False, True])
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return np.array([info.min, info.max, 100, 7, 2, 1, 0, info.min + 1, -1 if info.min else 3], kind)
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -3.0, 1.0, 1e-3, 1e30, -7.25]
    parts = [np.nan, np.inf, -np.inf, 0.0, 1.0, -2.5]
    return np.array(special if kind.kind == "f" else [complex(x, y) for x in parts for y in parts], kind)


def arguments() -> dict[str, Any]:
    """Return arguments of all programs: two matrices of each type, in which all pairs of values meet, and scalars."""
    given: dict[str, Any] = {"n": 2, "f": 0.5}
    for dtype in TYPES:
        own = values(dtype)
        given[f"a_{dtype}"] = np.resize(own, (36, 37)).copy()
        given[f"b_{dtype}"] = np.resize(np.repeat(own, 36), (36, 37)).copy()
        given[f"s_{dtype}"] = own[-2]
    return given


def cases(rng: random.Random) -> list[str]:
    """Return statements on each type, and on pairs of types, in random order."""
    made = []
    for a in TYPES:
        for b in (a, *rng.sample(TYPES, 3)):
            names = {"a": f"a_{a}", "b": f"b_{b}", "s": f"s_{b}"}
            texts = [*(UNARY if a == b else []), *BINARY, *(f"c {text}  # a" for text in IN_PLACE)]
            made += [re.sub(r"\b[abs]\b(?!\()", lambda found, own=names: own[found[0]], text) for text in texts]
    made = list(dict.fromkeys(made))
    rng.shuffle(made)
    return [*ALWAYS, *(text for text in made if text not in ALWAYS)]


def statement(text: str, result: str) -> list[str]:
    """Return the lines that compute a case."""
    if not text.startswith("c "):
        return [f"    {result} = {text}"]
    changed, name = text.split("  # ")
    return [f"    {result} = np.copy({name})", f"    {result}{changed[1:]}"]


def module(texts: list[list[str]], folder: Path, name: str) -> Any:
    """Return a module of programs, each of some statements."""
    lines = ["import dace", "import numpy as np"]
    for number, several in enumerate(texts):
        used = sorted(set(re.findall(r"\b[abs]_\w+\b|\b[nf]\b", " ".join(several))))
        kinds = {one: "dace." + one[2:] + ("[36, 37]" if one[0] != "s" else "") for one in used}
        kinds |= {"n": "int", "f": "float"}
        lines += ["@dace.program", f"def program_{number}({', '.join(f'{one}: {kinds[one]}' for one in used)}):"]
        lines += [line for position, text in enumerate(several) for line in statement(text, f"r{position}")]
        lines += [f"    return {', '.join(f'r{position}' for position in range(len(several)))}"]
    return load("\n".join(lines) + "\n", folder, name)


def by_numpy(text: str, given: dict[str, Any]) -> Any:
    """Return the result of a case in NumPy, or its error."""
    names = {"np": np} | copy.deepcopy(given)
    with np.errstate(all="ignore"), contextlib.suppress(np.exceptions.ComplexWarning):
        try:
            exec("\n".join(line.strip() for line in statement(text, "result")), names)
        except (TypeError, ValueError, OverflowError) as error:
            return error
    return np.asarray(names["result"])


def differs(text: str, found: np.ndarray, wanted: np.ndarray) -> bool:
    """Return True if the results of a case differ."""
    if found.dtype != wanted.dtype or found.size != wanted.size:
        return True
    found, units = found.reshape(wanted.shape), UNITS if re.search(ROUNDED, text) else 0
    with np.errstate(all="ignore"):
        if wanted.dtype.kind not in "fc":
            return bool(np.any(found != wanted))
        distance = np.abs(np.where(np.isfinite(wanted) & np.isfinite(found), found - wanted, 0))
        steps = np.spacing(np.abs(np.where(np.isfinite(wanted), wanted, 0)))
        near = (distance == 0) | (distance <= units * steps)  # the step after the largest number is infinite
        parts = [(found.real, wanted.real), (found.imag, wanted.imag)]
        same = [(x == y) | (np.isnan(x) & np.isnan(y)) | (np.isfinite(x) & np.isfinite(y)) for x, y in parts]
        reals = parts if wanted.dtype.kind == "f" else []
        signs = [(np.signbit(x) == np.signbit(y)) | (y != 0) | bool(units) for x, y in reals]
    return not bool(np.all([np.all(one) for one in (near, *same, *signs)]))

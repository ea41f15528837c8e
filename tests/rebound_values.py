"""
Random programs whose value from outside changes between two calls of ``distribute``, or between two processes.

``python rebound_values.py FOLDER FIRST COUNT`` distributes each with its second value, in a process of its own.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from random_programs import load

_NUMBERS = ["2", "2.0", "2.5", "2.5 + 1e-12", "np.float32(2.5)", "np.float64(2.5)", "True", "-0.0", "2j"]
_TYPES = ["np.float32", "np.float64", "dace.float32", "dace.float64", "dace.complex128", "complex", "np.dtype('f4')"]
_ARRAYS = ["np.ones(8)", "np.full(8, 1 + 1e-9)", "np.full(8, 2.0)", "np.arange(8.0)", "np.ones(8, np.float32)"]
#: Statements by what the value is, with parameters, and expressions that the value is drawn from.
CASES: dict[str, tuple[str, list[str]]] = {
    "number": ("B = A * value", _NUMBERS),
    "number of a function": ("B = scaled(A)", _NUMBERS),
    "number of a scope": ("B = A * inner", _NUMBERS),
    "default": ("B = A * s", ["2.0", "2.5", "2.5 + 1e-12", "3"]),
    "flag": ("B = A * 1\n    if value:\n        B = B * 2", ["True", "False", "0", "1"]),
    "type": ("B = A.astype(value)", _TYPES),
    "type of zeros": ("B = np.zeros((8,), dtype=value)\n    B[:] = A", _TYPES),
    "annotation": ("B = A * 1", ["dace.float32", "dace.float64", "dace.complex128"]),
    "function": (
        "B = value(A)",
        "np.exp np.sin np.square abs doubled tripled scaled_twice method.m method".split()
        + ["lambda x: 2 * x * Three.factor"],
    ),
    "expression": ("B = np.einsum(value, A, A)", ["'i,j->ij'", "'i,i->i'", "'i,j->i'", "'i,i->'"]),
    "element": ("B = A * value[1]", ["[1, 2.0]", "(1, 2.0)", "[1, 3.0]", "{1: 2.0}", "[1, np.float32(2)]", "[1]"]),
    "deep": ("B = A * value[0]['a'][1]", ["[{'a': (1, 2.0)}]", "[{'a': (1, 2.5)}]", "({'a': [0, 2]},)", "[{}]"]),
    "elements": ("B = A * 1\n    for w in value:\n        B = B * w", ["[2.0, 3.0]", "(2.0, 4.0)", "[2.0]"]),
    "functions": ("B = A * 1\n    for f in value:\n        B = f(B)", ["[doubled]", "[doubled, tripled]", "[np.exp]"]),
    "array": ("B = A + value", _ARRAYS),
    "arrays": ("B = A * 1\n    for w in value:\n        B = B * w", [f"[{array}]" for array in _ARRAYS]),
    "attribute": ("B = A * value.factor", [f"SimpleNamespace(factor={number})" for number in _NUMBERS] + ["Three"]),
    "bound of a map": ("B = A * 1\n    for i in dace.map[0:value]:\n        B[i] = 2 * A[i]", ["8", "4", "5"]),
    "axis": ("B = np.sum(np.outer(A, A) * A, axis=value)", ["0", "1", "-1", "None", "(0, 1)"]),
    "module": ("B = value.sqrt(A)", ["np", "np.emath"]),
    "part": ("B = A[value] * 2", ["slice(0, 4)", "slice(1, 5)", "3", "slice(None)"]),
}
_SOURCE = """{future}
from types import SimpleNamespace

import dace
import numpy as np

class Three:
    factor = 3.0

class Method:
    factor = 2.0

    def m(self, x):
        return x * self.factor

    def __call__(self, x):
        return x * self.factor + 1

method = Method()

def doubled(x):
    return 2.0 * x

def tripled(x):
    return 3.0 * x

def scaled_twice(x):
    return doubled(x) * Three.factor

value = {value}

def scaled(x):
    return x * value

def made(inner):
    @dace.program
    def program(A: {kind}[8]{default}):
        {statement}
        return B
    return program

program = made(value)
"""


class Rebound(NamedTuple):
    """Kind of a value, sources of a program with a first and a second one, and the second one's expression."""

    kind: str
    first: str
    second: str
    expression: str


def rebound(seed: int) -> Rebound:
    """Return a program; equal seeds give equal programs."""
    rng = random.Random(seed)
    kind = rng.choice([*CASES])
    statement, values = CASES[kind]
    facts = {
        "statement": statement.replace("\n", "\n    "),
        "kind": "value" if kind == "annotation" else "dace.float64",
        "default": ", s=value" if kind == "default" else "",
        "future": rng.choice(("", "from __future__ import annotations")),
    }
    first, second = (rng.choice(values) for _ in range(2))
    return Rebound(kind, *(_SOURCE.format(value=value, **facts) for value in (first, second)), second)


def outcome(program: Any) -> str:
    """Return the result of a program on two simulated ranks, or the error."""
    from distributed_simulation import SimulatedRanks

    from dace_redist import distribute

    try:
        results = SimulatedRanks(distribute(program, 2)).run(A=np.arange(8.0))
        return repr([(name, value.dtype.str, value.shape, value.tobytes().hex()) for name, value in results.items()])
    except Exception as error:
        return re.sub(" at 0x[0-9a-f]*", "", f"{type(error).__name__}: {error}")


def kept_and_planned(program: Any) -> list[str]:
    """Return the outcome with kept plans, and without."""
    found = []
    for setting in "10":
        os.environ["DACE_REDIST_KEEP_PLANS"] = setting
        found.append(outcome(program))
    return found


if __name__ == "__main__":
    folder, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    numbers = range(first, first + count)
    programs = (load(rebound(number).second, folder, f"rebound_{number}").program for number in numbers)
    print("\n" + json.dumps([kept_and_planned(program) for program in programs]))

"""Random programs: source text that both NumPy and ``distribute`` run. Start reading at: random_program."""

from __future__ import annotations

import contextlib
import importlib.util
import random
from pathlib import Path
from string import ascii_lowercase
from types import ModuleType
from typing import Any, NamedTuple

#: Names of extents; "1" is a dimension of one element.
SYMBOLS = (*"IJK", "1")
TYPES = ("float64",) * 6 + ("float32", "complex128", "int64", "int32")

Shape = tuple[str, ...]

HEADER = """import dace
import numpy as np

I, J, K = (dace.symbol(name, dace.int64) for name in "IJK")


def combined(x, y, factor=2):
    return x * factor - y

"""


class RandomProgram(NamedTuple):
    """
    Program and extents for it.

    :param source: Its text; the function is called ``program``.
    :param sizes: Extents by name, for two calls.
    """

    source: str
    sizes: tuple[dict[str, int], dict[str, int]]


def load(source: str, folder: Path, name: str) -> ModuleType:
    """Return the module of a source text, written to a file, which DaCe requires."""
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def random_program(seed: int) -> RandomProgram:
    """
    Return a program and extents.

    :param seed: Seed; equal seeds give equal programs.
    """
    rng = random.Random(seed)
    any_extent = {name for name in "IJK" if rng.random() < 0.2}
    sizes = [
        {name: rng.choice((0, 1, 1, 2, 6)) if name in any_extent else rng.randint(2, 7) for name in "IJK"}
        for _ in range(2)
    ]
    return RandomProgram(_Writer(rng, any_extent).program(), (sizes[0], sizes[1]))


class _Writer:
    """
    Writer of statements with consistent shapes.

    :param rng: Random generator.
    :param any_extent: Names of extents that may be 0 or 1; the others are at least 2.
    """

    def __init__(self, rng: random.Random, any_extent: set[str]) -> None:
        self._rng, self._any_extent = rng, any_extent
        self._dtype = rng.choice(TYPES)
        self._known: dict[str, Shape] = {}
        self._indices: list[str] = []
        self._fixed: set[str] = set()
        self._count = 0
        self._kinds = [
            *(self._einsum, self._einsum, self._product, self._elementwise, self._elementwise, self._broadcast),
            *(self._reduction, self._reduction, self._permutation, self._update, self._part, self._written_part),
            *(self._mask, self._mask, self._choice, self._choice, self._method, self._function),
            *(self._parts_alike, self._reshape, self._diagonal, self._loop, self._branch),
        ]

    def program(self) -> str:
        """Return the whole source."""
        rng = self._rng
        arguments = []
        for name in ascii_lowercase[: rng.randint(2, 4)]:
            shape = self._shape(rng.randint(1, 3))
            self._known[name] = shape
            arguments.append(f"{name}: dace.{self._dtype}[{', '.join(shape)}]")
        if rng.random() < 0.5:
            arguments.append(f"s: dace.{self._dtype}")
            self._known["s"] = ()
        lines = [line for _ in range(rng.randint(2, 5)) for line in self._statement(1)]
        made = [name for name in self._known if name.startswith("t")]
        if rng.random() < 0.1:
            lines.append("    a += 1")
        else:
            returned = rng.sample(made, min(len(made), rng.randint(1, 3))) or ["a + a"]
            lines.append(f"    return {', '.join(returned)}")
        return f"{HEADER}\n@dace.program\ndef program({', '.join(arguments)}):\n" + "\n".join(lines) + "\n"

    # What is there to choose from

    def _shape(self, ndim: int) -> Shape:
        return tuple(self._rng.choices(SYMBOLS, weights=(4, 4, 4, 1), k=ndim))

    def _any(self, fits: Any = lambda shape: True) -> tuple[str, Shape]:
        """Return a variable; IndexError if none fits."""
        return self._rng.choice([(name, shape) for name, shape in self._known.items() if fits(shape)])

    def _maybe(self, fits: Any) -> tuple[str, Shape] | None:
        return self._any(fits) if any(map(fits, self._known.values())) else None

    def _array(self, least: int = 1, most: int = 3) -> tuple[str, Shape]:
        return self._any(lambda shape: least <= len(shape) <= most)

    def _new(self, shape: Shape) -> str:
        """Return a name for a result: mostly a new one, else that of a variable of the same shape."""
        same = [name for name, known in self._known.items() if known == shape and name.startswith("t")]
        if same and self._rng.random() < 0.3:
            return self._rng.choice(same)
        name = f"t{self._count}"
        self._count += 1
        self._known[name] = shape
        return name

    def _number(self) -> str:
        return self._rng.choice(("2", "3", "-1") if self._is_integer() else ("0.5", "2.0", "-0.25"))

    def _is_integer(self) -> bool:
        return self._dtype.startswith("int")

    def _condition(self, name: str) -> str:
        """Return a comparison of elements, with a number that few results are close to."""
        value = f"np.abs({name})" if self._dtype == "complex128" else name
        return f"{value} {self._rng.choice('<>')} {'1' if self._is_integer() else '0.137'}"

    def _position(self, extent: str) -> str:
        """Return a valid index: a number, a number from the end, or the index of a loop, which is 0 or 1."""
        if extent == "1":
            return "0"
        if extent in self._any_extent:
            return ":"
        return self._rng.choice(("0", "1", f"{extent} - 1", *self._indices))

    def _statement(self, depth: int) -> list[str]:
        kinds = self._kinds if depth < 3 else self._kinds[:-2]
        while True:
            with contextlib.suppress(IndexError):
                return self._rng.choice(kinds)(depth)

    @staticmethod
    def _line(depth: int, text: str) -> list[str]:
        return ["    " * depth + text]

    # Statements; IndexError where no variable fits

    def _einsum(self, depth: int) -> list[str]:
        rng, letters = self._rng, dict[str, list[str]]()
        free = iter("ijklmnopq")
        operands, terms = [], []
        for _ in range(rng.choice((1, 2, 2, 2, 3))):
            found = self._array()
            term = ""
            for extent in found[1]:
                same = [letter for letter in letters.get(extent, []) if letter not in term or rng.random() < 0.1]
                letter = rng.choice(same) if same and rng.random() < 0.7 else next(free)
                letters.setdefault(extent, []).append(letter)
                term += letter
            operands.append(found[0])
            terms.append(term)
        used = "".join(dict.fromkeys("".join(terms)))
        result = "".join(rng.sample(used, rng.randint(0, min(3, len(used)))))
        extents = {letter: extent for extent, own in letters.items() for letter in own}
        name = self._new(tuple(extents[letter] for letter in result))
        text = f'np.einsum("{",".join(terms)}->{result}", {", ".join(operands)})'
        # Of one operand NumPy may return a view, which DaCe does not know.
        return self._line(depth, f"{name} = {text}" if len(operands) > 1 else f"{name} = np.copy({text})")

    def _product(self, depth: int) -> list[str]:
        left = self._array(1, 2)
        right = self._any(lambda shape: 1 <= len(shape) <= 2 and shape[0] == left[1][-1])
        name = self._new(left[1][:-1] + right[1][1:])
        return self._line(depth, f"{name} = {left[0]} @ {right[0]}")

    def _elementwise(self, depth: int) -> list[str]:
        found = self._any()
        other = self._any(lambda shape: shape in (found[1], ()))
        texts = [f"{found[0]} {self._rng.choice('+-*')} {other[0]}", f"{self._number()} * {found[0]} - {other[0]}"]
        if not self._is_integer():
            texts += [f"{found[0]} / ({other[0]} * {other[0]} + 3.0)", f"np.exp(-{found[0]} * {found[0]})"]
        return self._line(depth, f"{self._new(found[1])} = {self._rng.choice(texts)}")

    def _broadcast(self, depth: int) -> list[str]:
        found = self._array(2, 3)
        row = self._maybe(lambda shape: len(shape) == 1 and shape[0] == found[1][-1])
        column = self._maybe(lambda shape: len(shape) == 1 and shape[0] == found[1][-2])
        texts = [] if row is None else [row[0], f"{row[0]}[None, :]"]
        texts += [] if column is None else [f"{column[0]}[:, None]"]
        text, sign = self._rng.choice(texts), self._rng.choice("+-*")
        if self._rng.random() < 0.4 and len(found[1]) == 2:
            return self._line(depth, f"{found[0]} {sign}= {text}")
        return self._line(depth, f"{self._new(found[1])} = {found[0]} {sign} {text}")

    def _reduction(self, depth: int) -> list[str]:
        found = self._array()
        axis, keep = self._rng.randrange(len(found[1])), self._rng.random() < 0.3
        is_whole = self._rng.random() < 0.3
        names = (
            "sum mean" if self._dtype == "complex128" else "sum max min" if self._is_integer() else "sum mean max min"
        )
        if self._any_extent.intersection(found[1] if is_whole else found[1][axis : axis + 1]):
            names = "sum"  # the others have no value without elements
        function = self._rng.choice(names.split())
        if is_whole:
            return self._line(depth, f"{self._new(())} = np.{function}({found[0]})")
        shape = (*found[1][:axis], *(["1"] if keep else []), *found[1][axis + 1 :])
        options = f"axis={axis}, keepdims=True" if keep else f"axis={axis}"
        method = self._rng.random() < 0.3
        text = f"{found[0]}.{function}({options})" if method else f"np.{function}({found[0]}, {options})"
        return self._line(depth, f"{self._new(shape)} = {text}")

    def _permutation(self, depth: int) -> list[str]:
        found = self._array(2, 3)
        order = self._rng.sample(range(len(found[1])), len(found[1]))
        shape = tuple(found[1][axis] for axis in order)
        texts = [f"np.transpose({found[0]}, {tuple(order)})"]
        if order == list(range(len(order)))[::-1]:
            texts.append(f"{found[0]}.T")
        text = self._rng.choice(texts)
        return self._line(depth, f"{self._new(shape)} = {text} * {self._number()}")

    def _update(self, depth: int) -> list[str]:
        found = self._array()
        other = self._any(lambda shape: shape in (found[1], ()))
        number = self._number()
        texts = [
            f"{found[0]} {self._rng.choice('+-*')}= {other[0]}",
            f"{found[0]}[:] = {other[0]} * {number} + {found[0]}",
        ]
        return self._line(depth, self._rng.choice(texts))

    def _part(self, depth: int) -> list[str]:
        found = self._array()
        text, shape = self._slice(found[1])
        return self._line(depth, f"{self._new(shape)} = {found[0]}[{text}] * {self._number()}")

    def _slice(self, whole: Shape) -> tuple[str, Shape]:
        parts, shape = [], []
        for extent in whole:
            if self._rng.random() < 0.5:
                parts.append(":")
                shape.append(extent)
            else:
                parts.append(self._position(extent))
                shape += [extent] * (parts[-1] == ":")
        return ", ".join(parts), tuple(shape)

    def _written_part(self, depth: int) -> list[str]:
        found = self._array()
        text, shape = self._slice(found[1])
        other = self._maybe(lambda known: known in (shape, ()))
        value = self._number() if other is None else f"{other[0]} * {self._number()}"
        sign = self._rng.choice(("=", "=", "+="))
        return self._line(depth, f"{found[0]}[{text}] {sign} {value}")

    def _parts_alike(self, depth: int) -> list[str]:
        """Return a statement of equal parts of two arrays, which may have steps, and extents that change in a loop."""
        found = self._array()
        other = self._any(lambda shape: shape == found[1])[0]
        grow = [text for index in self._indices for text in (f":{index} + 1", f"{index}:", f"{index}::2")]
        places = {extent: (":", "::2", "1:", ":-1", "1::3", *grow, *grow) for extent in found[1]}
        places |= {"1": (":",), **dict.fromkeys(self._any_extent, (":", "::2"))}
        part = ", ".join(self._rng.choice(places[extent]) for extent in found[1])
        value = self._rng.choice((f"{other}[{part}] * {self._number()}", f"np.flip({other}[{part}])", self._number()))
        if self._rng.random() < 0.3:
            return self._line(depth, f"{self._new(())} = np.sum({found[0]}[{part}] * {other}[{part}])")
        return self._line(depth, f"{found[0]}[{part}] {self._rng.choice(('=', '+='))} {value}")

    def _reshape(self, depth: int) -> list[str]:
        found = self._array(2, 3)
        merged = (f"{found[1][0]} * {found[1][1]}", *found[1][2:])
        name = f"t{self._count}"  # not known to other statements: there is no name for its extent
        self._count += 1
        lines = self._line(depth, f"{name} = np.reshape({found[0]}, ({', '.join(merged)},))")
        return lines + self._line(depth, f"{self._new(found[1][2:])} = np.sum({name}, axis=0)")

    def _diagonal(self, depth: int) -> list[str]:
        found = self._maybe(lambda shape: len(shape) == 2 and shape[0] == shape[1])
        vector = self._maybe(lambda shape: len(shape) == 1)
        texts: list[tuple[str, Shape]] = []
        if found is not None:
            texts += [(f"np.copy(np.diag({found[0]}))", found[1][:1]), (f"np.trace({found[0]})", ())]
            if found[1][0] != "1" and self._dtype == "float64":
                texts.append((f"{found[0]} + np.eye({found[1][0]})", found[1]))
        if vector is not None:
            texts.append((f"np.diag({vector[0]})", vector[1] * 2))
        text, shape = self._rng.choice(texts)
        return self._line(depth, f"{self._new(shape)} = {text}")

    def _mask(self, depth: int) -> list[str]:
        found = self._array()
        condition = self._condition(self._any(lambda shape: shape == found[1])[0])
        if self._rng.random() < 0.3:
            return self._line(depth, f"{found[0]}[{condition}] *= {self._number()}")
        return self._line(depth, f"{found[0]}[{condition}] = {self._number()}")

    def _choice(self, depth: int) -> list[str]:
        found = self._array()
        names = [self._any(lambda shape: shape in (found[1], ()))[0] for _ in range(2)]
        texts = [self._condition(name) for name in (found[0], found[0], names[0])]
        if self._rng.random() < 0.3:
            texts = [f"({texts[0]}) {self._rng.choice('&|')} ({self._condition(found[0])})"]
        values = [self._rng.choice((name, found[0], f"{name} * {self._number()}")) for name in names]
        return self._line(depth, f"{self._new(found[1])} = np.where({texts[0]}, {values[0]}, {values[1]}) + {found[0]}")

    def _method(self, depth: int) -> list[str]:
        found = self._array()
        flat = self._rng.random() < 0.2 and not self._any_extent.intersection(found[1])
        texts = [
            (f"{found[0]}.copy()", found[1]),
            (f"{found[0]}.transpose() + {self._number()}", found[1][::-1]),
            (f"{found[0]}.sum()" if flat else f"{found[0]}.sum(axis=-1)", () if flat else found[1][:-1]),
            (f"{found[0]}.astype(dtype=np.{self._dtype}) * {self._number()}", found[1]),
            (f"{found[0]}.conj() * {found[0]}", found[1]),
        ]
        if len(found[1]) == 1:
            other = self._any(lambda shape: 1 <= len(shape) <= 2 and shape[0] == found[1][0])
            texts.append((f"{found[0]}.dot({other[0]})", other[1][1:]))
        text, shape = self._rng.choice(texts)
        return self._line(depth, f"{self._new(shape)} = {text}")

    def _function(self, depth: int) -> list[str]:
        x = self._array()
        y = self._any(lambda shape: shape in (x[1], ()))[0]
        texts = [f"{x[0]}, {y}", f"{x[0]}, y={y}", f"y={y}, x={x[0]}", f"{x[0]}, {y}, factor={self._number()}"]
        return self._line(depth, f"{self._new(x[1])} = combined({self._rng.choice(texts)})")

    # Loops and branches: what is made in them is not known after them

    def _block(self, depth: int) -> list[str]:
        known = dict(self._known)
        lines = [line for _ in range(self._rng.randint(1, 3)) for line in self._statement(depth)]
        self._known = known
        return lines

    def _loop(self, depth: int) -> list[str]:
        index = f"n{self._count}"
        self._count += 1
        if self._rng.random() < 0.3:
            start = self._line(depth, f"{index} = 0") + self._line(depth, f"while {index} < {self._rng.randint(1, 3)}:")
            return start + self._block(depth + 1) + self._line(depth + 1, f"{index} = {index} + 1")
        self._indices.append(index)
        head = self._line(depth, f"for {index} in range(2):")
        body = self._block(depth + 1)
        self._indices.remove(index)
        return head + body

    def _branch(self, depth: int) -> list[str]:
        scalar = self._maybe(lambda shape: shape == ())
        conditions = [] if scalar is None or self._dtype == "complex128" else [f"{scalar[0]} > {self._number()}"]
        conditions += [f"{index} == {self._rng.randrange(2)}" for index in self._indices]
        lines = self._line(depth, f"if {self._rng.choice(conditions)}:") + self._block(depth + 1)
        if self._rng.random() < 0.5:
            lines += self._line(depth, "else:") + self._block(depth + 1)
        return lines

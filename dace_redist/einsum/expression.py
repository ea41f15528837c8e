"""Index strings of an einsum. Start reading at: Einsum."""

from __future__ import annotations

import dataclasses
import itertools
import string
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from dace_redist.report.units import count

_DOTS = "..."
#: First character after the letters that opt_einsum takes as an index.
_FIRST_BEYOND = "\u00c0"


def symbols() -> Iterator[str]:
    """Yield characters for indices: letters, then what opt_einsum takes when there are no more."""
    yield from string.ascii_letters
    yield from map(chr, itertools.chain(range(ord(_FIRST_BEYOND), 0xD800), range(0xE000, 0x110000)))


@dataclasses.dataclass(frozen=True)
class Einsum:
    """
    Indices of the operands and of the result of an einsum.

    :param operands: One index string per operand, as in ``("ijk", "ja")``.
    :param result: Indices of the result, as in ``"ika"``; the other indices are summed over.
    :raises ValueError: If the result has an index that no operand has, or has it twice.
    """

    operands: tuple[str, ...]
    result: str

    def __post_init__(self) -> None:
        known = set("".join(self.operands))
        for index, times in Counter(self.result).items():
            if index not in known:
                raise ValueError(f"einsum '{self}': the result has the index {index!r}, which no operand has")
            if times > 1:
                raise ValueError(f"einsum '{self}': the result has the index {index!r} {times} times, expected once")

    @classmethod
    def parse(cls, text: str, dimensions: Sequence[int] | None = None) -> Einsum:
        """
        Read NumPy's notation: ``"ijk,ja->ika"``, blanks anywhere, the result left out, ``...`` for leading dimensions.

        :param dimensions: Number of dimensions of each operand; required for ``...``, else only checked.
        :raises ValueError: If the text is not a valid einsum, or contradicts the dimensions.
        """
        if not isinstance(text, str):
            raise TypeError(f"einsum: the subscripts must be a string such as 'ij,jk->ik', got {text!r}")
        words = "".join(text.split())
        left, arrow, right = words.partition("->")
        operands = left.split(",")
        _check_letters(text, [*operands, right])
        if dimensions is not None and len(dimensions) != len(operands):
            raise ValueError(f"einsum '{text}' has {count(len(operands), 'operand')}, got {len(dimensions)} arrays")
        if dimensions is None and _DOTS in words:
            raise ValueError(f"einsum '{text}': what ... stands for needs the number of dimensions of every operand")
        lengths = [len(operand) for operand in operands] if dimensions is None else dimensions
        for number, (operand, length) in enumerate(zip(operands, lengths, strict=True)):
            if _DOTS in operand and len(operand) - len(_DOTS) > length:
                raise ValueError(
                    f"einsum '{text}': operand {number} ({operand!r}) has more indices than its array "
                    f"dimensions, {length}"
                )
            if _DOTS not in operand and len(operand) != length:
                raise ValueError(
                    f"einsum '{text}': operand {number} has the indices {operand!r}, "
                    f"but its array has {count(length, 'dimension')}"
                )
        if arrow and _DOTS not in words:
            return cls(tuple(operands), right)
        from opt_einsum.parser import parse_einsum_input

        try:
            left, right, _ = parse_einsum_input((words, *((1,) * length for length in lengths)), shapes=True)
        except ValueError as error:
            raise ValueError(f"einsum '{text}': {error}") from None
        return cls(tuple(left.split(",")), right)

    @cached_property
    def indices(self) -> str:
        """All distinct indices, in order of appearance."""
        return "".join(dict.fromkeys("".join(self.operands)))

    @cached_property
    def summed(self) -> str:
        """The indices summed over, in order of appearance."""
        return "".join(index for index in self.indices if index not in self.result)

    @cached_property
    def repeated(self) -> str:
        """Indices that one operand has more than once: they select its diagonal."""
        return "".join(i for i in self.indices if any(operand.count(i) > 1 for operand in self.operands))

    @cached_property
    def distinct(self) -> tuple[Einsum, dict[str, str]]:
        """
        Return the einsum with repeated indices renamed, and the original of each new index.

        For ``ii,ij->j`` these are ``ia,ij->j`` and ``{"a": "i"}``.
        """
        free = (symbol for symbol in symbols() if symbol not in self.indices)
        equal: dict[str, str] = {}
        operands = []
        for operand in self.operands:
            places: list[str] = []
            for index in operand:
                place = next(free) if index in places else index
                equal |= {place: index} if place != index else {}
                places.append(place)
            operands.append("".join(places))
        return Einsum(tuple(operands), self.result), equal

    def extents(self, shapes: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """
        Return the size of every index.

        :raises ValueError: If the shapes do not match the indices, or two sizes of one index differ; names both.
        """
        if len(shapes) != len(self.operands):
            raise ValueError(
                f"einsum '{self}' has {count(len(self.operands), 'operand')}, got {count(len(shapes), 'shape')}"
            )
        sizes: dict[str, tuple[Any, int]] = {}
        for number, (operand, shape) in enumerate(zip(self.operands, shapes, strict=True)):
            if len(operand) != len(shape):
                raise ValueError(
                    f"einsum '{self}': operand {number} ({operand!r}) needs {count(len(operand), 'dimension')}, "
                    f"got the shape {tuple(shape)}"
                )
            for index, size in zip(operand, shape, strict=True):
                first, where = sizes.setdefault(index, (size, number))
                if first != size:
                    raise ValueError(
                        f"einsum '{self}': index {index!r} has size {first} in operand {where} "
                        f"({self.operands[where]!r}) but size {size} in operand {number} ({operand!r})"
                    )
        return {index: size for index, (size, _) in sizes.items()}

    def __str__(self) -> str:
        return f"{','.join(self.operands)}->{self.result}"


def canonical(operands: Sequence[tuple[Any, str]], result: str) -> tuple[Any, ...]:
    """
    Return the canonical form of an einsum, equal for equal results: operands sorted, indices renamed in order.

    :param operands: Identity and indices of each operand.
    """
    ordered = sorted(operands, key=repr)
    letters = dict(zip(dict.fromkeys("".join(term for _, term in ordered)), symbols(), strict=False))
    terms = tuple("".join(letters[index] for index in term) for _, term in ordered)
    return tuple(name for name, _ in ordered), terms, "".join(letters[index] for index in result)


def _check_letters(text: str, words: Sequence[str]) -> None:
    for word in words:
        letters = word.replace(_DOTS, "", 1)
        bad = [one for one in letters if one not in string.ascii_letters and one < _FIRST_BEYOND]
        if bad:
            raise ValueError(
                f"einsum '{text}': {bad[0]!r} in {word!r} is not an index; expected letters, commas, one -> and (...)"
            )

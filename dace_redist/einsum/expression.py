"""Index strings of an einsum. Start reading at: Einsum."""

from __future__ import annotations

import dataclasses
import string
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

_DOTS = "..."


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
        for index, count in Counter(self.result).items():
            if index not in known:
                raise ValueError(f"einsum '{self}': the result has the index {index!r}, which no operand has")
            if count > 1:
                raise ValueError(f"einsum '{self}': the result has the index {index!r} {count} times, expected once")

    @classmethod
    def parse(cls, text: str, dimensions: Sequence[int] | None = None) -> Einsum:
        """
        Read NumPy's notation: ``"ijk,ja->ika"``, blanks anywhere, the result left out, ``...`` for leading dimensions.

        :param text: The subscripts.
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
            raise ValueError(f"einsum '{text}' has {_count(len(operands), 'operand')}, got {len(dimensions)} arrays")
        if _DOTS in words:
            operands, dots = _expanded(text, operands, dimensions)
            right = right.replace(_DOTS, dots)
        else:
            dots = ""
        for number, operand in enumerate(operands):
            if dimensions is not None and len(operand) != dimensions[number]:
                raise ValueError(
                    f"einsum '{text}': operand {number} has the indices {operand!r}, "
                    f"but its array has {_count(dimensions[number], 'dimension')}"
                )
        if not arrow:
            counts = Counter("".join(operands))
            right = dots + "".join(sorted(i for i, count in counts.items() if count == 1 and i not in dots))
        return cls(tuple(operands), right)

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
        free = (letter for letter in string.ascii_letters if letter not in self.indices)
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

        :param shapes: Shape of each operand.
        :raises ValueError: If the shapes do not match the indices, or two sizes of one index differ; names both.
        """
        if len(shapes) != len(self.operands):
            raise ValueError(
                f"einsum '{self}' has {_count(len(self.operands), 'operand')}, got {_count(len(shapes), 'shape')}"
            )
        sizes: dict[str, tuple[Any, int]] = {}
        for number, (operand, shape) in enumerate(zip(self.operands, shapes, strict=True)):
            if len(operand) != len(shape):
                raise ValueError(
                    f"einsum '{self}': operand {number} ({operand!r}) needs {_count(len(operand), 'dimension')}, "
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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _check_letters(text: str, words: Sequence[str]) -> None:
    for word in words:
        bad = [letter for letter in word.replace(_DOTS, "", 1) if letter not in string.ascii_letters]
        if bad:
            raise ValueError(
                f"einsum '{text}': {bad[0]!r} in {word!r} is not an index; expected letters, commas, one -> and (...)"
            )


def _expanded(text: str, operands: Sequence[str], dimensions: Sequence[int] | None) -> tuple[list[str], str]:
    """Replace ``...`` by letters in all operands; also return the letters of the operand that needs most of them."""
    if dimensions is None:
        raise ValueError(f"einsum '{text}': what ... stands for needs the number of dimensions of every operand")
    missing = [n - len(o) + len(_DOTS) if _DOTS in o else 0 for o, n in zip(operands, dimensions, strict=True)]
    for number, (operand, dots) in enumerate(zip(operands, missing, strict=True)):
        if dots < 0:
            raise ValueError(
                f"einsum '{text}': operand {number} ({operand!r}) has more indices than its array dimensions, "
                f"{dimensions[number]}"
            )
    free = [letter for letter in string.ascii_letters if letter not in text]
    letters = "".join(free[: max(missing)])
    return [o.replace(_DOTS, letters[len(letters) - n :]) for o, n in zip(operands, missing, strict=True)], letters

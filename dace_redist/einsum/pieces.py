"""Memory that arrays share, those that are not live at the same time. Function :func:`pieces`."""

from __future__ import annotations

from collections.abc import Sequence


def pieces(nbytes: Sequence[int], lifetimes: Sequence[tuple[int, int]]) -> list[int]:
    """
    Return for each array the number of a piece of memory, as large as the largest array in it.

    Arrays are placed by size, the largest first, each into the first piece in which it meets no other one.

    :param nbytes: Sizes of the arrays.
    :param lifetimes: First and last step at which each is live. At a step all that are live then need their memory.
    """
    held: list[list[tuple[int, int]]] = []  # the lifetimes of the arrays in each piece
    numbers = [0] * len(nbytes)
    for array in sorted(range(len(nbytes)), key=lambda array: -nbytes[array]):
        first, last = lifetimes[array]
        apart = (all(end < first or last < begin for begin, end in piece) for piece in held)
        numbers[array] = next((number for number, free in enumerate(apart) if free), len(held))
        if numbers[array] == len(held):
            held.append([])
        held[numbers[array]].append((first, last))
    return numbers

"""Shared by the tests of nodes on several ranks."""

from __future__ import annotations

from typing import Any

import numpy as np


def put(array: np.ndarray, part: np.ndarray) -> np.ndarray:
    """``array`` with ``part`` in its corner."""
    array[tuple(slice(0, n) for n in part.shape)] = part
    return array


def raise_anywhere(comm: Any, wrong: list[str]) -> None:
    everywhere = [text for texts in comm.allgather(wrong) for text in texts]
    assert not everywhere, "\n".join(text[:1500] for text in everywhere[:6])

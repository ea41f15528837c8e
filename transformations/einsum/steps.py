"""A program as it is read from an SDFG: steps over whole tensors, and loops around them."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dace.sdfg.state import LoopRegion

from dace_redist.einsum.statement import Statement


@dataclass(frozen=True)
class Step:
    """
    A statement and how to compute it.

    :param statement: Which tensors, and how their dimensions go together.
    :param alpha: What an einsum is multiplied by.
    :param code: What an elementwise statement computes: a tasklet's Python code.
    :param inputs: The name that ``code`` has for each operand that it reads. If these lack an index of the result, as
        for constants and broadcasts, the result itself follows them as an operand that is not read.
    :param output: The name that ``code`` has for the result.
    """

    statement: Statement
    alpha: Any = 1
    code: str = ""
    inputs: tuple[str, ...] = ()
    output: str = ""

    @property
    def read(self) -> tuple[str, ...]:
        """Names of the tensors that it reads, one for each operand read."""
        operands = self.statement.operands
        return operands[: len(self.inputs)] if self.statement.elementwise else operands


@dataclass(frozen=True)
class Loop:
    """
    Steps that are repeated.

    :param region: DaCe's loop; the distributed program has one with the same head.
    :param body: Steps and loops in it.
    :param repeats: How often it runs; 1 if that is not known.
    :param certain: Whether it runs at least once whatever the sizes.
    """

    region: LoopRegion
    body: tuple[Step | Loop, ...]
    repeats: int
    certain: bool = False


Body = Sequence["Step | Loop"]


def all_steps(body: Body) -> Iterator[Step]:
    """The steps in the order of the program, each once, those in loops too."""
    for item in body:
        if isinstance(item, Loop):
            yield from all_steps(item.body)
        else:
            yield item


def source_line(info: Any) -> str:
    """File, line and text of the statement that DaCe's debug information points at; empty if it does not know."""
    if info is None or not info.filename or not info.start_line:
        return ""
    text = linecache.getline(info.filename, info.start_line).strip()
    return f"{os.path.basename(info.filename)}:{info.start_line}" + (f": {text}" if text else "")

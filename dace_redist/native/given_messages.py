"""Plans of the library for messages that each rank describes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from dace_redist.native.interface import (
    EncodedOperation,
    EncodedProblem,
    NativePlan,
    check_agreed,
    library,
    native_operation,
)

#: Elements that a peer sends or receives: peer, offset, counts and strides, in elements of this rank's array.
Block = tuple[int, int, Sequence[int], Sequence[int]]
#: Counts, displacements in bytes, and handles of the datatypes of one side of an ``Alltoallw``, by rank.
TypedSide = tuple[Sequence[int], Sequence[int], Sequence[int]]


class _Block(ctypes.Structure):
    """``dr_block`` of ``dace_redist.h``."""

    _fields_ = [
        ("peer", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("offset", ctypes.c_int64),
        ("counts", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
    ]


class _BlockLists(ctypes.Structure):
    """``BlockLists`` of ``given_messages.hpp``."""

    _fields_ = [
        ("send_count", ctypes.c_int64),
        ("sends", ctypes.c_void_p),
        ("receive_count", ctypes.c_int64),
        ("receives", ctypes.c_void_p),
    ]


class NativeMessagePlan(NativePlan):
    """Plan of messages that each rank describes. Making one is collective; errors as of :class:`NativePlan`."""

    def __init__(self, create: str, *arguments: Any) -> None:
        self._plan = ctypes.c_void_p()
        self._addresses = ctypes.c_void_p * 1
        check_agreed(library()[create](*arguments, ctypes.byref(self._plan)))

    @classmethod
    def of_blocks(
        cls,
        comm: int,
        problem: EncodedProblem,
        itemsize: int,
        operation: EncodedOperation,
        sides: Sequence[Sequence[Block]],
    ) -> NativeMessagePlan:
        """
        Make a plan of messages in blocks.

        :param sides: Blocks that are sent, and that are received.
        """
        kept: list[Any] = []
        lists: list[Any] = []
        for blocks in sides:
            numbers = [[np.array(part, np.int64) for part in parts] for _, _, *parts in blocks]
            places = zip(blocks, numbers, strict=True)
            listed = [_Block(b[0], len(b[2]), b[1], *(part.ctypes.data for part in parts)) for b, parts in places]
            array = (_Block * len(blocks))(*listed)
            kept.append((numbers, array))
            lists += [len(blocks), ctypes.addressof(array)]
        where = ctypes.c_ssize_t(comm), *problem.how, ctypes.c_int64(itemsize)
        described = ctypes.byref(native_operation(operation)), ctypes.byref(_BlockLists(*lists))
        return cls("dr_python_plan_create_messages", *where, *described, problem.failure)

    @classmethod
    def of_datatypes(
        cls, comm: int, problem: EncodedProblem, source: TypedSide, target: TypedSide
    ) -> NativeMessagePlan:
        """Make a plan of an ``Alltoallw``."""
        integers = [np.array(numbers, np.intc) for side in (source, target) for numbers in side[:2]]
        types = [np.array(side[2], np.uintp) for side in (source, target)]
        lists = (ctypes.c_void_p * 4)(*(numbers.ctypes.data for numbers in integers))
        handles = (ctypes.c_void_p * 2)(*(numbers.ctypes.data for numbers in types))
        where = ctypes.c_ssize_t(comm), *problem.how
        return cls("dr_python_plan_create_alltoallw", *where, lists, handles, problem.failure)

"""Arrays of other libraries as a plan sees them, and what a forked child leaves alone."""

from __future__ import annotations

import functools
import operator
import os
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from device_arrays import OtherLibrary

from dace_redist.redistribution import arrays, cache
from dace_redist.redistribution.cache import Known, PlanCache
from dace_redist.redistribution.problem import Problem
from dace_redist.redistribution.problem.agreement import Facts


class Exporter(OtherLibrary):
    """An exporter of DLPack 1.0."""

    def __dlpack__(self, **version: Any) -> Any:
        return self.array.__dlpack__(**version)


@pytest.mark.parametrize("exporter", [Exporter, OtherLibrary])
def test_dlpack(exporter: type[OtherLibrary]):
    array = np.arange(12.0).reshape(3, 4)[:, ::2]
    view = arrays.array_view("A", exporter(array))
    assert (view.address, view.shape, view.strides) == (array.ctypes.data, (3, 2), array.strides)
    assert view.writeable and np.array_equal(view.as_numpy(), array)


def test_elements_that_share_memory():
    numbers = random.Random(7)
    for _ in range(500):
        itemsize, ndim = numbers.randint(1, 3), numbers.randint(0, 3)
        shape = [numbers.randint(0, 4) for _ in range(ndim)]
        strides = [numbers.randint(-12, 12) for _ in range(ndim)]
        places = [sum(map(operator.mul, index, strides)) for index in np.ndindex(*shape)]
        touched = [place + byte for place in places for byte in range(itemsize)]
        view = arrays.ArrayView(100, tuple(shape), np.dtype(f"V{itemsize}"), tuple(strides), True, "cpu", None, None)
        assert view.overlaps_itself == (len(set(touched)) < len(touched)), (shape, strides, itemsize)
        start, length = numbers.randint(-20, 20), numbers.randint(0, 3)
        other = arrays.ArrayView(100 + start, (length,), np.dtype("u1"), (1,), True, "cpu", None, None)
        shared = bool({*touched} & {*range(start, start + length)})
        assert view.overlaps(other) == other.overlaps(view) == shared


def test_arrays_that_share_memory():
    numbers, memory, seen = random.Random(3), np.arange(40, dtype="u1"), set()
    for _ in range(300):
        parts = []
        for _ in range(2):
            part = memory[numbers.randint(0, 9) :].reshape(-1, 1)[: 6 * numbers.randint(1, 4)].reshape(6, -1)
            parts.append(part[:: numbers.choice([-2, -1, 1, 2, 3]), :: numbers.choice([-1, 1, 2])])
        a, b = (arrays.array_view("A", part) for part in parts)
        shared = bool({*parts[0].flat} & {*parts[1].flat})
        seen.add((a.bounds[0] < b.bounds[1] and b.bounds[0] < a.bounds[1], shared))
        assert a.overlaps(b) == shared
    assert {(True, True), (True, False)} <= seen


def test_devices_and_strides_of_empty_arrays_do_not_count():
    held = arrays.array_view("A", np.zeros((2, 3)))
    empty = arrays.ArrayView(0, (0, 3), np.dtype("f8"), (-24, 7), True, "gpu", None, None)
    for views, side in (((held, empty), (empty, None)), "source"), (((empty,), (held,)), "target"):
        assert Facts.of(arrays.Views(*map(list, views))) == Facts()._replace(**{f"{side}_cpu": True})


def test_read_only_dlpack():
    array = np.arange(3.0)
    array.setflags(write=False)
    try:
        array.__dlpack__(max_version=(1, 0))
    except (TypeError, BufferError):
        pytest.skip("this NumPy does not export read-only arrays by DLPack")
    assert not arrays.array_view("A", Exporter(array)).writeable


def test_a_dropped_plan_is_freed_and_its_calls_forgotten():
    plans, problems = PlanCache(), [Problem((), False, name, ()) for name in ("Pack", "RMA")]
    freed: list[int] = []
    made: list[Any] = [SimpleNamespace(free=functools.partial(freed.append, number)) for number in range(2)]
    for problem, plan in zip(problems, made, strict=True):
        plans.plans[problem] = plan
        plans.remember(id(plan), Known(plan, problem, len))
    plans.drop(problems[0])
    assert freed == [0]
    assert plans.calls == {id(made[1]): Known(made[1], problems[1], len)} and [*plans.plans] == problems[1:]


def test_a_forked_child_frees_no_plans(monkeypatch: pytest.MonkeyPatch):
    freed: list[int] = []
    plans = PlanCache()
    plan: Any = SimpleNamespace(free=lambda: freed.append(1))
    plans.plans[Problem((), False, "Pack", ())] = plan
    monkeypatch.setitem(cache._CACHES, -1, plans)
    child = os.fork()
    if child == 0:
        cache._free_all()
        os._exit(len(freed))
    assert os.waitpid(child, 0)[1] == 0
    cache._free_all()
    assert freed == [1]

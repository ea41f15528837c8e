"""Random cases for programs of ``tests/cpp``: a file for each rank, with its arrays before and after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import hypothesis
import numpy as np
import numpy.typing as npt
from cases import arrays, cases
from distributions import CALM
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dace_redist.transform import Transform

Random = np.random.Generator
BACKGROUND = 0x5A  # of all bytes that hold no element


Case = tuple[int, Sequence[dict[str, Any]]]  #: Number of its communicator, and its tensors.


def write_cases(
    folder: Path, ranks: int, count: int, seed: int, layouts: int = 1, given: Sequence[Case] | None = None
) -> int:
    """
    Draw cases and write ``FOLDER/RANK`` for each rank, as ``case_file.hpp`` reads it; return how many there are.

    :param layouts: Layouts of the local arrays of each case.
    :param given: Cases to write instead of drawing some.
    """
    everyone = range(ranks)
    communicators = everyone, everyone[::-1], [rank for rank in everyone if rank % 3 != 2]
    drawn = given or _drawn([len(members) for members in communicators], count, seed)
    folder.mkdir(parents=True, exist_ok=True)
    for rank in everyone:
        with (folder / str(rank)).open("wb") as file:
            for number, (which, tensors) in enumerate(drawn):
                members, random = communicators[which], np.random.default_rng((seed, number))
                _write(file, [which, *_options(random, tensors)])
                if rank in members:
                    comm = SimpleNamespace(rank=members.index(rank), size=len(members))
                    random = np.random.default_rng((seed, number, rank))
                    _write(file, [len(tensors)])
                    for case in tensors:
                        _write_tensor(file, case, comm, layouts, random)
                else:
                    _write(file, [0])
    return len(drawn)


def _drawn(sizes: Sequence[int], count: int, seed: int) -> list[Case]:
    """Return for each case the number of its communicator, and its tensors; few are large."""
    large = st.tuples(st.integers(150, 180), st.integers(110, 130))

    def tensors(which: int) -> st.SearchStrategy[Any]:
        some = st.lists(cases(sizes[which]), min_size=1, max_size=3)
        return st.tuples(st.just(which), st.one_of(*[some] * 15, st.tuples(cases(sizes[which], large))))

    found: list[Case] = []

    @hypothesis.seed(seed)
    @settings(CALM, max_examples=count, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(st.sampled_from([0, 0, 1, 2]).flatmap(tensors))
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    return found


def _options(random: Random, tensors: Sequence[dict[str, Any]]) -> Iterator[int]:
    """Yield the options in the order of ``dr_options``; ten times the growth."""
    is_tiny = all(np.prod(case["source"].shape) * np.dtype(case["types"][0]).itemsize <= 1600 for case in tensors)
    cuts = [1, 7, 64, 1000, 1 << 30] if is_tiny else [512, 1000, 4096, 1 << 30]
    slots = [1, 64, 1000, 65536] if is_tiny else [512, 4096, 65536]
    longest, joined, in_flight = [*cuts, *[1 << 30] * 4], [-1, 0, *cuts], [0, 0, *cuts]
    for choices in (cuts, range(1, 5), [10, 15, 30], range(4), slots, longest, joined, in_flight):
        yield int(random.choice(choices))


def _write(file: BinaryIO, numbers: Iterable[Any]) -> None:
    file.write(np.array([int(number) for number in numbers], np.int64).tobytes())


def _write_list(file: BinaryIO, numbers: Sequence[int]) -> None:
    _write(file, [len(numbers), *numbers])


def _write_tensor(file: BinaryIO, case: dict[str, Any], comm: Any, layouts: int, random: Random) -> None:
    how = case["how"]
    types = (np.dtype(name) for name in case["types"])
    transform = Transform(len(case["source"].shape), *types, **how)
    for encoded in (case["source"].encoded, case["target"].encoded, transform.encoded):
        _write_list(file, encoded)
    source, target, alpha, beta, *rest = transform.encoded_operation
    _write(file, [transform.dtype.itemsize, source, target, alpha.real, beta.real, *rest])
    array, out, wanted = arrays(comm, {**case, "layouts": ["C", "C"]})
    for _ in range(layouts):
        _write_array(file, array, array, random)
        _write_array(file, out, wanted, random)


def _write_array(file: BinaryIO, before: npt.NDArray[Any], after: npt.NDArray[Any], random: Random) -> None:
    """Write an array in memory of random layout: axes permuted, padded, every other element, bytes around."""
    extents = [n + random.choice([0, 0, 0, 1, 2, 3]) for n in before.shape]
    strides, stride = [0] * before.ndim, random.choice([1, 1, 1, 1, 2])
    for axis in random.permutation(before.ndim) if random.random() < 0.5 else reversed(range(before.ndim)):
        strides[axis] = stride
        stride *= max(1, extents[axis])
    first = random.integers(0, 10)
    count = first + stride + random.integers(0, 4) if before.size or random.random() < 0.5 else 0
    _write(file, [random.integers(0, 2), first * before.itemsize if count else 0])
    _write_list(file, extents)
    _write_list(file, strides)
    for part in (before, after):
        memory = np.full(count * part.itemsize, BACKGROUND, np.uint8).view(part.dtype)
        if part.size:
            steps = [n * part.itemsize for n in strides]
            np.lib.stride_tricks.as_strided(memory[first:], part.shape, steps)[...] = part
        _write(file, [memory.nbytes])
        file.write(memory.tobytes())

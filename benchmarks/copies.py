"""
Copies by plans of one rank: packed, unpacked, permuted and converted, against a plain copy of as many bytes.

    python benchmarks/copies.py [--gpu] [--nbytes 33554432] [--repetitions 20] [--runs 96] [--json FILE]

Measured alternately, medians; GB/s are bytes read and written. In main memory, NumPy's assignment is measured too; on a
GPU, every result is compared with NumPy's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from mpi4py import MPI
from records import append, json_option

import dace_redist
from dace_redist import Distribution, Plan
from dace_redist.cli import run_command
from dace_redist.mpi.topology import pinned_to_core
from dace_redist.native import device
from dace_redist.redistribution.arrays.new import DeviceArray
from dace_redist.timing.measure import measure

COMM = MPI.COMM_SELF
RUNS = (8, 16, 32, 64, 96, 128, 256, 512, 1024, 4096, 65536)
Shape = tuple[int, ...]
Assign = Callable[[Any, Any], Any]


class Copy(NamedTuple):
    """A copy: shapes of both arrays, types of their elements, options of ``plan``, and the same in NumPy."""

    name: str
    source: Shape
    target: Shape
    dtype: str
    options: dict[str, Any]
    assign: Assign = lambda a, b: np.copyto(b, a)


def runs(nbytes: int, lengths: Sequence[int]) -> Iterator[Copy]:
    """Yield copies of every second run of a 5-D array, of which no dimensions merge, to and from a contiguous one."""
    for run_bytes in lengths:
        part = (max(1, nbytes // run_bytes // 64), 4, 4, 4, run_bytes // 8)
        larger = (part[0], 5, 5, 5, 2 * part[-1])
        how, inside = {"region": ((0,) * 5, (0,) * 5, part)}, tuple(map(slice, part))
        pack, unpack = (lambda a, b, i=inside: np.copyto(b, a[i])), (lambda a, b, i=inside: np.copyto(b[i], a))
        yield Copy(f"pack, runs of {run_bytes} B", larger, part, "f8", how, pack)
        yield Copy(f"unpack, runs of {run_bytes} B", part, larger, "f8", how, unpack)


def permutations(nbytes: int) -> Iterator[Copy]:
    for dtype in ("f4", "f8", "c16"):
        for inner in ((32, 16, 16, 48), (29, 13, 15, 45)):
            shape = (max(1, nbytes // np.dtype(dtype).itemsize // math.prod(inner)), *inner)
            for axes in ((4, 3, 2, 1, 0), (0, 1, 2, 4, 3)):
                target = tuple(shape[axis] for axis in axes)
                name = f"permute {''.join(map(str, axes))}, {dtype}, rows of {inner[-1]}"
                assign = functools.partial(lambda axes, a, b: np.copyto(b, a.transpose(axes)), axes)
                yield Copy(name, shape, target, dtype, {"axes": axes}, assign)


def conversions(nbytes: int) -> Iterator[Copy]:
    line = (nbytes // 8,)
    yield Copy("one block", line, line, "f8", {})
    yield Copy("float32 to float64", line, line, "f4", {"target_dtype": "f8"})
    scaled = {"alpha": 2, "beta": 1}
    yield Copy("float32, 2 A + B", line, line, "f4", scaled, lambda a, b: np.add(2 * a, b, out=b))


def methods(copy: Copy, made: Plan, gpu: bool) -> tuple[dict[str, Callable[[], Any]], int]:
    """
    Return the methods to compare, and the bytes that the copy reads and writes.

    :raises RuntimeError: If the result of the plan differs from NumPy's.
    """
    A = np.random.default_rng(1).random(copy.source).astype(copy.dtype)
    out, expected = (np.zeros(copy.target, copy.options.get("target_dtype", copy.dtype)) for _ in range(2))
    copy.assign(A, expected)
    moved = min(A.size, out.size) * (A.itemsize + out.itemsize * (2 if copy.options.get("beta") else 1))
    arrays: list[Any] = [A, out, *(np.ones(moved // 2, np.uint8) for _ in range(2))]
    if gpu:
        arrays = list(map(DeviceArray.from_numpy, arrays))

    def run() -> None:
        made(arrays[0], out=arrays[1])
        if gpu:
            device.synchronize()

    run()
    if not np.array_equal(arrays[1].to_numpy() if gpu else out, expected):
        raise RuntimeError(f"{copy.name}: the plan and NumPy differ")
    if gpu:
        addresses = (array.__cuda_array_interface__["data"][0] for array in arrays[2:])
        return {"plan": run, "copy": functools.partial(device.copy, *addresses, moved // 2)}, moved
    plain = functools.partial(np.copyto, *arrays[2:])
    return {"plan": run, "NumPy": lambda: copy.assign(A, out), "copy": plain}, moved


@click.command(help=__doc__.partition("\n\n")[0])
@click.option("--gpu", is_flag=True, help="arrays on the GPU")
@click.option("--nbytes", type=click.IntRange(1 << 16), default=1 << 25, show_default=True, help="of a copy")
@click.option("--runs", "lengths", multiple=True, type=click.IntRange(8), default=RUNS, help="bytes; repeatable")
@click.option("--repetitions", type=click.IntRange(1), default=20, show_default=True)
@json_option()
def main(gpu: bool, nbytes: int, lengths: tuple[int, ...], repetitions: int, path: Path | None) -> None:
    click.echo(device.device_name() if gpu else "main memory, one thread")
    place = {"comm": COMM, "device": "gpu" if gpu else "cpu"}
    for copy in (*runs(nbytes, lengths), *permutations(nbytes), *conversions(nbytes)):
        sides = (Distribution(shape, (1,) * len(shape)) for shape in (copy.source, copy.target))
        with dace_redist.plan(*sides, copy.dtype, **place, **copy.options) as made, pinned_to_core(COMM):
            compared, moved = methods(copy, made, gpu)
            figures = measure(compared, COMM, least=repetitions, most=repetitions)
        rates = {name: moved / figure.median / 1e9 for name, figure in figures.items()}
        click.echo(f"{copy.name:36}" + "".join(f"{name:>8} {rate:6.1f} GB/s" for name, rate in rates.items()))
        append(path, {"copy": copy.name, "gpu": gpu, "bytes": moved, "rates": rates})


if __name__ == "__main__":
    run_command(main, "copies.py")

"""
Kernels distributed by hand, with the redistributions of stock DaCe and of this package, measured alternately.

    mpiexec -n 4 python benchmarks/einsum/by_hand.py ttmc --strategies stock,Pack,RMA
"""

import contextlib
import copy
import io
import json
import time
import warnings
import zlib
from collections.abc import Callable, Iterator

import click
import numpy as np
from by_hand_kernels import KERNELS, WORLD, Kernel
from dace.codegen.compiled_sdfg import CompiledSDFG
from dace.sdfg import utils
from einsum_cases import elements

import dace_redist
from dace_redist.cli import run_command
from dace_redist.measuring.measure import measure
from dace_redist.strategies import host_strategies

STOCK = "stock"
TOLERANCE = 1e-10  # largest relative error of a right result


class ByHand:
    """
    A kernel distributed by hand, built and with its operands. Collective.

    :param kernel: The kernel.
    :param extents: Length of every mode.
    :param strategy: Strategy of its redistributions, or ``"stock"``.
    """

    def __init__(self, kernel: Kernel, extents: dict[str, int], strategy: str) -> None:
        self.kernel, self.extents = kernel, extents
        self.compiled = _built(kernel, strategy)
        self.operands = {name: _block(kernel, name, extents) for name in kernel.operands}
        given = kernel.symbols(extents) | self.operands
        self._given = {name: given[name] for name in self.compiled.sdfg.arglist() if name in given}
        self.result: np.ndarray | None = None

    def __call__(self) -> None:
        """Run the kernel."""
        self.result = self.compiled(**self._given)

    def error(self) -> float:
        """Return the largest relative error of the last result. Collective; each rank computes its block by NumPy."""
        modes, grid = self.kernel.result
        blocks = {m: _clipped(r, self.extents[m]) for m, r in self.kernel.blocks(grid, self.extents).items()}
        ranges = {m: blocks[m] if m in modes else range(extent) for m, extent in self.extents.items()}
        whole = [(name, term) for name, (term, _) in self.kernel.operands.items()]
        parts = [elements(name, [ranges[m] for m in term], [self.extents[m] for m in term]) for name, term in whole]
        expected = np.einsum(f"{self.kernel.einsum.split('->')[0]}->{modes}", *parts, optimize="optimal")
        got = self.result[tuple(slice(n) for n in expected.shape)]
        error = float(np.max(abs(got - expected) / expected)) if expected.size else 0.0
        return max(WORLD.allgather(error if np.isfinite(error) else np.inf))

    def checksum(self) -> int:
        """Return a checksum of the last result on all ranks. Collective."""
        return zlib.crc32(repr(WORLD.allgather(zlib.crc32(self.result.tobytes()))).encode())


class _SleepingCommunicator:
    """Communicator for ``distributed_compile``; ranks sleep while rank 0 compiles."""

    Get_rank, allgather = WORLD.Get_rank, WORLD.allgather

    def bcast(self, value, root: int = 0):
        request = WORLD.Ibarrier()
        while not request.Test():
            time.sleep(0.01)
        return WORLD.bcast(value, root)


def _built(kernel: Kernel, strategy: str) -> CompiledSDFG:
    """Compile a kernel with a strategy on rank 0, and load it on all. Collective."""
    sdfg = None
    with _quiet():
        if WORLD.rank == 0:
            sdfg = copy.deepcopy(kernel.program.to_sdfg())
            sdfg.name = f"{kernel.program.f.__name__}_{strategy.lower()}"
            if strategy != STOCK:
                dace_redist.set_strategy(sdfg, strategy)
        return utils.distributed_compile(sdfg, _SleepingCommunicator())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide the output of stock DaCe while it parses and expands a Redistribute: debug prints, warnings about itself."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"dace\.")
        yield


def _clipped(indices: range, extent: int) -> range:
    return range(min(indices.start, extent), min(indices.stop, extent))


def _block(kernel: Kernel, name: str, extents: dict[str, int]) -> np.ndarray:
    """Return this rank's block of an operand; zero where it passes the end of the tensor."""
    term, grid = kernel.operands[name]
    ranges = [kernel.blocks(grid, extents)[mode] for mode in term]
    block, inside = (
        np.zeros([len(r) for r in ranges]),
        [_clipped(r, extents[m]) for r, m in zip(ranges, term, strict=True)],
    )
    block[tuple(slice(len(r)) for r in inside)] = elements(name, inside, [extents[mode] for mode in term])
    return block


def _names(_: click.Context, __: click.Parameter, value: str) -> list[str]:
    choice = click.Choice((STOCK, *host_strategies()), case_sensitive=False)
    return list(dict.fromkeys(choice.convert(word.strip(), None, None) for word in value.split(",")))


def check_stock(kernel: Kernel, extents: dict[str, int]) -> None:
    """:raises ValueError: If stock DaCe would hang, in a Redistribute whose blocks do not divide the tensor."""
    for grid in kernel.grids:
        for mode, parts in zip(grid.modes, grid.parts[WORLD.size], strict=True):
            if extents[mode] % parts:
                name = "--rank" if mode in kernel.rank_modes else "--size"
                raise ValueError(f"stock DaCe needs {name} to be a multiple of {parts}, got {extents[mode]}")


@click.command()
@click.argument("kernel", type=click.Choice(list(KERNELS)))
@click.option("--strategies", default=STOCK, show_default=True, callback=_names, help="stock DaCe, and any of ours")
@click.option("--size", type=click.IntRange(1), default=24, show_default=True, help="length of the tensor modes")
@click.option("--rank", type=click.IntRange(1), default=12, show_default=True, help="columns of the factors of ttmc")
@click.option("--repetitions", type=click.IntRange(1), default=9, show_default=True, help="timed rounds")
@click.option("--json", "path", type=click.Path(dir_okay=False), help="append a JSON line per strategy")
def main(kernel: str, strategies: list[str], size: int, rank: int, repetitions: int, path: str | None) -> None:
    """Measure a kernel distributed by hand on 1, 2, 4 or 8 ranks; exit code 1 if a result is wrong."""
    chosen = KERNELS[kernel]
    if WORLD.size not in chosen.grids[0].parts:
        raise click.UsageError(f"needs 1, 2, 4 or 8 ranks, got {WORLD.size}")
    extents = chosen.extents(size, rank)
    if STOCK in strategies:
        check_stock(chosen, extents)
    programs: dict[str, Callable[[], None]] = {name: ByHand(chosen, extents, name) for name in strategies}
    figures = measure(programs, WORLD, warmup=1, least=repetitions, most=repetitions)
    wrong = False
    for name, program in programs.items():
        error, checksum = program.error(), program.checksum()
        wrong |= error > TOLERANCE
        if WORLD.rank == 0:
            seconds = figures[name].median
            click.echo(f"{name:14}{seconds * 1e3:10.3f} ms, {'WRONG' if error > TOLERANCE else 'right'} ({error:.1e})")
            record = {"kernel": kernel, "ranks": WORLD.size, "extents": extents, "strategy": name, "error": error}
            if path:
                with open(path, "a") as file:
                    file.write(json.dumps(record | {"seconds": seconds, "checksum": checksum}) + "\n")
    if wrong:
        raise click.exceptions.Exit(1)


if __name__ == "__main__":
    run_command(main, "by_hand.py")

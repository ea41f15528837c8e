"""What the examples share: arguments, grids and blocks, compiling, timing, checking. Start reading at ``main``."""

import argparse
import ast
import contextlib
import copy
import glob
import io
import json
import math
import string
import sys
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import dace
import numpy as np
from dace.codegen.compiled_sdfg import CompiledSDFG
from dace.codegen.compiler import load_precompiled_sdfg
from dace.frontend.common import op_repository
from dace.frontend.python.replacements import mpi as dace_mpi
from dace.libraries import comm
from dace.sdfg import nodes, utils
from dace.sdfg.state import ControlFlowBlock
from dace.transformation.passes.simplify import SimplifyPass
from mpi4py import MPI

STRATEGIES = ("MPI", "Datatype", "Pack", "Threaded", "Pipelined", "RMA")
RANKS = (1, 2, 4, 8)
TOLERANCE = 1e-10  # largest relative error of a right result
WORLD = MPI.COMM_WORLD


@op_repository.replaces("dace.comm.Reduce")
def _reduce(pv, sdfg, state, buffer, op, root=0, grid=None):
    """
    ``dace.comm.Reduce`` that takes an ``MPI.Op``, as ``dace.comm.Allreduce`` does.

    DaCe 2.0.0b1 accepts no operator there: neither ``MPI.SUM`` nor a string literal (it stays a ``StringLiteral``).
    """
    return dace_mpi._Reduce(pv, sdfg, state, buffer, dace_mpi._mpi4py_to_MPI(MPI, op), root, grid)


@dataclass(frozen=True)
class Grid:
    """
    A process grid: the tensor modes it splits and, for each number of ranks, into how many parts.

    :param modes: One letter per grid axis, e.g. ``"ijk"``.
    :param parts: Number of ranks -> grid shape.
    """

    modes: str
    parts: dict[int, tuple[int, ...]]


@dataclass(frozen=True)
class Kernel:
    """
    A distributed einsum: the DaCe program and which grid its operands live on.

    The program's symbols are named after mode and grid: with ``grids[0] = Grid("ijk", ...)`` the symbols ``PI1``,
    ``PJ1``, ``PK1`` are the grid's shape and ``I1``, ``J1``, ``K1`` the local extents, ``ceil(extent / parts)``.

    :param program: The ``@dace.program``.
    :param einsum: What it computes, e.g. ``"ij,jk->ik"``.
    :param operands: Argument name -> (modes, index of its grid).
    :param result: Modes of the local result, in its order, and the index of its grid.
    :param rank_modes: Modes of length ``--rank``; all others have length ``--size``.
    """

    program: Callable
    einsum: str
    grids: tuple[Grid, ...]
    operands: dict[str, tuple[str, int]]
    result: tuple[str, int]
    rank_modes: str = ""

    @property
    def name(self) -> str:
        return self.program.f.__name__

    def blocks(self, grid: int, rank: int, extents: dict[str, int]) -> dict[str, range]:
        """Global indices that ``rank`` holds of every mode of a grid, as long as the block: they may pass the end."""
        modes, parts = self.grids[grid].modes, self.grids[grid].parts[WORLD.size]
        lengths = [math.ceil(extents[mode] / p) for mode, p in zip(modes, parts, strict=True)]
        coords = np.unravel_index(rank, parts)
        return {mode: range(int(c) * n, (int(c) + 1) * n) for mode, c, n in zip(modes, coords, lengths, strict=True)}

    def symbols(self, extents: dict[str, int]) -> dict[str, int]:
        """Value of every symbol that the program may use."""
        values = {"R" if mode in self.rank_modes else "S": extent for mode, extent in extents.items()}
        for number, grid in enumerate(self.grids, start=1):
            for mode, parts in zip(grid.modes, grid.parts[WORLD.size], strict=True):
                values[f"P{mode.upper()}{number}"] = parts
                values[f"{mode.upper()}{number}"] = math.ceil(extents[mode] / parts)
        return values


def symbols(names: str) -> list[dace.symbol]:
    """64-bit DaCe symbols from their names, separated by blanks."""
    return [dace.symbol(name, dace.int64) for name in names.split()]


_M, _N, _K = symbols("_M _N _K")


@dace.program
def matmul(left: dace.float64[_M, _K], right: dace.float64[_K, _N]):
    """``left @ right`` in an order that walks rows; DaCe's own expansion without a BLAS is 100 times slower."""
    product = np.zeros((_M, _N), np.float64)
    for i in dace.map[0:_M]:
        for k in range(_K):
            for j in dace.map[0:_N]:
                product[i, j] += left[i, k] * right[k, j]
    return product


# Arguments


class _Parser(argparse.ArgumentParser):
    """Speaks on rank 0 only; an error is one line and exit code 2 on every rank."""

    def _print_message(self, message, file=None):
        if WORLD.rank == 0:
            super()._print_message(message, file)

    def error(self, message: str):
        leave(f"{self.prog}: error: {message}", code=2)


def leave(message: str, code: int) -> None:
    """Print ``message`` on rank 0 and end every rank with ``code``. Collective."""
    if WORLD.rank == 0:
        print(message, file=sys.stderr, flush=True)
    WORLD.Barrier()
    raise SystemExit(code)


def _option(text: str) -> tuple[str, object]:
    name, separator, value = text.partition("=")
    if not separator or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text!r}")
    return value


def _arguments(kernel: Kernel, description: str) -> argparse.Namespace:
    parser = _Parser(description=description)
    parser.add_argument("--size", type=_positive, default=24, help="length of the tensor modes (default %(default)s)")
    if kernel.rank_modes:
        parser.add_argument("--rank", type=_positive, default=12, help=f"length of {', '.join(kernel.rank_modes)}")
    parser.add_argument(
        "--strategy",
        nargs="+",
        choices=STRATEGIES,
        default=["MPI"],
        metavar="NAME",
        help=f"run one after the other: {', '.join(STRATEGIES)} (default MPI: stock DaCe)",
    )
    parser.add_argument(
        "--option",
        type=_option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the strategies other than MPI; may be repeated",
    )
    parser.add_argument("--repetitions", type=_positive, default=5, help="timed runs (default %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="append one JSON line per strategy")
    parser.add_argument(
        "--prebuilt",
        action="store_true",
        help="load the programs that an earlier run (on any number of ranks) built in this folder",
    )
    parser.add_argument("--no-check", dest="check", action="store_false", help="skip the comparison with NumPy")
    arguments = parser.parse_args()
    if WORLD.size not in RANKS:
        parser.error(f"needs 1, 2, 4 or 8 ranks, got {WORLD.size}")
    if arguments.option and set(arguments.strategy) == {"MPI"}:
        parser.error("--option is for the strategies other than MPI")
    if arguments.json:
        _check_writable(arguments.json, parser)
    if "MPI" in arguments.strategy:
        _check_divisible(kernel, _extents(kernel, arguments), parser)
    return arguments


def _check_writable(path: str, parser: _Parser) -> None:
    problem = None
    if WORLD.rank == 0:
        try:
            open(path, "a").close()
        except OSError as error:
            problem = str(error)
    problem = WORLD.bcast(problem)
    if problem:
        parser.error(f"--json: {problem}")


def _check_divisible(kernel: Kernel, extents: dict[str, int], parser: _Parser) -> None:
    """Stock DaCe hangs in a Redistribute whose blocks do not divide the tensor; a program on one grid has none."""
    if len(kernel.grids) == 1:
        return
    for number, grid in enumerate(kernel.grids, start=1):
        for mode, parts in zip(grid.modes, grid.parts[WORLD.size], strict=True):
            if extents[mode] % parts:
                name = "--rank" if mode in kernel.rank_modes else "--size"
                parser.error(
                    f"strategy MPI (stock DaCe) needs {name} to be a multiple of {parts} on {WORLD.size} "
                    f"ranks (mode {mode} of grid {number}), got {extents[mode]}"
                )


def _extents(kernel: Kernel, arguments: argparse.Namespace) -> dict[str, int]:
    modes = {mode for grid in kernel.grids for mode in grid.modes}
    modes |= set(kernel.einsum) & set(string.ascii_letters)
    return {mode: arguments.rank if mode in kernel.rank_modes else arguments.size for mode in sorted(modes)}


# Data: every element follows from its global index, so each rank makes its own blocks


def _values(name: str, ranges: list[range], extents: list[int]) -> np.ndarray:
    """Elements in (0, 1] of operand ``name``, a hash of their global index; zero where ``ranges`` pass ``extents``."""
    values = np.zeros([len(indices) for indices in ranges])
    valid = [_clip(indices, extent) for indices, extent in zip(ranges, extents, strict=True)]
    rest = np.uint64(0)  # global index but for the first mode
    for position, extent in zip(np.ix_(*(np.array(v, np.uint64) for v in valid[1:])), extents[1:], strict=True):
        rest = rest * np.uint64(extent) + position
    inside = tuple(slice(len(v)) for v in valid[1:])
    for row, first in enumerate(valid[0]):  # row by row, because the temporaries are as large as what they compute
        bits = (rest + np.uint64(sum(map(ord, name)) + first * math.prod(extents[1:]))) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
        values[row][inside] = ((bits >> np.uint64(11)) + np.uint64(1)) / 2.0**53
    return values


def _clip(indices: range, extent: int) -> range:
    return range(min(indices.start, extent), min(indices.stop, extent))


def _relative_error(kernel: Kernel, result: np.ndarray, extents: dict[str, int]) -> float:
    """Largest relative error of this rank's block; NumPy computes it, a slab of the first mode at a time."""
    modes, grid = kernel.result
    block = {mode: _clip(r, extents[mode]) for mode, r in kernel.blocks(grid, WORLD.rank, extents).items()}
    ranges = {mode: block[mode] if mode in modes else range(extent) for mode, extent in extents.items()}
    result = result[tuple(slice(len(ranges[mode])) for mode in modes)]
    inputs, axis = kernel.einsum.split("->")[0], modes.index("i")
    largest = max(math.prod(len(ranges[m]) for m in term.replace("i", "")) for term in inputs.split(","))
    step, error = max(1, 2**24 // max(1, largest)), 0.0
    for lo in range(0, len(ranges["i"]), step):
        slab = ranges | {"i": ranges["i"][lo : lo + step]}
        operands = [
            _values(name, [slab[m] for m in term], [extents[m] for m in term])
            for (name, (term, _)) in kernel.operands.items()
        ]
        expected = np.einsum(f"{inputs}->{modes}", *operands, optimize="optimal")
        if expected.size:
            got = result.take(range(lo, lo + len(slab["i"])), axis)
            error = max(error, float(np.nan_to_num(np.abs(got - expected) / expected, nan=np.inf).max()))
    return error


# Steps: a clock before and after every communication


def _kind(block: ControlFlowBlock) -> str | None:
    """Name what a block does: a communication, ``clear`` (fill with zeros) or ``local``; None if it takes no time."""
    code = [node for node, _ in block.all_nodes_recursive() if isinstance(node, nodes.CodeNode)]
    for node in code:
        if isinstance(node, comm.Reduce | comm.Redistribute | comm.Bcast | comm.Allreduce):
            return type(node).__name__.lower()
    work = [node for node in code if not isinstance(node, comm.Dummy)]
    if not work:
        return None
    return "clear" if all(node.label == "_numpy_full_" for node in work) else "local"


def add_clocks(sdfg: dace.SDFG) -> None:
    """
    Put a clock between the steps of a program that is a chain of blocks; a clock is named after the step it ends.

    The program gets two arguments: ``clock`` (float64 [steps + 1, 2]: seconds at the end of a step and at the start
    of the next) and ``barrier``: if not 0, the ranks meet between the two, outside of every step.
    """
    steps: list[tuple[str, list[ControlFlowBlock]]] = []
    for block in sdfg.bfs_nodes(sdfg.start_block):
        kind = _kind(block)
        if steps and {kind, steps[-1][0]} <= {"clear", "local"}:  # a result that is cleared first is one local step
            steps[-1] = ("local" if "local" in (kind, steps[-1][0]) else "clear", [*steps[-1][1], block])
        elif kind:
            steps.append((kind, [block]))
    sdfg.add_array("clock", [len(steps) + 1, 2], dace.float64)
    sdfg.add_scalar("barrier", dace.int32)
    _add_clock(sdfg, sdfg.add_state_before(steps[0][1][0]), "clock_start", 0)
    kinds = [kind for kind, _ in steps]
    for number, (kind, blocks) in enumerate(steps, start=1):
        name = f"clock_{kind}_{kinds[:number].count(kind)}"
        _add_clock(sdfg, sdfg.add_state_after(blocks[-1]), name, number)


def _add_clock(sdfg: dace.SDFG, state: dace.SDFGState, name: str, number: int) -> None:
    tasklet = state.add_tasklet(
        name,
        {"_barrier": None},
        {"_clock": None},
        "_clock[0] = MPI_Wtime(); if (_barrier) MPI_Barrier(MPI_COMM_WORLD); _clock[1] = MPI_Wtime();",
        language=dace.Language.CPP,
        side_effects=True,
    )
    tasklet.environments = {comm.environments.mpi.MPI.full_class_path()}
    state.add_edge(state.add_read("barrier"), None, tasklet, "_barrier", dace.Memlet("barrier"))
    state.add_edge(tasklet, "_clock", state.add_write("clock"), None, dace.Memlet(f"clock[{number}, 0:2]"))


def _steps(sdfg: dace.SDFG) -> list[str]:
    """Names of the steps between the clocks of a program, such as ``local 1``."""
    labels = [node.label for block in sdfg.bfs_nodes(sdfg.start_block) for node in block.nodes()]
    return [label.removeprefix("clock_").replace("_", " ") for label in labels if label.startswith("clock_")][1:]


# Building and running


class _WaitPolitely:
    """The communicator as ``distributed_compile`` uses it; who waits for rank 0's compiler leaves it the cores."""

    def Get_rank(self) -> int:  # noqa: N802
        return WORLD.rank

    def bcast(self, value, root: int = 0):
        request = WORLD.Ibarrier()
        while not request.Test():
            time.sleep(0.01)
        return WORLD.bcast(value, root)

    def allgather(self, value) -> list:
        return WORLD.allgather(value)


def _parse(kernel: Kernel) -> dace.SDFG:
    sdfg = kernel.program.to_sdfg(simplify=False)
    SimplifyPass(skip={"FuseStates"}).apply_pass(sdfg, {})  # a state per statement, so that each can be timed
    add_clocks(sdfg)
    return sdfg


def _build(kernel: Kernel, parsed: dace.SDFG | None, strategy: str, options: dict) -> CompiledSDFG:
    """Compile a program with a strategy on rank 0, the only one that has it, and load it on all."""
    sdfg, problem = None, None
    if WORLD.rank == 0:
        sdfg = copy.deepcopy(parsed)
        sdfg.name = f"{kernel.name}_{strategy.lower()}"
        try:
            if strategy != "MPI":
                import dace_redist

                dace_redist.set_strategy(sdfg, strategy, **options)
        except (ImportError, TypeError, ValueError) as error:
            problem = f"error: strategy {strategy}: {error}"
    problem = _WaitPolitely().bcast(problem)
    if problem:
        leave(problem, code=2)
    return utils.distributed_compile(sdfg, _WaitPolitely())


def _load(kernel: Kernel, strategy: str) -> CompiledSDFG:
    """Load what an earlier run built; all ranks share rank 0's folder, as in ``distributed_compile``."""
    name = f"{kernel.name}_{strategy.lower()}"
    folder = WORLD.bcast(dace.SDFG(name).build_folder)
    if not WORLD.bcast(any(glob.iglob(f"{folder}/**/lib{name}.*", recursive=True))):
        leave(f"error: --prebuilt: no program was built in {folder}", code=2)
    return load_precompiled_sdfg(folder)


def _programs(kernel: Kernel, arguments: argparse.Namespace) -> Iterator[tuple[str, dict, CompiledSDFG]]:
    """Strategy, its options and the program, one after the other."""
    with _quiet():
        parsed = _parse(kernel) if WORLD.rank == 0 and not arguments.prebuilt else None
    for strategy in dict.fromkeys(arguments.strategy):
        options = dict(arguments.option) if strategy != "MPI" else {}
        with _quiet():
            load = _load(kernel, strategy) if arguments.prebuilt else _build(kernel, parsed, strategy, options)
        yield strategy, options, load


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide what stock DaCe says while it parses and expands a Redistribute: debug prints, warnings about itself."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"dace\.")
        yield


def _run(program: CompiledSDFG, inputs: dict, repetitions: int) -> tuple[np.ndarray, dict[str, float]]:
    """
    Return the result and the seconds of every step: median over the repetitions of the maximum over the ranks.

    Steps are timed with a barrier before each, so that none pays for ranks that come late; the total is timed in
    runs of its own, without barriers.
    """
    steps = _steps(program.sdfg)
    arguments = {name: inputs[name] for name in program.sdfg.arglist() if name in inputs}
    clock = np.zeros((len(steps) + 1, 2))
    seconds = np.zeros((repetitions + 1, len(steps) + 1))
    result = None
    for repetition in range(repetitions + 1):  # the first one warms up
        for barrier in (1, 0):
            WORLD.Barrier()
            result = program(**arguments, clock=clock, barrier=np.int32(barrier))
            if barrier:
                seconds[repetition, :-1] = clock[1:, 0] - clock[:-1, 1]
            else:
                seconds[repetition, -1] = clock[-1, 0] - clock[0, 1]
    WORLD.Allreduce(MPI.IN_PLACE, seconds, MPI.MAX)
    return result, dict(zip([*steps, "total"], np.median(seconds[1:], axis=0).tolist(), strict=True))


def main(kernel: Kernel, description: str) -> None:
    """Parse the command line, run the kernel with every strategy named, report; exit code 1 if a result is wrong."""
    try:
        right = _main(kernel, description)
    except Exception:  # on one rank only, perhaps: the others would wait for it
        traceback.print_exc()
        WORLD.Abort(1)
    WORLD.Barrier()
    raise SystemExit(0 if right else 1)


def _main(kernel: Kernel, description: str) -> bool:
    arguments = _arguments(kernel, description)
    extents = _extents(kernel, arguments)
    inputs = kernel.symbols(extents)
    for name, (modes, grid) in kernel.operands.items():
        block = kernel.blocks(grid, WORLD.rank, extents)
        inputs[name] = _values(name, [block[mode] for mode in modes], [extents[mode] for mode in modes])
    right = True
    for strategy, options, program in _programs(kernel, arguments):
        result, seconds = _run(program, inputs, arguments.repetitions)
        error = WORLD.allreduce(_relative_error(kernel, result, extents), MPI.MAX) if arguments.check else None
        checksum = zlib.crc32(repr(WORLD.allgather(zlib.crc32(result.tobytes()))).encode())
        program.finalize()
        right &= error is None or error <= TOLERANCE
        if WORLD.rank == 0:
            record = {"kernel": kernel.name, "ranks": WORLD.size, "size": arguments.size}
            record |= {"rank": arguments.rank} if kernel.rank_modes else {}
            record |= {"strategy": strategy, "options": options, "seconds": seconds}
            _report(record | {"error": error, "checksum": f"{checksum:08x}"}, arguments.json)
    return right


def _report(record: dict, path: str | None) -> None:
    shape = f"size {record['size']}" + (f", rank {record['rank']}" if "rank" in record else "")
    print(f"{record['kernel']} with {record['strategy']} on {record['ranks']} ranks, {shape}")
    for step, seconds in record["seconds"].items():
        print(f"  {step:<16}{seconds * 1e3:12.3f} ms")
    error = record["error"]
    verdict = "not checked" if error is None else "right" if error <= TOLERANCE else "WRONG"
    print(f"  {verdict}" + ("" if error is None else f", largest relative error {error:.1e}"), flush=True)
    if path:
        with open(path, "a") as file:
            file.write(json.dumps(record) + "\n")

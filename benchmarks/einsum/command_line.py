"""The command lines of kernels; what is wrong with it is said once, and ends all ranks."""

import argparse
import ast
import sys
from collections.abc import Sequence

from by_hand_kernel import WORLD, Kernel

from dace_redist.strategies import host_strategies

RANKS = (1, 2, 4, 8)


class Parser(argparse.ArgumentParser):
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


def named_number(text: str) -> tuple[str, int]:
    """Return name and value of ``NAME=NUMBER``."""
    name, _, value = text.partition("=")
    if not name.isidentifier() or not value.isdecimal():
        raise argparse.ArgumentTypeError(f"expected NAME=NUMBER, got {text!r}")
    return name, int(value)


def positive(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text!r}")
    return value


def add_measuring(parser: Parser, strategies: Sequence[str]) -> None:
    """Add the options of every kernel: which strategies are measured, the first one by default, how and where to."""
    parser.add_argument(
        "--strategy",
        nargs="+",
        choices=strategies,
        default=[strategies[0]],
        metavar="NAME",
        help=f"of the redistributions, any of {', '.join(strategies)} (default {strategies[0]})",
    )
    parser.add_argument("--repetitions", type=positive, default=5, help="timed rounds of all strategies (default 5)")
    parser.add_argument("--json", metavar="FILE", help="append one JSON line per strategy")
    parser.add_argument("--brief", action="store_true", help="print one line per strategy, without its steps")


def parse_arguments(kernel: Kernel, description: str) -> argparse.Namespace:
    parser = Parser(description=description)
    parser.add_argument("--size", type=positive, default=24, help="length of the tensor modes (default 24)")
    if kernel.rank_modes:
        modes = ", ".join(kernel.rank_modes)
        parser.add_argument("--rank", type=positive, default=12, help=f"length of modes {modes} (default 12)")
    add_measuring(parser, ("MPI", *host_strategies()))
    parser.add_argument(
        "--option",
        type=_option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the strategies other than MPI (stock DaCe); may be repeated",
    )
    parser.add_argument(
        "--prebuilt",
        action="store_true",
        help="load the programs that an earlier run (on any number of ranks) built in this folder",
    )
    parser.add_argument("--no-check", dest="check", action="store_false", help="skip the comparison with NumPy")
    arguments = parser.parse_args()
    if WORLD.size not in RANKS:
        parser.error(f"needs 1, 2, 4 or 8 ranks, got {WORLD.size}")
    _check(kernel, arguments, parser)
    return arguments


def _check(kernel: Kernel, arguments: argparse.Namespace, parser: Parser) -> None:
    if arguments.option and set(arguments.strategy) == {"MPI"}:
        parser.error("--option is for the strategies other than MPI")
    if arguments.json:
        check_writable(arguments.json, parser)
    if "MPI" in arguments.strategy:
        _check_divisible(kernel, kernel.extents(arguments.size, getattr(arguments, "rank", 0)), parser)


def check_writable(path: str, parser: Parser) -> None:
    problem = None
    if WORLD.rank == 0:
        try:
            open(path, "a").close()
        except OSError as error:
            problem = str(error)
    problem = WORLD.bcast(problem)
    if problem:
        parser.error(f"--json: {problem}")


def _check_divisible(kernel: Kernel, extents: dict[str, int], parser: Parser) -> None:
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

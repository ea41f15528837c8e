"""
Benchmark ``copy_kernel.cpp``: the copy kernel against loops of ``memcpy`` calls, by run length and dimensions.

``python benchmarks/copy_kernel.py [--runs 96] [--json FILE]``; figures are GB/s of processor time of one thread.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = ("auto", "ordinary", "stream", "memcpy_loop", "memcpy")


def compile_benchmark(folder: Path) -> Path:
    """
    Compile the benchmark with ``$CXX`` (g++) for this machine.

    :param folder: Where to put the program.
    :return: Path of the program.
    :raises subprocess.CalledProcessError: If the compiler fails.
    """
    program = folder / "copy_kernel"
    include = ROOT / "dace_redist" / "runtime" / "src"
    compiler = os.environ.get("CXX", "g++").split()
    source = ROOT / "benchmarks" / "copy_kernel.cpp"
    sources = [str(source), *map(str, sorted(include.glob("copy/*.cpp")))]
    options = ["-O3", "-march=native", "-std=c++17", "-fopenmp", "-I", str(include), *sources, "-o", str(program)]
    subprocess.run([*compiler, *options], check=True)
    return program


def print_row(row: dict[str, Any]) -> None:
    """Print one case: GB/s of every variant, and two ratios of the kernel as it is used by default."""
    figures = "".join(f"{row[column]:13.2f}" for column in COLUMNS)
    ratios = f"{row['auto'] / row['memcpy_loop']:10.2f}{row['auto'] / row['memcpy']:10.2f}"
    print(f"{row['direction']:14}{row['ndim']:5}{row['run_bytes']:8}{figures}{ratios}", flush=True)


def main() -> int:
    """Run the benchmark, print its table and write the JSON lines if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=32 << 20, help="bytes of a block (default: 32 MiB)")
    parser.add_argument("--repetitions", type=int, default=9, help="timed runs of each variant (default: 9)")
    parser.add_argument("--gap", type=int, default=2, help="bytes of a strided side per byte copied (default: 2)")
    parser.add_argument("--runs", type=int, nargs="*", default=[], help="run lengths in bytes (default: 1 to 65536)")
    parser.add_argument("--json", type=Path, help="file for one JSON line per case")
    arguments = parser.parse_args()
    print(f"{'GB/s':14}{'ndim':>5}{'run':>8}" + "".join(f"{c:>13}" for c in COLUMNS) + f"{'/loop':>10}{'/memcpy':>10}")
    with tempfile.TemporaryDirectory() as folder:
        program = compile_benchmark(Path(folder))
        numbers = [arguments.bytes, arguments.repetitions, arguments.gap, *arguments.runs]
        lines = []
        with subprocess.Popen([program, *map(str, numbers)], stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                lines.append(line)
                print_row(json.loads(line))
    if arguments.json:
        arguments.json.write_text("".join(lines))
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())

"""
Copies of 2 GB on a GPU, packed, unpacked and permuted, against a plain copy of as many bytes.

    python benchmarks/gpu/pack.py [--nbytes 2147483648] [--library libdace_redist_cuda.so]

Prints a line for each: microseconds, GB/s read and written, and the ratio to the plain copy. Without --library, the
package's own is built if need be.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "dace_redist" / "runtime" / "src"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nbytes", type=int, default=1 << 31)
    parser.add_argument("--library", type=Path, help="libdace_redist_cuda.so")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "pack")
        source = Path(__file__).with_name("pack.cpp")
        copies = [str(SOURCES / "device" / "copy_kernel.cpp"), *map(str, sorted(SOURCES.glob("copy/*.cpp")))]
        compile_it = ["g++", "-std=c++17", "-O2", "-I", str(SOURCES), str(source), *copies, "-o", str(program), "-ldl"]
        subprocess.run(compile_it, check=True)
        library = options.library or _own_library()
        return subprocess.run([program, library.resolve(), str(options.nbytes)]).returncode


def _own_library() -> Path:
    from dace_redist.native.cmake_build import ensure_library  # not needed, nor installed, where a library is named
    from dace_redist.native.toolchain import CUDA

    return ensure_library(CUDA)


if __name__ == "__main__":
    sys.exit(main())

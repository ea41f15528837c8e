"""
Benchmark of every strategy against stock DaCe, other libraries, and the limits of the machine; see ``--help``.

    mpiexec -n 12 python benchmarks/bench.py seed --json results.jsonl
"""

from redistribution.command import bench

from dace_redist.cli import run_command

if __name__ == "__main__":
    run_command(bench, "bench.py")

"""Environment of a benchmark: machine, processor, MPI, commit, versions."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dace_redist
from dace_redist.mpi.launch import mpi_name
from dace_redist.mpi.topology import processor

_PACKAGES = ("dace", "mpi4py", "numpy", "scipy", "mpi4py-fft")


def describe(ranks: int, node_of: Sequence[int]) -> dict[str, Any]:
    """
    Facts for a line of results.

    :param ranks: Ranks of the job.
    :param node_of: Number of the node of each of them.
    """
    from mpi4py import MPI

    return {
        "machine": platform.machine(),
        "processor": processor(),
        "system": platform.platform(),
        "cores": len(os.sched_getaffinity(0)),
        "mpi": mpi_name(MPI.Get_library_version()),
        "commit": _commit(),
        "ranks": ranks,
        "nodes": max(node_of) + 1,
        "versions": {"dace_redist": dace_redist.__version__, "python": platform.python_version()} | _versions(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def _commit() -> str | None:
    """Return the commit of the package's checkout, with a plus if it has changes; None outside of a checkout."""
    folder = Path(dace_redist.__file__).parent
    try:
        top = _git(folder, "rev-parse", "--show-toplevel")
        if Path(top).resolve() != folder.resolve().parent:
            return None  # installed into a folder of another repository
        return _git(folder, "rev-parse", "--short=12", "HEAD") + ("+" if _git(folder, "status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found

"""JSON lines of the benchmarks, and where they were measured."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from dace_redist.mpi.launch import mpi_name
from dace_redist.mpi.topology import processor, processor_facts


def json_option(name: str = "path") -> Callable[[Any], Any]:
    """Return the option ``--json``: a file for :func:`append`."""
    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option("--json", name, type=kind, help="append a JSON line per result")


def names_option(*known: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return the callback of an option that lists known words, such as ``Auto,Pack``; None stays None."""
    choice = click.Choice(known, case_sensitive=False)

    def read(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...] | None:
        if value is None:
            return None
        return tuple(dict.fromkeys(choice.convert(word.strip(), None, None) for word in value.split(",") if word))

    return read


def append(path: Path | None, *records: Mapping[str, Any]) -> None:
    """Append a line for each record to a file, if there is one."""
    if path is not None:
        with path.open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)


def _git(*arguments: str) -> str | None:
    """Return what Git says of the folder of this file; None for nothing, as outside a repository."""
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None


def _caches() -> dict[str, str]:
    """Return the sizes of the first core's caches by level and kind, as Linux gives them."""
    folders = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")
    words = [[(folder / name).read_text().strip() for name in ("level", "type", "size")] for folder in sorted(folders)]
    return {f"L{level} {kind}": size for level, kind, size in words}


def machine() -> dict[str, Any]:
    """Return the processor, its clock and caches, and whether it is a virtual machine's."""
    facts = processor_facts()
    return {
        "machine": platform.machine(),
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "mhz": facts.get("cpu MHz"),
        "caches": _caches(),
        "virtual": "hypervisor" in facts.get("flags", "").split(),
    }


def environment(ranks: int, node_of: Sequence[int]) -> dict[str, Any]:
    """Return the machine, MPI, commit, versions and date of a result."""
    from mpi4py import MPI

    versions = {}
    for package in ("dace_redist", "dace", "mpi4py", "numpy", "mpi4py-fft"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":!/benchmarks/results")
    return {
        **machine(),
        "mpi": mpi_name(MPI.Get_library_version()),
        "commit": f"{commit}-dirty" if changed else commit,
        "ranks": ranks,
        "nodes": max(node_of) + 1,
        "versions": versions,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }

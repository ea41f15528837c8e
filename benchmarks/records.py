"""JSON lines of the benchmarks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click


def json_option(name: str = "path") -> Callable[[Any], Any]:
    """Return the option ``--json``: a file for :func:`append`."""
    kind = click.Path(dir_okay=False, path_type=Path)
    return click.option("--json", name, type=kind, help="append a JSON line per result")


def append(path: Path | None, *records: Mapping[str, Any]) -> None:
    """Append a line for each record to a file, if there is one."""
    if path is not None:
        with path.open("a") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)

"""Parts of benchmarks on ranks of their own."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

import click
from launching import launch


def on_ranks(ranks: int, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """
    Run Python on ranks and return its output.

    :raises click.ClickException: If it fails.
    """
    code, printed = launch(ranks, [sys.executable, *arguments], 600, environment=environment)
    if code != 0:
        raise click.ClickException(f"{' '.join(arguments)[:60]} ended with code {code}:\n{printed}")
    return printed


def part_on_ranks(ranks: int, script: str, name: str, environment: Mapping[str, str] | None = None) -> Any:
    """Run a part of a script on ranks; return what it prints as JSON."""
    return json.loads(on_ranks(ranks, script, "--part", name, environment=environment).strip().splitlines()[-1])

"""Files of measurements, kept as JSON: read with a check of every field, written at once. Start reading at: load."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, TypeVar

import pydantic


class Strict(pydantic.BaseModel):
    """Nothing but the fields named, of their types: a file with others is not one of ours."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)


Content = TypeVar("Content", bound=Strict)


def load(path: Path, model: type[Content], kind: str, version: int, remedy: str) -> Content | int:
    """
    The content of a file, checked.

    :param path: Path of the file.
    :param model: What it holds, ``format`` and ``version`` among its fields.
    :param kind: What such a file is called; its ``format`` is ``"dace-redist KIND"``.
    :param version: The version that can be read.
    :param remedy: What to do about a bad file, for the message.
    :return: The content; of a file of another version that version.
    :raises ValueError: If it is no such file, or damaged; names it, and the field that is wrong.
    :raises OSError: If it cannot be read.
    """
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{kind} {path} is no JSON ({error}): damaged, half-written or another file; {remedy}"
        ) from None
    if not isinstance(content, dict) or content.get("format") != f"dace-redist {kind}":
        raise ValueError(f"{path} is no {kind} of dace-redist, but another file; {remedy}")
    found = content.get("version")
    if isinstance(found, int) and not isinstance(found, bool) and found != version:
        return found
    try:
        return model.model_validate(content)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise ValueError(f"{kind} {path} is damaged: {where}: {first['msg']}; {remedy}") from None


def other_version(kind: str, found: int, version: int) -> str:
    """Why a file of another version is not read."""
    return f"it is a {kind} of version {found}, this package reads and writes version {version}"


def replace(path: Path, content: Any) -> None:
    """
    Writes a file at once: whoever opens it finds all of the old or all of the new.

    :param path: Path of the file, in a folder that exists.
    :param content: What JSON can hold.
    :raises OSError: If it cannot be written.
    """
    descriptor, name = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".part", dir=path.parent)
    part = Path(name)
    try:
        with open(descriptor, "w") as file:
            file.write(json.dumps(content, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        part.chmod(path.stat().st_mode if path.exists() else 0o644)  # mkstemp's files are for their owner only
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise

"""Files of measurements, kept as JSON: where they lie, reading with a check of every field, atomic writing."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dace_redist.errors import naming_file
from dace_redist.native.toolchain import user_directory

if TYPE_CHECKING:
    import pydantic  # loads slowly: readers bring their models

Content = TypeVar("Content", bound="pydantic.BaseModel")


@dataclasses.dataclass(frozen=True)
class Kind:
    """
    Kind of file, whose fields ``format`` and ``version`` say what it is.

    :param name: Its name in words.
    :param version: Changes when a file of this version could no longer be read.
    :param remedy: End of the error about a bad file.
    :param unwritable: End of the error about one that cannot be written.
    """

    name: str
    version: int
    remedy: str
    unwritable: str

    @property
    def head(self) -> dict[str, Any]:
        """Fields ``format`` and ``version``."""
        return {"format": f"dace-redist {self.name}", "version": self.version}

    def load(self, path: Path, model: type[Content]) -> tuple[Content | None, str]:
        """
        Read and check a file; cached until the file changes.

        :param model: Model of the content.
        :return: The content and ``""``; of a file of another version None and the reason.
        :raises ValueError: If it is not such a file, or damaged; names it, and the field that is wrong.
        :raises OSError: If it cannot be read.
        """
        facts = path.stat()
        return _load((path, facts.st_mtime_ns, facts.st_size, facts.st_ino), self, model)

    @contextlib.contextmanager
    def writing(self, path: Path) -> Iterator[None]:
        """Make the folder of a file; an OSError in the block names the file and the remedy."""
        with naming_file(self.name, path, self.unwritable):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield

    def replace(self, path: Path, content: pydantic.BaseModel) -> None:
        """
        Write a file atomically: a reader finds all of the old content or all of the new.

        :raises OSError: If it cannot be written; names the file and the remedy.
        """
        import json
        import tempfile

        with self.writing(path), contextlib.ExitStack() as cleanup:
            descriptor, name = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".part", dir=path.parent)
            part = Path(name)
            cleanup.callback(part.unlink, missing_ok=True)
            with open(descriptor, "w") as file:
                file.write(json.dumps(content.model_dump(exclude_defaults=True), indent=1) + "\n")
                file.flush()
                os.fsync(file.fileno())
            part.chmod(path.stat().st_mode if path.exists() else 0o644)  # mkstemp's files are for their owner only
            os.replace(part, path)


@functools.lru_cache(maxsize=16)
def _load(state: tuple[Path, int, int, int], kind: Kind, model: Any) -> tuple[Any, str]:
    import json  # loads slowly, as tempfile above: most programs have no such file

    path, name = state[0], kind.name
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise OSError(f"{name} {path} cannot be read: {error}; {kind.remedy}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{name} {path} is not valid JSON ({error}): damaged, half-written or another file; {kind.remedy}"
        ) from None
    if not isinstance(content, dict) or content.get("format") != kind.head["format"]:
        raise ValueError(f"{path} is not a {name} of dace-redist, but another file; {kind.remedy}")
    found = content.get("version")
    if isinstance(found, int) and not isinstance(found, bool) and found != kind.version:
        return None, f"it is a {name} of version {found}, this package reads and writes version {kind.version}"
    try:
        return model.model_validate(content), ""
    except ValueError as error:  # a pydantic.ValidationError is one
        first = error.errors()[0]  # type: ignore[attr-defined]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise ValueError(f"{name} {path} is damaged: {where}: {first['msg']}; {kind.remedy}") from None


def now() -> str:
    """Return date and time in ISO 8601."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def differences(found: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Return the values that a file has and this place has not, as in ``another MPI (X, here Y)``; ``""`` if none."""
    return " and ".join(
        f"another {name} ({value}, here {here[name]})" for name, value in found.items() if value != here[name]
    )


def record_path(given: str | os.PathLike[str] | None = None) -> Path:
    """Return the path of the tuning record: as given, else ``DACE_REDIST_RECORD``, else in the user's data folder."""
    if given is not None and not isinstance(given, str | os.PathLike):
        raise TypeError(f"record must be the path of a file, got {given!r}")
    named = given or os.environ.get("DACE_REDIST_RECORD")
    return Path(named) if named else user_directory("XDG_DATA_HOME", ".local/share") / "tuning.json"

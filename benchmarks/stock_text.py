"""Programs of stock DaCe from their text."""

from __future__ import annotations

import contextlib
import io
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import dace


def parsed(name: str, text: str, **names: Any) -> dace.SDFG:
    """
    Return the SDFG of a program of stock DaCe, under its name.

    :param text: Python that defines the ``@dace.program`` of this name; DaCe reads it from a file.
    :param names: Objects that the text uses.
    """
    with tempfile.TemporaryDirectory() as folder, quiet():
        path = Path(folder, f"{name}.py")
        path.write_text(text)
        names["__name__"] = name
        exec(compile(text, path, "exec"), names)
        sdfg: dace.SDFG = names[name].to_sdfg()
    sdfg.name = name
    return sdfg


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hide the output of stock DaCe while it parses and expands: debug prints, warnings about itself."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"dace\.")
        yield

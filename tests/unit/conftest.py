"""The command line in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dace_redist import cli


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a call of the command line, which returns exit code, standard output and standard error."""

    def call(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            cli.main([str(word) for word in words])
        return end.value.code or 0, *capsys.readouterr()

    return call

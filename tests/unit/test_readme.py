"""What README.md shows is what happens: its Python runs, its tables and its printed output are up to date."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from dace_redist import cli
from dace_redist.strategies import OPTIONS, STRATEGIES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
# A comment that readers do not see says on how many ranks a snippet runs; without it, on none.
SNIPPETS = re.findall(r"(?:<!-- ranks: (\d+) -->\n)?```python\n(.*?)```", README, re.DOTALL)
ALONE = [code for ranks, code in SNIPPETS if not ranks]
ON_RANKS = [code for ranks, code in SNIPPETS if ranks]


def write(code: str, folder: Path) -> str:
    path = folder / "snippet.py"  # DaCe reads the source of a program from its file
    path.write_text(code)
    return str(path)


def test_there_are_snippets() -> None:
    assert len(ALONE) >= 1
    assert {ranks for ranks, _ in SNIPPETS} == {"", "4"}
    assert README.count("```python") == len(SNIPPETS)


@pytest.mark.parametrize("number", range(len(ALONE)))
def test_snippet(number: int, tmp_path: Path) -> None:
    runpy.run_path(write(ALONE[number], tmp_path), run_name="__main__")


@pytest.mark.compile
@pytest.mark.mpi(ranks=[4], timeout=240)
@pytest.mark.parametrize("number", range(len(ON_RANKS)))
def test_snippet_on_ranks(number: int, tmp_path: Path, comm) -> None:
    path = write(ON_RANKS[number], tmp_path) if comm.rank == 0 else None
    runpy.run_path(comm.bcast(path), run_name="__main__")  # one file: DaCe takes programs of two files for two programs


def test_explain_prints_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # it draws a picture
    shown = re.findall(r"^\$ dace-redist (.*?)\n(.*?)```", README, re.DOTALL | re.MULTILINE)
    assert shown
    for words, output in shown:
        assert CliRunner().invoke(cli.cli, shlex.split(words)).output == output
    assert (tmp_path / "plan.png").exists() and (tmp_path / "einsum-plan.png").exists()


def test_tables_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|", README, re.MULTILINE)
    strategies = [(s.name, s.summary, ", ".join(f"`{o}`" for o in s.options) or "none") for s in STRATEGIES.values()]
    options = [(name, str(option.default), option.description) for name, option in OPTIONS.items()]
    assert rows == strategies + options


def test_files_named_exist() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    assert links
    for link in links:
        assert (ROOT / link).exists(), link


def test_make_knows_the_targets() -> None:
    for target in set(re.findall(r"^make ([\w-]+)|`make ([\w-]+)`", README, re.MULTILINE)):
        name = "".join(target)
        done = subprocess.run(["make", "-n", name], cwd=ROOT, capture_output=True, text=True)
        assert "No rule" not in done.stderr, name

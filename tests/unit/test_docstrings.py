"""Docstrings as text: the first word is a verb or a noun, never a relative or interrogative word."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.lint

ROOT = Path(__file__).parents[2]
#: Folders that are checked, relative to the repository root.
FOLDERS = ("dace_redist", "library_nodes", "transformations")
FIRST_WORDS = re.compile(r"(What|Which|Who|How|Whether|The same)\b")


def violations(folder: Path) -> list[str]:
    """File, line and first line of each docstring that begins with one of ``FIRST_WORDS``."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text and FIRST_WORDS.match(text):
                    found.append(f"{path.relative_to(folder)}:{node.body[0].lineno}: {text.splitlines()[0]}")
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_begin_with_a_verb_or_a_noun(folder: str):
    assert any((ROOT / folder).rglob("*.py"))
    found = violations(ROOT / folder)
    if found:
        pytest.fail(f"{len(found)} docstrings in {folder} need another first word:\n" + "\n".join(found), pytrace=False)

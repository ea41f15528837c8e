"""The reference pages say what the code says: public names, commands, strategies, options, the C header."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from dace.sdfg.nodes import LibraryNode

import dace_redist
from dace_redist import cli, library_nodes, transformations

pytestmark = pytest.mark.lint

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "extensions"))

import reference_pages  # noqa: E402

REFERENCE = "".join((ROOT / "docs" / "reference" / page).read_text() for page in ("python.md", "dace.md"))
ENTRIES = set(re.findall(r"^\.\. auto\w+:: dace_redist\.(\S+)$", REFERENCE, re.MULTILINE))


@pytest.mark.dace
@pytest.mark.parametrize("page", reference_pages.PAGES, ids=lambda page: page.name)
def test_generated_parts_are_up_to_date(page: Path) -> None:
    text = page.read_text()
    if reference_pages.filled(text) != text:
        pytest.fail("run: python docs/extensions/reference_pages.py", pytrace=False)


@pytest.mark.dace
@pytest.mark.parametrize("name", dace_redist.__all__)
def test_type_checkers_find_a_public_name(name: str) -> None:
    """Not behind a module's __getattr__, which makes it Any."""
    assert getattr(dace_redist, name).__module__ == dace_redist._HOMES[name]


@pytest.mark.parametrize("name", dace_redist.__all__)
def test_a_public_name_has_an_entry_and_an_example(name: str) -> None:
    assert name in ENTRIES
    examples = re.findall(r"^```python\n(.*?)^```$", REFERENCE, re.DOTALL | re.MULTILINE)
    called = {"DistributedProgram": "program.", "Plan": "plan(", "Request": "request.", "Schedule": "moves."}
    assert any(called.get(name, name) in example for example in examples)


@pytest.mark.dace
def test_nodes_and_transformations_have_entries_with_the_data_flow_before_and_after() -> None:
    kinds = [kind for kind in vars(library_nodes).values() if inspect.isclass(kind) and issubclass(kind, LibraryNode)]
    assert {f"library_nodes.{kind.__name__}" for kind in kinds} <= ENTRIES and len(kinds) == 5
    assert {f"transformations.{name}" for name in transformations.__all__ if not hasattr(dace_redist, name)} <= ENTRIES
    for name in transformations.__all__:
        thing = getattr(transformations, name)
        if inspect.isclass(thing) and issubclass(thing, transformations.patterns.OfRedistribute):
            assert re.search(r"after::\n\n +A --> ", inspect.cleandoc(thing.__doc__)), name


@pytest.mark.slow
def test_the_inventory_of_the_manual_has_every_entry(tmp_path: Path) -> None:
    """Built from the pages of the reference, where Sphinx and its extensions are installed."""
    for module in ("sphinx", "myst_parser", "furo", "sphinx_copybutton", "sphinx_design"):
        pytest.importorskip(module, reason="needs docs/requirements.txt")
    only = ["-Dinclude_patterns=reference/*", "-Droot_doc=reference/python"]
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", *only, ROOT / "docs", tmp_path]
    subprocess.run(command, check=True, capture_output=True, timeout=250)
    _, _, packed = (tmp_path / "objects.inv").read_bytes().rpartition(b"zlib.\n")
    found = {line.split()[0] for line in zlib.decompress(packed).decode().splitlines() if " py:" in line}
    assert found >= {f"dace_redist.{name}" for name in ENTRIES}


def test_every_command_has_its_help() -> None:
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    assert set(re.findall(r"^<!-- generated: command (\w+) -->$", page, re.MULTILINE)) == set(cli.cli.commands)


def test_every_function_of_the_c_header_is_listed() -> None:
    header = (ROOT / "dace_redist" / "runtime" / "include" / "dace_redist.h").read_text()
    page = (ROOT / "docs" / "reference" / "c.md").read_text()
    functions = set(re.findall(r"^DR_API .*?(dr_\w+)\(", header, re.MULTILINE))
    assert functions == set(re.findall(r"`(dr_\w+)\(", page))
    problem = header[header.index("typedef struct dr_problem {") : header.index("} dr_problem;")]
    members = re.findall(r"(\w+);", re.sub(r"/\*.*?\*/", "", problem, flags=re.DOTALL))
    assert set(members) <= set(re.findall(r"`(\w+)`", page))


def test_the_lines_of_c_plus_plus_are_those_of_the_example() -> None:
    page = (ROOT / "docs" / "howto" / "c.md").read_text()
    lines = re.search(r"^```cpp\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[1].splitlines()
    assert lines
    assert set(lines) <= set((ROOT / "examples" / "redistribute.cpp").read_text().splitlines())


@pytest.mark.parametrize(("ending", "page"), [("c", "c"), ("f90", "fortran")])
def test_the_example_of_a_page_is_the_one_in_examples(ending: str, page: str) -> None:
    example = (ROOT / "examples" / f"redistribute.{ending}").read_text()
    assert example in (ROOT / "docs" / "howto" / f"{page}.md").read_text()


def test_the_speed_ups_in_the_readme_are_those_of_the_performance_page() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    rows = re.findall(r"^\| by ranks: (\d+) \| \d+ \| ([\d.]+)", page, re.MULTILINE)
    text = " ".join((ROOT / "README.md").read_text().split())
    fewest, *others = (float(ratio) for _, ratio in rows)
    assert f"{fewest:.2f} times as fast as `MPI_Alltoallw` with {rows[0][0]} ranks on 2 cores" in text
    assert f"{min(others):.2f} to {max(others):.2f} times with {rows[1][0]} to {rows[-1][0]} ranks there" in text
    scalapack = float(re.search(r"^\| ScaLAPACK .*?\| \d+ \| ([\d.]+)", page, re.MULTILINE)[1])
    assert f"{scalapack:.1f} times as fast as ScaLAPACK" in text
    slower = re.search(r"^\| slower cases \| of (\d+) \| ([^|]+)", page, re.MULTILINE)
    assert f"{slower[2].count(',') + 1} of {slower[1]} cases are slower" in text

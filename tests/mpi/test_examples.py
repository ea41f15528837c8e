"""The examples run on 4 ranks as their first lines say, and are short; those in C are built in test_languages.py."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from redistribution import scalapack

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(path.name for path in FOLDER.glob("*.py"))
#: Pattern of the last line that each prints.
PRINTED = {
    "by_mpi_calls.py": "equal",
    "cholesky.py": "solved 1000 equations",
    "deinsum_kernels.py": r"    sum___return: \{'strategy': .*\}, for (not decided.*|\w+ is the fastest.*)",
    "einsum_from_files.py": r"energy \d.*, residual of the first rank \d.*",
    "numpy_mpi4py.py": r" +Hierarchical +[\d.]+ .*",
    "sparse_stacks.py": "61 matrices of 2000 non-zeros, there and back",
    "sdfg_api.py": "rank 0 has the last rows",
    "transform_sdfg.py": "1 redistribution lowered, 1 between arrays in node-shared memory",
}
#: Arguments that shorten an example.
ARGUMENTS = {"deinsum_kernels.py": ["mm1", "mttkrp5_2"]}


@pytest.mark.lint
def test_every_example_is_short_and_says_how_to_run_it() -> None:
    assert EXAMPLES == sorted(PRINTED)
    for name in EXAMPLES:
        lines = (FOLDER / name).read_text().splitlines()
        programs = sum(line == "@dace.program" for line in lines)
        assert len(lines) <= 40 + 7 * programs, name
        assert lines[0].endswith(f'. Run: mpiexec -n 4 python examples/{name}"""')


@pytest.mark.lint
def test_front_page_counts_the_lines_of_calls_of_mpi() -> None:
    page, statements = (
        (FOLDER.parent / "README.md").read_text(),
        ast.parse((FOLDER / "by_mpi_calls.py").read_text()).body,
    )
    lengths = [one.end_lineno - one.lineno for one in statements if isinstance(one, ast.FunctionDef)]
    assert [int(count) for count in re.findall(r"\[(\d+)\]\(examples/by_mpi_calls.py\)", page)] == lengths


@pytest.mark.compile
@pytest.mark.dace
@pytest.mark.mpi(ranks=[4], timeout=240)
@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, comm: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "cholesky.py" and (reason := scalapack.library_missing()):
        pytest.skip(reason)
    monkeypatch.setattr(sys, "argv", [name, *ARGUMENTS.get(name, [])])
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    if comm.rank == 0:
        assert re.fullmatch(PRINTED[name], capsys.readouterr().out.splitlines()[-1])

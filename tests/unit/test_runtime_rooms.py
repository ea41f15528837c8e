"""The sources of the runtime as text: includes go down only, files stay short, nothing includes a source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.lint

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "dace_redist/runtime"
SOURCES = RUNTIME / "src"
#: The rooms from the ground up. A room includes itself and the rooms before it; ``trace`` is for all rooms.
ORDER = ("core", "layout", "copy", "shm", "transport", "plan", "device", "contraction", "api", "scalapack")
FOR_ALL = "trace"
MAX_LINES = 400
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]')
CODE = {".hpp", ".cpp", ".cu", ".cuh", ".h", ".c"}


def code_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in CODE)


def includes(file: Path) -> list[tuple[int, str]]:
    """Line number and name of each header or source that a file includes."""
    lines = enumerate(file.read_text().splitlines(), 1)
    return [(number, found[1]) for number, line in lines if (found := INCLUDE.match(line))]


def violations(sources: Path) -> list[str]:
    """Includes of rooms that do not lie below the including file's."""
    found = []
    for file in code_files(sources):
        name = file.relative_to(sources).as_posix()
        room = name.split("/")[0]
        for line, included in includes(file):
            other, _, rest = included.partition("/")
            if not rest or (other not in ORDER and other != FOR_ALL):
                continue  # a public or foreign header
            allowed = [FOR_ALL, "core"] if room == FOR_ALL else [FOR_ALL, *ORDER[: ORDER.index(room) + 1]]
            if other not in allowed:
                found.append(f'{name}:{line}: {room} must not include {other} ("{included}")')
    return found


def test_each_folder_is_a_room():
    assert {path.name for path in SOURCES.iterdir()} == {*ORDER, FOR_ALL}


def test_includes_go_down_only():
    found = violations(SOURCES)
    if found:
        pytest.fail(f"order of the rooms: {' < '.join(ORDER)}\n" + "\n".join(found), pytrace=False)


def test_includes_that_go_up_are_found(tmp_path: Path):
    for name, text in (
        ("core/error.hpp", '#pragma once\n#include "trace/trace.hpp"\n#include "dace_redist_types.h"\n'),
        ("trace/trace.cpp", '#include "core/mpi.hpp"\n#  include <plan/plan.hpp>\n'),
        ("copy/copy.cpp", '#include "layout/grid.hpp"\n// #include "shm/arena.hpp"\n#include "shm/arena.hpp"\n'),
        ("device/cuda/kernel.cu", '#include "plan/plan.hpp"\n#include "api/handles.hpp"\n'),
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    assert violations(tmp_path) == [
        'copy/copy.cpp:3: copy must not include shm ("shm/arena.hpp")',
        'device/cuda/kernel.cu:2: device must not include api ("api/handles.hpp")',
        'trace/trace.cpp:2: trace must not include plan ("plan/plan.hpp")',
    ]


def test_files_are_short():
    lengths = {file.relative_to(RUNTIME).as_posix(): file.read_text().count("\n") for file in code_files(RUNTIME)}
    assert {name: count for name, count in lengths.items() if count > MAX_LINES} == {}


def test_nothing_includes_a_source():
    files = [file for folder in (ROOT / "tests", ROOT / "dace_redist") for file in code_files(folder)]
    found = [
        f"{file.relative_to(ROOT)}:{line}: {included}"
        for file in files
        for line, included in includes(file)
        if included.endswith((".cpp", ".cu", ".c"))
    ]
    assert found == []


def test_no_unity_groups():
    """CMake chooses which sources are compiled as one; no source may depend on that."""
    build = [RUNTIME / "CMakeLists.txt", ROOT / "setup.py", *(ROOT / "dace_redist/native").glob("*.py")]
    assert [path.name for path in build if re.search(r"unity_group|unity_build_mode", path.read_text(), re.I)] == []

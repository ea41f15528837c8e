"""The sources as text: docstrings, packages, and what the runtime's files may include."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.lint

ROOT = Path(__file__).parents[2]
#: Folders of Python modules.
FOLDERS = ("dace_redist", "library_nodes", "transformations")
FIRST_WORDS = re.compile(r"(What|Which|Who|How|Whether|The same)\b")
PACKAGE = ROOT / "dace_redist"
SOURCES = PACKAGE / "runtime/src"
#: Libraries beside the runtime, which include its installed headers only.
BESIDE = ("contraction", "scalapack")
#: The rooms from the ground up. A room includes itself and the rooms before it; ``trace`` is for all rooms.
ORDER = ("core", "layout", "file", "copy", "shm", "transport", "plan", "device", "api")
FOR_ALL = "trace"
MAX_LINES = 500
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
        ("copy/copy.cpp", '#include "layout/boxes.hpp"\n// #include "shm/arena.hpp"\n#include "shm/arena.hpp"\n'),
        ("device/cuda/kernel.cu", '#include "plan/plan.hpp"\n#include "api/handles.hpp"\n'),
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    assert violations(tmp_path) == [
        'copy/copy.cpp:3: copy must not include shm ("shm/arena.hpp")',
        'device/cuda/kernel.cu:2: device must not include api ("api/handles.hpp")',
        'trace/trace.cpp:2: trace must not include plan ("plan/plan.hpp")',
    ]


@pytest.mark.parametrize("room", BESIDE)
def test_rooms_beside_the_runtime_use_its_interface(room: str):
    files, installed = code_files(PACKAGE / room), {path.name for path in (PACKAGE / "runtime/include").iterdir()}
    found = {name for file in files for name in re.findall(r'^#include "(.+)"$', file.read_text(), re.MULTILINE)}
    assert found and found <= installed | {file.name for file in files}


def test_files_are_short():
    lengths = {file.relative_to(PACKAGE).as_posix(): file.read_text().count("\n") for file in code_files(PACKAGE)}
    del lengths["_core.cpp"]
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


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_begin_with_a_verb_or_a_noun(folder: str):
    found, paths = [], sorted((ROOT / folder).rglob("*.py"))
    assert paths
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text and FIRST_WORDS.match(text):
                    found.append(f"{path}:{node.body[0].lineno}: {text.splitlines()[0]}")
    if found:
        pytest.fail("docstrings need another first word:\n" + "\n".join(found), pytrace=False)


def test_every_package_is_installed():
    listed = set(re.findall(r'^        "(dace_redist[\w.]*)",$', (ROOT / "setup.py").read_text(), re.MULTILINE))
    files = [path.relative_to(ROOT) for name in FOLDERS for path in (ROOT / name).rglob("__init__.py")]
    names = {".".join(file.parent.parts) for file in files}
    assert listed == {name if name.startswith("dace_redist") else f"dace_redist.{name}" for name in names}


#: What typed programs pass: numbers and arrays of NumPy.
NUMPY_ARGUMENTS = """
import numpy as np
from dace_redist import BoxDistribution, DistributedArray, Distribution, gather, load, plan, redistribute, save
from dace_redist import scatter, schedule, shared_empty
i, x, pair = np.int64(4), np.float32(2), np.array([4, 4])
d = Distribution(pair, (i, np.int8(1)), ranks=pair, halo=i, block=[pair, i])
d = Distribution.split((i, i), i, pair) or Distribution.replicated(pair, i) or Distribution.on_rank(pair, i)
d.local_shape(i), d.owner(pair), d.slices(i), BoxDistribution((i, i), [], []), shared_empty((i, i)), shared_empty(pair)
plan(d, d, "f4", axes=pair, alpha=x, beta=x, memory_bytes=i, threads=i), schedule(d, d, "f4", reshape=pair).arrays(i)
a: DistributedArray = redistribute(scatter(pair, d, root=i), d, d, axes=(i, i), reshape=(i, i))
save("a.npy", a, writers=pair, memory_bytes=i)
load(b"a.npy", d, readers=i), gather(a, d, root=i)
"""


def test_numbers_of_numpy_pass_the_type_checker():
    own = ["--config-file=", "--strict", "--follow-imports=silent", "--ignore-missing-imports", "-c", NUMPY_ARGUMENTS]
    done = subprocess.run([sys.executable, "-m", "mypy", *own], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_security_page_names_what_is_unpickled_parsed_mapped_and_loaded():
    page = (ROOT / "SECURITY.md").read_text()
    python = {path: path.read_text() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    unpickling = re.compile(r"pickle\.loads?\(|Unpickler|marshal\.load|allow_pickle=True|from_file\(")
    assert {path.name for path, text in python.items() if unpickling.search(text)} == {"kept.py"}
    parsing = re.compile(r"json\.loads?\(|JSONDecoder|literal_eval\(|h5py\.File\(|zarr\.open\(|read_npy_header\(")
    files = {"npy.py", "safetensors.py", "hdf5.py", "zarr.py", "trace.py"}
    own = {"loaded_mpi.py", "program.py"}  # what a child process or this package wrote
    assert {path.name for path, text in python.items() if parsing.search(text)} == files | own
    assert all(word in page for word in ("`.npy`: a header", "safetensors: a header", "by h5py and zarr", "traces"))
    native = {path.name: path.read_text() for path in code_files(PACKAGE)}
    foreign = re.compile(r"process_vm_|PR_SET_PTRACER|xpmem_attach|dlopen\(")
    found = {name for name, text in native.items() if foreign.search(text)}
    assert found == {"arena.cpp", "current_device.cpp", "functions.cpp", "peer_arena.cpp", "xpmem.cpp"}
    assert not any("process_vm_writev" in text for text in native.values())
    variables = (ROOT / "docs" / "reference" / "environment.md").read_text()
    assert all(f"`{name}`" in variables for name in re.findall(r"DACE_REDIST_\w+", page))

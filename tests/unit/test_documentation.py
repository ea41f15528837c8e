"""Examples of README.md and the manual: programs and commands run, and their output is the one shown."""

from __future__ import annotations

import gc
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from device_arrays import use_device
from interop_libraries import LIBRARIES, imported
from launching import skip_without_spawn
from mpi_programs import mpifort
from redistribution import scalapack

from dace_redist import cli
from dace_redist.mpi.launch import mpi_environment

ROOT = Path(__file__).parents[2]
FILES = (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in FILES}
# Comments that readers do not see, before a block:
# <!-- ranks: 4 -->             a Python program for four ranks (without a comment: without MPI)
# <!-- continued -->            more lines of the previous Python block
# <!-- setup -->                first lines of all later Python blocks of the page
# <!-- file: NAME -->           a file for the commands of the page
# <!-- run: redistribute.c -->  commands to run, beside that file of examples/, with their output
# <!-- run: smpirun -->         commands to run if that command is there, with their output
BLOCK = re.compile(
    r"(?:<!-- (ranks|continued|setup|file|run)(?:: (\S+))? -->\n)?^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE
)


def programs(text: str) -> list[tuple[str, ...]]:
    """Comment, its value, language and code of the programs of a page, which are joined from its blocks."""
    joined: list[tuple[str, ...]] = []
    setup = ""
    last = 0  # Python block
    for found in BLOCK.finditer(text):
        what, value, language, code = found.groups()
        if what == "continued":
            joined[last] = (*joined[last][:3], joined[last][3] + code)
        elif what == "setup":
            setup = code
        else:
            last = len(joined) if language == "python" else last
            joined.append((what, value, language, setup * (language == "python") + code))
    return joined


BLOCKS = {f"{page}-{number}": found for page, text in PAGES.items() for number, found in enumerate(programs(text))}


def blocks(language: str, comment: str | None) -> list[str]:
    return [name for name, (what, _, lang, _) in BLOCKS.items() if (lang, what) == (language, comment)]


def code_of(name: str) -> str:
    return str(BLOCKS[name][3])


def write(code: str, folder: Path) -> str:
    path = folder / "snippet.py"  # DaCe reads the source of a program from its file
    path.write_text(code)
    return str(path)


@pytest.fixture(autouse=True)
def as_users_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let programs that would be slower on ranks be replicated, as without the tests' environment."""
    monkeypatch.delenv("DACE_REDIST_EXCHANGE_SECONDS", raising=False)


def test_every_block_is_of_a_known_kind() -> None:
    without = {"python", "console", "bash"}
    without |= {"py", "text", "cpp"}  # signatures; output that varies, or help of a command; lines of an example
    files = {"python", "bash", "c", "cmake", "fortran", "xml"}
    known = {None: without, "file": files, "ranks": {"python"}, "run": {"console"}}
    assert {comment: {BLOCKS[name][2] for name in BLOCKS if BLOCKS[name][0] == comment} for comment in known} == known
    assert {comment for comment, *_ in BLOCKS.values()} == {*known}
    for page, text in PAGES.items():
        fences = len(re.findall(r"^```", text, re.MULTILINE))
        directives = len(re.findall(r"^```\{", text, re.MULTILINE))
        found = len(re.findall("<!-- (continued|setup) -->", text)) + sum(
            name.rpartition("-")[0] == page for name in BLOCKS
        )
        assert fences == 2 * (directives + found), page
    assert {value for what, value, _, _ in BLOCKS.values() if what == "ranks"} == {"4"}


@pytest.mark.parametrize("name", blocks("python", None))
def test_program(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(write(code_of(name), tmp_path), run_name="__main__")


#: Markers of programs by what these contain.
IMPORTING = {"import dace\n": pytest.mark.dace}
IMPORTING |= dict.fromkeys(["import heat", "pylops_mpi", "torch"], pytest.mark.libraries)


def marked(name: str) -> Any:
    """Return a program with the marker of what its ranks import."""
    marks = [marker for text, marker in IMPORTING.items() if text in code_of(name)]
    return pytest.param(name, marks=marks[:1])


@pytest.mark.compile
@pytest.mark.mpi(ranks=[4], timeout=240)
@pytest.mark.parametrize("name", [marked(name) for name in blocks("python", "ranks")])
def test_program_on_ranks(name: str, tmp_path: Path, comm, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in re.findall(rf"^(?:import|from) ((?:{'|'.join(LIBRARIES)})\w*)", code_of(name), re.MULTILINE):
        imported(library)
    if "DeviceArray" in code_of(name):
        use_device("host", monkeypatch)
    if ".Spawn(" in code_of(name):
        skip_without_spawn()
    path = write(code_of(name), tmp_path) if comm.rank == 0 else None
    path = comm.bcast(path)  # one file: DaCe takes programs of two files for two programs
    monkeypatch.chdir(Path(path).parent)
    runpy.run_path(path, run_name="__main__")
    gc.collect()  # frees the program on all ranks now: a window is freed by all ranks together


@pytest.mark.slow
@pytest.mark.parametrize("name", blocks("console", None))
def test_command_prints_what_is_shown(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command, _, output = code_of(name).partition("\n")
    words = shlex.split(command.removeprefix("$ dace-redist "))
    assert CliRunner().invoke(cli.cli, words).output == output
    if "--plot" in words:
        assert Path(words[words.index("--plot") + 1]).exists()


@pytest.mark.compile
@pytest.mark.parametrize("name", blocks("console", "run"))
def test_commands_run(name: str, tmp_path: Path) -> None:
    if "mpifort" in code_of(name):
        mpifort(tmp_path)
    if "scalapack" in code_of(name) and (reason := scalapack.library_missing()):
        pytest.skip(reason)
    if BLOCKS[name][1] == "smpirun":
        if shutil.which("smpirun") is None:
            pytest.skip("needs SimGrid (apt-get install simgrid libsimgrid-dev)")
    else:
        shutil.copy(ROOT / "examples" / BLOCKS[name][1], tmp_path)
    for what, file, _, code in (
        BLOCKS[other] for other in BLOCKS if other.rpartition("-")[0] == name.rpartition("-")[0]
    ):
        if what == "file":
            (tmp_path / file).write_text(code)
    lines = code_of(name).splitlines()
    commands = "\n".join(line.removeprefix("$ ") for line in lines if line.startswith("$ "))
    shell = ["bash", "-e", "-c", commands]
    done = subprocess.run(
        shell, cwd=tmp_path, env=os.environ | mpi_environment(4), capture_output=True, text=True, timeout=250
    )
    assert done.stdout.splitlines() == [line for line in lines if not line.startswith("$ ")], done.stderr


SHELL = blocks("bash", None) + blocks("bash", "file")


def shell_lines() -> list[tuple[str, str]]:
    return [(name, line) for name in SHELL for line in code_of(name).replace("\\\n", "").splitlines()]


@pytest.mark.parametrize("name", SHELL)
def test_shell_commands_are_well_formed(name: str) -> None:
    done = subprocess.run(["bash", "-n", "-c", code_of(name)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("name", "line"), shell_lines())
def test_shell_commands_name_what_is_there(name: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    if "dace-redist" in words:
        arguments = words[words.index("dace-redist") + 1 :]
        command = cli.cli.commands[arguments[0]]
        command.make_context(arguments[0], arguments[1:])
    scripts = [word for word in words if word.endswith(".py")]
    shown = set(re.findall(r"`(\w+\.py)`", "".join(PAGES.values())))  # saved from a block
    assert all((ROOT / script).exists() or script in shown for script in scripts)


def anchors(text: str) -> set[str]:
    """Anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]):
        file, _, anchor = link.partition("#")
        if not link.startswith("http"):
            target = (ROOT / page).parent / file if file else ROOT / page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target.read_text()), link


def test_make_knows_the_targets() -> None:
    for target in set(re.findall(r"(?:`|^)make ([\w-]+)", "".join(PAGES.values()), re.MULTILINE)):
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, (target, done.stderr)


def test_every_environment_variable_is_in_the_manual() -> None:
    told = set(re.findall(r"^- `(DACE_REDIST_\w+)`", PAGES["docs/reference/environment.md"], re.MULTILINE))
    python = "".join(path.read_text() for path in ROOT.glob("dace_redist/**/*.py"))
    assert told >= set(re.findall(r"VARIABLE = \"(DACE_REDIST_\w+)\"", python))


@pytest.mark.full
@pytest.mark.compile
def test_manual_builds_without_warnings(tmp_path: Path) -> None:
    for module in ("furo", "myst_parser", "sphinx_copybutton", "sphinx_design"):
        pytest.importorskip(module, reason="needs docs/requirements.txt")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(ROOT / "docs"), tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr

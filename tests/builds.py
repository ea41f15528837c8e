"""DaCe programs for tests on several ranks: built once, by one rank, and kept until a source changes."""

from __future__ import annotations

import atexit
import hashlib
import importlib.metadata
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filelock

from dace_redist.mpi.collective import sleeping_barrier

ROOT = Path(__file__).resolve().parent.parent


def planned(comm: Any, program: Any, sizes: dict[str, int], **options: Any) -> Any:
    """Return a distributed program for all ranks of a communicator; rank 0 plans while the others sleep."""
    from dace_redist import distribute

    made = distribute(program, comm.size, sizes, **options) if comm.rank == 0 else None
    sleeping_barrier(comm)
    return comm.bcast(made)


_loaded: dict[str, Any] = {}
atexit.register(_loaded.clear)  # what a program holds of MPI is freed before mpi4py, imported earlier, ends MPI


def built(comm: Any, name: str, make: Callable[[], Any]) -> Any:
    """
    Return a compiled program, loaded on every rank. Collective.

    Waiting ranks sleep, so that the compiler has the cores.

    :param comm: mpi4py communicator.
    :param name: Name of the program.
    :param make: Makes its SDFG.
    """
    from dace.codegen.compiler import load_precompiled_sdfg

    if name in _loaded:
        return _loaded[name]
    folder, failure = Path(), ""
    if comm.rank == 0:
        try:
            folder = Path(os.environ["DACE_default_build_folder"]) / "tests" / name / _key()
            _build(folder, make)
        except Exception as error:
            failure = f"{name} was not built: {type(error).__name__}: {error}"
    sleeping_barrier(comm)
    folder, failure = comm.bcast((folder, failure))
    if failure:
        raise RuntimeError(failure)
    _loaded[name] = load_precompiled_sdfg(folder)
    return _loaded[name]


def _build(folder: Path, make: Callable[[], Any]) -> None:
    import dace

    folder.parent.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder.parent / "lock"):
        done = folder / "done"
        if done.exists():
            return
        for old in filter(Path.is_dir, folder.parent.iterdir()):
            shutil.rmtree(old)
        sdfg = make()
        sdfg.build_folder = str(folder)
        with dace.config.set_temporary("compiler", "cpu", "args", value="-fPIC -O0 -w"):  # half the time
            sdfg.compile(return_program_handle=False)
        done.touch()


def _key() -> str:
    """Return a key that changes with every source of a program."""
    digest = hashlib.blake2b(importlib.metadata.version("dace").encode(), digest_size=8)
    patterns = "dace_redist/**/*.[ch]pp library_nodes/**/*.py transformations/*.py tests/*.py tests/mpi/*.py"
    for source in sorted(source for pattern in patterns.split() for source in ROOT.glob(pattern)):
        digest.update(source.read_bytes())
    return digest.hexdigest()

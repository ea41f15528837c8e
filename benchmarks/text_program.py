"""Programs of DaCe from their text, built once and kept in the package's cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import io
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
from mpi4py import MPI

from dace_redist.mpi.collective import sleeping_barrier, together
from dace_redist.native import program

if TYPE_CHECKING:
    import dace


class TextProgram:
    """
    A program with plain MPI redistributions or those of this package. Collective over the world: DaCe knows no other.

    :param name: The ``@dace.program`` that the text defines.
    :param text: Python; programs of one text are built once.
    :param values: Values of its symbols.
    :param strategy: Strategy of its redistributions; None: stock DaCe's own.
    :raises RuntimeError: On every rank, if the program cannot be compiled on one.
    :raises OSError: On every rank, if it cannot be loaded on one.
    """

    def __init__(self, name: str, text: str, values: Mapping[str, int], strategy: str | None = None) -> None:
        key = hashlib.blake2b(f"{strategy}\n{text}".encode(), digest_size=8).hexdigest()
        path, failure = program.named_path(f"{name}_{key}"), ""
        node = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
        try:
            if node.rank == 0:
                with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                    warnings.filterwarnings("ignore", module=r"dace\.")  # what DaCe says of itself
                    program.ensure_built_at(path, lambda: _sdfg(name, text, path.stem, strategy))
        except Exception as error:
            failure = f"cannot compile stock DaCe's program: {type(error).__name__}: {error}"
        sleeping_barrier(node)  # the compiler needs the cores
        node.Free()
        with together(MPI.COMM_WORLD):
            if failure:
                raise RuntimeError(failure)
        with together(MPI.COMM_WORLD):
            self._program = program.Program(path)
        self._values = dict(values)
        self._state = self._program.start(self._values)

    def run(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Run with arrays by the names of the arguments."""
        self._program.run(self._state, self._values | {name: array.ctypes.data for name, array in arrays.items()})

    def free(self) -> None:
        """Free the program's state."""
        self._program.stop(self._state)


def _sdfg(name: str, text: str, new_name: str, strategy: str | None) -> dace.SDFG:
    """Return the SDFG of a program, whose text DaCe reads from a file."""
    import dace_redist

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.py")
        path.write_text(text)
        names: dict[str, Any] = {"__name__": name}
        exec(compile(text, path, "exec"), names)
        sdfg: dace.SDFG = names[name].to_sdfg()
    sdfg.name = new_name
    if strategy is not None:
        dace_redist.set_strategy(sdfg, strategy)
    return sdfg

"""Program of einsums, distributed over MPI ranks, and its execution."""

from __future__ import annotations

from typing import Any

from dace_redist.transformations.distribute.runtime.facts import Array, ProgramFacts


class DistributedProgram(ProgramFacts):
    """
    Program of einsums, distributed over MPI ranks; made by :func:`dace_redist.distribute`.

    Planning needs no MPI: ``print(program)`` and :meth:`plot` work anywhere. :meth:`scatter`, :meth:`compile`,
    :meth:`run`, :meth:`gather` and a call are collective over a communicator with the planned number of ranks.
    """

    def scatter(self, /, *arrays: Array | None, comm: Any = None, **named: Array | None) -> dict[str, Any]:
        """
        Cut this rank's parts out of whole tensors. Collective.

        :param arrays: Whole tensors in the order of :attr:`inputs`, or of all parameters. A rank without one passes
            None; the first rank that has the tensor sends its part. Ranks that have it must have the same one.
        :param named: Further tensors by name. Parameters that the function does not use are ignored.
        :param comm: As for :meth:`run`.
        :return: Local parts by name, arguments of :meth:`run`: NumPy arrays, or ``DeviceArray`` for parts on the GPU.
        :raises ValueError: On every rank, if a tensor is unknown, is on no rank, differs between ranks (a sample is
            compared), has another shape, or has an element type that cannot be converted to the program's without loss,
            as float64 to int64.
        """
        return _running().scatter(self, arrays, named, comm)

    def compile(self, comm: Any = None) -> None:
        """
        Compile the program if need be, and load it. Collective.

        Otherwise the first run does so, and the first run after a change of :attr:`sdfg`.

        :param comm: As for :meth:`run`.
        :raises ValueError: On every rank, if the communicator has not the planned number of ranks.
        :raises RuntimeError: On every rank, if the compiler fails.
        """
        _running().compile_program(self, comm)

    def run(self, /, comm: Any = None, **local: Any) -> Any:
        """
        Run the program. Collective; the first run compiles it unless :meth:`compile` did.

        Call it in Python's main thread, in which errors of steps are raised. With arguments on the GPU, a run is
        ordered on their stream, after work enqueued before and ahead of work enqueued afterwards.

        :param local: This rank's part of each input, with shape and type of :attr:`inputs` (scalars may be numbers).
            Tensors that the program writes in place are changed; they may be given also if they are outputs only.
        :param comm: mpi4py intra-communicator with the planned number of ranks, in any order; default: the world.
            Resources of the program for a communicator are freed with it.
        :return: This rank's part of the return value, or a tuple; without one the written parts by name. New parts on
            the GPU are of the library of those given.
        :raises ValueError: On every rank, if an argument is invalid on one of them, scalars differ between ranks, the
            communicator has not the planned number of ranks, or a global value that the function uses has changed since
            the program was distributed.
        :raises RedistributionError: On every rank, at the end of the run, if a step failed on one of them, as for a
            singular matrix. What the run wrote is then undefined, and the program can be run again. Only if an MPI call
            fails on one rank may the others block in theirs.
        """
        return _running().run(self, local, comm)

    def gather(self, local: Any, name: str | None = None, comm: Any = None) -> Array | None:
        """
        Return the whole of an output, from its parts. Collective.

        :param name: The tensor; may be left out if the program has one output.
        :param comm: As for :meth:`run`.
        :return: The whole tensor on rank 0, None elsewhere.
        :raises ValueError: On every rank, if the tensor is unknown or a part has the wrong shape or type.
        """
        return _running().gather(self, name, local, comm)

    def __call__(self, /, *arrays: Array | None, comm: Any = None, **named: Array | None) -> Any:
        """
        Scatter whole tensors, run the program, and gather what it returns: ``program(X=X, B=B)``. Collective.

        :param arrays: As for :meth:`scatter`; likewise ``named``.
        :param comm: As for :meth:`run`.
        :return: On rank 0 the return value, or a tuple; without one a dict of the written tensors by name. None
            elsewhere. What rank 0 passed for tensors that the program writes is changed there, and unchanged on other
            ranks: NumPy arrays of exactly their types.
        :raises ValueError: As :meth:`scatter`; likewise all that :meth:`run` raises.
        """
        return _running().call(self, arrays, named, comm)


def _running() -> Any:
    """Return the module that runs programs; importing it initialises MPI, which planning does not need."""
    from dace_redist.transformations.distribute.runtime import run

    return run

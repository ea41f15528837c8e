"""
Other programs of a kernel: distributed by hand, by ``dace_redist.einsum``, or by CTF; and by CuPy on rank 0, while the
others sleep.
"""

import ctypes
import os
import unittest.mock
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from by_hand import KERNELS, WORLD, ByHand
from einsum_cases import EinsumCase, everything

from dace_redist import DistributedArray, DistributedProgram, einsum, shared_empty
from dace_redist.mpi.collective import sleeping_barrier

#: OpenBLAS's threads go on looking for work for some 130 ms after a call, which slows what runs next.
SPINNING_SECONDS = 0.3
#: Environment variable: ``ctf.cpp`` compiled with CTF; see benchmarks/README.md.
CTF_VARIABLE = "DACE_REDIST_CTF_LIBRARY"
#: Modes of the tensors of programs by hand, by the symbols of their lengths.
MODES = dict(zip("IJKLMPQRT", "ijklmbcde", strict=True))


def wholes(case: EinsumCase, program: DistributedProgram, xp: Any = np) -> dict[str, Any]:
    """Return each input as a whole."""
    shapes = {name: tensor.shape for name, tensor in program.inputs.items()}
    return {name: case.operand(name, everything(shape), shape, xp) for name, shape in shapes.items()}


def by_hand_program(case: EinsumCase, sizes: dict[str, int], strategy: str) -> ByHand:
    """Return a kernel distributed by hand; raise ValueError if there is none."""
    if case.name not in KERNELS:
        raise ValueError(f"--by-hand: expected one of {', '.join(KERNELS)}, got {case.name}")
    extents = {MODES[symbol]: extent for symbol, extent in sizes.items()}
    return ByHand(case.name, extents, strategy)


def on_rank_0(work: Callable[[], Any] | None) -> None:
    """Run something on rank 0 while the others sleep. Collective."""
    if work is not None:
        work()
    sleeping_barrier(WORLD, 0.001)


def _cupy(case: EinsumCase, program: DistributedProgram) -> Callable[[], Any]:
    """Return a run on rank 0, in the order that NumPy finds."""
    if WORLD.rank != 0:
        return partial(on_rank_0, None)
    import cupy

    given, contract = wholes(case, program, cupy), cupy.einsum

    def einsum(expression: str, *arrays: Any) -> Any:
        shapes = [np.broadcast_to(np.float64(0), array.shape) for array in arrays]
        return contract(expression, *arrays, optimize=np.einsum_path(expression, *shapes, optimize="greedy")[0])

    def run() -> None:
        with unittest.mock.patch.object(np, "einsum", einsum):
            case.program.f(**given)
        cupy.cuda.get_current_stream().synchronize()

    return partial(on_rank_0, run)


def _einsum(case: EinsumCase, program: DistributedProgram) -> Callable[[], Any]:
    """Return a call on the distributions of the program's inputs and output."""
    (statement,) = program.plan.statements

    def filled(name: str) -> DistributedArray:
        whole = program.tensor(name).distribution
        part = shared_empty(whole.local_shape(WORLD.rank))
        indices = whole.global_index(WORLD.rank)
        part[...] = case.operand(name, indices, whole.shape) if name in program.inputs else 0
        return DistributedArray(part, whole)

    arrays = {
        name: filled(name) for name in {*statement.operands, statement.result}
    }  # an operand used twice moves once
    operands = [arrays[name] for name in statement.operands]
    return partial(einsum, str(statement.einsum), *operands, out=arrays[statement.result])


def _ctf(case: EinsumCase, program: DistributedProgram) -> Callable[[], Any]:
    """Return contractions of pairs, in the order that opt_einsum finds, of random tensors."""
    import opt_einsum

    if CTF_VARIABLE not in os.environ:
        raise ValueError(f"--against ctf: {CTF_VARIABLE} must name ctf.cpp compiled with CTF, see benchmarks/README.md")
    library = ctypes.CDLL(os.environ[CTF_VARIABLE])
    library.ctf_tensor.restype = ctypes.c_void_p
    (statement,) = program.plan.statements
    terms, shapes = statement.einsum.operands, [program.inputs[name].shape for name in statement.operands]
    extents = dict(pair for term, shape in zip(terms, shapes, strict=True) for pair in zip(term, shape, strict=True))

    def tensor(indices: str) -> tuple[ctypes.c_void_p, bytes]:
        shape = (ctypes.c_int * len(indices))(*(extents[index] for index in indices))
        return ctypes.c_void_p(library.ctf_tensor(len(indices), shape, WORLD.py2f())), indices.encode()

    steps, left = [], [tensor(term) for term in terms]
    for _, _, step, *_ in opt_einsum.contract_path(str(statement.einsum), *shapes, shapes=True)[1].contraction_list:
        given, result = step.split("->")
        operands = [next(one for one in left if one[1] == indices.encode()) for indices in given.split(",")]
        left = [one for one in left if one not in operands] + [tensor(result)]
        steps.append([item for one in (*operands, left[-1]) for item in one])
    return lambda: [library.ctf_contract(*step) for step in steps]


#: Functions that make a run on all ranks; collective.
PEERS = {"einsum": _einsum, "ctf": _ctf, "cupy": _cupy}

"""Random redistributions for Hypothesis, of one tensor or several, and NumPy's results; for several tests."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes as ml_dtypes  # registers bfloat16 with NumPy
import numpy as np
from distributions import blocked, boxed, ends, maps, moved, with_margins
from hypothesis import strategies as st

from dace_redist import plan, redistribute, shared_empty
from dace_redist.transform import COMPUTED_TYPES, OPS

DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES += ("float16", "float32", "float64", "complex64", "complex128")

#: The strategies that move NumPy arrays, and small random options for each: split messages, short rings, many chunks.
IN_FLIGHT = {"max_in_flight_bytes": st.sampled_from([0, 0, 1, 500])}
OPTIONS = {
    "Datatype": IN_FLIGHT,
    "Pack": IN_FLIGHT,
    "Threaded": {"threads": st.integers(1, 3), **IN_FLIGHT},
    "Pipelined": {
        **IN_FLIGHT,
        "chunk_bytes": st.sampled_from([1, 24, 1000, 8 << 20]),
        "depth": st.integers(1, 4),
        "growth": st.sampled_from([1.0, 1.5, 3.0]),
    },
    "RMA": {},
    "Hierarchical": {
        **IN_FLIGHT,
        "slot_bytes": st.sampled_from([1, 24, 1000, 64 << 10]),
        "chunk_bytes": st.sampled_from([24, 8 << 20]),
        "depth": st.integers(1, 3),
        "join_bytes": st.sampled_from([-1, 0, 40, 4 << 10]),
    },
}


#: Elements from which a tensor is moved without small options, as it takes long with them.
MANY = 1100


#: How a local array may lie in memory.
LAYOUTS = ("C", "F", "padded", "backwards", "every other", "node-shared", "node-shared padded")


def local_array(part: np.ndarray, layout: str) -> np.ndarray:
    """Return a copy of ``part`` in memory of a given layout."""
    if layout == "F":
        return np.array(part, order="F")
    allocate = shared_empty if layout.startswith("node-shared") else np.empty
    steps = [2 if layout == "every other" and i == part.ndim - 1 else 1 for i in range(part.ndim)]
    margins = [1 + i % 2 if layout.endswith("padded") else 0 for i in range(part.ndim)]
    extents = [n * step + margin for n, step, margin in zip(part.shape, steps, margins, strict=True)]
    larger = allocate(tuple(extents), part.dtype)
    larger[...] = 1
    here = larger[(*(slice(0, n * step, step) for n, step in zip(part.shape, steps, strict=True)), ...)]
    if layout == "backwards" and part.ndim > 0:  # else NumPy makes a scalar
        here = np.flip(here)
    here[...] = part
    return here


REDUCE = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}
#: How a redistribution may be carried out: by a call, by a plan, or started, and moved on by what.
CALLS = ("redistribute", "plan", "test", "calls", "thread")
#: Of MPI messages, in bytes: mostly not limited, or so little that they are split, even within an element.
LONGEST = st.sampled_from([1 << 30, 1 << 30, 40, 16])  # no less than an element


def values(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    """Return small integers, for which arithmetic is exact in all types."""
    rng = np.random.default_rng(seed)
    made = rng.integers(0, 4, shape)
    if np.dtype(dtype).kind == "c":
        return np.asarray(made + 1j * rng.integers(0, 4, shape), dtype)
    return np.asarray(made).astype(dtype)


def positions(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return the position of each element, as far as the type allows."""
    index = np.arange(math.prod(shape)).reshape(shape)
    if dtype == "bool":
        return np.asarray(index % 3 == 0)
    return np.asarray(index % (1 << min(8 * np.dtype(dtype).itemsize - 1, 62)), dtype=dtype)


def replicas_of(case: dict[str, Any], ranks: int) -> list[np.ndarray]:
    """Return the whole tensor of each rank; with an op the values differ between ranks."""
    source, dtype, op = case["source"], case["types"][0], case["how"]["op"]
    if not case["computes"]:
        return [positions(source.shape, dtype)] * ranks
    drawn = [values(source.shape, dtype, seed=1 + (rank if op else 0)) for rank in range(ranks)]
    if op == "prod" and np.dtype(dtype).kind == "c":  # without zeros, whose signs depend on the order of the factors
        drawn = [1 + one.real % 2 + 1j * (1 + one.imag % 2) for one in drawn]
    if op or case["how"]["beta"] or case["how"].get("wire") or np.dtype(dtype).kind not in "fc":
        return drawn
    return [(one / 7).astype(dtype) for one in drawn]  # a product is rounded, and so shows where it was converted


def reduced(source: Any, seen: list[np.ndarray], how: dict[str, Any], target: np.dtype) -> np.ndarray:
    """Return the whole source, scaled and converted, with its replicas reduced."""
    alpha, op = target.type(how["alpha"]), how["op"]
    scaled = [(np.conj(one.astype(target)) if how["conj"] else one).astype(target) for one in seen]
    if alpha != 1:  # a product with a complex 1 may change the sign of a zero
        scaled = [alpha * one for one in scaled]
    if op is None:
        return scaled[0]
    total: np.ndarray = np.zeros(source.shape, target)
    done = np.zeros(source.shape, bool)
    for rank, one in enumerate(scaled):
        held = np.zeros(source.shape, bool)
        if math.prod(source.local_shape(rank)):
            held[np.ix_(*source.global_index(rank))] = True
        joined = REDUCE[op](total, one).astype(target)
        total = np.where(held, np.where(done, joined, one), total)
        done |= held
    return total


@st.composite
def small_shapes(draw: st.DrawFn) -> tuple[int, ...]:
    """Draw the shape of a tensor of 0 to 5 dimensions; some vectors are long."""
    ndim, least = draw(st.integers(0, 5)), draw(st.sampled_from([0, 1, 1, 1]))
    extents = st.integers(least, {1: 40, 2: 20, 3: 9}.get(ndim, 5))
    if ndim == 1 and draw(st.booleans()):  # of which partial results travel in several pieces
        extents = st.integers(MANY, 3 * MANY)
    alike = draw(st.sampled_from([False, False, True]))  # where axes that are swapped fit, too
    return (draw(extents),) * ndim if alike else tuple(draw(extents) for _ in range(ndim))


def converts(*types: str) -> bool:
    """Return True if one type converts to another by NumPy's rule "same_kind"."""
    return np.can_cast(*(name.removeprefix("b") if name == "bfloat16" else name for name in types), "same_kind")


@st.composite
def precisions(draw: st.DrawFn, before: str, after: str, op: str | None) -> dict[str, Any]:
    """Draw types on the wire and of the reduction that hold all results, as small integers are, and its order."""
    between = [name for name in COMPUTED_TYPES if converts(before, name) and converts(name, after)]
    most = min(np.dtype(before).itemsize, np.dtype(after).itemsize)
    wide = [name for name in between if np.dtype(name).itemsize >= np.dtype(after).itemsize]
    narrow = [name for name in between if np.dtype(name).itemsize <= most]
    wire = draw(st.sampled_from([None, None, *narrow])) if op != "prod" else None
    within = wire is not None and draw(st.booleans())
    wide = [name for name in wide if wire is None or converts(wire, name)]
    return {
        "wire": wire,
        "within_nodes": within,
        "accumulate": draw(st.sampled_from([None, None, *wide])) if op not in (None, "prod") else None,
        "reproducible": op is not None and (wire is None or within) and draw(st.booleans()),
    }


@st.composite
def cases(draw: st.DrawFn, ranks: int, shapes: st.SearchStrategy[Any] | None = None) -> dict[str, Any]:
    """
    Draw a redistribution over some of the ranks; many of them compute with elements, and reduce replicas.

    :param shapes: Shapes of the tensor; None: small ones.
    """
    shape = draw(small_shapes() if shapes is None else shapes)
    mapped, target_shape = draw(maps(shape)) if draw(st.sampled_from([True, True, False])) else ({}, shape)
    source, target = draw(ends(shape, target_shape, mapped, ranks))
    how: dict[str, Any] = {"alpha": 1, "beta": 0, "conj": False, "op": None}
    how |= {"wire": None, "within_nodes": False, "accumulate": None, "reproducible": False}
    computes, reduces = draw(st.sampled_from([(False, False), (True, False), (True, True), (True, True)]))
    if reduces:
        source = draw(with_margins(blocked(shape, ranks)))
    if reduces and mapped.get("reshape") is None and draw(st.booleans()):
        target = draw(boxed(target_shape, min(7, ranks), covering=False))
    before = draw(st.sampled_from(COMPUTED_TYPES if computes else DTYPES))
    after = before
    if computes:
        after = draw(st.sampled_from([name for name in COMPUTED_TYPES if converts(before, name)]))
        how["op"] = op = draw(st.sampled_from(OPS)) if reduces else None
        if after[0] == "c" and op in ("min", "max"):
            how["op"] = op = "sum"
        if after != "bool":
            how["alpha"] = draw(st.sampled_from([1, 1, 2, 3]))
            how["beta"] = draw(st.sampled_from([0, 0, 1, 2])) if op in (None, "sum") else 0
        how["conj"] = draw(st.booleans())
    if computes:
        how |= draw(precisions(before, after, how["op"]))
    if not hasattr(target, "grid") and any(target.halo):  # which may not hold the elements of its margins
        how |= {"accumulate": None, "reproducible": False}
    return {
        "source": source,
        "target": target,
        "types": (before, after),
        "computes": computes,
        "layouts": [draw(st.sampled_from(LAYOUTS)) for _ in range(2)],
        "how": {"axes": None, "region": None, "reshape": None, **mapped, **how},
        "options": {
            name: {key: draw(drawn) for key, drawn in {**some, "max_message_bytes": LONGEST}.items()}
            if math.prod(shape) < MANY
            else {}
            for name, some in OPTIONS.items()
        },
    }


def arrays(comm: Any, case: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return this rank's parts of the source, of the target before, and of the expected target."""
    source, target, how = case["source"], case["target"], case["how"]
    after = case["types"][1]
    seen = replicas_of(case, comm.size)
    there = values(target.shape, after, seed=99)
    update = reduced(source, seen, how, np.dtype(after))
    mapped = how["axes"], how["region"], how["reshape"]
    wanted = moved(update, np.zeros_like(there), *mapped)
    mask = moved(np.ones(source.shape, bool), np.zeros(target.shape, bool), *mapped)
    if how["beta"]:
        wanted = wanted + (there if how["beta"] == 1 else np.dtype(after).type(how["beta"]) * there)
    wanted = np.where(mask, wanted, there).astype(after)
    parts = source.local(seen[comm.rank], comm.rank), target.local(there, comm.rank)
    if any(source.halo) and len(source.core.tile_ranges(comm.rank)) == 1 and parts[0].ndim == len(source.shape):
        owned = parts[0][source.interior(comm.rank)].copy()
        parts[0][...] = 1  # margins of a source are not read
        parts[0][source.interior(comm.rank)] = owned
    array, out = (local_array(part, layout) for part, layout in zip(parts, case["layouts"], strict=True))
    return array, out, target.local(wanted, comm.rank)


def carry_out(
    call: str, array: Any, out: Any, source: Any, target: Any, types: Any, device: Any = "cpu", **how: Any
) -> None:
    """
    Move a tensor, or a list of them.

    :param call: Kind of call, see :data:`CALLS`.
    :param types: Element types of source and target; of lists, lists.
    :param device: Device of the arrays, as of :func:`dace_redist.plan`.
    """
    if call == "redistribute":
        redistribute(array, source, target, out=out, target_dtype=types[1], **how)
        return
    with plan(source, target, types[0], target_dtype=types[1], device=device, **how) as made:
        if call == "plan":
            made(array, out=out)
            return
        request = made.start(array, out=out, progress="thread" if call == "thread" else "calls")
        while call == "test" and not request.test():
            pass
        request.wait()


def wrong_parts(comm: Any, what: str, parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> list[str]:
    """Return the wrong parts of any rank, given source, target and expected target of each tensor."""
    wrong = [
        f"{what}, tensor {number}, rank {comm.rank}: got {out.tolist()}, expected {expected.tolist()}"
        for number, (_, out, expected) in enumerate(parts)
        if not np.array_equal(out, expected)
    ]
    return [text for some in comm.allgather(wrong) for text in some]

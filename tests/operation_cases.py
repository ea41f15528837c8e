"""Random conversions, scalings, updates and reductions, and NumPy's results; for several tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from cases import LAYOUTS, OPTIONS, blocked, local_array, tiled
from distributions import moved, regions
from hypothesis import strategies as st

from dace_redist import plan, redistribute
from dace_redist.transform import COMPUTED_TYPES, OPS

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


def replicas_of(source: Any, dtype: str, ranks: int, op: str | None) -> list[np.ndarray]:
    """Return the whole tensor of each rank; with an op the values differ between ranks."""
    return [values(source.shape, dtype, seed=1 + (rank if op else 0)) for rank in range(ranks)]


def reduced(source: Any, seen: list[np.ndarray], how: dict[str, Any], target: np.dtype) -> np.ndarray:
    """Return the whole source, scaled and converted, with its replicas reduced."""
    alpha, op = target.type(how["alpha"]), how["op"]
    scaled = [alpha * (np.conj(one) if how["conj"] else one).astype(target) for one in seen]
    if op is None:
        return scaled[0]
    total: np.ndarray = np.zeros(source.shape, target)
    done = np.zeros(source.shape, bool)
    for rank, one in enumerate(scaled):
        held = np.zeros(source.shape, bool)
        held[np.ix_(*source.global_index(rank))] = True
        joined = REDUCE[op](total, one).astype(target)
        total = np.where(held, np.where(done, joined, one), total)
        done |= held
    return total


@st.composite
def cases(draw: st.DrawFn, ranks: int) -> dict[str, Any]:
    ndim = draw(st.integers(1, 4))
    shape = tuple(draw(st.integers(1, {1: 40, 2: 20, 3: 8}.get(ndim, 5))) for _ in range(ndim))
    axes, region, target_shape = draw(regions(shape))
    before = draw(st.sampled_from(COMPUTED_TYPES))
    after = draw(st.sampled_from([name for name in COMPUTED_TYPES if np.can_cast(before, name, "same_kind")]))
    op = draw(st.sampled_from([None, None, *OPS]))
    if after[0] == "c" and op in ("min", "max"):
        op = "sum"
    plain = after == "bool"
    source = draw(blocked(shape, ranks) if op or draw(st.booleans()) else tiled(shape, ranks))
    return {
        "source": source,
        "target": draw(st.one_of(blocked(target_shape, ranks), tiled(target_shape, ranks))),
        "types": (before, after),
        "layouts": [draw(st.sampled_from(LAYOUTS)) for _ in range(2)],
        "how": {
            "axes": axes,
            "region": region,
            "alpha": 1 if plain else draw(st.sampled_from([1, 1, 2, 3])),
            "beta": 0 if plain or op not in (None, "sum") else draw(st.sampled_from([0, 0, 1, 2])),
            "conj": draw(st.booleans()) and after[0] == "c",
            "op": op,
        },
        "options": {
            name: {key: draw(drawn) for key, drawn in {**some, "max_message_bytes": LONGEST}.items()}
            for name, some in OPTIONS.items()
        },
    }


def arrays(comm: Any, case: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return this rank's parts of the source, of the target before, and of the expected target."""
    source, target, how = case["source"], case["target"], case["how"]
    before, after = case["types"]
    seen = replicas_of(source, before, comm.size, how["op"])
    there = values(target.shape, after, seed=99)
    update = reduced(source, seen, how, np.dtype(after))
    wanted = moved(update, np.zeros_like(there), how["axes"], how["region"])
    mask = moved(np.ones(source.shape, bool), np.zeros(target.shape, bool), how["axes"], how["region"])
    if how["beta"]:
        wanted = wanted + np.dtype(after).type(how["beta"]) * there
    wanted = np.where(mask, wanted, there).astype(after)
    parts = source.local(seen[comm.rank], comm.rank), target.local(there, comm.rank)
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

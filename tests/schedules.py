"""Schedules carried out with NumPy for all ranks."""

from __future__ import annotations

import numpy as np


def carried_out(moved, parts, results=None):
    """
    Return the parts of the target after a schedule.

    :param parts: Part of the source of each rank.
    :param results: Parts of the target before; None: zeros.
    """
    how, sides = moved.transform, [moved.arrays(rank) for rank in range(moved.ranks)]
    if results is None:
        results = [np.zeros(moved.target.local_shape(rank), moved.target_dtype) for rank in range(moved.ranks)]
    results = [np.array(part) for part in results]
    for exchange in range(moved.exchanges):
        shares = moved.reduces and exchange == moved.source.core.replicas  # copies within the target
        before = [result.copy() for result in results] if shares else parts
        for rank, (sends, _, kept) in enumerate(sides):
            assert (np.diff(sends.exchanges) >= 0).all()
            assert not (shares and (kept.exchanges == exchange).any()), "a rank sends its own share to itself"
            for side in (sends, kept):
                for m in np.flatnonzero(side.exchanges == exchange):
                    views = side.source_views(before[rank], m), side.target_views(results[side.peers[m]], m)
                    assert sum(view.size for view in views[0]) == side.elements[m]
                    for here, there in zip(*views, strict=True):
                        scaled = here if shares else how.alpha * (here.conj() if how.conj else here)
                        there[...] = scaled + there if moved.reduces and not shares else scaled
    return results


def summed(distribution, parts):
    """Return the whole tensor of which ranks hold partial sums."""
    whole = np.zeros(distribution.shape, parts[0].dtype)
    for rank, part in enumerate(parts):
        if part.size:
            whole[np.ix_(*distribution.global_index(rank))] += part
    return whole

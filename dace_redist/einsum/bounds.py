"""Least bytes that a rank must receive in a step, whatever the algorithm. Start reading at: least_elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

#: Change of the logarithm of a side below which a box is the least.
_PRECISION = 1e-12


def least_elements(terms: Sequence[str], extents: Mapping[str, int], ranks: int) -> float:
    """
    Return the least number of elements that a rank uses of all tensors together.

    Some rank computes at least the ranks' mean of all products, each of one element of every operand. By Finner's
    inequality (Christ et al., arXiv 1308.0068), whose exponents are the dual of the same linear program, no set of so
    many index tuples has smaller projections on the tensors than some box of real sides. For products the least box is
    the tight bound of Al Daas et al., SPAA'22 (arXiv 2205.13407), for MTTKRP that of Ballard et al. (arXiv 1708.07401).

    Limited memory adds nothing: a plan has all that a step uses in memory at once, at least W elements, and with these
    the bound 2mnk / (P sqrt(S)) of Kwasniewski et al., SC'19 (arXiv 1908.09606) is at most 0.39 W.

    :param terms: Indices of each tensor, operands and result.
    :param extents: Size of each index, at least 1.
    """
    most = {index: math.log(size) for index, size in extents.items()}
    volume = max(0.0, sum(most.values()) - math.log(ranks))
    share = volume / (sum(most.values()) or 1.0)
    sides = {index: share * size for index, size in most.items()}  # logarithms

    def elements(some: Sequence[str]) -> float:
        return sum(math.exp(sum(sides[index] for index in term)) for term in some)

    change = 1.0
    while change > _PRECISION:
        change = 0.0
        for longer, shorter in itertools.combinations(sides, 2):
            # The sum over the terms is convex: along each pair its least is known.
            grows = elements([term for term in terms if longer in term and shorter not in term])
            shrinks = elements([term for term in terms if shorter in term and longer not in term])
            if not grows and not shrinks:
                continue
            step = 0.5 * math.log(shrinks / grows) if grows and shrinks else math.inf if shrinks else -math.inf
            step = min(step, most[longer] - sides[longer], sides[shorter])
            step = max(step, -sides[longer], sides[shorter] - most[shorter])
            sides[longer] += step
            sides[shorter] -= step
            change = max(change, abs(step))
    return elements(terms)

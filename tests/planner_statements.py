"""Statements of einsums for the tests of the planner."""

from __future__ import annotations

import itertools

import numpy as np
from einsum_simulation import Simulation

from dace_redist.einsum import Einsum, Statement

E = Einsum.parse
SIZES = {"i": 7, "j": 6, "k": 9, "l": 5, "m": 4, "a": 5, "b": 3, "c": 4, "d": 3, "e": 2}
PROGRAMS = {
    "1MM": [("ij,jk->ik", "AB", "C")],
    "2MM": [("ij,jk,kl->il", "ABC", "D")],
    "3MM": [("ij,jk,kl,lm->im", "ABCD", "E")],
    "MTTKRP": [("ijk,ja,ka->ia", "XBC", "A")],
    "MTTKRP of order 5": [("ijklm,ja,ka,la,ma->ia", "XBCDE", "A")],
    "TTMc": [("ijklm,jb,kc,ld,me->ibcde", "XBCDE", "Y")],
    "scalar": [("ij,jk->ik", "AB", "C"), ("ik,ik->", "CC", "n")],
    "diagonal": [("iij,jk->ik", "AB", "C")],
    "diagonals": [("iji,kk->ijk", "AB", "X"), ("iijk->jk", "Y", "Z"), ("ijij,ki->kj", "WV", "U")],
    "private": [("ij,kl->i", "AB", "x"), ("ijm,jk,lm->k", "CDE", "y")],
    "vector": [("ij,j->i", "Ax", "y")],
    "outer": [("i,j->ij", "xy", "A")],
    "transpose": [("ij->ji", "A", "B")],
    "sum": [("ijk->j", "X", "s")],
    "gram": [("ki,kj->ij", "AA", "G")],
    "chain": [("ij,jk->ik", "AB", "C"), ("ik,kl->il", "CD", "E"), ("il,lm->im", "EF", "G")],
    "shared": [("ij,jk->ik", "AB", "C"), ("ij,jl->il", "AD", "E"), ("ik,il->kl", "CE", "F")],
    "sweep": [("ijk,ja,ka->ia", "XBC", "A"), ("ijk,ia,ka->ja", "XAC", "B"), ("ijk,ia,ja->ka", "XAB", "C")],
    "systems": [("ij->ji", "G", "H"), ("ji,ik->jk", "HB", "X")],
    "written twice": [("ij,jk->ik", "AB", "C"), ("ik,kl->il", "CD", "E"), ("il,kl->ik", "ED", "C")],
}


def statements_of(name, **options):
    return [Statement(E(text), tuple(operands), result, **options) for text, operands, result in PROGRAMS[name]]


def shapes_of(statements):
    shapes = {}
    for statement in statements:
        for indices, name in zip(statement.einsum.operands, statement.operands, strict=True):
            shapes.setdefault(name, tuple(SIZES[index] for index in indices))
    written = {s.result for s in statements} - {n for n in statements[0].operands}
    return {name: shape for name, shape in shapes.items() if name not in written}


def in_order(statements, depth=0):
    """Yield the statements as often as they run."""
    for loop, inside in itertools.groupby(statements, lambda one: (*one.loops[depth:], None)[0]):
        inside = list(inside)
        for _ in range(int(loop.iterations) if loop else 0):
            yield from in_order(inside, depth + 1)
        yield from inside if loop is None else ()


def check_results(plan, statements, seed=0):
    assert 0 <= plan.communication_share <= 1 and plan.groups[0].result in str(plan)
    random = np.random.default_rng(seed)
    inputs = {name: random.random(plan.sizes[name]) for name in plan.inputs}
    tensors = dict(inputs)
    for s in in_order(statements):
        tensors[s.result] = np.einsum(str(s.einsum), *(tensors[name] for name in s.operands))
    for name, found in Simulation(plan, inputs).run().items():
        np.testing.assert_allclose(found, tensors[name], rtol=1e-12)

"""Einsums and statements: what is read, and that bad input is named."""

from __future__ import annotations

import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dace_redist import _core
from dace_redist.einsum import Einsum, Statement


@pytest.mark.parametrize(
    "text, operands, result",
    [
        ("ijk,ja->ika", ("ijk", "ja"), "ika"),
        (" i j k , ja -> ika ", ("ijk", "ja"), "ika"),
        ("ij,jk", ("ij", "jk"), "ik"),
        ("ba", ("ba",), "ab"),
        ("ii", ("ii",), ""),
        ("i,i->", ("i", "i"), ""),
        ("Ij,jK->IK", ("Ij", "jK"), "IK"),
    ],
)
def test_notation(text, operands, result):
    einsum = Einsum.parse(text)
    assert (einsum.operands, einsum.result) == (operands, result)
    assert Einsum.parse(str(einsum)) == einsum


def test_more_indices_than_letters():
    letters = string.ascii_letters
    assert Einsum.parse(f"{letters},aa->").distinct[1] == {"À": "a"}
    assert Einsum.parse(f"{letters[:-1]},aa->").distinct[1] == {"Z": "a"}


@pytest.mark.parametrize(
    "text, shapes", [("...ij,...jk->...ik", [(5, 2, 3), (5, 3, 4)]), ("i...,...i", [(2, 5, 3), (5, 3, 2)])]
)
def test_dots_are_numpys(text, shapes):
    einsum = Einsum.parse(text, [len(shape) for shape in shapes])
    arrays = [np.random.default_rng(0).random(shape) for shape in shapes]
    np.testing.assert_allclose(np.einsum(str(einsum), *arrays), np.einsum(text, *arrays))


@given(st.lists(st.text("ijkl", max_size=4), min_size=1, max_size=3))
def test_the_implicit_result_is_numpys(operands):
    text = ",".join(operands)
    arrays = [np.ones((2,) * len(operand)) for operand in operands]
    explicit = np.einsum(str(Einsum.parse(text)), *arrays)
    np.testing.assert_array_equal(explicit, np.einsum(text, *arrays))


@pytest.mark.parametrize(
    "text, dimensions, words",
    [
        ("ij,jk->iz", None, "the result has the index 'z', which no operand has"),
        ("ij->ii", None, "index 'i' 2 times, expected once"),
        ("ij,j1->i", None, "'1' in 'j1' is not an index"),
        ("ij->i->j", None, "is not an index"),
        ("...i->i", None, "needs the number of dimensions"),
        ("...ijk", [2], "more indices than its array dimensions, 2"),
        ("ij,jk", [2], "has 2 operands, got 1 arrays"),
        ("ij,jk", [2, 3], "operand 1 has the indices 'jk', but its array has 3 dimensions"),
    ],
)
def test_bad_einsums(text, dimensions, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        Einsum.parse(text, dimensions)


def test_sizes_that_do_not_agree_are_named():
    with pytest.raises(ValueError) as error:
        Einsum.parse("ij,jk->ik").extents([(2, 3), (4, 5)])
    assert str(error.value) == (
        "einsum 'ij,jk->ik': index 'j' has size 3 in operand 0 ('ij') but size 4 in operand 1 ('jk')"
    )
    with pytest.raises(ValueError, match="needs 2 dimensions"):
        Einsum.parse("ij->j").extents([(2,)])
    with pytest.raises(ValueError, match="has 1 operand, got 0 shapes"):
        Einsum.parse("ij->j").extents([])


def test_statements_name_where_they_are():
    statement = Statement(Einsum.parse("ij,jk->ik"), ("A", "B"), "C", "mm.py:3: np.einsum('ij,jk', A, B)")
    with pytest.raises(ValueError, match=r"mm.py:3.*the shape of 'B' is missing"):
        statement.extents({"A": (2, 3)})
    with pytest.raises(ValueError, match=r"mm.py:3.*index 'j' has size 3"):
        statement.extents({"A": (2, 3), "B": (4, 5)})
    with pytest.raises(ValueError, match=r"mm.py:3.*result 'C' has shape \(5, 2\), expected \(2, 4\)"):
        statement.extents({"A": (2, 3), "B": (3, 4), "C": (5, 2)})
    with pytest.raises(ValueError, match="index 'i' has size -1, expected at least 0"):
        statement.extents({"A": (-1, 3), "B": (3, 4)})
    assert statement.extents({"A": (0, 3), "B": (3, 4)}) == {"i": 0, "j": 3, "k": 4}
    with pytest.raises(ValueError, match="2 operands, got 1 tensors"):
        Statement(Einsum.parse("ij,jk->ik"), ("A",), "C")
    with pytest.raises(ValueError, match="neither sums"):
        Statement(Einsum.parse("ij->i"), ("A",), "C", elementwise=True)
    square = Statement(Einsum.parse("ij->ji"), ("G",), "H", solves=True)
    assert square.extents({"G": (3, 3)}) == {"i": 3, "j": 3}
    with pytest.raises(ValueError, match=r"H = einsum 'ij->ji': 'G' must be square, got \(3, 4\)"):
        square.extents({"G": (3, 4)})
    for text in ("ij->ij", "ji,kj->ik", "ij,j->i"):  # of each tensor the indices may have any order
        Statement(Einsum.parse(text), tuple("GB"[: text.count(",") + 1]), "X", solves=True)
    for text in ("ij->i", "ii->i", "ij,ik->ik", "ij,kl->jl", "ij,ikl->jkl", "ij,ij->j", "ij,ik,k->j"):
        with pytest.raises(ValueError, match="expected a linear system"):
            Statement(Einsum.parse(text), tuple("GBC"[: text.count(",") + 1]), "X", solves=True)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("ijk,ja,ka->ia", True),
        ("ka,ijk,aj->ai", True),
        ("ijkl,ia,la->jak", True),
        ("iijk,ja,ka->ia", True),  # of its diagonal
        ("jk,ja,ka->a", True),
        ("ijk,ja->ika", False),
        ("ijk,ja,kb->iab", False),
        ("ijk,ja,ka->a", False),  # sums over i, for which there is no matrix
        ("ijk,ja,ka->ija", False),
        ("ijk,ja,ka->i", False),
        ("ij,jk,kl->il", False),
    ],
)
def test_which_einsums_are_computed_at_once(expression, expected):
    assert _core.is_khatri_rao_product(expression) is expected

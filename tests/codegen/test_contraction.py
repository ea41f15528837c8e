"""The node that evaluates an einsum: what it computes in a compiled program, what it refuses, and its BLAS."""

from __future__ import annotations

import re
import shutil

import dace
import numpy as np
import pytest
from sdfgs import contracting, reread, with_arrays

from dace_redist.library_nodes import Contraction
from dace_redist.native import blas
from dace_redist.native.toolchain import EINSUM, library_path

H, J, K, R, S = (dace.symbol(name) for name in "HJKRS")


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


@pytest.mark.compile
def test_khatri_rao_product_with_symbols_runs_again_with_other_sizes():
    node = Contraction("step", "ijk,ja,ka->ia", alpha=S + 1, beta=S)
    sdfg = contracting(node, (H, J, K), (J, R), (K, R), (H, R), name="khatri_rao")
    sdfg.add_symbol("S", dace.float64)
    program = sdfg.compile()
    for i, j, k, r in ((5, 6, 7, 3), (4, 1, 20, 24), (3, 0, 2, 5)):
        x, f, g, c = numbers(i, j, k), numbers(j, r), numbers(k, r), numbers(i, r)
        expected = 1.5 * np.einsum("ijk,ja,ka->ia", x, f, g) + 0.5 * c
        program(A0=x, A1=f, A2=g, C=c, H=i, J=j, K=k, R=r, S=0.5)
        assert np.allclose(c, expected, rtol=1e-12)


@pytest.mark.compile
def test_parts_of_arrays_in_several_nodes():
    """A middle index, then a product of matrices on what it leaves, as parts of larger arrays."""
    shapes = {"X": (6, 5, 4, 3), "F": (9, 5), "Y": (6, 7, 4, 3), "G": (3, 8), "Z": (4, 8)}
    sdfg = with_arrays("middle_index", dtype=dace.complex128, **shapes)
    state = sdfg.add_state()
    middle = state.add_access("Y")

    def add(label: str, expression: str, operands, target) -> None:
        node = Contraction(label, expression)
        for position, (source, part) in enumerate(operands):
            state.add_edge(source, None, node, f"_{position}", dace.Memlet(part))
        state.add_edge(node, "_result", target, None, dace.Memlet.from_array(target.data, target.desc(sdfg)))

    x, f, g = (state.add_read(name) for name in "XFG")
    add("first", "ijkl,rj->irkl", [(x, "X[0:6, 0:5, 0:4, 0:3]"), (f, "F[1:8, 0:5]")], middle)
    parts = [(middle, "Y[2, 0:7, 0:4, 0:3]"), (g, "G[0:3, 0:8]")]
    add("second", "rkl,ls->ks", parts, state.add_write("Z"))
    arrays = {name: numbers(*a.shape) + 1j * numbers(*a.shape)[::-1] for name, a in sdfg.arrays.items()}
    sdfg(**arrays)
    y = np.einsum("ijkl,rj->irkl", arrays["X"], arrays["F"][1:8])
    assert np.allclose(arrays["Y"], y, rtol=1e-12)
    assert np.allclose(arrays["Z"], np.einsum("rkl,ls->ks", y[2], arrays["G"]), rtol=1e-12)


def test_properties_survive_json():
    node = Contraction("step", "ij, jk, kl", alpha=2, beta=S, path=[(1, 2), (0, 1)])
    sdfg = contracting(node, (H, J), (J, K), (K, R), (H, R))
    sdfg.add_symbol("S", dace.float64)
    copied = reread(sdfg)
    (found,) = [n for n, _ in copied.all_nodes_recursive() if isinstance(n, Contraction)]
    assert (found.einsum, found.path, found.alpha) == ("ij,jk,kl->il", [(1, 2), (0, 1)], 2)
    copied.validate()
    assert found.free_symbols == {"S"}


#: Shapes of the arrays, options of the node and of its arrays, and the error.
SQUARE, FLOAT32, FLOAT64 = [(4, 4)] * 3, dace.float32, dace.float64
WRONG = [
    ([(4, 5), (6, 7), (4, 7)], {}, {}, "index j of ij,jk->ik has extents 5 and 6"),
    ([(4, 5, 6), (6, 7), (4, 7)], {}, {}, '_0 has indices "ij" in ij,jk->ik, but its array A0 has shape (4, 5, 6)'),
    (SQUARE, {}, {"types": [FLOAT32, FLOAT64, FLOAT64]}, "its arrays need one element type, got float, double, double"),
    (SQUARE, {}, {"dtype": dace.float16}, "cannot compute with elements of dace::float16; possible: float32, "),
    (SQUARE, {"alpha": S}, {}, "the program does not know S, which its properties name"),
]


@pytest.mark.parametrize(("shapes", "of_node", "of_arrays", "message"), WRONG)
def test_refused(shapes, of_node, of_arrays, message):
    node = Contraction("wrong", "ij,jk->ik", **of_node)
    sdfg = contracting(node, *shapes, **of_arrays)
    with pytest.raises(ValueError, match=re.escape(f'Contraction "wrong": {message}')):
        node.validate(sdfg, sdfg.start_state)


def test_what_is_added_must_be_the_result():
    node = Contraction("wrong", "ij,jk->ik", beta=1)
    sdfg = contracting(node, *SQUARE)
    sdfg.validate()
    state = sdfg.start_state
    (previous,) = [edge for edge in state.in_edges(node) if edge.dst_conn == "_cin"]
    previous.data = dace.Memlet("C[0:4, 0:3]")
    with pytest.raises(
        ValueError, match=r'"wrong": with beta 1, _cin must be the result C\[0:4, 0:4\], got C\[0:4, 0:3\]'
    ):
        node.validate(sdfg, state)


def test_blas_is_the_one_asked_for(monkeypatch):
    monkeypatch.setenv(blas.VARIABLE, "pypi")
    found = blas.find_blas()
    assert found.name == "pypi" and found.definitions == ("-DBLAS_SYMBOL_PREFIX=scipy_",)
    assert found.key in str(library_path(EINSUM))
    monkeypatch.setenv(blas.VARIABLE, "cublas")
    with pytest.raises(ValueError, match='DACE_REDIST_BLAS must be one of mkl, openblas, pypi, got "cublas"'):
        blas.find_blas()


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="pkg-config is not installed")
def test_openblas_in_a_folder_of_its_own_is_found(tmp_path, monkeypatch):
    (tmp_path / "libopenblas.so").touch()
    (tmp_path / "openblas.pc").write_text(
        f"libdir={tmp_path}\nName: openblas\nDescription: BLAS\nVersion: 1\nCflags: -I{tmp_path}/headers\n"
    )
    monkeypatch.setenv("PKG_CONFIG_PATH", str(tmp_path))
    monkeypatch.setenv(blas.VARIABLE, "openblas")
    monkeypatch.setattr(blas, "_find", blas._find.__wrapped__)
    found = blas.find_blas()
    assert (found.library, found.include_directories) == (f"{tmp_path}/libopenblas.so", (f"{tmp_path}/headers",))

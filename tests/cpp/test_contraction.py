"""The C++ contraction of local arrays against np.einsum: random einsums of all element types, and the known kernels."""

from __future__ import annotations

import ctypes
import random
import string

import numpy as np
import opt_einsum
import pytest
from device_arrays import use_device
from mpi_programs import build_shared
from seeds import some

from dace_redist.errors import RedistributionError
from dace_redist.native.contraction import LocalContraction
from dace_redist.native.toolchain import EINSUM
from dace_redist.redistribution.arrays.new import DeviceArray

pytestmark = pytest.mark.compile

TOLERANCE = {"float32": 2e-5, "complex64": 2e-5, "float64": 1e-12, "complex128": 1e-12, "int32": 0, "int64": 0}


class OnProcessor:
    """An einsum of arrays in main memory, planned at its first call."""

    def __init__(self, expression: str, dtype: str, path=()) -> None:
        self.made, self.dtype = LocalContraction(expression, np.dtype(dtype), path), np.dtype(dtype)

    def __call__(self, operands, result, alpha=1, beta=0) -> None:
        self.made(operands, result, *(np.array([factor]).astype(self.dtype) for factor in (alpha, beta)))


def random_array(rng: np.random.Generator, shape, dtype, backwards: float = 0.1) -> np.ndarray:
    """Return random numbers in C order, permuted, or as a part of a larger array, some backwards."""
    shape, dtype = tuple(shape), np.dtype(dtype)
    order = rng.permutation(len(shape)) if rng.random() < 0.5 else np.arange(len(shape))
    large = [shape[d] + int(rng.integers(0, 3)) if rng.random() < 0.3 else shape[d] for d in order]
    if dtype.kind == "i":
        values = rng.integers(-3, 4, large).astype(dtype)
    else:
        values = rng.standard_normal(large).astype(dtype)
        values = values + dtype.type(1j) * rng.standard_normal(large).astype(dtype) if dtype.kind == "c" else values
    values = np.asarray(values)[tuple(slice(0, shape[d]) for d in order)].transpose(np.argsort(order))
    if rng.random() < backwards:
        values = values[tuple(slice(None, None, -1) for _ in shape)]
    return np.asarray(values)


def check(expression, arrays, dtype, rng, path=(), run=None) -> None:
    """
    Check that the result, with and without factors, equals NumPy's to the accuracy of the type.

    :param run: Computes with operands, result, alpha and beta; None: by the processor.
    """
    terms, result_indices = expression.split("->")
    letters = zip(terms.split(","), arrays, strict=True)
    extents = {i: n for term, array in letters for i, n in zip(term, array.shape, strict=True)}
    run = run or OnProcessor(expression, dtype, path)
    wide = [array.astype("complex128" if array.dtype.kind == "c" else "float64") for array in arrays]
    expected = np.einsum(expression, *wide, optimize=len(arrays) > 2)
    size = np.einsum(expression, *map(np.abs, wide), optimize=len(arrays) > 2)
    for alpha, beta in ((1, 0), (2, -1), (3, 1)):
        result = random_array(rng, [extents[i] for i in result_indices], dtype, 0 if isinstance(run, OnDevice) else 0.1)
        before = result.astype(expected.dtype)
        if beta == 0 and result.dtype.kind != "i":
            result[...] = np.nan  # must not be read
        run(arrays, result, alpha, beta)
        error = np.abs(result - (alpha * expected + (beta * before if beta else 0)))
        bound = TOLERANCE[np.dtype(dtype).name] * (abs(alpha) * size + abs(beta) * np.abs(before))
        assert np.all(error <= bound), f"{expression} {[(a.shape, a.strides) for a in arrays]} {dtype} {alpha} {beta}"


class OnDevice:
    """An einsum of copies of arrays in the memory of a device, which main memory stands in for."""

    def __init__(self, expression: str, dtype: str) -> None:
        self.expression, self.dtype = expression.encode(), np.dtype(dtype)
        self.function = ctypes.CDLL(str(build_shared("device_contraction", EINSUM))).device_contract

    def __call__(self, operands, result, alpha, beta) -> None:
        layouts, copies = [], []
        for array in (*operands, result):
            layouts += [*array.shape, *(stride // array.itemsize for stride in array.strides)]
            low, high = np.lib.array_utils.byte_bounds(array)
            memory = np.frombuffer((ctypes.c_char * max(1, high - low)).from_address(low), np.uint8)
            copies.append((memory, DeviceArray.from_numpy(memory), array.ctypes.data - low))
        *pointers, target = (copy.__cuda_array_interface__["data"][0] + offset for _, copy, offset in copies)
        scalars = [np.array(value).astype(self.dtype) for value in (alpha, beta)]
        lists: list = []
        for kind, values in ((ctypes.c_int64, layouts), (ctypes.c_void_p, pointers)):
            lists += [(kind * max(1, len(values)))(*values), ctypes.c_size_t(len(values))]
        single = [ctypes.c_void_p(address) for address in (target, *(value.ctypes.data for value in scalars))]
        assert self.function(self.dtype.name.encode(), self.expression, *lists, *single) == 0
        memory, copy, _ = copies[-1]
        np.copyto(memory, copy.to_numpy())


def random_einsum(rng: random.Random) -> tuple[str, dict[str, int]]:
    indices = rng.sample(string.ascii_letters, rng.randint(1, 7))
    extents = {i: rng.choice([1, 2, 3, 4, 5, 7, 0 if rng.random() < 0.03 else 6]) for i in indices}
    count = rng.choice([1, 2, 2, 2, 2, 3, 3, 4])
    terms = [[i for i in indices if rng.random() < 0.6] for _ in range(count)]
    for term in terms:
        rng.shuffle(term)
        if term and rng.random() < 0.1:
            term.insert(rng.randint(0, len(term)), rng.choice(term))
    used = sorted({i for term in terms for i in term})
    kept = [i for i in used if rng.random() < 0.5]
    rng.shuffle(kept)
    return ",".join(map("".join, terms)) + "->" + "".join(kept), extents


def operands(rng: np.random.Generator, expression: str, extents: dict[str, int], dtype, **how) -> list[np.ndarray]:
    """Return random operands of an einsum; :func:`random_array` takes the rest."""
    terms = expression.split("->")[0].split(",")
    return [random_array(rng, [extents[i] for i in term], dtype, **how) for term in terms]


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_random_einsums(dtype):
    rng, numbers = random.Random(dtype), np.random.default_rng(7)
    for _ in range(some(1200)):
        expression, extents = random_einsum(rng)
        arrays = operands(numbers, expression, extents, dtype)
        path = ()
        if len(arrays) > 1 and rng.random() < 0.5:
            path = opt_einsum.contract_path(expression, *arrays, optimize="greedy")[0]
        check(expression, arrays, dtype, numbers, path)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_products_of_a_tensor_with_itself(dtype):
    """Also equal in both halves to the last bit, where half of the products are computed."""
    rng = np.random.default_rng(11)
    for _ in range(some(40)):
        expression, extents = "bij,bkj->bik", [int(rng.integers(*ends)) for ends in ((1, 4), (20, 150), (40, 200))]
        symmetric = rng.random() < 0.7  # else the sums are not one dimension of a matrix
        if not symmetric:
            expression, extents = "aib,akb->ik", [extents[2], extents[1], extents[0]]
        array = random_array(rng, extents, dtype)
        check(expression, [array, array], dtype, rng)
        if symmetric and array.flags.c_contiguous and extents[1] >= 32 and extents[2] >= 64:
            result = random_array(rng, [extents[0], extents[1], extents[1]], dtype)
            OnProcessor(expression, dtype, ())([array, array], result, 1, 0)
            np.testing.assert_array_equal(result, result.transpose(0, 2, 1))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_random_einsums_on_a_device(dtype, monkeypatch):
    use_device("host", monkeypatch)
    rng, numbers = random.Random(dtype), np.random.default_rng(7)
    for _ in range(some(900)):
        expression, extents = random_einsum(rng)
        arrays = operands(numbers, expression, extents, dtype, backwards=0)
        check(expression, arrays, dtype, numbers, run=OnDevice(expression, dtype))


def test_elements_that_a_device_does_not_multiply(monkeypatch):
    use_device("host", monkeypatch)
    with pytest.raises(RedistributionError, match="float64, complex64 and complex128, not int32"):
        OnDevice("ij->ji", "int32")([np.ones((2, 3), "i4")], np.ones((3, 2), "i4"), 1, 0)


KERNELS = [
    ("ij,jk->ik", 70),
    ("ij,jk,kl->il", 40),
    ("ijk,ja,ka->ia", 30),
    ("ijk,ia,ka->ja", 30),
    ("ijk,ia,ja->ka", 30),
    ("ijklm,ja,ka,la,ma->ia", 9),
    ("ijklm,ia,ja,la,ma->ka", 9),
    ("ijklm,ia,ja,ka,la->ma", 9),
    ("ijklm,ld->ijkdm", 9),
    ("ijklm,jb->ibklm", 9),
    ("ijklm,mb->ijklb", 9),
    ("ijklm,jb,kc,ld,me->ibcde", 7),
    ("icak,tkjc->tija", 12),
    ("abcd,cdij->abij", 12),
    ("abcd,cidj->jbia", 12),
    ("bij,bjk->bik", 20),
    ("ibj,jbk->kib", 20),
    ("bi,bi->b", 60),
    ("i,i->", 300),
    ("i,j->ij", 60),
    ("ij,j->i", 80),
    ("ij,i->j", 80),
    ("ij,ij->ij", 60),
    ("ijk->kji", 40),
    ("iij->j", 40),
    ("iijk,ja,ka->ia", 12),
]


@pytest.mark.parametrize(("expression", "size"), KERNELS, ids=[kernel for kernel, _ in KERNELS])
def test_kernels(expression, size):
    """Extents differ, and are large enough for blocks and the ends of blocks."""
    rng = np.random.default_rng(3)
    indices = sorted(set(expression.split("->")[0]) - {","})
    extents = {index: size + shift for shift, index in enumerate(indices)}
    for dtype in ("float64", "complex64"):
        for _ in range(3):
            check(expression, operands(rng, expression, extents, dtype), dtype, rng)


def random_khatri_rao(rng: random.Random) -> tuple[str, dict[str, int]]:
    """A tensor and matrices for some of its indices, in any order."""
    indices = rng.sample(string.ascii_lowercase[:-1], rng.randint(3, 5))
    summed = indices[: rng.randint(2, len(indices))]
    kept = indices[len(summed) :]
    terms = ["".join(rng.sample(indices, len(indices)))]
    terms += ["".join(rng.sample([index, "z"], 2)) for index in summed]
    rng.shuffle(terms)
    result = [*kept, "z"]
    rng.shuffle(result)
    extents = {index: rng.choice([1, 2, 3, 9, 17]) for index in indices} | {"z": rng.choice([1, 3, 8, 20, 80])}
    return ",".join(terms) + "->" + "".join(result), extents


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128", "int32"])
def test_random_khatri_rao_products(dtype, threads, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
    ctypes.CDLL("libgomp.so.1").omp_set_num_threads(threads)
    rng, numbers = random.Random(dtype), np.random.default_rng(11)
    for _ in range(some(300)):
        expression, extents = random_khatri_rao(rng)
        check(expression, operands(numbers, expression, extents, dtype), dtype, numbers)


@pytest.mark.parametrize(
    ("expression", "shapes", "most_bytes"),
    [
        ("ijklm,ld->ijkdm", ((20, 20, 20, 20, 20), (20, 12)), 0),
        ("ijklm,ld->ijkmd", ((20, 20, 20, 20, 20), (20, 12)), 0),
        ("ijklm,jd->idklm", ((9, 9, 9, 9, 9), (9, 7)), 0),
        ("ij,jk->ki", ((70, 80), (80, 90)), 0),
        ("ijk,ja,ka->ia", ((300, 40, 50), (40, 64), (50, 64)), 400_000),
        ("ijk,ia,ja->ka", ((40, 50, 300), (40, 64), (50, 64)), 400_000),
        ("ijkl,ia,ja,la->ka", ((20, 30, 40, 20), (20, 48), (30, 48), (20, 48)), 800_000),
        ("icak,tkjc->tija", ((30, 30, 30, 30),) * 2, 6 << 20),
    ],
)
def test_no_copy_of_a_tensor(expression, shapes, most_bytes, monkeypatch):
    """The buffers are those of tiles: smaller than an operand, or none. Each thread has its own."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    arrays = [np.ones(shape) for shape in shapes]
    terms, result = expression.split("->")
    extents = dict(zip(terms.replace(",", ""), [n for shape in shapes for n in shape], strict=True))
    contraction = OnProcessor(expression, "float64")
    contraction(arrays, np.empty([extents[index] for index in result]))
    assert contraction.made.workspace_bytes <= most_bytes


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("expression", ["ij->ji", "ij->j", "ij->"])
def test_infinities(expression, dtype):
    """Factors of 1 leave them as they are, of which a complex product makes NaN."""
    array = np.array([[np.inf, 1, 2], [3, complex(4, -np.inf), 5]], dtype)
    for beta in (0, 1):
        expected = np.asarray(np.einsum(expression, array) + beta)
        result = np.full_like(expected, 1 if beta else np.nan)
        OnProcessor(expression, dtype)([array], result, 1, beta)
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("expression", "shapes", "message"),
    [
        ("ij,jk->ik", ((4, 5), (6, 7), (4, 7)), "index j differs"),
        ("ii->i", ((4, 5), (4,)), "index i differs"),
        ("ij,jk->ik", ((4, 5), (5, 7), (3, 7)), "index i differs"),
    ],
)
def test_extents_that_clash(expression, shapes, message):
    *operands, result = (np.ones(shape) for shape in shapes)
    with pytest.raises(RedistributionError, match=message):
        OnProcessor(expression, "float64")(operands, result)

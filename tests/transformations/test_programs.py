"""All programs give what NumPy gives on simulated ranks, or are refused in one line; those of the gallery unchanged."""

import math
import re
from pathlib import Path

import pytest
from distributed_simulation import SimulatedRanks
from einsum_cases import CASES
from programs import PROGRAMS, tagged
from programs.program import Program, sizes_of
from results import check

from dace_redist import distribute
from dace_redist.transformations.distribute.read.frontend import parse

PAGE = (Path(__file__).parents[2] / "docs" / "gallery.md").read_text()
GALLERY = tagged("gallery")
REFUSED = [name for name, one in PROGRAMS.items() if one.refused]
#: Kernels with few elements.
SMALL = {
    "fdtd_2d": dict(N=13, M=11, T=3),
    "adi": dict(N=9, T=2),
    "gramschmidt": dict(M=9, N=7),
    "vadv": dict(N=7, M=9, K=5),
    "cavity_flow": dict(N=9, T=2),
    "scattering_self_energies": {},
}
OF_BENCHMARKS = dict(I=9, J=7, K=6, L=5, M=4, P=3, Q=2, R=4, T=3, O=3, V=5, W=4)

#: Programs, and the numbers of ranks of `make test` and of `make test-full`.
RUN = [(one, (4,), (1, 3, 7)) for name, one in GALLERY.items() if name not in REFUSED]
RUN += [(one, (3,), (1, 4, 8)) for name, one in tagged("einsum", "statement").items() if name not in REFUSED]
RUN += [(one, (3,), (1, 2, 4)) for one in tagged("suite").values()]
RUN += [(PROGRAMS[name].with_sizes(**sizes), (4,), (3,)) for name, sizes in SMALL.items()]
RUN += [(Program(case.program, sizes_of(case.program, OF_BENCHMARKS)), (8,), (3,)) for case in CASES.values()]

pytestmark = pytest.mark.usefixtures("small_transients_share_memory")


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.full)], ids=["", "full"])
@pytest.mark.parametrize(("one", "some", "others"), RUN, ids=lambda value: getattr(value, "name", ""))
def test_they_give_what_numpy_gives(one, some, others, full):
    given, wanted = one.arguments(), one.expected()
    sdfg = parse(one.program)  # once for all, but an SDFG does not know what its function has besides arguments
    source = one.program if any(array.startswith("__g_") for array in sdfg.arrays) else sdfg
    for ranks in others if full else some:
        program = distribute(source, ranks, one.sizes)
        found = SimulatedRanks(program).run(**given)
        parts = [one.distribution.local_shape(0) + (one.dtype.itemsize,) for one in tensors(program)]
        assert sum(map(math.prod, parts)) <= program.plan.memory_bytes
        check(found, wanted, given, f"on {ranks} ranks", tolerance=1e-7 if one.name in GALLERY else 1e-9)


def tensors(program):
    return {**program.inputs, **program.outputs}.values()


@pytest.mark.parametrize("name", REFUSED)
def test_the_others_are_refused_in_one_line(name):
    with pytest.raises(ValueError, match=PROGRAMS[name].refused) as refused:
        distribute(PROGRAMS[name].program, 3, PROGRAMS[name].sizes)
    text = str(refused.value)
    assert "\n" not in text and re.match(r"\w+\.py:\d+: ", text)


@pytest.mark.lint
def test_the_manual_links_and_counts_the_gallery():
    linked = set(re.findall(r"tests/programs/(\w+)\.py", PAGE))
    assert linked == {one.program.f.__module__.removeprefix("programs.") for one in GALLERY.values()}
    run = len(GALLERY.keys() - {*REFUSED})
    assert len(GALLERY) >= 40 and run >= 0.9 * len(GALLERY) and f"{run} of the {len(GALLERY)} programs" in PAGE

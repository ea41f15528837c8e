"""The programs of the gallery run unchanged and give what NumPy gives, on 1 to 7 ranks, or are refused in one line."""

import re
from pathlib import Path

import pytest
from distributed_simulation import SimulatedRanks
from gallery import GALLERY
from results import check

from dace_redist import distribute
from dace_redist.transformations.distribute.read.frontend import parse

PAGE = (Path(__file__).parents[2] / "docs" / "gallery.md").read_text()
RUN = [name for name, example in GALLERY.items() if not example.refused]


pytestmark = pytest.mark.usefixtures("small_transients_share_memory")


@pytest.mark.slow
@pytest.mark.parametrize("counts", [(4,), pytest.param((1, 3, 7), marks=pytest.mark.full)], ids=str)
@pytest.mark.parametrize("name", RUN)
def test_it_gives_what_numpy_gives(name, counts):
    example, wanted = GALLERY[name], GALLERY[name].expected()
    sdfg = parse(example.program)  # once for all, but an SDFG does not know what its function has besides arguments
    source = example.program if any(array.startswith("__g_") for array in sdfg.arrays) else sdfg
    for ranks in counts:
        found = SimulatedRanks(distribute(source, ranks, example.sizes)).run(**example.arguments())
        check(found, wanted, example.arguments(), f"on {ranks} ranks", tolerance=1e-7)


@pytest.mark.parametrize("name", [name for name in GALLERY if name not in RUN])
def test_the_others_are_refused_in_one_line(name):
    with pytest.raises(ValueError, match=GALLERY[name].refused) as refused:
        distribute(GALLERY[name].program, 3, GALLERY[name].sizes)
    text = str(refused.value)
    assert "\n" not in text and re.match(r"\w+\.py:\d+: ", text)


def test_there_are_enough():
    assert len(GALLERY) >= 40 and len(RUN) >= 0.9 * len(GALLERY)


def test_the_manual_links_and_counts_them():
    linked = set(re.findall(r"tests/gallery/(\w+)\.py", PAGE))
    assert linked == {example.program.f.__module__.removeprefix("gallery.") for example in GALLERY.values()}
    assert f"{len(RUN)} of the {len(GALLERY)} programs" in PAGE

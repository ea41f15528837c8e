"""
The protocols of a node run clean under ThreadSanitizer, with two threads as ranks; it reports them if release stores or
acquire loads are relaxed.
"""

from __future__ import annotations

import os
import subprocess

import pytest
from mpi_programs import SOURCES, compiled, compiled_room

from dace_redist.native.toolchain import SOURCE_DIRECTORY

SWITCHES = ["-O0", "-Wno-tsan", "-fsanitize=thread", f"-I{SOURCES}"]  # g++ warns that fences are unknown to it
WRAPPED = "-Wl,--wrap=mmap,--wrap=munmap,--wrap=process_vm_readv"
PROTOCOLS = [*SOURCE_DIRECTORY.glob("shm/*.cpp"), *SOURCE_DIRECTORY.glob("transport/node_*.cpp")]
PROTOCOLS = sorted([*PROTOCOLS, SOURCE_DIRECTORY / "transport" / "message.cpp"])

pytestmark = pytest.mark.compile


@pytest.mark.parametrize("relaxed", ["", "RELEASE", "ACQUIRE"])
def test_protocols_between_two_threads(relaxed):
    # Those whose data threads do not share need no sanitiser. They come last: inline functions are those of the first.
    rooms = {"copy": SWITCHES, "trace": SWITCHES, "core": ["-O0"], "layout": ["-O0"]}
    objects = [str(compiled_room(room, switches)) for room, switches in rooms.items()]
    program, header = SOURCES / "threads.cpp", SOURCES / "relaxed.hpp"
    relaxing = ["-include", str(header), f"-DRELAXED_{relaxed}"] if relaxed else []
    binary = compiled("threads", [*SWITCHES, *relaxing, *objects, WRAPPED], [program, *PROTOCOLS], [program, header])
    environment = os.environ | {"TSAN_OPTIONS": "halt_on_error=1"}  # the first race is enough
    environment |= {"UCX_MEM_MMAP_HOOK_MODE": "none"}  # under its hooks, threads of the sanitizer crash as they end
    done = subprocess.run([binary], env=environment, capture_output=True, text=True, timeout=240)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("this kernel places memory where ThreadSanitizer cannot have it (vm.mmap_rnd_bits)")
    assert ("data race" in done.stderr) == bool(relaxed), done.stderr[-8000:]
    assert (done.returncode == 0) == (not relaxed), done.stderr[-8000:]

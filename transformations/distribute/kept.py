"""Distributed programs on disk, beside their compiled code: a later process neither reads, plans nor emits them."""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import importlib.metadata
import os
import pickle
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dace.frontend.python.parser import DaceProgram

from dace_redist.native.program import named_path
from dace_redist.native.toolchain import PACKAGE_DIRECTORY, source_digest
from dace_redist.transformations.distribute.read.captured import Captured, known
from dace_redist.transformations.distribute.runtime import DistributedProgram

#: Environment variable: 0: programs are not kept.
VARIABLE = "DACE_REDIST_KEEP_PLANS"
#: Maximum seconds that a process waits for another one, which may be stopped, to make a program.
_MAX_WAIT_SECONDS = 60.0


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Suspend garbage collection: it takes four times as long as to load a program, and a tenth of making one."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_no_collections()
def kept(program: Any, options: Mapping[str, Any], make: Callable[[], DistributedProgram]) -> DistributedProgram:
    """
    Return a distributed program from disk; else make it, and keep it.

    A program is found by its text, that of the functions it calls, the values from outside that they use, its options,
    the versions of packages, the environment and the configuration of DaCe. Programs that use values known by identity,
    as arrays, are not kept.

    :param options: Arguments of :func:`dace_redist.distribute`. With placements a program is not kept.
    """
    if not isinstance(program, DaceProgram) or options["placements"] or os.environ.get(VARIABLE) == "0":
        return make()
    captured = Captured(program)
    facts, chosen = captured.facts(), known(dict(options))
    if facts is None or chosen.objects:
        return make()
    key = hashlib.blake2b("\0".join([*facts, chosen.content.hex(), *_sources()]).encode(), digest_size=12).hexdigest()
    path = named_path(f"{program.name}-{key}", ".plan")
    return _read(path, captured) or _made(path, captured, make)


def _read(path: Path, captured: Captured) -> DistributedProgram | None:
    """Return a program from its file; None without one, or if a killed process or other versions wrote it."""
    with contextlib.suppress(Exception):
        digest, data = path.read_bytes().split(b"\n", 1)
        if digest.decode() == hashlib.blake2b(data).hexdigest():
            found, name = pickle.loads(data)
            return replace(found.named(name), recipe=replace(found.recipe, captured=captured))
    return None


def _made(path: Path, captured: Captured, make: Callable[[], DistributedProgram]) -> DistributedProgram:
    """Make a program and keep it, unless another process of this node makes it now, which is waited for."""
    import filelock  # loads slowly

    lock = filelock.FileLock(Path(tempfile.gettempdir(), f"{path.stem}-{os.getuid()}.lock"))  # not on a file server
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        with contextlib.suppress(OSError), lock.acquire(timeout=_MAX_WAIT_SECONDS):
            Path(lock.lock_file).unlink()  # made again by the attempt
        return _read(path, captured) or make()
    except OSError:
        return make()
    try:
        made = make()
        _write(path, made)
        return made
    finally:
        with contextlib.suppress(OSError):
            Path(lock.lock_file).unlink()
        lock.release()


def _write(path: Path, made: DistributedProgram) -> None:
    with contextlib.suppress(OSError, pickle.PicklingError, TypeError, AttributeError):
        path.parent.mkdir(parents=True, exist_ok=True)
        data = pickle.dumps((made, made.identity[0]))
        part = path.with_suffix(f".{secrets.token_hex(8)}")  # of this process on this node
        part.write_bytes(f"{hashlib.blake2b(data).hexdigest()}\n".encode() + data)
        part.replace(path)


@functools.cache
def _sources() -> list[str]:
    """Return what else plans depend on: this package, the compiled part of it, and what it plans by."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "opt_einsum", "sympy")]
    folders = (PACKAGE_DIRECTORY, Path(__file__).parent.parent)
    return [sys.version, *versions, *(source_digest(folder, (".py", ".so")) for folder in folders)]

"""Files of safetensors, and indices of several of them. Start reading at: Format."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import io
import itertools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Mapping
from reprlib import repr as short
from typing import Any, NamedTuple

import numpy as np

from dace_redist import _core
from dace_redist.io.stored import (
    Description,
    Layout,
    NewArray,
    Storage,
    Storages,
    StoredArray,
    naming,
    new_file,
    raw_array,
    raw_file,
)

#: Names of element types in a header, and in NumPy or ml_dtypes; "": elements are no whole bytes.
_TYPES = {
    **{"BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "F16": "float16"},
    **{"U32": "uint32", "I32": "int32", "F32": "float32", "U64": "uint64", "I64": "int64", "F64": "float64"},
    **{"C64": "complex64", "BF16": "bfloat16", "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn"},
    **{"F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz"},
    **{"F4": "", "F6_E2M3": "", "F6_E3M2": ""},
}

#: Maximum bytes of a header, as of the package safetensors.
_MAX_HEADER_BYTES = 100_000_000

#: Maximum names, values, lists and objects in a header, about 12 for a tensor. They take 0.5 GB at most.
_MAX_VALUES = 1 << 22


class _Tensor(NamedTuple):
    """Entry of a header; ``begin`` is a position in the file."""

    code: str
    shape: tuple[int, ...]
    begin: int
    nbytes: int


class _Header(NamedTuple):
    """Header of a file; ``file`` tells it from a file that takes its place."""

    tensors: Mapping[str, _Tensor]
    metadata: Mapping[str, str]
    file: tuple[int, ...] = ()


class Format:
    """Format of safetensors during a call of load, save or inspect_file, in which each header is read once."""

    RESERVED, open_new = "__metadata__", staticmethod(raw_file)

    def __init__(self) -> None:
        """Make the caches of a call."""
        self._header, self._index = functools.cache(_read_header), functools.cache(_read_index)

    def _names(self, path: str) -> Mapping[str, Any]:
        return self._index(path) if _is_index(path) else self._header(path).tensors

    def names(self, path: str) -> list[str | None]:
        """Return the names of all tensors."""
        return [*self._names(path)]

    def open_array(self, path: str, name: str | None) -> StoredArray:
        """Return a tensor; without a name the only one."""
        known = self._names(path)
        keys = [*known] if name is None else [key for key in (name, name.removeprefix("/")) if key in known]
        if not keys or (name is None and len(keys) > 1):
            some = ", ".join(itertools.islice(known, 100)) or "none"
            raise ValueError(f"name must be one of the tensors of {path!r}: {some}; got {name!r}")
        key = keys[0]
        file = self._index(path)[key] if _is_index(path) else path
        header = self._header(file) if os.path.isfile(file) else _Header({}, {})
        if key not in header.tensors:
            raise ValueError(f"there must be a file {file!r} with tensor {short(key)}, as the index {path!r} says")
        tensor = header.tensors[key]
        return raw_array(_opened(file, header), _dtype(tensor.code), tensor.shape, tensor.begin)

    def describe(self, path: str, name: str | None) -> Description:
        """Return the properties of a tensor, see :class:`Description`: the metadata of its file."""
        file = self._index(path)[name or ""] if _is_index(path) else path
        return Description("safetensors", gzip=0, own={"metadata": self._header(file).metadata})

    def storage_of(self, found: Description, path: str, name: str | None, layout: Layout, asked: Storage) -> Storage:
        """Return arguments of :meth:`create` that keep properties of an array, besides those that are asked for."""
        kept = found.own if found.format == "safetensors" and found.own["metadata"] else {}
        return {**kept, **asked}

    def plan_array(self, path: str, name: str | None, layout: Layout, storage: Storage) -> NewArray:
        """Return a tensor as :meth:`create` makes it, and check its type and arguments."""
        if _is_index(path):
            raise ValueError("an index is only read: save to one file .safetensors")
        if {*storage} - {"metadata"} or not _are_texts(storage.get("metadata", {})):
            raise TypeError(
                f"a .safetensors file takes metadata, a dict of texts, and no other arguments, got {dict(storage)}"
            )
        _new(layout)
        return NewArray(path, name or "data", layout)

    def create(
        self, path: str, layouts: Mapping[str | None, Layout], storage: Storages, files: contextlib.ExitStack
    ) -> list[NewArray]:
        """Make a file with tensors whose elements are to be written, and with all others of the old file."""
        wanted = {name or "data": self.plan_array(path, name, one, storage[name]) for name, one in layouts.items()}
        new = new_file(files, path)
        old = self._header(path) if os.path.exists(path) else _Header({}, {})
        metadata = next((one["metadata"] for one in storage.values() if "metadata" in one), old.metadata)
        others = {name: tensor for name, tensor in old.tensors.items() if name not in wanted}
        made = os.fsdecode(new.path)
        begins = _write_header(made, metadata, {**others, **{name: _new(one.layout) for name, one in wanted.items()}})
        if others:
            with open(made, "r+b", buffering=0) as file, _opened(path, old) as source:
                for name, tensor in others.items():
                    file.seek(begins[name])
                    _copy(source, tensor, file)
        arrays = [NewArray(made, name, one.layout, begins[name]) for name, one in wanted.items()]
        return [dataclasses.replace(arrays[0], commit=new.replace), *arrays[1:]]


def _is_index(path: str) -> bool:
    return path.lower().endswith(".json")


def _opened(path: str, header: _Header) -> io.FileIO:
    """Open a file whose header was read."""
    file = open(path, "rb", buffering=0)
    if _identity(file) != header.file:
        file.close()
        raise ValueError(f"{path!r} was changed while it was read")
    return file


def _identity(file: io.IOBase) -> tuple[int, ...]:
    facts = os.fstat(file.fileno())
    return facts.st_size, facts.st_dev, facts.st_ino, facts.st_mtime_ns


def _copy(source: io.FileIO, tensor: _Tensor, file: io.FileIO) -> None:
    """Copy the elements of a tensor to the position of another file."""
    begin, end = tensor.begin, tensor.begin + tensor.nbytes
    while begin < end:
        count = os.sendfile(file.fileno(), source.fileno(), begin, end - begin)
        if count == 0:
            raise ValueError(f"{source.name!r} was changed while it was read")
        begin += count


def _bits(code: str) -> int:
    return 8 if code == "BOOL" else int(re.findall(r"\d+", code)[0])


def _record(code: str) -> np.dtype[Any]:
    """Return the element type in place of one of ml_dtypes, if that is not installed."""
    return np.dtype([(_TYPES[code], f"<u{_bits(code) // 8}")])


def _dtype(code: str) -> Any:
    if not _TYPES[code]:
        raise TypeError(f"elements of type {code} are no whole bytes")
    if not hasattr(np, _TYPES[code]) and code != "BOOL":
        try:
            return np.dtype(getattr(importlib.import_module("ml_dtypes"), _TYPES[code]))
        except (ImportError, AttributeError):
            return _record(code)
    return np.dtype(_TYPES[code]).newbyteorder("<")


def _new(layout: Layout) -> _Tensor:
    """Return a tensor to be written, whose place is not known."""
    dtype = layout.dtype
    for code, name in _TYPES.items():
        if name and dtype.isnative and (dtype.name == name or dtype == _record(code)):
            return _Tensor(code, layout.shape, 0, math.prod(layout.shape) * dtype.itemsize)
    known = ", ".join(filter(None, _TYPES.values()))
    raise TypeError(f"elements must have one of the types {known}, in native byte order, got {dtype}")


def _write_header(path: str, metadata: Mapping[str, str], tensors: Mapping[str, _Tensor]) -> dict[str, int]:
    """Write a file of the size of some tensors without their elements; return their positions."""
    entries, begins, end = dict[str, Any]({"__metadata__": metadata} if metadata else {}), dict[str, int](), 0
    for name in sorted(tensors, key=lambda one: (-_bits(tensors[one].code), one)):  # so that all are aligned
        code, shape, _, nbytes = tensors[name]
        begins[name], end = end, end + nbytes
        entries[name] = {"dtype": code, "shape": shape, "data_offsets": (begins[name], end)}
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _MAX_HEADER_BYTES:
        raise ValueError(f"the header of a .safetensors file must have at most {_MAX_HEADER_BYTES} bytes")
    base = 8 + len(text)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(base + end)
        _core.reserve(file.fileno(), 0, base + end)
    return {name: base + begin for name, begin in begins.items()}


def _read_header(path: str) -> _Header:
    with naming(path), open(path, "rb") as file:
        identity = _identity(file)
        size, length = identity[0], int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, _MAX_HEADER_BYTES):
            limit = f"{_MAX_HEADER_BYTES} bytes, within the {size} of the file"
            raise ValueError(f"a .safetensors file must begin with a header of at most {limit}, got {length}")
        entries = _parsed(file.read(length))
        metadata = entries.pop("__metadata__", {})
        metadata = {} if metadata is None else metadata  # as the package safetensors
        if not _are_texts(metadata):
            raise ValueError(f"__metadata__ must be an object of texts, got {short(metadata)}")
        tensors = {name: _tensor(name, entry, 8 + length) for name, entry in entries.items()}
        end, last = 8 + length, "the header"
        for name, tensor in sorted(tensors.items(), key=lambda item: item[1][2:]):
            if tensor.begin != end:
                raise ValueError(f"tensor {short(name)} must begin where {short(last)} ends, {end}, got {tensor.begin}")
            end, last = end + tensor.nbytes, name
        if end != size:
            raise ValueError(f"the file must end with {short(last)}, at {end}, but has {size} bytes")
    return _Header(tensors, metadata, identity)


def _tensor(name: str, entry: Any, base: int) -> _Tensor:
    """Return a checked tensor of a header."""
    match entry:
        case {"dtype": str(code), "shape": list(shape), "data_offsets": [begin, end]} if (
            code in _TYPES
            and all(type(one) is int for one in (*shape, begin, end))
            and len(shape) <= 64
            and math.prod(extent or 1 for extent in shape) < 1 << 60
        ):
            bits = math.prod(shape) * _bits(code)
            if bits != 8 * (end - begin):
                distance = f"{bits // 8}{' and a half' * (bits % 8 > 0)} bytes, got {begin} and {end}"
                raise ValueError(
                    f"data_offsets of {short(name)}, {code} of shape {tuple(shape)}, must differ by {distance}"
                )
            return _Tensor(code, tuple(shape), base + begin, end - begin)
    raise ValueError(
        f"tensor {short(name)} must have a dtype of {', '.join(_TYPES)}, a shape of at most 64 axes and 2^60 elements, "
        f"and two data_offsets, whole numbers from 0 to 10^18, got {short(entry)}"
    )


def _read_index(path: str) -> dict[str, str]:
    """Return the file of each tensor; all lie beside their index."""
    with naming(path), open(path, "rb") as file:
        files: Any = _parsed(file.read(_MAX_HEADER_BYTES + 1)).get("weight_map")
        if not _are_texts(files):
            raise ValueError(f"weight_map must be an object of names of files, got {short(files)}")
        for name in {*files.values()}:
            if not name.lower().endswith(".safetensors") or "/" in name or "\0" in name:
                raise ValueError(f"weight_map must have names of .safetensors files beside it, got {short(name)}")
        return {key: os.path.join(os.path.dirname(path), name) for key, name in files.items()}


def _are_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for pair in value.items() for one in pair)


def _parsed(text: bytes) -> dict[str, Any]:
    """Return the object of a JSON text; numbers that are no position or extent are texts."""
    if len(text) > _MAX_HEADER_BYTES or sum(map(text.count, (b",", b":", b"[", b"{"))) > _MAX_VALUES:
        raise ValueError(f"must have at most {_MAX_HEADER_BYTES} bytes, and {_MAX_VALUES} names and values")
    try:
        found = json.loads(text.decode(), object_pairs_hook=_unique, parse_int=_number, parse_constant=str)
    except RecursionError:
        raise ValueError("must have objects in one object, not deeper") from None
    if not isinstance(found, dict):
        raise ValueError(f"must have a JSON object, got {short(found)}")
    "".join(found).encode()  # refuses halves of surrogate pairs
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"must have each name once, got {short(twice)} twice")
    return found


def _number(text: str) -> int | str:
    return int(text) if text.isdigit() and len(text) < 19 else text

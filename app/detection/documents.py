"""Trace files: what canaries did in runs of a monitored retriever, healthy ones and then others, as numpy's `.npz`.

`meta` is JSON in bytes, a list of {key, n, base, after}; what else stands there is left alone. For each key:
`KEY/base/lost` and `KEY/after/lost`, (runs, ceil(n / 8)) packed bits, 1 = no expected chunk in the top k;
`KEY/base/ndcg` and `KEY/after/ndcg`, (runs, n) bytes, 255 * NDCG@10; `KEY/topic`, (n,) a number, may be missing.
A part in which nothing changes keeps a single row.
"""

import io
import json
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from tokenize import TokenError
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from app.base.errors import InvalidInputError, Problem
from app.base.texts import plain
from app.base.values import Value

MOST_CANARIES: Final = 100_000
MOST_RUNS: Final = 100_000
MOST_TRACES: Final = 10_000
MOST_CELLS: Final = 10_000_000
"""Runs times canaries, of one part of one trace."""

_MOST_META: Final = 64 << 20
_MOST_HEAD: Final = 10_000
_PARTS: Final = ("base", "after")
_PACKINGS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})
_DAMAGE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    ValueError,
    TypeError,
    EOFError,
    RuntimeError,  # a RecursionError too, of a head nested deeply
    MemoryError,
    OverflowError,
    SyntaxError,
    TokenError,
)


class Trace(Value):
    """One history: (runs, n) each; `topics` is the topic of each canary, empty where the file has none."""

    key: str
    base_lost: NDArray[np.int8]
    base_ndcg: NDArray[np.float64]
    after_lost: NDArray[np.int8]
    after_ndcg: NDArray[np.float64]
    topics: tuple[int, ...]


class TraceFile:
    """Reads traces one by one; every refusal is an InvalidInputError that names the file."""

    def __init__(self, name: str, stream: BinaryIO) -> None:
        self.name = name
        try:
            self._archive = zipfile.ZipFile(stream)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise self._refusal("it is no .npz file, which numpy.savez writes") from error
        self._sizes = {info.filename: info.file_size for info in self._archive.infolist()}
        self._packings = {info.filename: info.compress_type for info in self._archive.infolist()}
        self.traces = self._meta()

    def read(self) -> Iterator[Trace]:
        """Yield the traces in the order of `meta`."""
        for entry in self.traces:
            yield self._trace(entry)

    def _meta(self) -> Sequence[Mapping[str, Any]]:
        array = self._array("meta", np.uint8, (None,), _MOST_META)
        try:
            meta = json.loads(array.tobytes())
        except (ValueError, RecursionError, MemoryError) as error:
            raise self._refusal("`meta` is no JSON") from error
        if not isinstance(meta, list) or not meta:
            raise self._refusal("`meta` lists no traces")
        if len(meta) > MOST_TRACES:
            raise self._refusal(f"`meta` lists more than {MOST_TRACES:,} traces; split the file")
        for number, entry in enumerate(meta, 1):
            self._check(number, entry)
        keys = [entry["key"] for entry in meta]
        if len(set(keys)) < len(keys):
            raise self._refusal("`meta` has a key twice")
        return meta

    def _check(self, number: int, entry: object) -> None:
        if not isinstance(entry, dict) or not isinstance(entry.get("key"), str) or not entry["key"]:
            raise self._refusal(f"trace {number} of `meta` has no key")
        for name, least, most in (("n", 1, MOST_CANARIES), ("base", 0, MOST_RUNS), ("after", 0, MOST_RUNS)):
            value = entry.get(name)
            if type(value) is not int or not least <= value <= most:
                raise self._refusal(f"trace {entry['key']}: `{name}` is to be a whole number from {least} to {most:,}")
        if entry["n"] * max(entry["base"], entry["after"]) > MOST_CELLS:
            raise self._refusal(f"trace {entry['key']}: it has more than {MOST_CELLS:,} results")

    def _trace(self, entry: Mapping[str, Any]) -> Trace:
        key, count = entry["key"], entry["n"]
        lost, ndcg = {}, {}
        for part in _PARTS:
            runs = entry[part]
            packed = self._rows(f"{key}/{part}/lost", runs, math.ceil(count / 8))
            bits = np.unpackbits(packed, axis=1, count=count).astype(np.int8)
            lost[part] = np.broadcast_to(bits, (runs, count))
            ndcg[part] = np.broadcast_to(self._rows(f"{key}/{part}/ndcg", runs, count) / 255, (runs, count))
        topic = f"{key}/topic"
        topics: tuple[int, ...] = ()
        if f"{topic}.npy" in self._sizes:
            topics = tuple(self._array(topic, np.integer, (count,), count * 8).tolist())
        return Trace(
            key=key,
            base_lost=lost["base"],
            base_ndcg=ndcg["base"],
            after_lost=lost["after"],
            after_ndcg=ndcg["after"],
            topics=topics,
        )

    def _rows(self, name: str, runs: int, width: int) -> NDArray[np.uint8]:
        """Read so many rows, or the single one that stands for them."""
        if runs == 0 and f"{name}.npy" not in self._sizes:
            return np.empty((0, width), np.uint8)
        rows = self._array(name, np.uint8, (None, width), runs * width + width)
        if len(rows) not in {1, runs}:
            raise self._refusal(f"`{name}` has {len(rows):,} rows; there are to be {runs:,}, or 1 that holds for all")
        return rows[:runs]

    def _array(self, name: str, kind: type[Any], shape: tuple[int | None, ...], most: int) -> NDArray[Any]:
        """Read an array of that kind and shape (None = any size); checks the sizes before unpacking."""
        member = f"{name}.npy"
        if member not in self._sizes:
            raise self._refusal(f"`{name}` is missing")
        if self._sizes[member] > most + _MOST_HEAD:
            raise self._refusal(f"`{name}` is larger than it may be")
        if self._packings[member] not in _PACKINGS:  # of others more is unpacked than is asked for
            raise self._refusal(f"`{name}` is compressed in a way that numpy does not write")
        try:
            with self._archive.open(member) as packed:
                array = _array_of(packed.read(most + _MOST_HEAD + 1))
        except _DAMAGE as error:
            raise self._refusal(
                f"`{name}` is no array that can be read: {plain(str(error) or type(error).__name__)}"
            ) from error
        fits = array.ndim == len(shape) and all(
            expected in {None, size} for expected, size in zip(shape, array.shape, strict=True)
        )
        if not np.issubdtype(array.dtype, kind) or not fits:
            expected = ", ".join("any" if size is None else f"{size:,}" for size in shape)
            actual = f"{array.dtype} of ({', '.join(f'{size:,}' for size in array.shape)})"
            raise self._refusal(f"`{name}` is to be {kind.__name__} of ({expected}), but is {actual}")
        return array

    def _refusal(self, what: str) -> InvalidInputError:
        return InvalidInputError([Problem(file=self.name, message=plain(what))])


def _array_of(data: bytes) -> NDArray[Any]:
    """Read a `.npy`, after a check of the size in its head. Raises ValueError."""
    stream = io.BytesIO(data)
    major, _ = np.lib.format.read_magic(stream)
    if major != 1:
        raise ValueError("it is of another version of the format")
    shape, _, dtype = np.lib.format.read_array_header_1_0(stream, max_header_size=_MOST_HEAD)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never loaded")
    if math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
        raise ValueError("its size differs from its head")
    stream.seek(0)
    array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return array

"""Detectors and baselines as bytes: a JSON head, then plain arrays. Never pickle: stored bytes are no program."""

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.base.values import Severity
from app.detection.domain.accounts import nothing_recent
from app.detection.domain.values import NO_HABITS, SIGNALS, Baseline, Episode, Habit, Habits, Key, Level, State

_VERSION: Final = 1
_HABITS_VERSION: Final = 1
_MOST_HABITS: Final = 1 << 20
"""Bytes they unpack to at most; 8 of 64 canaries with 4 answers each need a twentieth of it."""
_ADDED: Final = {"recent": "several.recent"}
"""Names of arrays that earlier releases did not have: with a dot in it, they pass over it."""
_TYPES: Final = frozenset({"<f4", "|i1", "|b1", "<i4", "<i8"})
_LEVELS: Final = frozenset({"canaries", "grouped", "fleet"})
_MOST_HEAD: Final = 1 << 26
_MOST_CANARIES: Final = 1_000_000
_BYTES_EACH: Final = 256
"""Of a canary or group, in all arrays but the failures; what unpacks to more is damage."""
_BYTES_BESIDES: Final = 1 << 16

Arrays = Mapping[str, NDArray[Any]]


def pack_state(state: State) -> bytes:
    """Write a state; `unpack_state` gives an equal one."""
    plain: dict[str, object] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for field in fields(state):
        value = getattr(state, field.name)
        if isinstance(value, Level):
            arrays.update({f"{field.name}.{part.name}": getattr(value, part.name) for part in fields(value)})
        elif isinstance(value, np.ndarray):
            arrays[_ADDED.get(field.name, field.name)] = value
        else:
            plain[field.name] = value
    _put_keys(plain, arrays, state.keys)
    return _packed("state", plain, arrays)


def unpack_state(data: bytes) -> State:
    """Read a state. Raises ValueError where the bytes are none, or of another version."""
    plain, arrays = _unpacked("state", data)
    try:
        values: dict[str, Any] = {name: array for name, array in arrays.items() if "." not in name}
        for name in _LEVELS:
            values[name] = Level(**{part.name: arrays[f"{name}.{part.name}"] for part in fields(Level)})
        severity = plain["severity"]
        values |= plain
        values["keys"] = _keys(plain, arrays)
        # Earlier releases had none: the account of several canaries begins with the next run.
        values["recent"] = arrays.get(_ADDED["recent"], nothing_recent(len(SIGNALS), len(values["keys"])))
        values["groups"] = tuple(plain["groups"])
        values["severity"] = None if severity is None else Severity(severity)
        return State(**values)
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"These bytes are no state of a detector: {error}") from error


def pack_habits(habits: Habits) -> bytes:
    """Write habits; `unpack_habits` gives equal ones. Empty where there is nothing to remember."""
    if habits == NO_HABITS:
        return b""
    episode = habits.episode
    body = {
        "version": _HABITS_VERSION,
        "known": [{**_shallow(one), "answers": _pairs(one.answers)} for one in habits.known],
        "episode": None if episode is None else {**_shallow(episode), "answers": _pairs(episode.answers)},
        "index": habits.version,
    }
    return zlib.compress(json.dumps(body).encode(), 1)


def unpack_habits(data: bytes) -> Habits:
    """Read habits. Raises ValueError where the bytes are damaged.

    Those that a later release wrote in a way of its own are forgotten: then the next alarm is raised, which is safe.
    """
    if not data:
        return NO_HABITS
    try:
        opened = zlib.decompressobj()
        body = json.loads(opened.decompress(data, _MOST_HABITS))
        if body["version"] != _HABITS_VERSION:
            return NO_HABITS
        episode = body["episode"]
        return Habits(
            known=tuple(Habit(**{**one, "answers": _answers(one["answers"])}) for one in body["known"]),
            episode=None if episode is None else Episode(**{**episode, "answers": _answers(episode["answers"])}),
            version=body["index"],
        )
    except _DAMAGE as error:
        raise ValueError(f"These bytes are no habits of a detector: {error}") from error


def _shallow(value: Habit | Episode) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _pairs(answers: Mapping[Key, Sequence[int]]) -> list[list[object]]:
    return [[key, *some] for key, some in answers.items()]


def _answers(pairs: Sequence[Sequence[Any]]) -> dict[Key, tuple[int, ...]]:
    return {key: tuple(some) for key, *some in pairs}


def pack_baseline(baseline: Baseline) -> tuple[bytes, bytes]:
    """Write a baseline: what each run needs, and the failures, needed only while an alarm is open.

    Raises ValueError where it was read without them.
    """
    if baseline.failures is None:
        raise ValueError("The baseline was read without its failures, so it is not to be written.")
    plain: dict[str, object] = {
        "runs": baseline.runs,
        "deterministic": baseline.deterministic,
        "usual": list(baseline.usual),
    }
    arrays = {name: getattr(baseline, name) for name in ("known", "rates", "floors", "last")}
    _put_keys(plain, arrays, baseline.keys)
    shape = {"shape": list(baseline.failures.shape)}
    bits = {"bits": np.packbits(baseline.failures, axis=None).view(np.int8)}
    return _packed("baseline", plain, arrays), _packed("failures", shape, bits)


def unpack_baseline(body: bytes, failures: bytes | None = None) -> Baseline:
    """Read a baseline, with its failures if they are given. Raises ValueError as `unpack_state` does."""
    plain, arrays = _unpacked("baseline", body)
    try:
        lost, worse = plain["usual"]
        values: dict[str, Any] = {**arrays, **plain}
        values["keys"] = _keys(plain, arrays)
        values["usual"] = (int(lost), int(worse))
        read = None if failures is None else _failures(failures, (2, values["runs"], len(values["keys"])))
        return Baseline(**values, failures=read)
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"These bytes are no baseline: {error}") from error


def _failures(data: bytes, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Read failures. Raises ValueError where their shape is not that of the baseline."""
    count = math.prod(shape)
    plain, arrays = _unpacked("failures", data, most=math.ceil(count / 8))
    bits = arrays["bits"].reshape(-1).view(np.uint8)
    if plain["shape"] != list(shape) or len(bits) != math.ceil(count / 8):
        raise ValueError("These bytes are no failures of this baseline.")
    return np.unpackbits(bits, count=count).reshape(shape).astype(np.bool_)


def _put_keys(plain: dict[str, object], arrays: dict[str, NDArray[Any]], keys: tuple[Key, ...]) -> None:
    """Numbers, the usual keys, are kept as an array."""
    if {*map(type, keys)} <= {int}:
        arrays["keys"] = np.array(keys, np.int64)
        plain.pop("keys", None)
    else:
        plain["keys"] = list(keys)


def _keys(plain: Mapping[str, Any], arrays: Arrays) -> tuple[Key, ...]:
    return tuple(plain["keys"]) if "keys" in plain else tuple(arrays["keys"].tolist())


def _packed(kind: str, plain: Mapping[str, object], arrays: Arrays) -> bytes:
    """Write the length of the head, the head and the arrays, all little-endian, compressed together."""
    ordered = {name: array.astype(array.dtype.newbyteorder("<"), order="C") for name, array in arrays.items()}
    shapes = {name: [array.dtype.str, list(array.shape)] for name, array in ordered.items()}
    head = json.dumps({"kind": kind, "version": _VERSION, "plain": plain, "arrays": shapes}).encode()
    parts = [len(head).to_bytes(4, "little"), head, *map(_sorted_bytes, ordered.values())]
    packer = zlib.compressobj(1, strategy=zlib.Z_RLE)
    return packer.compress(b"".join(parts)) + packer.flush()


def _sorted_bytes(array: NDArray[Any]) -> bytes:
    """Write the first byte of every number, then the second ...: alike ones stand in runs, which pack fast."""
    return np.ascontiguousarray(array.reshape(-1, 1).view(np.uint8).T).tobytes()


def _number_bytes(data: bytes, size: int) -> bytes:
    """Undo `_sorted_bytes`; `size` is that of a number."""
    return np.ascontiguousarray(np.frombuffer(data, np.uint8).reshape(size, -1).T).tobytes()


def _unpacked(kind: str, data: bytes, most: int | None = None) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read what `_packed` wrote. Raises ValueError where it did not.

    Arrays are unpacked once their sizes are known: together no more than `most` bytes, or what so many canaries need.
    """
    try:
        opened = zlib.decompressobj()
        length = int.from_bytes(opened.decompress(data, 4), "little")
        if not 0 < length <= _MOST_HEAD:
            raise ValueError("there is no head, or one that is too long")
        head = json.loads(opened.decompress(opened.unconsumed_tail, length))
        if head["kind"] != kind or head["version"] != _VERSION:
            raise ValueError(f"they are none of version {_VERSION}")
        plain = dict(head["plain"])
        sizes = {name: _size(dtype, shape) for name, (dtype, shape) in head["arrays"].items()}
        total = sum(sizes.values())
        if total > (_most_bytes(plain, head["arrays"]) if most is None else most):
            raise ValueError("the arrays are larger than they may be")
        whole = opened.decompress(opened.unconsumed_tail, total + 1)
        if not opened.eof or len(whole) != total:
            raise ValueError("they are longer or shorter than they say")
        arrays, place = {}, 0
        for name, (dtype, shape) in head["arrays"].items():
            numbers = _number_bytes(whole[place : place + sizes[name]], np.dtype(dtype).itemsize)
            arrays[name] = np.frombuffer(numbers, dtype).reshape(shape)
            place += sizes[name]
    except _DAMAGE as error:
        raise ValueError(f"These bytes are no {kind}: {error}") from error
    return plain, arrays


_DAMAGE: Final = (zlib.error, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def _size(dtype: str, shape: Sequence[int]) -> int:
    """Say how many bytes an array has."""
    if dtype not in _TYPES or not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("an array is of no kind that is written")
    return math.prod(shape) * np.dtype(dtype).itemsize


def _most_bytes(plain: Mapping[str, Any], shapes: Mapping[str, Any]) -> int:
    """Say how many bytes the arrays of a state or baseline may have, by its canaries and groups."""
    canaries = len(plain["keys"]) if "keys" in plain else math.prod(shapes["keys"][1])
    if canaries > _MOST_CANARIES:
        raise ValueError("there are more canaries than there may be")
    return _BYTES_EACH * (canaries + len(plain.get("groups", ()))) + _BYTES_BESIDES

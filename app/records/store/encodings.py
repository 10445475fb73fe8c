"""Packed forms of what every run adds: its numbers, its latencies, what the detector says of it.

Whatever was ever written stays readable: figures, latencies and words begin with a byte that says their form, rollups
are told by the sign of `seconds`, and a dictionary that texts or numbers are compressed with is never changed, only
followed by another form. All stand where a release that does not know them finds nothing measured, in place of numbers
it would misread:

- `runs.figures`: the vector of `runs.aggregates`, exact, and the run's percentiles of latency (`pack_figures`).
- `run_probes.paces`: the latencies of `run_probes.latencies`, each within 1 % (`pack_latencies`).
- `detections.words`: the parts of `detections.body` that nothing is decided by (`pack_words`).
- `rollups.body`, where `seconds` is below zero: sum, count, min and max, exact (`pack_numbers`).

The positions of `run_probes.unscored` are a bit each, in the one form they ever had (`packed_positions`).
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from struct import Struct, unpack_from
from typing import Any, Final, cast

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from app.base.values import Outcome, ProbeSummary

_STEP: Final = 0.018
"""Of the logarithm, between two latencies that are told apart."""
_LEAST: Final = 1e-8
"""Seconds; less than any float16 above 0."""
_NEAR, _FAR = 1, 2
"""Forms of latencies: a byte each, or two where the slowest took over 90 times as long as the quickest."""
_PACES: Final = Struct("<BH")
"""The form, and the step of the quickest."""
_MOST_NEAR: Final = 255

_PLAIN, _SUMMARISED = 1, 2
"""Forms of figures: the vector alone, or with the percentiles of a run of which no probe failed."""
_PERCENTILES: Final = Struct("<3I")
_MOST_SECONDS: Final = 4_294
"""Whose microseconds fit."""

_COMMON: Final = np.array([np.inf, -np.inf, np.nan, 0.0, 1.0], dtype="<f8").tobytes()
"""Numbers that most vectors have."""
_TEXTS: Final = 1
"""Form of words."""
_SENTENCES: Final = (
    b'{"reason": "0 of 100 canaries lost (usually at most 0), no other worse than usual; evidence 0.278 of the 10,000 '
    b'that raise an alarm", "scopes": {"canaries": 0.7, "groups": 0.0002, "check": 0.05}, "usual": [0, 0], "drift": '
    b'{"kind": "none", "reason": "", "median_z": 0.0, "overlap": 1.0, "canaries": 1'
    b'{"reason": "0 of 400 canaries without an expected chunk; warming up", "warming": "no baseline yet: 1 of 20 '
    b"identical runs, or 20 of 300 runs of any kind; until then it alarms when a stable canary fails 3 runs in a row, "
    b'or when more canaries start to fail than chance explains", "unknown": 400'
)
"""What the detector says of most runs."""


def pack_numbers(numbers: bytes) -> bytes:
    """Pack float64 numbers, to be read back bit by bit."""
    return _deflated(numbers, _COMMON)


def unpack_numbers(packed: bytes) -> bytes:
    """Give the numbers of `pack_numbers`."""
    return _inflated(packed, _COMMON)


def pack_figures(vector: bytes, probes: ProbeSummary | None, measured: int) -> tuple[bytes, ProbeSummary | None]:
    """Pack the vector of a run, with what its probes come to where that is little; give what of the latter is left.

    `measured`: how many probes did not fail.
    """
    head = _summary(probes, measured)
    if head is None:
        return bytes([_PLAIN]) + pack_numbers(vector), probes
    return bytes([_SUMMARISED]) + head + pack_numbers(vector), None


def unpack_vector(aggregates: bytes | None, figures: bytes | None) -> bytes | None:
    """Give the vector of a run or re-scored run, whichever way it is stored; None = there is none."""
    if figures is None:
        return aggregates
    return unpack_numbers(figures[_start(figures) :])


def vector_columns(table: sa.FromClause) -> tuple[sa.ColumnElement[Any], sa.ColumnElement[Any]]:
    """Give what to select for `unpack_vector`; the numbers of re-scored runs are not packed."""
    return table.c.aggregates, table.c.figures if "figures" in table.c else sa.null()


def number_at(place: int | None, aggregates: bytes | None, figures: bytes | None) -> float | None:
    """Give one number of a vector; None = it has none, or it was not measured."""
    if place is None:
        return None
    if figures is None:
        vector = aggregates
    else:  # no further than the number
        content = memoryview(figures)[_start(figures) :]
        vector = zlib.decompressobj(-zlib.MAX_WBITS, zdict=_COMMON).decompress(content, 8 * place + 8)
    if vector is None:
        return None
    number: float = unpack_from("=d", vector, 8 * place)[0]
    return None if number != number else number  # noqa: PLR0124 - NaN: not measured


def with_vector(figures: bytes, vector: bytes) -> bytes:
    """Give figures with another vector."""
    return figures[: _start(figures)] + pack_numbers(vector)


def stored_summary(probes: str | None, figures: bytes | None, measured: int | None) -> ProbeSummary | None:
    """Give what the probes of a run come to, whichever way it is stored; None = it is not."""
    return cast("ProbeSummary", json.loads(probes)) if probes else unpack_summary(figures, measured)


def unpack_summary(figures: bytes | None, measured: int | None) -> ProbeSummary | None:
    """Give what the probes of a run come to, if it is packed with its figures."""
    if figures is None or figures[0] != _SUMMARISED:
        return None
    p50, p95, most = (microseconds / 1e6 for microseconds in _PERCENTILES.unpack_from(figures, 1))
    return {
        "probes": {str(Outcome.OK): measured or 0},
        "probes_by_step": {},
        "latency_seconds": {"p50": p50, "p95": p95, "max": most},
    }


def pack_latencies(seconds: NDArray[np.float16]) -> bytes | None:
    """Pack latencies, each to be read back within 1 % and 0 as 0; None = they are not all numbers from 0 on."""
    if not bool(np.all(np.isfinite(seconds) & (seconds >= 0))):
        return None
    took = seconds > 0
    steps = np.round(np.log(seconds[took].astype(np.float64) / _LEAST) / _STEP).astype(np.int64)
    first = int(steps.min()) if len(steps) else 0
    places = np.zeros(len(seconds), dtype=np.int64)
    places[took] = steps - first + 1
    form, kind = (_NEAR, "u1") if places.max(initial=0) <= _MOST_NEAR else (_FAR, "<u2")
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, strategy=zlib.Z_HUFFMAN_ONLY)
    return _PACES.pack(form, first) + packer.compress(places.astype(kind).tobytes()) + packer.flush()


def unpack_latencies(latencies: bytes, paces: bytes | None) -> NDArray[np.float16]:
    """Give the latencies of a run in seconds, whichever way they are stored."""
    if paces is None:
        return np.frombuffer(latencies, dtype=np.float16)
    form, first = _PACES.unpack_from(paces)
    raw = zlib.decompress(paces[_PACES.size :], -zlib.MAX_WBITS)
    places = np.frombuffer(raw, dtype="u1" if form == _NEAR else "<u2")
    seconds = np.exp((places.astype(np.float64) + (first - 1)) * _STEP) * _LEAST
    return np.where(places > 0, seconds, 0.0).astype(np.float16)


def pack_words(body: Mapping[str, Any]) -> tuple[bytes | None, Mapping[str, Any]]:
    """Pack the parts of a reading that nothing is decided by; give them and what is left."""
    words = {name: value for name, value in body.items() if name in _WORDS}
    if not words:
        return None, body
    left = {name: value for name, value in body.items() if name not in _WORDS}
    return bytes([_TEXTS]) + _deflated(json.dumps(words).encode(), _SENTENCES), left


def unpack_words(words: bytes | None) -> dict[str, Any]:
    """Give the parts of a reading that `pack_words` packed."""
    return {} if words is None else cast("dict[str, Any]", json.loads(_inflated(words[1:], _SENTENCES)))


_WORDS: Final = {"reason", "warming", "unknown", "usual", "scopes", "drift"}


def packed_positions(positions: Sequence[int]) -> bytes | None:
    """Pack positions to bits; None = there are none."""
    if not positions:
        return None
    bits = np.zeros(max(positions) + 1, dtype=np.bool_)
    bits[list(positions)] = True
    return np.packbits(bits).tobytes()


def unpacked_positions(packed: bytes | None) -> list[int]:
    """Unpack what `packed_positions` packed, in order."""
    places: list[int] = np.flatnonzero(np.unpackbits(np.frombuffer(packed or b"", dtype=np.uint8))).tolist()
    return places


def _summary(probes: ProbeSummary | None, measured: int) -> bytes | None:
    if probes is None or probes["probes_by_step"] or probes["probes"] != {str(Outcome.OK): measured}:
        return None
    latency = probes["latency_seconds"]
    given = [latency["p50"], latency["p95"], latency["max"]]
    microseconds = [round(seconds * 1e6) for seconds in given if seconds is not None and 0 <= seconds < _MOST_SECONDS]
    return _PERCENTILES.pack(*microseconds) if len(microseconds) == len(given) else None


def _start(figures: bytes) -> int:
    return 1 + (_PERCENTILES.size if figures[0] == _SUMMARISED else 0)


def _deflated(content: bytes, dictionary: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS, zdict=dictionary)
    return packer.compress(content) + packer.flush()


def _inflated(packed: bytes, dictionary: bytes) -> bytes:
    return zlib.decompressobj(-zlib.MAX_WBITS, zdict=dictionary).decompress(packed)

"""Spans as exporters of OpenTelemetry send them (OTLP 1.x, protobuf or JSON), read as calls of a retriever.

https://opentelemetry.io/docs/specs/otlp/#otlphttp. A retrieval is one by OpenInference (`openinference.span.kind`
RETRIEVER, `input.value`) or by the conventions for generative AI (`gen_ai.operation.name` retrieval,
`gen_ai.retrieval.query.text`). Of protobuf only the few fields named here are read, and all others skipped as bytes, so
that neither documents nor prompts are ever decoded, and a small message cannot become large in memory. That is why no
library reads it, which would build everything; tests hold it against `opentelemetry-proto`.
"""

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec

from app.base.errors import InvalidInputError, Problem
from app.base.texts import REQUEST_LIMITS, excess_of
from app.traffic.documents.exports import Origin, TracedCall, query_of

_KIND: Final = "openinference.span.kind"
_INPUT: Final = "input.value"
_OPERATION: Final = "gen_ai.operation.name"
_QUERY: Final = "gen_ai.retrieval.query.text"
_READ: Final = frozenset({name.encode() for name in (_KIND, _INPUT, _OPERATION, _QUERY)})
_LONGEST_KEY: Final = max(map(len, _READ))
_LONGEST_TEXT: Final = 100_000
"""Bytes of an attribute that are read; no query is as long."""
MOST_FIELDS: Final = 2_000_000
"""Fields of a message that are looked at, which takes about two seconds."""
_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_WIDTHS: Final = {_FIXED_64: 8, _FIXED_32: 4}
_MOST_BITS: Final = 64


class SpanReader:
    """Reads the calls of an export; `share` of the traces, chosen by their ids, and all spans of one alike."""

    def __init__(self, share: float = 1.0) -> None:
        self._share = share
        self.spans = 0
        """How many spans there were, also those of traces that were not chosen."""

    def from_protobuf(self, message: bytes) -> Iterator[TracedCall]:
        """Yield the retrievals of an ExportTraceServiceRequest. Raises InvalidInputError."""
        fields = _Fields(message)
        for resource in fields.within(0, len(message), 1):  # resource_spans
            for scope in fields.within(*resource, 2):  # scope_spans
                for span in fields.within(*scope, 2):  # spans
                    yield from self._call(*_span(fields, *span))

    def from_json(self, text: bytes) -> Iterator[TracedCall]:
        """Yield the retrievals of the same message as JSON. Raises InvalidInputError."""
        excess = excess_of(text, REQUEST_LIMITS)
        if excess is not None:
            raise _unreadable(excess)
        try:
            message = _DECODER.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise _unreadable(f"is no ExportTraceServiceRequest: {error}") from None
        for resource in message.resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    texts = {one.key: one.value.string_value for one in span.attributes if one.value is not None}
                    yield from self._call(span.trace_id.lower().encode(), span.start_time, texts)

    def _call(self, trace: bytes, started: Any, texts: Mapping[str, str | None]) -> Iterator[TracedCall]:
        self.spans += 1
        if self._share < 1 and _place(trace) >= self._share:
            return
        if (texts.get(_OPERATION) or "").lower() == "retrieval" or (texts.get(_KIND) or "").upper() == "RETRIEVER":
            text = texts.get(_QUERY) or query_of(texts.get(_INPUT))
            yield TracedCall(origin=Origin.RETRIEVAL, text=text, at=_seconds(started), trace=trace.decode())


def _place(trace: bytes) -> float:
    """Return where a trace stands from 0 to below 1, whatever bits of its id another sampler went by."""
    return int.from_bytes(blake2b(trace, digest_size=6).digest()) / 2**48


def _seconds(nanoseconds: Any) -> float | None:
    try:
        return int(nanoseconds) / 1e9 or None
    except (ValueError, TypeError, OverflowError):
        return None


def _unreadable(message: str) -> InvalidInputError:
    return InvalidInputError([Problem(path="body", message=message)])


# --- protobuf: https://protobuf.dev/programming-guides/encoding/ ---------------------------------------------


class _Fields:
    """Walks over the fields of messages within one text of bytes. Every method raises InvalidInputError."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._left = MOST_FIELDS

    def text(self, start: int, end: int) -> bytes:
        """Return bytes."""
        return self._data[start:end]

    def within(self, start: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
        """Yield where the fields of this number lie that hold messages or texts."""
        for number, kind, begin, stop in self.walk(start, end):
            if number == wanted and kind == _BYTES:
                yield begin, stop

    def walk(self, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (number, wire type, start, end) of each field of the message that lies there."""
        at = start
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise _unreadable(f"holds more than {MOST_FIELDS:,} fields; send smaller batches")
            tag, at = self._varint(at, end)
            kind = tag & 7
            if kind == _VARINT:
                begin, (_, at) = at, self._varint(at, end)
            elif kind == _BYTES:
                length, begin = self._varint(at, end)
                at = begin + length
            elif kind in _WIDTHS:
                begin, at = at, at + _WIDTHS[kind]
            else:
                raise _unreadable(_BROKEN)
            if at > end or not tag >> 3:
                raise _unreadable(_BROKEN)
            yield tag >> 3, kind, begin, at

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, _MOST_BITS + 6, 7):
            if at >= end:
                break
            byte = self._data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follow
                return value & (2**_MOST_BITS - 1), at
        raise _unreadable(_BROKEN)


_BROKEN: Final = "is no ExportTraceServiceRequest in protobuf: a field is cut off or of an unknown type"


def _span(fields: _Fields, start: int, end: int) -> tuple[bytes, int | None, dict[str, str | None]]:
    """Return the trace of a span as hexadecimal digits, its start in nanoseconds, and the texts that are read."""
    trace, started, texts = b"", None, dict[str, str | None]()
    for number, kind, begin, stop in fields.walk(start, end):
        if number == 1 and kind == _BYTES:  # trace_id
            trace = fields.text(begin, stop).hex().encode()
        elif number == 7 and kind == _FIXED_64:  # noqa: PLR2004 - start_time_unix_nano
            started = int.from_bytes(fields.text(begin, stop), "little")
        elif number == 9 and kind == _BYTES:  # noqa: PLR2004 - attributes
            texts |= _attribute(fields, begin, stop)
    return trace, started, texts


def _attribute(fields: _Fields, start: int, end: int) -> dict[str, str | None]:
    """Return an attribute that is read, and a text; of others nothing."""
    key, value = b"", None
    for number, kind, begin, stop in fields.walk(start, end):
        if number == 1 and kind == _BYTES and stop - begin <= _LONGEST_KEY:
            key = fields.text(begin, stop)
        elif number == 2 and kind == _BYTES:  # noqa: PLR2004 - value
            value = (begin, stop)
    if key not in _READ or value is None:
        return {}
    found = [place for place in fields.within(*value, 1) if place[1] - place[0] <= _LONGEST_TEXT]  # string_value
    return {key.decode(): fields.text(*found[-1]).decode(errors="replace") if found else None}


# --- JSON: names in lowerCamelCase, ids as hexadecimal digits ------------------------------------------------


class _AnyValue(msgspec.Struct, rename="camel"):
    string_value: str | None = None


class _KeyValue(msgspec.Struct):
    key: str = ""
    value: _AnyValue | None = None


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str = ""
    start_time: int | str = msgspec.field(default=0, name="startTimeUnixNano")
    attributes: list[_KeyValue] = []


class _ScopeSpans(msgspec.Struct):
    spans: list[_Span] = []


class _ResourceSpans(msgspec.Struct, rename="camel"):
    scope_spans: list[_ScopeSpans] = []


class _ExportRequest(msgspec.Struct, rename="camel"):
    resource_spans: list[_ResourceSpans] = []


_DECODER: Final = msgspec.json.Decoder(_ExportRequest)


# --- what is answered ----------------------------------------------------------------------------------------


def partial_success(rejected: int, message: str) -> bytes:
    """Return an ExportTraceServiceResponse in protobuf; without a message all was taken."""
    if not message:
        return b""
    text = message.encode()
    inner = (b"\x08" + _as_varint(rejected) if rejected else b"") + b"\x12" + _as_varint(len(text)) + text
    return b"\x0a" + _as_varint(len(inner)) + inner


def status_message(code: int, message: str) -> bytes:
    """Return a google.rpc.Status in protobuf, as refusals have it."""
    text = message.encode()
    return b"\x08" + _as_varint(code) + b"\x12" + _as_varint(len(text)) + text


def _as_varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits a byte
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])

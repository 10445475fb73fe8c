"""The receiver of spans, OTLP over HTTP: what it reads, what it answers, and what it withstands.

Messages are made by OpenTelemetry's own packages, and read by them where ours are answers.
"""

import gzip
import json
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app.base.api.requests import Turns
from app.base.db.keys import Scope
from app.base.errors import InvalidInputError
from app.base.values import replace
from app.traffic import api as traffic_api
from app.traffic.documents import spans as span_documents
from app.traffic.documents.exports import TracedCall
from app.traffic.documents.spans import SpanReader
from tests.support.api_service import Api, api, bearer
from tests.support.filled_service import app_of

PATH = "/v1/otlp/docs/v1/traces"
PROTOBUF = {"content-type": "application/x-protobuf"}
RETRIEVER = {"openinference.span.kind": "RETRIEVER"}
RETRIEVAL = {"gen_ai.operation.name": "retrieval"}
PRIVATE = "Admins see invoices of Ada Lovelace."


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Api]:
    """Give a service with a suite, and a check that asks the retriever `search`."""
    with api(tmp_path) as opened:
        opened.docs()
        yield opened


def message(*spans: dict[str, Any]) -> ExportTraceServiceRequest:
    """Give what an exporter sends of spans with these attributes, a trace each."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    for attributes in spans:
        with provider.get_tracer("test").start_as_current_span("step", attributes=attributes) as span:
            span.add_event("first token", {"input.value": "of an event"})
    return encode_spans(exporter.get_finished_spans())


def as_json(sent: ExportTraceServiceRequest) -> bytes:
    """Give a message as JSON, as OTLP has it: ids are hexadecimal there, and 64-bit numbers texts."""
    whole = MessageToDict(sent)
    spans = [span for resource in sent.resource_spans for scope in resource.scope_spans for span in scope.spans]
    shown = [
        span
        for resource in whole.get("resourceSpans", ())
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]
    for span, one in zip(spans, shown, strict=True):
        one |= {"traceId": span.trace_id.hex(), "spanId": span.span_id.hex()}
    return json.dumps(whole).encode()


def calls(sent: ExportTraceServiceRequest, share: float = 1.0) -> list[TracedCall]:
    """Give what is read of a message, which is the same of protobuf and JSON."""
    found = list(SpanReader(share).from_protobuf(sent.SerializeToString()))
    assert list(SpanReader(share).from_json(as_json(sent))) == found
    return found


def texts(*spans: dict[str, Any]) -> list[str]:
    return [one.text for one in calls(message(*spans))]


def post(service: Api, content: bytes, headers: dict[str, str] | None = None, **parameters: Any) -> Any:
    return service.client.post(PATH, content=content, headers={**PROTOBUF, **(headers or {})}, params=parameters)


# --- what is read --------------------------------------------------------------------------------------------


def test_retrievals_of_both_conventions_are_read_and_nothing_else() -> None:
    assert texts(
        {**RETRIEVER, "input.value": "Fees", "retrieval.documents.0.document.content": PRIVATE},
        {**RETRIEVAL, "gen_ai.retrieval.query.text": "Refunds", "gen_ai.retrieval.documents": '[{"id": "d1"}]'},
        {"openinference.span.kind": "LLM", "input.value": "Be brief"},
        {"gen_ai.operation.name": "chat", "gen_ai.input.messages": "[]"},
        {"input.value": "of nobody"},
        {**RETRIEVER, **RETRIEVAL, "input.value": "spoken", "gen_ai.retrieval.query.text": "asked"},
        {**RETRIEVER, "input.value": '{"query": "What of JSON?", "top_k": 5}', "input.mime_type": "application/json"},
        {**RETRIEVER, "input.value": 7},
        {**RETRIEVAL},
    ) == ["Fees", "Refunds", "asked", "What of JSON?", "", ""]


def test_the_start_of_a_span_is_when_it_was_asked() -> None:
    sent = message({**RETRIEVER, "input.value": "Fees"})
    (one,) = calls(sent)
    assert one.at == pytest.approx(time.time(), abs=60)
    sent.resource_spans[0].scope_spans[0].spans[0].ClearField("start_time_unix_nano")
    assert calls(sent)[0].at is None


def test_a_query_counts_once_in_a_trace(service: Api) -> None:
    sent = message(*[{**RETRIEVER, "input.value": text} for text in ("Fees", "fees ", "Fees")])
    spans = sent.resource_spans[0].scope_spans[0].spans
    spans[1].trace_id = spans[0].trace_id
    assert post(service, sent.SerializeToString()).content == b""
    assert service.get("/v1/suites/docs/traffic")["items"][0]["traffic"] == 2


def test_a_share_of_the_traces_counts_whatever_their_ids_and_whole_traces_do() -> None:
    sent = message(*[{**RETRIEVER, "input.value": f"q{place}"} for place in range(2_000)])
    chosen = [one.text for one in calls(sent, 0.25)]
    assert 400 < len(chosen) < 600
    assert set(chosen) <= {one.text for one in calls(sent, 0.5)}, "more of them, and the same"
    spans = sent.resource_spans[0].scope_spans[0].spans
    for place, span in enumerate(spans):  # traces that a sampler by their first or last bits let through
        span.trace_id = bytes(8) + place.to_bytes(8, "big")
    assert 400 < len(calls(sent, 0.25)) < 600
    for span in spans:
        span.trace_id = spans[0].trace_id
    assert len(calls(sent, 0.25)) in {0, 2_000}


@given(st.binary(max_size=200))
def test_whatever_bytes_come_are_read_or_refused(data: bytes) -> None:
    for read in (SpanReader().from_protobuf, SpanReader().from_json):
        try:
            list(read(data))
        except InvalidInputError as error:
            assert error.problems[0].path == "body"  # noqa: PT017 - or nothing is raised


@given(st.data())
def test_a_message_with_a_broken_byte_is_read_or_refused(data: st.DataObject) -> None:
    sent = bytearray(_MESSAGE)
    for _ in range(data.draw(st.integers(1, 4))):
        sent[data.draw(st.integers(0, len(sent) - 1))] = data.draw(st.integers(0, 255))
    try:
        list(SpanReader().from_protobuf(bytes(sent)))
    except InvalidInputError as error:
        assert "is no ExportTraceServiceRequest" in error.problems[0].message  # noqa: PT017 - either outcome is right


_MESSAGE = message({**RETRIEVER, "input.value": "Fees"}, {**RETRIEVAL, "n": 1.5}).SerializeToString()

_TEXTS = st.text(max_size=20)
_VALUES = st.one_of(
    _TEXTS, st.integers(-(2**40), 2**40), st.booleans(), st.floats(allow_nan=False), st.lists(_TEXTS, max_size=3)
)


@given(st.lists(st.dictionaries(st.sampled_from([*RETRIEVER, *RETRIEVAL, "input.value", "x"]), _VALUES), max_size=4))
def test_what_is_read_is_what_the_package_of_opentelemetry_reads(given_spans: list[dict[str, Any]]) -> None:
    sent = message(*given_spans)
    whole = ExportTraceServiceRequest.FromString(sent.SerializeToString())
    expected = []
    for resource in whole.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                found = {one.key: one.value.string_value for one in span.attributes}
                kind, operation = found.get("openinference.span.kind", ""), found.get("gen_ai.operation.name", "")
                expected += [1] if kind.upper() == "RETRIEVER" or operation.lower() == "retrieval" else []
    reader = SpanReader()
    assert len(list(reader.from_protobuf(sent.SerializeToString()))) == len(expected)
    assert reader.spans == len(given_spans)


def test_a_small_message_with_many_fields_is_refused_in_a_moment_and_little_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(span_documents, "MOST_FIELDS", 10_000)
    inner = b"\x12\x00" * 1_000_000  # empty spans, of two bytes each
    for _ in range(2):
        inner = b"\x0a" + span_documents._as_varint(len(inner)) + inner
    scope = b"\x12\x00" * 1_000_000
    sent = b"\x0a" + span_documents._as_varint(len(scope)) + scope
    with pytest.raises(InvalidInputError, match="more than 10,000 fields"):
        list(SpanReader().from_protobuf(sent))


# --- what is answered ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("packing", ["", "gzip", "deflate"])
@pytest.mark.parametrize("kind", ["application/x-protobuf", "application/json"])
def test_an_export_adds_to_the_traffic(service: Api, packing: str, kind: str) -> None:
    sent = message({**RETRIEVER, "input.value": "Fees"}, {**RETRIEVER, "input.value": " FEES"}, {"x": "y"})
    body = sent.SerializeToString() if kind.endswith("protobuf") else as_json(sent)
    packed = {"": body, "gzip": gzip.compress(body[:9]) + gzip.compress(body[9:]), "deflate": zlib.compress(body)}
    headers = {"content-type": kind, **({"content-encoding": packing} if packing else {})}
    answer = post(service, packed[packing], headers, retriever="search")
    assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
    assert answer.content in {b"", b"{}"}, "no partial success: what is no retrieval was not wanted"
    (shown,) = service.get("/v1/suites/docs/traffic")["items"]
    assert (shown["retriever"], shown["distinct"], shown["traffic"]) == ("search", 1, 2)
    told = service.client.get("/metrics").text
    for outcome, count in (("counted", 2), ("rejected", 0), ("passed_over", 1)):
        assert f'coalmine_trace_spans_total{{outcome="{outcome}"}} {count}.0' in told


def test_the_same_export_sent_again_counts_once(service: Api) -> None:
    body = message({**RETRIEVER, "input.value": "Fees"}).SerializeToString()
    for _ in range(3):
        assert post(service, body).content == b""
    assert service.get("/v1/suites/docs/traffic")["items"][0]["traffic"] == 1
    post(service, message({**RETRIEVER, "input.value": "Fees"}).SerializeToString())
    assert service.get("/v1/suites/docs/traffic")["items"][0]["traffic"] == 2


def test_an_export_without_retrievals_writes_nothing(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    body = message({"openinference.span.kind": "LLM", "input.value": "Be brief"}).SerializeToString()

    def refuse() -> None:
        pytest.fail("there was nothing to write")

    monkeypatch.setattr(service.service.store, "write", refuse)
    assert post(service, body).status_code == 200
    assert post(service, body, retriever="other").status_code == 404


def test_retrievals_that_cannot_count_are_told_as_rejected(service: Api) -> None:
    spans = [{**RETRIEVER, "input.value": "Fees"}, {**RETRIEVAL}, {**RETRIEVER, "input.value": "x" * 501}]
    sent = message(*spans)
    told = "1 query longer than 500 characters left out; 1 span whose input names no query left out"
    partial = ExportTraceServiceResponse.FromString(post(service, sent.SerializeToString()).content).partial_success
    assert (partial.rejected_spans, partial.error_message) == (2, told)
    shown = post(service, as_json(sent), {"content-type": "application/json"}).json()
    assert shown == {"partialSuccess": {"rejectedSpans": "2", "errorMessage": told}}


def test_without_a_retriever_it_is_the_one_that_checks_of_the_suite_ask(service: Api) -> None:
    body = message({**RETRIEVER, "input.value": "Fees"}).SerializeToString()
    assert post(service, body).status_code == 200
    service.put("/v1/suites/lonely", {"canaries": [{"query": "Fees?"}]})
    answer = service.client.post("/v1/otlp/lonely/v1/traces", content=body, headers=PROTOBUF)
    assert answer.status_code == 422
    assert "say which was asked; it has no check" in answer.content.decode(errors="replace")


@pytest.mark.parametrize(
    ("content", "headers", "path", "status", "code", "told"),
    [
        (b"\x0a\xff", {}, PATH, 400, 3, "is no ExportTraceServiceRequest in protobuf"),
        (b"nothing", {"content-encoding": "gzip"}, PATH, 400, 3, "cannot be unpacked"),
        (gzip.compress(b"x" * 99, mtime=0)[:-9], {"content-encoding": "gzip"}, PATH, 400, 3, "it is cut off"),
        (b"", {"content-encoding": "br"}, PATH, 415, 3, "Content-Encoding: gzip or deflate"),
        (b"", {}, "/v1/otlp/other/v1/traces", 404, 5, "suite 'other'"),
        (b"", {}, f"{PATH}?retriever=other", 404, 5, "there is no retriever 'other'"),
        (b"", {"authorization": "Bearer cmk_read_guessed"}, PATH, 401, 16, "unknown or has been revoked"),
    ],
)
def test_refusals_of_protobuf_are_a_status(
    service: Api, content: bytes, headers: dict[str, str], path: str, status: int, code: int, told: str
) -> None:
    service.key(Scope.ADMIN)
    authorization = {"authorization": f"Bearer {service.key(Scope.INGEST)}"}
    answer = service.client.post(path, content=content, headers={**PROTOBUF, **authorization, **headers})
    assert (answer.status_code, answer.headers["content-type"]) == (status, PROTOBUF["content-type"])
    assert answer.content.startswith(bytes([8, code, 0x12]))
    assert told in answer.content.decode(errors="replace")


def test_a_share_is_above_0_and_at_most_1(service: Api) -> None:
    for share in ("0", "2", "20", "x", "nan"):
        answer = post(service, b"", share=share)
        assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "share")


def test_refusals_of_json_are_problems_and_400_where_it_cannot_be_read(service: Api) -> None:
    for body in (b"{", b'{"resourceSpans": 7}', b'{"resourceSpans": [{"scopeSpans": null}]}', b"\xff"):
        answer = post(service, body, {"content-type": "application/json"})
        assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json"), body
        assert answer.json()["errors"][0]["path"] == "body"
    assert post(service, b"{}", {"content-type": "text/plain"}).status_code == 415


def test_little_that_unpacks_to_much_is_refused(service: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic_api, "MOST_UNPACKED", 1_000_000)
    bomb = gzip.compress(b"\0" * 50_000_000)
    answer = post(service, bomb, {"content-encoding": "gzip"})
    assert answer.status_code == 413
    assert b"send smaller batches" in answer.content
    many = b"".join([gzip.compress(b"\0" * 400_000)] * 9)
    assert post(service, many, {"content-encoding": "gzip"}).status_code == 413


def test_many_empty_members_are_refused_before_they_are_copied_again_and_again(service: Api) -> None:
    answer = post(service, zlib.compress(b"") * 1_000_000, {"content-encoding": "deflate"})
    assert answer.status_code == 400
    assert "more than 100 members" in answer.text


def test_a_time_beyond_all_times_is_none(service: Api) -> None:
    span = {"name": "s", "traceId": "0" * 31 + "1", "spanId": "0" * 15 + "1", "startTimeUnixNano": "9" * 400}
    attributes = [
        {"key": "openinference.span.kind", "value": {"stringValue": "RETRIEVER"}},
        {"key": "input.value", "value": {"stringValue": "How long?"}},
    ]
    body = {"resourceSpans": [{"scopeSpans": [{"spans": [{**span, "attributes": attributes}]}]}]}
    assert post(service, json.dumps(body).encode(), {"content-type": "application/json"}).status_code == 200


def test_where_too_much_is_under_way_exporters_are_told_to_come_again(service: Api) -> None:
    state = app_of(service).state
    before = state.access
    key = service.key(Scope.INGEST)
    try:
        for turns, status, code in ((Turns(most=0), 503, 14), (Turns(most_of_a_key=0), 429, 8)):
            state.access = replace(before, turns=turns)
            answer = post(service, b"", bearer(key))
            assert (answer.status_code, answer.content[1]) == (status, code)
            assert int(answer.headers["retry-after"]) > 0
    finally:
        state.access = before


def test_a_key_of_an_exporter_sends_and_can_do_nothing_else(service: Api) -> None:
    headers = bearer(service.key(Scope.INGEST))
    body = message({**RETRIEVER, "input.value": "Fees"}).SerializeToString()
    assert post(service, body, headers).status_code == 200
    lines = service.client.post(
        "/v1/suites/docs/traffic",
        params={"retriever": "search"},
        content=b'{"query": "Refunds"}',
        headers={**headers, "content-type": "application/x-ndjson"},
    )
    assert lines.status_code == 200
    for method, path in (
        ("GET", "/v1/suites/docs/traffic"),
        ("DELETE", "/v1/suites/docs/traffic"),
        ("GET", "/v1/checks"),
    ):
        assert service.client.request(method, path, headers=headers).status_code == 403


def test_documents_are_nowhere(service: Api, tmp_path: Path) -> None:
    span = {**RETRIEVER, "input.value": "Who sees invoices?", "retrieval.documents.0.document.content": PRIVATE}
    post(service, message(span).SerializeToString())
    kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"who sees invoices?" in kept
    assert b"Lovelace" not in kept

"""REST routes of traffic: queries of users taken in and forgotten, reach of a suite over them, suggestions.

And the receiver of spans, which speaks OTLP over HTTP.
"""

import json
import zlib
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import anyio.to_thread
from fastapi import Depends, Header, Query, Request, Response
from fastapi.responses import JSONResponse

from app.annotation.api import Texts, texts_schema
from app.annotation.views import TaskDetail
from app.base.api.bodies import Content, Limit, OptionalContent, Page, as_problem, body_schema, refusals
from app.base.api.requests import (
    Route,
    StoreDep,
    VaultDep,
    api_router,
    expensive,
    needs,
    wake,
)
from app.base.db.keys import Scope
from app.base.documents.fields import parse_document
from app.base.errors import CoalmineError, InvalidInputError, Problem, TooLargeError, UnsupportedError
from app.base.values import Value
from app.traffic.documents.queries import ForgetRequest, ReachRequest, SuggestionsRequest
from app.traffic.documents.spans import SpanReader, partial_success, status_message
from app.traffic.domain import ForgottenTraffic, ReceivedTraffic, SuggestionView, TrafficReachView, TrafficView
from app.traffic.service import intake, reach

router = api_router("annotation")

Retriever = Annotated[str, Query(max_length=64, description="slug of the retriever that was asked")]


@router.get("/suites/{suite}/traffic")
def list_traffic(store: StoreDep, suite: str) -> Page[TrafficView]:
    """Show how much traffic a suite has of each retriever; never the queries."""
    return Page(items=intake.load_traffic(store, suite), next=None)


_EXAMPLES = {
    "jsonl": '{"query": "rate limit", "count": 25, "at": "2026-11-21T08:00:00Z"}\n',
    "csv": "query,count,at\nrate limit,25,2026-11-21T08:00:00Z\n",
}


@router.post("/suites/{suite}/traffic", openapi_extra=texts_schema(**_EXAMPLES), responses=refusals(409))
@needs(Scope.INGEST)
@expensive
def post_traffic(
    *,
    store: StoreDep,
    vault: VaultDep,
    suite: str,
    retriever: Retriever,
    sources: Texts,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> ReceivedTraffic:
    """Add queries of users: JSON lines or CSV with `query[,count,at,outcome]`, or `user_query,timestamp`.

    Exports of Langfuse, Phoenix and LangSmith are read too: queries of retrievals, else those that traces begin with.
    Kept for 30 days: the query in small letters and single spaces, how often, first and last time. At most 100,000
    distinct ones. Send a file as it is, up to 100 MB, as `application/x-ndjson` or `text/csv`, or its text within JSON,
    up to 10 MB. Send larger ones in parts, each with an `Idempotency-Key` of its own: for a day a part that is sent
    again is not counted again, and answered as the first time.
    """
    return intake.receive_traffic(store, vault, suite, retriever, sources, now=datetime.now(UTC), key=idempotency_key)


@router.delete("/suites/{suite}/traffic", openapi_extra=body_schema(ForgetRequest, required=False))
def delete_traffic(store: StoreDep, suite: str, body: OptionalContent) -> ForgottenTraffic:
    """Forget the traffic of a suite at once: all of it, that of a `retriever`, or one `query`.

    A query is named in the body, because addresses are written to logs.
    """
    wish = parse_document(ForgetRequest, body or {})
    forgotten = intake.forget_traffic(store, suite, retriever=wish.retriever, query=wish.query)
    return {"forgotten": forgotten}


@router.post("/suites/{suite}/reach", status_code=202, openapi_extra=body_schema(ReachRequest), responses=refusals(409))
def post_reach(store: StoreDep, request: Request, suite: str, body: Content) -> TrafficReachView:
    """Draw a sample of the traffic and ask the retriever, in the background and within its limits.

    The 300 most frequent queries of the head are asked, and 300 drawn from all others in proportion to their traffic.
    """
    wish = parse_document(ReachRequest, body)
    reach.request_reach(store, suite, wish.retriever, grouping=wish.group, now=datetime.now(UTC))
    wake(request)
    return reach.load_reach(store, suite, wish.retriever)


@router.get("/suites/{suite}/reach")
def get_reach(store: StoreDep, suite: str, retriever: Retriever) -> TrafficReachView:
    """Show the share of real traffic that the canaries of a suite stand for, with its interval.

    The group of a query is the document of its first hit; it is covered where a canary expects that document, or a
    passing canary finds it first. Without one of the `checks` that ask the retriever nobody would notice.
    """
    return reach.load_reach(store, suite, retriever)


@router.post("/suites/{suite}/suggestions", openapi_extra=body_schema(SuggestionsRequest), responses=refusals(409))
def post_suggestions(store: StoreDep, request: Request, suite: str, body: Content) -> TaskDetail:
    """Take suggestions up: their queries become canaries that expect nothing yet, and a task is made of them.

    What its annotators agree on becomes what they expect. As canaries they are kept until they are archived.
    """
    wish = parse_document(SuggestionsRequest, body)
    task = reach.open_task(
        store,
        suite,
        wish.retriever,
        task=wish.task,
        queries=wish.queries,
        by=request.state.identity.name,
        now=datetime.now(UTC),
    )
    wake(request)
    return task


@router.get("/suites/{suite}/suggestions")
@needs(Scope.WRITE)
def list_suggestions(store: StoreDep, suite: str, retriever: Retriever, limit: Limit = 30) -> Page[SuggestionView]:
    """List queries of users that no canary stands for: one of each group of the sample, the most traffic first.

    They are personal data, so this needs a key that may write.
    """
    return Page(items=reach.suggest(store, suite, retriever, limit=limit), next=None)


# --- spans ---------------------------------------------------------------------------------------------------

MOST_UNPACKED: Final = 20_000_000
"""Bytes of an export; the limit of OpenTelemetry's own Collector."""
_PROTOBUF: Final = "application/x-protobuf"
_PACKINGS: Final = ("gzip", "deflate")
_BAD_REQUEST: Final = 400
_UNKNOWN: Final = 2
_CODES: Final = {400: 3, 401: 16, 403: 7, 404: 5, 409: 9, 413: 3, 415: 3, 422: 3, 429: 8, 500: 13, 503: 14}
"""Codes of google.rpc by the status of HTTP."""


class _SpanRoute(Route):
    """Answers as OTLP has it: what cannot be read is 400, and protobuf is refused in protobuf, by a Status."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with its refusals."""
        handler = super().get_route_handler()

        async def answered(request: Request) -> Response:
            try:
                return await handler(request)
            except CoalmineError as error:
                return _refusal(error, is_protobuf=_kind(request) == _PROTOBUF)

        return answered


def _refusal(error: CoalmineError, *, is_protobuf: bool) -> Response:
    found = as_problem(error)
    is_body = isinstance(error, InvalidInputError) and any(one.path == "body" for one in error.problems)
    status = _BAD_REQUEST if is_body else found.status_code
    if not is_protobuf:
        if is_body:
            found = as_problem(error, status=status)
        return found
    headers = {name: value for name, value in found.headers.items() if name in {"retry-after", "www-authenticate"}}
    said = json.loads(bytes(found.body)).get("detail") or "refused"  # of a database that is down, nothing of its own
    body = status_message(_CODES.get(status, _UNKNOWN), str(error) if is_body else said)
    return Response(body, status_code=status, media_type=_PROTOBUF, headers=headers)


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


class _Export(Value):
    """A body as it came and unpacked."""

    sent: bytes
    text: bytes
    is_protobuf: bool


async def _read_export(request: Request) -> _Export:
    """Return the body of an export. Raises UnsupportedError, TooLargeError, and InvalidInputError."""
    kind = _kind(request)
    if kind not in {_PROTOBUF, "application/json"}:
        raise UnsupportedError(f"send OTLP with the header Content-Type: {_PROTOBUF} or application/json")
    packing = request.headers.get("content-encoding", "identity").strip().lower()
    if packing not in {*_PACKINGS, "identity"}:
        raise UnsupportedError(f"send it as it is, or with Content-Encoding: {' or '.join(_PACKINGS)}")
    sent = await request.body()
    text = sent if packing == "identity" else await anyio.to_thread.run_sync(_unpacked, sent)
    if len(text) > MOST_UNPACKED:
        raise TooLargeError(f"an export may have at most {MOST_UNPACKED // 1_000_000} MB; send smaller batches")
    return _Export(sent=sent, text=text, is_protobuf=kind == _PROTOBUF)


def _unpacked(sent: bytes) -> bytes:
    """Unpack gzip, of one member or several, or zlib; one byte beyond the limit is enough to refuse it."""
    found = bytearray()
    for _ in range(_MOST_MEMBERS):  # each copies what is left
        if not sent or len(found) > MOST_UNPACKED:
            return bytes(found)
        member = zlib.decompressobj(zlib.MAX_WBITS | 32)
        try:
            found += member.decompress(sent, MOST_UNPACKED + 1 - len(found))
        except zlib.error as error:
            raise _unpackable(str(error)) from None
        if not member.eof and len(found) <= MOST_UNPACKED:
            raise _unpackable("it is cut off")
        sent = member.unused_data
    if sent:
        raise _unpackable(f"it has more than {_MOST_MEMBERS} members")
    return bytes(found)


_MOST_MEMBERS: Final = 100


def _unpackable(why: str) -> InvalidInputError:
    return InvalidInputError([Problem(path="body", message=f"cannot be unpacked: {why}")])


spans = api_router("annotation", route_class=_SpanRoute)
_BINARY: Final = {_PROTOBUF: {"schema": {"type": "string", "format": "binary"}}}
_PARTIAL: Final = {
    "type": "object",
    "properties": {
        "partialSuccess": {
            "type": "object",
            "properties": {"rejectedSpans": {"type": "string"}, "errorMessage": {"type": "string"}},
        }
    },
}
_REQUEST: Final = {
    "type": "object",
    "description": "An ExportTraceServiceRequest.",
    "properties": {"resourceSpans": {"type": "array", "items": {"type": "object"}}},
}
_SPAN_EXAMPLE: Final = {
    "traceId": "5b8efff798038103d269b633813fc60c",
    "spanId": "eee19b7ec3c1b174",
    "name": "retrieval",
    "startTimeUnixNano": "1796041925800956000",
    "attributes": [
        {"key": "openinference.span.kind", "value": {"stringValue": "RETRIEVER"}},
        {"key": "input.value", "value": {"stringValue": "rate limit"}},
    ],
}


@spans.post(
    "/otlp/{suite}/v1/traces",
    response_class=JSONResponse,
    responses={200: {"content": {"application/json": {"schema": _PARTIAL}, **_BINARY}}},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": _REQUEST,
                    "example": {"resourceSpans": [{"scopeSpans": [{"spans": [_SPAN_EXAMPLE]}]}]},
                },
                _PROTOBUF: {**_BINARY[_PROTOBUF], "example": "\n\0"},  # resource spans without spans
            },
        }
    },
)
@needs(Scope.INGEST)
@expensive
def post_spans(
    *,
    request: Request,
    store: StoreDep,
    vault: VaultDep,
    suite: str,
    export: Annotated[_Export, Depends(_read_export)],
    retriever: Annotated[
        str | None,
        Query(max_length=64, description="slug of the retriever that was asked; without it the one its checks ask"),
    ] = None,
    share: Annotated[
        float, Query(gt=0, le=1, description="share of the traces that count, chosen by a hash of their ids")
    ] = 1.0,
) -> Response:
    """Add the queries of retrievals among the spans of an OpenTelemetry exporter (OTLP over HTTP), packed or not.

    Retrievals are spans of OpenInference with `openinference.span.kind` RETRIEVER and `input.value`, and those with
    `gen_ai.operation.name` retrieval and `gen_ai.retrieval.query.text`. All others are passed over. A body that is sent
    again within a day counts once. Of what is kept see `POST /v1/suites/{suite}/traffic`.
    """
    reader = SpanReader(share)
    calls = reader.from_protobuf(export.text) if export.is_protobuf else reader.from_json(export.text)
    found = intake.receive_spans(store, vault, suite, retriever, calls, content=export.sent, now=datetime.now(UTC))
    request.app.state.exposition.process.spans_received(
        counted=found.counted,
        rejected=found.rejected,
        passed_over=max(0, reader.spans - found.counted - found.rejected),
    )
    message = "; ".join(found.notes)
    if export.is_protobuf:
        return Response(partial_success(found.rejected, message), media_type=_PROTOBUF)
    partial = {"rejectedSpans": str(found.rejected), "errorMessage": message}
    return JSONResponse({"partialSuccess": partial} if message else {})

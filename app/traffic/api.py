"""REST routes of traffic: queries of users taken in and forgotten, reach of a suite over them, suggestions."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request

from app.annotation.api import Texts, texts_schema
from app.annotation.views import TaskDetail
from app.base.api.bodies import Content, Limit, OptionalContent, Page, body_schema, refusals
from app.base.api.requests import StoreDep, VaultDep, expensive, needs, refuse_unknown_parameters, wake
from app.base.db.keys import Scope
from app.base.documents.fields import parse_document
from app.traffic import service as traffic
from app.traffic.documents.queries import ForgetRequest, ReachRequest, SuggestionsRequest
from app.traffic.domain import ForgottenTraffic, ReceivedTraffic, SuggestionView, TrafficReachView, TrafficView

router = APIRouter(prefix="/v1", tags=["annotation"], dependencies=[Depends(refuse_unknown_parameters)])

Retriever = Annotated[str, Query(max_length=64, description="slug of the retriever that was asked")]


@router.get("/suites/{suite}/traffic")
def list_traffic(store: StoreDep, suite: str) -> Page[TrafficView]:
    """Show how much traffic a suite has of each retriever; never the queries."""
    return Page(items=traffic.load_traffic(store, suite), next=None)


_EXAMPLES = {
    "jsonl": '{"query": "rate limit", "count": 25, "at": "2026-11-21T08:00:00Z"}\n',
    "csv": "query,count,at\nrate limit,25,2026-11-21T08:00:00Z\n",
}


@router.post("/suites/{suite}/traffic", openapi_extra=texts_schema(**_EXAMPLES), responses=refusals(409))
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
    return traffic.receive_traffic(store, vault, suite, retriever, sources, now=datetime.now(UTC), key=idempotency_key)


@router.delete("/suites/{suite}/traffic", openapi_extra=body_schema(ForgetRequest, required=False))
def delete_traffic(store: StoreDep, suite: str, body: OptionalContent) -> ForgottenTraffic:
    """Forget the traffic of a suite at once: all of it, that of a `retriever`, or one `query`.

    A query is named in the body, because addresses are written to logs.
    """
    wish = parse_document(ForgetRequest, body or {})
    forgotten = traffic.forget_traffic(store, suite, retriever=wish.retriever, query=wish.query)
    return {"forgotten": forgotten}


@router.post("/suites/{suite}/reach", status_code=202, openapi_extra=body_schema(ReachRequest), responses=refusals(409))
def post_reach(store: StoreDep, request: Request, suite: str, body: Content) -> TrafficReachView:
    """Draw a sample of the traffic and ask the retriever, in the background and within its limits.

    The 300 most frequent queries of the head are asked, and 300 drawn from all others in proportion to their traffic.
    """
    wish = parse_document(ReachRequest, body)
    traffic.request_reach(store, suite, wish.retriever, grouping=wish.group, now=datetime.now(UTC))
    wake(request)
    return traffic.load_reach(store, suite, wish.retriever)


@router.get("/suites/{suite}/reach")
def get_reach(store: StoreDep, suite: str, retriever: Retriever) -> TrafficReachView:
    """Show the share of real traffic that the canaries of a suite stand for, with its interval.

    The group of a query is the document of its first hit; it is covered where a canary expects that document, or a
    passing canary finds it first.
    """
    return traffic.load_reach(store, suite, retriever)


@router.post("/suites/{suite}/suggestions", openapi_extra=body_schema(SuggestionsRequest), responses=refusals(409))
def post_suggestions(store: StoreDep, request: Request, suite: str, body: Content) -> TaskDetail:
    """Take suggestions up: their queries become canaries that expect nothing yet, and a task is made of them.

    What its annotators agree on becomes what they expect. As canaries they are kept until they are archived.
    """
    wish = parse_document(SuggestionsRequest, body)
    task = traffic.open_task(
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
    return Page(items=traffic.suggest(store, suite, retriever, limit=limit), next=None)

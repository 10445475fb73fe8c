"""REST routes of runs and their results, with the request that starts one; of re-scorings; and of server-sent events.

Events are the progress of a run, a re-scoring or a task's pool, and changes of all checks. A browser that loses a
stream reconnects by itself and gets the present state; the server remembers nothing.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any

import anyio
import anyio.to_thread
from anyio import CapacityLimiter
from fastapi import Depends, Header, Query, Request
from fastapi.responses import JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent

from app.base.api.bodies import (
    LARGEST_ID,
    Before,
    Content,
    Limit,
    OptionalContent,
    Page,
    RescoringRequest,
    RunNoteRequest,
    RunRequest,
    Version,
    answers_with,
    body_schema,
    refusals,
)
from app.base.api.requests import StoreDep, api_router, wake
from app.base.db.keys import Identity
from app.base.documents.fields import parse_document
from app.base.values import Category, Outcome, Reason, RunStatus, Trigger, Verdict
from app.base.views import id_number
from app.records.service import run_views
from app.records.views import RescoringView, ResultView, RunNote, RunView
from app.runs.service import due_checks, rescoring
from app.runs.service.change_feed import LONGEST_SECONDS, Endings, Kind, Listener, Streams, Topic

router = api_router("history")


@router.post(
    "/checks/{slug}/runs",
    responses=answers_with(RunView, 200, 202),
    openapi_extra=body_schema(RunRequest, required=False),
)
async def post_run(
    request: Request,
    store: StoreDep,
    slug: str,
    body: OptionalContent,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> JSONResponse:
    """Run a check now: 202, or 200 with the run when it ended within `wait_seconds`.

    While a run of the check is active exactly one follow-up is queued and returned.
    """
    body_request = parse_document(RunRequest, {} if body is None else body)
    limiter: CapacityLimiter = request.app.state.access.waiting

    def queue() -> int:
        return due_checks.run_now(
            store,
            slug,
            trigger=Trigger(body_request.trigger),
            index_version=body_request.index_version,
            idempotency_key=idempotency_key,
            now=store.now(),
        )[0]

    run_id = await anyio.to_thread.run_sync(queue, limiter=limiter)
    wake(request)
    if body_request.wait_seconds:
        await endings_of(request).wait(Topic(Kind.RUN, run_id), body_request.wait_seconds)
    run = await anyio.to_thread.run_sync(run_views.run, store, str(run_id), limiter=limiter)
    ended = run["status"] not in {RunStatus.QUEUED, RunStatus.RUNNING}
    headers = {"location": f"/v1/runs/{run_id}"}
    return JSONResponse(run, status_code=200 if ended and body_request.wait_seconds else 202, headers=headers)


@router.get("/checks/{slug}/health")
def get_health(store: StoreDep, slug: str, version: Version = None) -> RunView:
    """Show the newest ended run of a check; of a re-scoring, the newest re-scored run."""
    return run_views.health(store, slug, version=version)


@router.get("/checks/{slug}/runs")
def list_runs(
    store: StoreDep, slug: str, before: Before = None, limit: Limit = 50, version: Version = None
) -> Page[RunView]:
    """List the runs of a check, newest first; of a re-scoring, the re-scored ones."""
    found = run_views.list_runs(store, slug, before=before, limit=limit + 1, version=version)
    return Page(items=found[:limit], next=found[limit - 1]["id"] if len(found) > limit else None)


@router.get("/runs/{run_id}")
def get_run(store: StoreDep, run_id: str, version: Version = None) -> RunView:
    """Show a run; while it is active, with its progress."""
    return run_views.run(store, run_id, version=version)


@router.put("/runs/{run_id}/note", openapi_extra=body_schema(RunNoteRequest))
def put_note(store: StoreDep, request: Request, run_id: str, body: Content) -> RunNote:
    """Write a note on a run, in place of the one it has; it has the name of the key."""
    note = parse_document(RunNoteRequest, body)
    return run_views.write_note(store, run_id, note.text, by=request.state.identity.name, now=datetime.now(UTC))


@router.delete("/runs/{run_id}/note", status_code=204)
def delete_note(store: StoreDep, run_id: str) -> None:
    """Delete the note of a run, if it has one."""
    run_views.delete_note(store, run_id)


@router.get("/runs/{run_id}/results", responses=refusals(409))
def list_results(  # noqa: PLR0913 - a parameter for each
    *,
    store: StoreDep,
    run_id: str,
    verdict: Verdict | None = None,
    category: Category | None = None,
    tag: Annotated[str | None, Query(max_length=64)] = None,
    reason: Reason | None = None,
    outcome: Outcome | None = None,
    after: Annotated[int, Query(ge=-1, le=LARGEST_ID)] = -1,
    limit: Limit = 100,
    version: Version = None,
) -> Page[ResultView]:
    """List the results of an ended run with their evidence."""
    found, following = run_views.results(
        store,
        run_id,
        verdict=verdict,
        category=category,
        tag=tag,
        reason=reason,
        outcome=outcome,
        after=after,
        limit=limit,
        version=version,
    )
    return Page(items=found, next=None if following is None else str(following))


def endings_of(request: Request) -> Endings:
    """Return the endings of the app."""
    endings: Endings = request.app.state.endings
    return endings


@router.post(
    "/checks/{slug}/rescorings",
    responses=answers_with(RescoringView, 200, 202),
    openapi_extra=body_schema(RescoringRequest, required=False),
)
async def post_rescoring(request: Request, store: StoreDep, slug: str, body: OptionalContent) -> JSONResponse:
    """Re-score a check's recorded runs with its present judgments: 202, or 200 when done within `wait_seconds`.

    The recorded numbers stay; the new ones are a measures version of their own. With an unchanged suite the same
    re-scoring continues with the runs since.
    """
    body_request = parse_document(RescoringRequest, {} if body is None else body)
    limiter: CapacityLimiter = request.app.state.access.waiting

    def ask() -> int:
        return rescoring.ask(store, slug, since=body_request.since, now=datetime.now(UTC))

    rescoring_id = await anyio.to_thread.run_sync(ask, limiter=limiter)
    wake(request)
    if body_request.wait_seconds:
        await endings_of(request).wait(Topic(Kind.RESCORING, rescoring_id), body_request.wait_seconds)
    found = await anyio.to_thread.run_sync(rescoring.show, store, rescoring_id, limiter=limiter)
    headers = {"location": f"/v1/rescorings/{rescoring_id}"}
    return JSONResponse(found, status_code=202 if found["finished_at"] is None else 200, headers=headers)


@router.get("/checks/{slug}/rescorings")
def list_rescorings(store: StoreDep, slug: str, before: Before = None, limit: Limit = 50) -> Page[RescoringView]:
    """List the re-scorings of a check, newest first."""
    found = rescoring.list_all(store, slug, before=before, limit=limit + 1)
    return Page(items=found[:limit], next=found[limit - 1]["id"] if len(found) > limit else None)


@router.get("/rescorings/{rescoring_id}")
def get_rescoring(store: StoreDep, rescoring_id: str) -> RescoringView:
    """Show a re-scoring: its progress and, once it has finished, its totals before and after."""
    return rescoring.show(store, id_number(rescoring_id, "re-scoring"))


_COME_BACK_MILLISECONDS = 2_000

Seconds = Annotated[
    float,
    Query(gt=0, le=LONGEST_SECONDS, description="duration of the stream; a browser reconnects by itself at its end"),
]


def _listening(kind: Kind, parameter: str = "") -> Any:
    """Open a stream in a dependency, where an error is still a problem response and not the end of a started stream."""

    async def listen(request: Request) -> AsyncIterator[Listener]:
        streams: Streams = request.app.state.streams
        identity: Identity = request.state.identity
        opaque = request.path_params.get(parameter, "")
        async with streams.listen(kind, opaque, key=identity.key_prefix) as listener:
            yield listener

    return Depends(listen)


@router.get("/events", response_class=EventSourceResponse)
async def follow_all(
    listener: Annotated[Listener, _listening(Kind.NEWS)], seconds: Seconds = LONGEST_SECONDS
) -> AsyncIterator[ServerSentEvent]:
    """Stream `run_ended` {check, run} and `alert_changed` {check, alert} from now on.

    Of runs of one check that end within a second only the newest is reported. A process has at most 100 event streams
    of all kinds, and 20 per key: more are refused with 503 and `Retry-After`.
    """
    async for event in _send(listener, seconds):
        yield event


@router.get("/runs/{run_id}/events", response_class=EventSourceResponse)
async def follow_run(
    run_id: str,  # noqa: ARG001 - in the path
    listener: Annotated[Listener, _listening(Kind.RUN, "run_id")],
    seconds: Seconds = LONGEST_SECONDS,
) -> AsyncIterator[ServerSentEvent]:
    """Stream `progress` {done, total, failed, status} of a run, now and on changes, then `ended` with its verdict."""
    async for event in _send(listener, seconds):
        yield event


@router.get("/rescorings/{rescoring_id}/events", response_class=EventSourceResponse)
async def follow_rescoring(
    rescoring_id: str,  # noqa: ARG001 - in the path
    listener: Annotated[Listener, _listening(Kind.RESCORING, "rescoring_id")],
    seconds: Seconds = LONGEST_SECONDS,
) -> AsyncIterator[ServerSentEvent]:
    """Stream `progress` {done, total, status} of a re-scoring in runs, then `ended` with its measures version."""
    async for event in _send(listener, seconds):
        yield event


@router.get("/tasks/{slug}/events", response_class=EventSourceResponse)
async def follow_task(
    slug: str,  # noqa: ARG001 - in the path
    listener: Annotated[Listener, _listening(Kind.TASK, "slug")],
    seconds: Seconds = LONGEST_SECONDS,
) -> AsyncIterator[ServerSentEvent]:
    """Stream `progress` {done, total, failed, status} of a task's pool in canaries, then `ended` with its `items`."""
    async for event in _send(listener, seconds):
        yield event


async def _send(listener: Listener, seconds: float) -> AsyncIterator[ServerSentEvent]:
    yield ServerSentEvent(comment="listening", retry=_COME_BACK_MILLISECONDS)
    async for event in listener.events(seconds):
        yield ServerSentEvent(event=event.name, data=dict(event.data))

"""REST routes of annotation tasks: define, pool, read what they amount to, adopt; annotations in and out as files."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import PlainTextResponse

from app.annotation.documents.task_documents import AdjudicationRequest, TaskDocument
from app.annotation.domain.views import (
    AdoptionView,
    AgreementView,
    BudgetView,
    DisagreementView,
    ImportedAnnotations,
    RecallView,
    TaskDetail,
    TaskView,
)
from app.annotation.service import adoption, annotation_files, pooling, recall, results, tasks
from app.base.api.answers import answers, answers_with, refusals
from app.base.api.bodies import Content
from app.base.api.deps import StoreDep, refuse_unknown_parameters
from app.base.api.keys import Scope
from app.base.api.request_limits import expensive
from app.base.api.schemas import Page, TextFiles
from app.base.documents.validation_messages import parse_document
from app.catalog.api.definitions import After, Limit, body_schema, wake, with_name

Judge = Annotated[bool, Query(description="those of a machine, such as an LLM, in place of people's")]

router = APIRouter(prefix="/v1", tags=["annotation"], dependencies=[Depends(refuse_unknown_parameters)])

_CSV = "text/csv"
_READ_ONLY = frozenset({"state", "canaries", "pooled", "failed", "items", "failures", "created_by"})
"""Fields that answers add to a document, so that an answer can be sent back."""


@router.get("/tasks")
def list_tasks(store: StoreDep, after: After = "", limit: Limit = 50) -> Page[TaskView]:
    """List the annotation tasks."""
    found = tasks.list_tasks(store, after=after, limit=limit + 1)
    return Page(items=found[:limit], next=found[limit - 1]["slug"] if len(found) > limit else None)


@router.get("/tasks/{slug}")
def get_task(store: StoreDep, slug: str) -> TaskDetail:
    """Show a task, and how far its pool is."""
    return tasks.load_task(store, slug)


@router.put("/tasks/{slug}", responses=answers_with(TaskDetail, 201), openapi_extra=body_schema(TaskDocument))
def put_task(store: StoreDep, request: Request, response: Response, slug: str, body: Content) -> TaskDetail:
    """Create a task, or change one whose pool nobody has asked for.

    People grade every chunk among the top `pool` of any of the `retrievers`, a sample of what ranks deeper (`strata`),
    and `rest` random texts of a `corpus`. With `answers` in place of `retrievers` they label generated answers that a
    judge has rated, with no (0) or yes (1): see `GET /v1/judges/{slug}/report`.
    """
    given = {name: value for name, value in with_name(body, "slug", slug).items() if name not in _READ_ONLY}
    document = parse_document(TaskDocument, given)
    task, created = tasks.put_task(store, document, by=request.state.identity.name, now=datetime.now(UTC))
    response.status_code = 201 if created else 200
    return task


@router.delete("/tasks/{slug}", status_code=204)
def delete_task(store: StoreDep, slug: str) -> None:
    """Archive a task; what annotators said stays."""
    tasks.archive_task(store, slug, now=datetime.now(UTC))


@router.post("/tasks/{slug}/pool", status_code=202)
def pool_task(store: StoreDep, request: Request, slug: str) -> TaskDetail:
    """Ask the retrievers for the chunks to grade, in the background and within their limits.

    The canaries are frozen by the first request. Items of a canary are frozen with the size of each stratum once all
    retrievers have answered it; asked again, canaries that failed are tried once more. Answers to label are drawn at
    random from those that the judge has rated, with its present model.
    """
    pooling.request_pool(store, slug, now=datetime.now(UTC))
    wake(request)
    return tasks.load_task(store, slug)


@router.get("/tasks/{slug}/agreement")
@expensive
def get_agreement(store: StoreDep, slug: str) -> AgreementView:
    """Show how far annotators agree: raw, Cohen's kappa of each pair, Krippendorff's alpha, each with its interval."""
    return results.load_agreement(store, slug)


@router.get("/tasks/{slug}/budget")
@expensive
def get_budget(store: StoreDep, slug: str) -> BudgetView:
    """Show what is done and what is left: items by state, grades to make, hours at the median pace."""
    return results.load_budget(store, slug)


@router.get("/tasks/{slug}/recall", responses=refusals(409))
@expensive
def get_pooled_recall(store: StoreDep, slug: str) -> RecallView:
    """Estimate the recall of the retrievers beyond the pool: pooled recall for k up to `pool`, each with its interval.

    Over the canaries whose chunks are all decided. It is a share of what `frame` says, stands beside R@k and enters no
    verdict.
    """
    return recall.load_recall(store, slug)


@router.get("/tasks/{slug}/disagreements")
@expensive
def list_disagreements(
    store: StoreDep, request: Request, slug: str, after: After = "", limit: Limit = 50
) -> Page[DisagreementView]:
    """List the items that annotators grade on both sides of relevant, or two apart; the decided ones last."""
    may_write = request.state.identity.scope.includes(Scope.WRITE)
    found = results.list_disagreements(store, slug, may_write=may_write)
    start = next((place + 1 for place, one in enumerate(found) if one["id"] == after), 0)
    shown = found[start : start + limit]
    return Page(items=shown, next=shown[-1]["id"] if start + limit < len(found) else None)


@router.put("/tasks/{slug}/items/{item}/adjudication", status_code=204, openapi_extra=body_schema(AdjudicationRequest))
def put_adjudication(store: StoreDep, request: Request, slug: str, item: str, body: Content) -> None:
    """Decide the grade of an item, whatever its annotators say."""
    decision = parse_document(AdjudicationRequest, body)
    by = request.state.identity.name
    results.adjudicate(store, slug, item, grade=decision.grade, by=by, now=datetime.now(UTC))


@router.post("/tasks/{slug}/adopt", responses=refusals(409))
@expensive
def adopt_task(store: StoreDep, slug: str, *, dry_run: bool = False) -> AdoptionView:
    """Make what annotators agree on the judgments of the canaries; `dry_run` only says what would change.

    Canaries of a file stay as they are: `patches` are to be committed. History can then be re-scored for each of
    `checks`, see `POST /v1/checks/{slug}/rescorings`.
    """
    return adoption.adopt(store, slug, now=datetime.now(UTC), dry_run=dry_run)


@router.get("/tasks/{slug}/annotations", response_class=Response, responses=answers(200, types=(_CSV,)))
@expensive
def get_annotations(store: StoreDep, slug: str, *, judge: Judge = False) -> Response:
    """Export the annotations of people as CSV, or of judges: canary, chunk_id, document, text, annotator, grade."""
    text = annotation_files.export_annotations(store, slug, by_judge=judge)
    name = {"content-disposition": f'attachment; filename="{slug}.csv"'}
    return PlainTextResponse(text, media_type=f"{_CSV}; charset=utf-8", headers=name)


@router.post("/tasks/{slug}/annotations", openapi_extra=body_schema(TextFiles))
@expensive
def post_annotations(store: StoreDep, slug: str, body: Content, *, judge: Judge = False) -> ImportedAnnotations:
    """Store annotations of CSV files with these columns, all or none; a chunk is named by its id or its text.

    Those of a `judge` are marked: they are never part of the consensus, and shown with their agreement with people.
    """
    sources = parse_document(TextFiles, body).sources
    now = datetime.now(UTC)
    return {"annotations": annotation_files.import_annotations(store, slug, sources, now=now, by_judge=judge)}

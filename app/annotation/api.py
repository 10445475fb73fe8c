"""REST routes of annotation: tasks and their results, annotations as files or item by item, and corpora."""

import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime
from tempfile import SpooledTemporaryFile
from typing import Annotated, Any, BinaryIO, Final, cast

import anyio.to_thread
from fastapi import Depends, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import StringConstraints

from app.annotation.documents import AdjudicationRequest, AnnotationRequest, TaskDocument, UndoRequest
from app.annotation.service import annotations, results, tasks
from app.annotation.views import (
    AdoptionView,
    AgreementView,
    BudgetView,
    CorpusView,
    DisagreementView,
    GradedAgain,
    ImportedAnnotations,
    ItemView,
    NextItem,
    RecallView,
    TaskDetail,
    TaskView,
)
from app.base.api.bodies import (
    After,
    Content,
    Limit,
    OptionalContent,
    Page,
    TextFiles,
    answers_with,
    body_schema,
    read_json,
    refusals,
    text_answers,
)
from app.base.api.requests import StoreDep, api_router, expensive, needs, wake
from app.base.db.keys import Scope
from app.base.documents.fields import SLUG, parse_document
from app.base.errors import InvalidInputError, Problem, UnsupportedError
from app.base.texts import Source
from app.definitions.api import sent_document

Judge = Annotated[bool, Query(description="those of a machine, such as an LLM, in place of people's")]

router = api_router("annotation")

_CSV = "text/csv"


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
    and `rest` random texts of a `corpus`. `checks` texts with a known grade are planted among these, where annotators
    cannot tell them, and show how often people err. With `answers` in place of `retrievers` they label generated
    answers that a judge has rated, with no (0) or yes (1): see `GET /v1/judges/{slug}/report`.
    """
    document = sent_document(TaskDocument, TaskDetail, slug, body)
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
    tasks.request_pool(store, slug, now=datetime.now(UTC))
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
    return results.load_recall(store, slug)


@router.post("/tasks/{slug}/regrade", responses=refusals(409))
@expensive
def post_regrade(store: StoreDep, slug: str) -> GradedAgain:
    """Have everybody grade the texts that no retriever ranked and one person alone called relevant.

    One wrong grade among them stands for many texts: `to_grade_again` of pooled recall says where that matters.
    """
    return {"items": results.have_graded_again(store, slug)}


@router.get("/tasks/{slug}/disagreements")
@expensive
def list_disagreements(
    *,
    store: StoreDep,
    request: Request,
    slug: str,
    decided: bool = False,
    after: After = "",
    limit: Limit = 50,
) -> Page[DisagreementView]:
    """List the items that annotators grade on both sides of relevant, or two apart, and that wait for a decision.

    With `decided` those too that have one, last.
    """
    may_write = request.state.identity.scope.includes(Scope.WRITE)
    found = [
        one
        for one in annotations.list_disagreements(store, slug, may_write=may_write)
        if decided or one["adjudicated"] is None
    ]
    start = next((place + 1 for place, one in enumerate(found) if one["id"] == after), 0)
    shown = found[start : start + limit]
    return Page(items=shown, next=shown[-1]["id"] if start + limit < len(found) else None)


@router.put("/tasks/{slug}/items/{item}/adjudication", status_code=204, openapi_extra=body_schema(AdjudicationRequest))
def put_adjudication(store: StoreDep, request: Request, slug: str, item: str, body: Content) -> None:
    """Decide the grade of an item, whatever its annotators say."""
    decision = parse_document(AdjudicationRequest, body)
    by = request.state.identity.name
    annotations.adjudicate(store, slug, item, grade=decision.grade, by=by, now=datetime.now(UTC))


@router.post("/tasks/{slug}/adopt", responses=refusals(409))
@expensive
def adopt_task(store: StoreDep, slug: str, *, dry_run: bool = False) -> AdoptionView:
    """Make what annotators agree on the judgments of the canaries; `dry_run` only says what would change.

    `doubt` says where many of them are estimated to be wrong, people agree too little, or nothing checks their grades.
    Canaries of a file stay as they are: `patches` are to be committed. `changes` shows all of it as diffs of YAML, to
    be read. History can then be re-scored for each of `checks`, see `POST /v1/checks/{slug}/rescorings`.
    """
    return results.adopt(store, slug, now=datetime.now(UTC), dry_run=dry_run)


@router.get("/tasks/{slug}/annotations", response_class=Response, responses=text_answers(200, types=(_CSV,)))
@expensive
def get_annotations(store: StoreDep, slug: str, *, judge: Judge = False) -> Response:
    """Export the annotations of people as CSV, or of judges: canary, chunk_id, document, text, annotator, grade."""
    text = annotations.export_annotations(store, slug, by_judge=judge)
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
    return {"annotations": annotations.import_annotations(store, slug, sources, now=now, by_judge=judge)}


Annotator = Annotated[
    str | None,
    StringConstraints(min_length=1, max_length=64),
    Query(description="your name, where the service has no keys; else it is the name of the key"),
]


@router.get("/tasks/{slug}/next")
@needs(Scope.ANNOTATE)
def get_next_item(store: StoreDep, request: Request, slug: str, annotator: Annotator = None) -> NextItem:
    """Show the next item to grade and the one after it, without rank, score, retriever or stratum.

    Unless they are for every annotator, nobody else is shown them for ten minutes.
    """
    name = annotations.annotator_of(request.state.identity, annotator)
    return annotations.next_item(store, slug, annotator=name, now=datetime.now(UTC))


@router.get("/tasks/{slug}/items/{item}")
@needs(Scope.ANNOTATE)
def get_item(store: StoreDep, request: Request, slug: str, item: str, annotator: Annotator = None) -> ItemView:
    """Show an item, and the grade one has given it."""
    return annotations.load_item(
        store, slug, item, annotator=annotations.annotator_of(request.state.identity, annotator)
    )


@router.put("/tasks/{slug}/items/{item}/annotation", openapi_extra=body_schema(AnnotationRequest))
@needs(Scope.ANNOTATE)
def put_annotation(store: StoreDep, request: Request, slug: str, item: str, body: Content) -> NextItem:
    """Grade an item, or skip it; answers with the next one once this is stored.

    What was said before stays as history.
    """
    said = parse_document(AnnotationRequest, body)
    return annotations.annotate(
        store,
        slug,
        item,
        annotator=annotations.annotator_of(request.state.identity, said.annotator),
        grade=said.grade,
        seconds=said.seconds,
        now=datetime.now(UTC),
    )


@router.post("/tasks/{slug}/undo", openapi_extra=body_schema(UndoRequest, required=False))
@needs(Scope.ANNOTATE)
def undo_annotation(store: StoreDep, request: Request, slug: str, body: OptionalContent) -> NextItem:
    """Take one's last annotation back; answers with its item."""
    wish = parse_document(UndoRequest, body or {})
    annotator = annotations.annotator_of(request.state.identity, wish.annotator)
    return annotations.undo(store, slug, annotator=annotator, now=datetime.now(UTC))


_NAMES: Final = {"application/x-ndjson": "body.jsonl", "application/jsonl": "body.jsonl", _CSV: "body.csv"}
"""Names of the files in messages, by media type."""
_IN_MEMORY: Final = 1_000_000
"""Bytes that are held in memory; more of them go to a temporary file."""
LONGEST_LINE: Final = 1_000_000
"""Most bytes of a line: one is held in memory at a time."""


def texts_of(*kinds: str) -> Callable[[Request], AsyncIterator[Sequence[Source]]]:
    """Return what gives the texts of a body of these media types, which can be read until the request is answered.

    It raises UnsupportedError for other media types, InvalidInputError for an empty body.
    """

    async def read(request: Request) -> AsyncIterator[Sequence[Source]]:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in {*kinds, "application/json"}:
            raise UnsupportedError(
                f"send the file with the header Content-Type: {' or '.join(kinds)}, or its text in JSON"
            )
        name = _NAMES.get(kind)
        if name is None:
            yield parse_document(TextFiles, await read_json(request)).sources
            return
        if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise UnsupportedError("send the lines unpacked, without Content-Encoding")
        with SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
            size = 0
            async for chunk in request.stream():
                size += len(chunk)
                await anyio.to_thread.run_sync(file.write, chunk)
            if not size:
                raise InvalidInputError([Problem(path="body", message="is empty; send JSON lines or CSV")])
            yield [Source(name=name, lines=lambda: _lines(cast("BinaryIO", file), name))]

    return read


def _lines(file: BinaryIO, name: str) -> Iterator[str]:
    """Yield the lines of a file from its beginning. Raises InvalidInputError with the line."""
    file.seek(0)
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(line) > LONGEST_LINE:
            message = f"is longer than {LONGEST_LINE:,} bytes; every line is an object of its own"
            raise InvalidInputError([Problem(file=name, line=number, message=message)])
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise InvalidInputError([Problem(file=name, line=number, message="is not UTF-8 text")]) from error


def texts_schema(**examples: str) -> dict[str, Any]:
    """Return the description of a body of texts; `examples`: of JSON lines and CSV, for those that are taken raw."""
    described = body_schema(TextFiles)
    for kind in _NAMES:
        example = examples.get(re.sub(r".*\.", "", _NAMES[kind]))
        if example is not None:
            described["requestBody"]["content"][kind] = {"schema": {"type": "string"}, "example": example}
    return described


Texts = Annotated[Sequence[Source], Depends(texts_of(*_NAMES))]
Lines = Annotated[Sequence[Source], Depends(texts_of(*(kind for kind in _NAMES if kind != _CSV)))]


Name = Annotated[str, Path(pattern=SLUG)]


@router.get("/corpora")
def list_corpora(store: StoreDep) -> Page[CorpusView]:
    """List the corpora."""
    return Page(items=tasks.list_corpora(store), next=None)


@router.get("/corpora/{corpus}")
def get_corpus(store: StoreDep, corpus: Name) -> CorpusView:
    """Show a corpus."""
    return tasks.load_corpus(store, corpus)


@router.post("/corpora/{corpus}", openapi_extra=texts_schema(jsonl='{"_id": "d1", "text": "Fees are due monthly."}\n'))
@expensive
def post_texts(store: StoreDep, corpus: Name, sources: Lines) -> CorpusView:
    """Add the texts of JSON lines, `{"_id": ..., "text": ...}`, to a corpus.

    Send a file as it is, up to 100 MB, as `application/x-ndjson`, or texts within JSON, up to 10 MB; a larger corpus in
    parts. The same text twice is one, so that a part can be sent again.
    """
    return tasks.add_texts(store, corpus, sources, now=datetime.now(UTC))


@router.delete("/corpora/{corpus}", status_code=204)
def delete_corpus(store: StoreDep, corpus: Name) -> None:
    """Delete a corpus; items that tasks drew from it stay."""
    tasks.delete_corpus(store, corpus)

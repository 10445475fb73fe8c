"""Editing canaries: what a question should find, chosen from what a retriever finds now; those of files are shown."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote
from uuid import uuid4

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.api.catalog.definitions import wake
from app.api.csrf import takes_form
from app.api.deps import StoreDep, VaultDep
from app.api.probing.trials import PROBE_LIMITER
from app.domain.errors import ConflictError, InvalidInputError, NotFoundError, Problem
from app.domain.model import Category
from app.domain.probing.views import TrialView
from app.formats.catalog.canary_export import write_canary_file
from app.formats.catalog.canary_files import Documents
from app.formats.catalog.canary_keys import derive_key
from app.formats.catalog.documents import CanaryDocument, SuiteDocument
from app.formats.validation_messages import parse_document
from app.services.catalog import canary_keys, definitions, suite_definitions
from app.services.catalog.references import FILE, refuse_file_managed_canary
from app.services.catalog.vault import Vault
from app.services.probing import trials
from app.store.catalog.suites import CanaryRow
from app.store.engine import Store
from app.web.catalog import canary_fields
from app.web.catalog.canary_fields import FIELDS
from app.web.document_forms import MAX_ROWS, document_body, document_texts, read_rows
from app.web.forms import Form, label_problems, parse_number, problems_by_field, read_form, read_revision, with_revision
from app.web.rendering import render

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_REFUSED: Mapping[str, str] = {
    "find": "It was not asked:",
    "yaml": "It cannot be written yet:",
    "archive": "It was not archived:",
}
"""How problems are headed by the button that was pressed; any other was to save."""
_LEAST: float = CanaryDocument.model_fields["min_relevance_score"].default
_OF_WHAT_CAME = 0.8
"""The least relevance that is offered, as a share of what was found now: scores move a little between runs."""
_FOUND = 20
_FIELDS = 1_200
Word = Annotated[str, Query(max_length=200)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What is being edited, and what came of it so far."""

    suite: str
    row: CanaryRow | None
    typed: Form
    problems: tuple[Problem, ...] = ()
    trial: Mapping[str, Any] | None = None
    yaml: str = ""
    spare: Mapping[str, int] | None = None
    """Empty rows that were asked for, by the name of the list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TooLow:
    """A first hit by which the canary would be degraded at once, and a least relevance by which it would not."""

    relevance: float
    least: float
    offered: str


@router.get("/suites/{suite}/add")
def show_new(request: Request, store: StoreDep, suite: str, retriever: Word = "", saved: Word = "") -> HTMLResponse:
    """Show the form of a new canary."""
    definitions.find(store, "suite", suite)
    typed = Form(texts={"retriever": retriever, "keep_text": "yes"})
    return _page(request, store, Desk(suite=suite, row=None, typed=typed), saved=saved)


@router.post("/suites/{suite}/add")
@takes_form(fields=_FIELDS)
async def work_on_new(request: Request, store: StoreDep, vault: VaultDep, suite: str) -> Response:
    """Find chunks, add rows or save, as the pressed button says."""
    typed = await read_form(request)
    return await _worked(request, store, vault, suite, None, typed)


@router.get("/suites/{suite}/canaries/{key}")
def show_canary(request: Request, store: StoreDep, suite: str, key: str) -> HTMLResponse:
    """Show the form of a canary as it is in force."""
    row = suite_definitions.find_canary(store, suite, key)
    typed = _typed(row)
    return _page(request, store, Desk(suite=suite, row=row, typed=typed, problems=tuple(_too_many_rows(row))))


@router.post("/suites/{suite}/canaries/{key}")
@takes_form(fields=_FIELDS)
async def work_on_canary(request: Request, store: StoreDep, vault: VaultDep, suite: str, key: str) -> Response:
    """Find chunks, add rows or save, as the pressed button says."""
    typed = await read_form(request)
    return await _worked(request, store, vault, suite, key, typed)


@router.post("/suites/{suite}/canaries/{key}/archive")
def archive_canary(request: Request, store: StoreDep, suite: str, key: str) -> Response:
    """Take a canary out of its suite; its history stays."""
    row = suite_definitions.find_canary(store, suite, key)
    try:
        suite_definitions.archive_canary(store, suite, key, now=datetime.now(UTC))
    except ConflictError as error:
        typed = _typed(row)
        typed = replace(typed, texts={**typed.texts, "do": "archive"})
        desk = Desk(suite=suite, row=row, typed=typed, problems=(Problem(message=str(error)),))
        return _page(request, store, desk, status=409)
    wake(request)
    return RedirectResponse(f"/suites/{quote(suite)}", status_code=303)


async def _worked(request: Request, store: Store, vault: Vault, suite: str, key: str | None, typed: Form) -> Response:
    """Work in a thread; only who asks a retriever waits while others are asked, who saves never does."""
    limiter = PROBE_LIMITER if typed.get("do") == "find" else None
    return await anyio.to_thread.run_sync(_work, request, store, vault, suite, key, typed, limiter=limiter)


def _work(request: Request, store: Store, vault: Vault, suite: str, key: str | None, typed: Form) -> Response:
    definitions.find(store, "suite", suite)
    row = suite_definitions.find_canary(store, suite, key) if key is not None else None
    typed = _with_ticked(canary_fields.straightened(typed))
    wish = typed.get("do")
    if typed.get("lower"):
        typed = replace(typed, texts={**typed.texts, "min_relevance_score": typed.get("lower")})
    desk = Desk(suite=suite, row=row, typed=typed)
    status = 200
    try:
        if wish in {"save", "another"}:
            saved = _save(store, suite, row, typed)
            wake(request)
            return _saved(suite, saved, typed, another=wish == "another")
        if wish == "find":
            desk = Desk(suite=suite, row=row, typed=typed, trial=_found(request, store, vault, typed))
        elif wish == "yaml":
            desk = Desk(suite=suite, row=row, typed=typed, yaml=_yaml(store, suite, row, typed))
        elif wish in canary_fields.CHUNKS:
            desk = Desk(suite=suite, row=row, typed=typed, spare={wish: 3})
    except InvalidInputError as error:
        desk, status = Desk(suite=suite, row=row, typed=typed, problems=error.problems), 422
    except ConflictError as error:
        told = Problem(path="key" if row is None else None, message=str(error))
        desk, status = Desk(suite=suite, row=row, typed=typed, problems=(told,)), 409
    return _page(request, store, desk, status=status)


def _save(store: Store, suite: str, row: CanaryRow | None, typed: Form) -> str:
    """Put a canary in force as the API would; gives its key."""
    if row is not None:
        refuse_file_managed_canary(row, suite)
    document = _document(store, suite, row, typed)
    over = read_revision(typed) if row is not None else None
    suite_definitions.put_canary(store, suite, document, now=datetime.now(UTC), over=over)
    return document.key


def _document(store: Store, suite: str, row: CanaryRow | None, typed: Form) -> CanaryDocument:
    body = document_body(FIELDS, typed)
    if row is not None:
        problems = _too_many_rows(row)
        if problems:
            raise InvalidInputError(problems)
        return parse_document(CanaryDocument, {**body, "key": row.key})
    if body["key"] in {"", derive_key(body["query"], {})}:  # the page has it made as the question is typed
        del body["key"]
        (body,) = canary_keys.give_keys(store, suite, [body])
    return parse_document(CanaryDocument, body)


def _too_many_rows(row: CanaryRow) -> list[Problem]:
    """List the fields with more rows than the form holds: saved by it, a canary would lose those not shown."""
    counts = {name: len(row.body[name]) for name in canary_fields.CHUNKS}
    advice = "change it in an exported canary file, or over the API"
    return [
        Problem(path=name, message=f"{count:,} chunks, and this form holds {MAX_ROWS}: {advice}")
        for name, count in counts.items()
        if count > MAX_ROWS
    ]


def _yaml(store: Store, suite: str, row: CanaryRow | None, typed: Form) -> str:
    """Write a canary as a canary file has it."""
    document = _document(store, suite, row, typed)
    return write_canary_file(Documents(suites=(SuiteDocument(slug=suite, canaries=(document,)),)))


def _found(request: Request, store: Store, vault: Vault, typed: Form) -> TrialView:
    """Ask a retriever the question of the form."""
    slug, query = typed.stripped("retriever"), typed.stripped("query")
    problems = [Problem(path="retriever", message="choose who is asked")] if not slug else []
    problems += [Problem(path="query", message="say the question first")] if not query else []
    if problems:
        raise InvalidInputError(problems)
    try:
        document = trials.stored_retriever(store, vault, slug, {})
    except NotFoundError as error:
        raise InvalidInputError([Problem(path="retriever", message=str(error))]) from None
    return trials.try_retriever(request.app.state.probe, document, query, k=_FOUND, run_id=f"try-{uuid4().hex}")


def _with_ticked(typed: Form) -> Form:
    """Expect the hits that are ticked: by their id and, so that a renamed chunk is recognised, by their text."""
    chunks: list[dict[str, Any]] = []
    for place in typed.all("found"):
        said = {name: typed.get(f"found[{place}].{name}") for name in ("id", "text", "grade")}
        made_up = said["id"].startswith("text:")  # of hits without ids, which no other retriever would call so
        chunk = {"grade": said["grade"] or "1"}
        if said["id"] and not made_up:
            chunk["id"] = said["id"]
        if said["text"] and (typed.get("keep_text") or made_up):
            chunk["text"] = said["text"]
        chunks.append(chunk)
    return canary_fields.with_chunks(typed, chunks) if chunks else typed


def _saved(suite: str, key: str, typed: Form, *, another: bool) -> Response:
    more = f"/add?retriever={quote(typed.stripped('retriever'))}&" if another else "?"
    return RedirectResponse(f"/suites/{quote(suite)}{more}saved={quote(key)}", status_code=303)


def _page(request: Request, store: Store, desk: Desk, *, saved: str = "", status: int = 200) -> HTMLResponse:
    wanted = desk.spare or {}
    counts = {
        prefix: len(read_rows(FIELDS[prefix], desk.typed)) + wanted.get(prefix, 1) for prefix in canary_fields.CHUNKS
    }
    return render(
        request,
        "catalog/canary_form.html",
        status=status,
        suite=desk.suite,
        row=desk.row,
        of_file=desk.row is not None and desk.row.managed_by == FILE,
        typed=desk.typed,
        problems=label_problems(desk.problems, canary_fields.LABELS),
        wrong=problems_by_field(desk.problems, _places(desk.typed, counts)),
        refused=_REFUSED.get(desk.typed.get("do"), "It was not saved:"),
        trial=desk.trial,
        too_low=_too_low(desk),
        yaml=desk.yaml,
        counts=counts,
        fields=FIELDS,
        retrievers=[one.slug for one in definitions.list_all(store, "retriever")],
        known=set(_expected_ids(desk.typed)),
        saved=saved,
    )


def _too_low(desk: Desk) -> TooLow | None:
    """Compare the relevance of what was found with the least that is typed; None where it is enough, or is unknown."""
    relevance = desk.trial["top_score"] if desk.trial is not None and desk.trial["hits"] else None
    least = parse_number(desk.typed.stripped("min_relevance_score") or str(_LEAST))
    if relevance is None or not isinstance(least, int | float) or desk.typed.get("category") == Category.NEGATIVE:
        return None
    if relevance >= least or desk.typed.get("expect_empty"):
        return None
    return TooLow(relevance=relevance, least=least, offered=f"{max(_OF_WHAT_CAME * relevance, 0.0):.2g}")


def _typed(row: CanaryRow) -> Form:
    typed = Form(texts={**document_texts(FIELDS, row.body).texts, "keep_text": "yes"})
    return with_revision(typed, row.version_id)


def _places(typed: Form, counts: Mapping[str, int]) -> set[str]:
    """Name what problems can stand beside: fields, rows of chunks, and the lists of them."""
    rows = {f"{prefix}[{place}]" for prefix, count in counts.items() for place in range(count)}
    return {*typed.texts, *rows, *FIELDS}


def _expected_ids(typed: Form) -> list[str]:
    return [row.get("id", "") for row in read_rows(FIELDS["expected_chunks"], typed)]

"""The page of a canary's form; expected chunks can be picked from the hits of a test request."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Final
from urllib.parse import quote
from uuid import uuid4

import anyio.to_thread
from fastapi import Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.base.api.requests import LARGE_FORM, PROBE_LIMITER, StoreDep, VaultDep, page_router, takes_form, wake
from app.base.db.engine import Store
from app.base.db.keys import Vault
from app.base.documents.fields import parse_document
from app.base.errors import ConflictError, InvalidInputError, NotFoundError, Problem
from app.base.values import Category, Value, replace
from app.base.web.forms import (
    MAX_ROWS,
    Form,
    FormField,
    document_body,
    document_texts,
    field_labels,
    field_value,
    form_fields,
    label_problems,
    parse_form,
    parse_number,
    parse_pairs,
    problems_by_field,
    read_form,
    read_revision,
    read_rows,
    rows_texts,
    with_revision,
)
from app.base.web.pages import render
from app.catalog.documents.canary_documents import CanaryDocument, ChunkDocument, SuiteDocument, derive_key
from app.catalog.documents.canary_export import write_canary_file
from app.catalog.documents.canary_files import Documents
from app.catalog.domain import retriever_source
from app.catalog.service import references, suites
from app.catalog.store import FILE, CanaryRow, refuse_file_managed
from app.definitions.pages.suites import file_page
from app.records.service import suite_views
from app.retrievers.documents.requests import TryRequest
from app.retrievers.domain.probes import TrialView
from app.retrievers.service import trials

router = page_router()

_REFUSED: Mapping[str, str] = {"find": "Request not sent:", "yaml": "YAML not written:", "archive": "Not archived:"}
"""Heading of the problems by the pressed button; "Not saved:" for any other."""
_LEAST: float = CanaryDocument.model_fields["min_relevance_score"].default
_OFFERED_SHARE = 0.8
"""The suggested minimum relevance, as a share of the first hit's: scores vary a little between runs."""
_TRIAL_HITS = 20
_FIELDS = 1_200
Word = Annotated[str, Query(max_length=200)]


class EditState(Value):
    """State of the form: the canary, the typed values, and the results of the last action."""

    suite: str
    row: CanaryRow | None
    typed: Form
    problems: tuple[Problem, ...] = ()
    trial: TrialView | None = None
    yaml: str = ""
    spare: Mapping[str, int] | None = None
    """Number of empty rows to add, by the name of the list."""


class LowRelevance(Value):
    """A first hit with a relevance below the minimum, and a minimum it would reach."""

    relevance: float
    least: float
    offered: str


@router.get("/suites/{suite}/add")
def show_new(request: Request, store: StoreDep, suite: str, retriever: Word = "", saved: Word = "") -> HTMLResponse:
    """Show the form of a new canary."""
    references.load_definition(store, "suite", suite)
    typed = Form(texts={"retriever": retriever, "keep_text": "yes"})
    return _page(request, store, EditState(suite=suite, row=None, typed=typed), saved=saved)


@router.post("/suites/{suite}/add")
@takes_form(fields=_FIELDS, most_bytes=LARGE_FORM)
async def work_on_new(request: Request, store: StoreDep, vault: VaultDep, suite: str) -> Response:
    """Send a test request, add rows, write YAML or save, by the pressed button."""
    typed = await read_form(request)
    return await _handle_in_thread(request, store, vault, suite, None, typed)


@router.get("/suites/{suite}/canaries/{key}")
def show_canary(request: Request, store: StoreDep, suite: str, key: str, draft: Word = "") -> HTMLResponse:
    """Show the form of a canary; of one that a file owns its YAML, or where asked for, the form that writes it."""
    row = references.load_canary(store, suite, key)
    if row.managed_by == FILE and not draft:
        of_suite = f"/suites/{quote(suite)}"
        here = f"{of_suite}/canaries/{quote(key)}"
        return file_page(
            request,
            row,
            _written(suite, CanaryDocument.model_validate(row.body)),
            name=key,
            crumbs={"Suites": "/suites", suite: of_suite},
            histories={
                one: f"/checks/{quote(one)}/canaries/{quote(key)}" for one in suite_views.checks_on(store, suite)
            },
            draft=(f"{here}?draft=yes", "Find chunks, and write changed YAML, with a form"),
        )
    typed = _form_of(row)
    return _page(request, store, EditState(suite=suite, row=row, typed=typed, problems=tuple(_too_many_rows(row))))


@router.post("/suites/{suite}/canaries/{key}")
@takes_form(fields=_FIELDS, most_bytes=LARGE_FORM)
async def work_on_canary(request: Request, store: StoreDep, vault: VaultDep, suite: str, key: str) -> Response:
    """Send a test request, add rows, write YAML or save, by the pressed button."""
    typed = await read_form(request)
    return await _handle_in_thread(request, store, vault, suite, key, typed)


@router.post("/suites/{suite}/canaries/{key}/archive")
def archive_canary(request: Request, store: StoreDep, suite: str, key: str) -> Response:
    """Archive a canary; its history stays."""
    row = references.load_canary(store, suite, key)
    try:
        suites.archive_canary(store, suite, key, now=datetime.now(UTC))
    except ConflictError as error:
        typed = _form_of(row)
        typed = replace(typed, texts={**typed.texts, "do": "archive"})
        state = EditState(suite=suite, row=row, typed=typed, problems=(Problem(message=str(error)),))
        return _page(request, store, state, status=409)
    wake(request)
    return RedirectResponse(f"/suites/{quote(suite)}", status_code=303)


async def _handle_in_thread(
    request: Request, store: Store, vault: Vault, suite: str, key: str | None, typed: Form
) -> Response:
    """Handle a form in a thread; test requests share the probe limit, saving does not wait for it."""
    limiter = PROBE_LIMITER if typed.get("do") == "find" else None
    return await anyio.to_thread.run_sync(_handle, request, store, vault, suite, key, typed, limiter=limiter)


def _handle(request: Request, store: Store, vault: Vault, suite: str, key: str | None, typed: Form) -> Response:
    references.load_definition(store, "suite", suite)
    row = references.load_canary(store, suite, key) if key is not None else None
    typed = _add_ticked_hits(renumber_rows(typed))
    action = typed.get("do")
    if typed.get("lower"):
        typed = replace(typed, texts={**typed.texts, "min_relevance_score": typed.get("lower")})
    state = EditState(suite=suite, row=row, typed=typed)
    status = 200
    try:
        if action in {"save", "another"}:
            saved = _save(store, suite, row, typed)
            wake(request)
            return _saved_response(suite, saved, typed, another=action == "another")
        if action == "find":
            state = EditState(suite=suite, row=row, typed=typed, trial=_try_query(request, store, vault, typed))
        elif action == "yaml":
            state = EditState(suite=suite, row=row, typed=typed, yaml=_yaml(store, suite, row, typed))
        elif action in CHUNKS:
            state = EditState(suite=suite, row=row, typed=typed, spare={action: 3})
    except InvalidInputError as error:
        state, status = EditState(suite=suite, row=row, typed=typed, problems=error.problems), 422
    except ConflictError as error:
        problem = Problem(path="key" if row is None else None, message=str(error))
        state, status = EditState(suite=suite, row=row, typed=typed, problems=(problem,)), 409
    return _page(request, store, state, status=status)


def _save(store: Store, suite: str, row: CanaryRow | None, typed: Form) -> str:
    """Save a canary as the API does; return its key."""
    if row is not None:
        refuse_file_managed(row, f"canary '{suite}/{row.key}'")
    document = _document(store, suite, row, typed)
    over = read_revision(typed) if row is not None else None
    suites.put_canary(store, suite, document, now=datetime.now(UTC), over=over)
    return document.key


def _document(store: Store, suite: str, row: CanaryRow | None, typed: Form) -> CanaryDocument:
    unread: list[Problem] = []
    body = document_body(FIELDS, typed, unread=unread)
    if row is not None:
        problems = _too_many_rows(row)
        if problems:
            raise InvalidInputError(problems)
        return parse_form(CanaryDocument, {**body, "key": row.key}, unread)
    if body["key"] in {"", derive_key(body["query"], {})}:  # the page derives it while the query is typed
        del body["key"]
        (body,) = suites.assign_suite_keys(store, suite, [body])
    return parse_form(CanaryDocument, body, unread)


def _too_many_rows(row: CanaryRow) -> list[Problem]:
    """Return problems for fields with more rows than the form has: saving would drop those not shown."""
    counts = {name: len(row.body[name]) for name in CHUNKS}
    advice = "change it in an exported canary file, or over the API"
    return [
        Problem(path=name, message=f"{count:,} chunks, and this form has at most {MAX_ROWS}: {advice}")
        for name, count in counts.items()
        if count > MAX_ROWS
    ]


def _yaml(store: Store, suite: str, row: CanaryRow | None, typed: Form) -> str:
    """Return a canary as the YAML of a canary file."""
    return _written(suite, _document(store, suite, row, typed))


def _written(suite: str, canary: CanaryDocument) -> str:
    return write_canary_file(Documents(suites=(SuiteDocument(slug=suite, canaries=(canary,)),)))


def _try_query(request: Request, store: Store, vault: Vault, typed: Form) -> TrialView:
    """Send the query of the form to its retriever; return the trial."""
    slug, query = typed.stripped("retriever"), typed.stripped("query")
    problems = [Problem(path="retriever", message="choose a retriever")] if not slug else []
    problems += [Problem(path="query", message="enter a query first")] if not query else []
    if problems:
        raise InvalidInputError(problems)
    try:
        document = trials.stored_retriever(store, vault, slug, {})
    except NotFoundError as error:
        raise InvalidInputError([Problem(path="retriever", message=str(error))]) from None
    said = field_value(FIELDS["history"], typed)
    asked = parse_document(
        TryRequest, {"query": query, "vars": parse_pairs("vars", typed.get("vars")), "history": said}
    )
    run_id = f"try-{uuid4().hex}"
    return trials.try_retriever(request.app.state.probe, document, asked.question, k=_TRIAL_HITS, run_id=run_id)


def _add_ticked_hits(typed: Form) -> Form:
    """Return the form with the ticked hits as expected chunks: by id and, to match a renamed chunk, by text.

    Their source is the retriever that returned them: judged from its answers alone, its recall is self-judged.
    """
    chunks: list[dict[str, str]] = []
    retriever = typed.stripped("found_of")
    for place in typed.all("found"):
        values = {name: typed.get(f"found[{place}].{name}") for name in ("id", "text", "grade")}
        is_generated = values["id"].startswith("text:")  # made for hits without ids, so of no use elsewhere
        chunk = {"grade": values["grade"] or "1"}
        if retriever:
            chunk["source"] = retriever_source(retriever)
        if values["id"] and not is_generated:
            chunk["id"] = values["id"]
        if values["text"] and (typed.get("keep_text") or is_generated):
            chunk["text"] = values["text"]
        chunks.append(chunk)
    return add_chunks(typed, chunks) if chunks else typed


def _saved_response(suite: str, key: str, typed: Form, *, another: bool) -> Response:
    more = f"/add?retriever={quote(typed.stripped('retriever'))}&" if another else "?"
    return RedirectResponse(f"/suites/{quote(suite)}{more}saved={quote(key)}", status_code=303)


def _page(request: Request, store: Store, state: EditState, *, saved: str = "", status: int = 200) -> HTMLResponse:
    spare = state.spare or {}
    counts = {prefix: len(read_rows(FIELDS[prefix], state.typed)) + spare.get(prefix, 1) for prefix in CHUNKS}
    return render(
        request,
        "definitions/canary_form.html",
        status=status,
        suite=state.suite,
        row=state.row,
        of_file=state.row is not None and state.row.managed_by == FILE,
        typed=state.typed,
        problems=label_problems(state.problems, LABELS),
        wrong=problems_by_field(state.problems, _places(state.typed, counts)),
        refused=_REFUSED.get(state.typed.get("do"), "Not saved:"),
        trial=state.trial,
        low_relevance=_low_relevance(state),
        yaml=state.yaml,
        counts=counts,
        fields=FIELDS,
        retrievers=[one.slug for one in references.load_definitions(store, "retriever")],
        known={row.get("id", "") for row in read_rows(FIELDS["expected_chunks"], state.typed)},
        saved=saved,
        checks=suite_views.checks_on(store, state.suite) if state.row is not None else (),
    )


def _low_relevance(state: EditState) -> LowRelevance | None:
    """Return the first hit's relevance if it is below the typed minimum; None where it is enough or unknown."""
    relevance = state.trial["top_score"] if state.trial is not None and state.trial["hits"] else None
    least = parse_number(state.typed.stripped("min_relevance_score") or str(_LEAST))
    if relevance is None or not isinstance(least, int | float) or state.typed.get("category") == Category.NEGATIVE:
        return None
    if relevance >= least or state.typed.get("expect_empty"):
        return None
    return LowRelevance(relevance=relevance, least=least, offered=f"{max(_OFFERED_SHARE * relevance, 0.0):.2g}")


def _form_of(row: CanaryRow) -> Form:
    typed = Form(texts={**document_texts(FIELDS, row.body).texts, "keep_text": "yes"})
    return with_revision(typed, row.version_id)


def _places(typed: Form, counts: Mapping[str, int]) -> set[str]:
    """Return the places that problems can be shown at: fields, rows of chunks, and their lists."""
    rows = {f"{prefix}[{place}]" for prefix, count in counts.items() for place in range(count)}
    return {*typed.texts, *rows, *FIELDS}


FIELDS: Final[Mapping[str, FormField]] = form_fields(CanaryDocument)
LABELS: Final[Mapping[str, str]] = {**field_labels(FIELDS), "retriever": "Find them with a retriever"}
"""Labels of the fields."""
CHUNKS: Final = ("expected_chunks", "forbidden_chunks")
"""Fields of rows."""
_IDENTITY: Final = tuple(ChunkDocument.model_fields)


def renumber_rows(typed: Form) -> Form:
    """Return the form without empty rows, the others numbered consecutively."""
    texts = {
        name: text
        for name, text in typed.texts.items()
        if not name.startswith(tuple(f"{prefix}[" for prefix in CHUNKS))
    }
    for prefix in CHUNKS:
        texts |= rows_texts(FIELDS[prefix], read_rows(FIELDS[prefix], typed))
    return Form(texts=texts, lists=typed.lists)


def add_chunks(typed: Form, chunks: Iterable[Mapping[str, object]]) -> Form:
    """Return the form with additional expected chunks, except those it has already."""
    rows = read_rows(FIELDS["expected_chunks"], typed)
    existing = {tuple(row.get(name) for name in _IDENTITY) for row in rows}
    ids = {row["id"] for row in rows if row.get("id")}
    added = [
        {name: str(value) for name, value in chunk.items()}
        for chunk in chunks
        if tuple(chunk.get(name) for name in _IDENTITY) not in existing and chunk.get("id") not in ids
    ]
    return Form(texts={**typed.texts, **rows_texts(FIELDS["expected_chunks"], [*rows, *added])}, lists=typed.lists)

"""The page of a check's form: suite, retriever, schedule, alert rules, notifications."""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Annotated
from urllib.parse import quote

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.base.api.deps import StoreDep, VaultDep
from app.base.db.engine import Store
from app.base.documents.validation_messages import parse_document
from app.base.errors import ConflictError, InvalidInputError, Problem
from app.base.values import Trigger
from app.base.web.forms import Form, label_problems, problems_by_field, read_form, read_revision, with_revision
from app.base.web.rendering import render
from app.catalog.api.definitions import wake
from app.catalog.documents.canary_export import write_canary_file
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.documents import CheckDocument
from app.catalog.documents.warnings import blind_to_recall_reason
from app.catalog.pages import check_fields
from app.catalog.service import definitions
from app.catalog.service.references import FILE, refuse_file_managed
from app.catalog.service.vault import Vault
from app.catalog.store.definitions import Definition
from app.records.service import suite_views
from app.runs.service import scheduling

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

Word = Annotated[str, Query(max_length=64)]


@router.get("/new-check")
def show_new(request: Request, store: StoreDep, suite: Word = "", retriever: Word = "") -> HTMLResponse:
    """Show the form of a new check with its defaults."""
    hooks = tuple(one.slug for one in definitions.list_all(store, "hook"))
    texts = {**check_fields.DEFAULTS, "suite": suite, "retriever": retriever}
    typed = Form(texts=texts, lists={"hooks": hooks if len(hooks) == 1 else ()})
    return _page(request, store, None, typed)


@router.post("/new-check")
async def create_check(request: Request, store: StoreDep, vault: VaultDep) -> Response:
    """Save a new check and, if ticked, run it at once."""
    typed = await read_form(request)
    return await anyio.to_thread.run_sync(_handle, request, store, vault, None, typed)


@router.get("/checks/{slug}/edit")
def show_edit(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show the form of a check."""
    definition = definitions.find(store, "check", slug)
    return _page(request, store, definition, _form_of(definition))


@router.post("/checks/{slug}/edit")
async def change_check(request: Request, store: StoreDep, vault: VaultDep, slug: str) -> Response:
    """Save a changed check, or write it as YAML."""
    typed = await read_form(request)
    return await anyio.to_thread.run_sync(_handle, request, store, vault, slug, typed)


@router.post("/checks/{slug}/archive")
def archive_check(request: Request, store: StoreDep, slug: str) -> Response:
    """Archive a check: no more runs, open alerts resolve, history stays."""
    definition = definitions.find(store, "check", slug)
    try:
        definitions.archive(store, "check", slug, now=datetime.now(UTC))
    except ConflictError as error:
        problems = (Problem(message=str(error)),)
        refused = "Not archived:"
        return _page(request, store, definition, _form_of(definition), problems=problems, refused=refused, status=409)
    wake(request)
    return RedirectResponse("/", status_code=303)


def _handle(request: Request, store: Store, vault: Vault, slug: str | None, typed: Form) -> Response:
    definition = definitions.find(store, "check", slug) if slug is not None else None
    try:
        document = _document(definition, typed)
        if typed.get("do") == "yaml":
            text = write_canary_file(Documents(checks=(document,)))
            return _page(request, store, definition, typed, yaml=text)
        _save(store, vault, definition, document, typed)
    except InvalidInputError as error:
        return _page(request, store, definition, typed, problems=error.problems, status=422)
    except ConflictError as error:
        problems = (Problem(path="slug" if definition is None else None, message=str(error)),)
        return _page(request, store, definition, typed, problems=problems, status=409)
    if typed.get("now") and document.enabled:
        run_now = partial(scheduling.run_now, store, document.slug, trigger=Trigger.PAGE, now=datetime.now(UTC))
        run_now(index_version=None, idempotency_key=None)
    wake(request)
    return RedirectResponse(f"/checks/{quote(document.slug)}", status_code=303)


def _save(store: Store, vault: Vault, definition: Definition | None, document: CheckDocument, typed: Form) -> None:
    """Save a check: a new one only if there is none, a changed one over the revision the form was opened with."""
    put = partial(definitions.put, store, vault, "check", document, now=datetime.now(UTC))
    if definition is None:
        put(only_new=True)
    else:
        refuse_file_managed(definition)
        put(revision=read_revision(typed))


def _document(definition: Definition | None, typed: Form) -> CheckDocument:
    body = check_fields.body_of(typed, definition.body if definition is not None else None)
    problems = [
        Problem(path=kind, message="choose one, or create one first")
        for kind in ("suite", "retriever")
        if not body[kind]
    ]
    if problems:
        raise InvalidInputError(problems)
    return parse_document(CheckDocument, body)


def _form_of(definition: Definition) -> Form:
    return with_revision(check_fields.form_of(definition.body), definition.revision)


def _page(
    request: Request,
    store: Store,
    definition: Definition | None,
    typed: Form,
    *,
    problems: tuple[Problem, ...] = (),
    refused: str = "",
    yaml: str = "",
    status: int = 200,
) -> HTMLResponse:
    suites = suite_views.list_suites(store)
    placed = check_fields.place_problems(typed, definition.body if definition is not None else None, problems)
    return render(
        request,
        "catalog/check_form.html",
        status=status,
        definition=definition,
        of_file=definition is not None and definition.managed_by == FILE,
        typed=typed,
        problems=label_problems(placed, check_fields.LABELS),
        refused=refused or ("YAML not written:" if typed.get("do") == "yaml" else "Not saved:"),
        wrong=_wrong(typed, placed),
        fields=check_fields.FIELDS,
        suites=[one.definition.slug for one in suites],
        thin={one.definition.slug: one.note.partition("; ")[0] for one in suites if one.note},
        retrievers=[one.slug for one in definitions.list_all(store, "retriever")],
        hooks=[(one.slug, str(one.body["kind"])) for one in definitions.list_all(store, "hook")],
        yaml=yaml,
        warning=_warning(definition, typed),
    )


def _warning(definition: Definition | None, typed: Form) -> str | None:
    """Return what is missed by the rules as they are typed, where they are valid."""
    try:
        return blind_to_recall_reason(_document(definition, typed))
    except InvalidInputError:
        return None


def _wrong(typed: Form, problems: Iterable[Problem]) -> dict[str, list[str]]:
    """Return the problems by field."""
    return problems_by_field(problems, {*typed.texts, *check_fields.FIELDS, "schedule", "rules", *check_fields.RULES})

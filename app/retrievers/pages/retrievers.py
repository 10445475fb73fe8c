"""Pages of retrievers: the list with their last probe outcomes, one retriever, archiving it, and a test request."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import anyio.to_thread
from fastapi import Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.base.api.requests import (
    LARGE_FORM,
    PARSE_LIMITER,
    PROBE_LIMITER,
    StoreDep,
    VaultDep,
    expensive,
    needs,
    page_router,
    takes_form,
    wake,
)
from app.base.db.engine import Store
from app.base.db.keys import Scope, Vault
from app.base.documents.fields import parse_document
from app.base.errors import ConflictError, InvalidInputError, Problem
from app.base.texts import shown_json
from app.base.web.forms import Form, field_labels, label_problems, parse_number, read_form
from app.base.web.pages import render
from app.catalog.documents.secrets import secret_names, short_name
from app.catalog.service import references
from app.definitions.pages.suites import list_setup_steps
from app.definitions.service import definitions
from app.retrievers.api import run_trial
from app.retrievers.documents.requests import TryRequest
from app.retrievers.documents.retrievers import mapping_yaml, response_fields
from app.retrievers.domain.probes import TrialRequest, TrialResponse, TrialView
from app.retrievers.domain.retrievers import WHOLE_FIELDS, Scale
from app.retrievers.pages.wizard import MAPPING_FIELDS, SCALES, with_form_labels
from app.retrievers.presets import PRESETS
from app.retrievers.service import trials

router = page_router()


@router.get("/retrievers")
def show_retrievers(request: Request, store: StoreDep) -> HTMLResponse:
    """Show every retriever with its checks and their last probe outcomes."""
    retrievers = references.load_definitions(store, "retriever")
    return render(
        request, "retrievers/retrievers.html", retrievers=retrievers, checks=references.checks_by_retriever(store)
    )


@router.get("/retrievers/{slug}")
def show_retriever(request: Request, store: StoreDep, slug: str, saved: str = "") -> HTMLResponse:
    """Show a retriever as it is stored: endpoint, limits, request and response mapping, and the checks that use it."""
    return _page(request, store, slug, saved=bool(saved))


@router.post("/retrievers/{slug}/archive")
@needs(Scope.ADMIN)
def archive_retriever(request: Request, store: StoreDep, slug: str) -> Response:
    """Archive a retriever; its history stays."""
    try:
        definitions.archive(store, "retriever", slug, now=datetime.now(UTC))
    except ConflictError as error:
        return _page(request, store, slug, problem=str(error), status=409)
    wake(request)
    return RedirectResponse("/retrievers", status_code=303)


def _page(
    request: Request, store: Store, slug: str, *, saved: bool = False, problem: str = "", status: int = 200
) -> HTMLResponse:
    definition = references.load_definition(store, "retriever", slug)
    body = definition.body
    asked_by = references.checks_by_retriever(store).get(slug, [])
    secrets = [short_name(name) for name in secret_names(body)] if definition.secrets else []
    return render(
        request,
        "retrievers/retriever.html",
        status=status,
        slug=slug,
        definition=definition,
        body=body,
        preset=PRESETS[str(body["preset"])],
        secrets=secrets,
        request_json=_json_text(body["request"].get("json")),
        query_json=_json_text(body["request"].get("query")),
        relevance=_relevance_source(body),
        checks=asked_by,
        saved=saved,
        setup=list_setup_steps(store, retriever=slug) if saved and not asked_by else (),
        problem=problem,
    )


def _json_text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) if value else ""


def _relevance_source(body: Mapping[str, Any]) -> str:
    scorer = body["scorer"]
    if scorer["kind"] == "score":
        return f"from its scores: {SCALES[scorer['scale']]}"
    return {
        "judged": "from judgments: its scores are on no scale",
        "embedding": "from embeddings of the query and the first hit",
        "rerank": "from a reranker that reads the query and the first hit",
    }[str(scorer["kind"])]


FIELDS: Final = {name: one for name, one in MAPPING_FIELDS.items() if name not in WHOLE_FIELDS}
_LABELS: Mapping[str, str] = {
    "query": "Query",
    "k": "Hits",
    "answer": "Response body",
    **field_labels({one.name: one for one in FIELDS.values()}),
    "response": "Response mapping",
    "scorer": "Scores are",
    "scorer.scale": "Scores are",
}
_MOST_FIELDS = 20


@router.get("/retrievers/{slug}/try")
def show_form(
    request: Request, store: StoreDep, slug: str, query: Annotated[str, Query(max_length=10_000)] = ""
) -> HTMLResponse:
    """Show the form, with the mapping in force."""
    return _trial_page(request, store, slug, Form(texts={"query": query, "k": "10"}))


@router.post("/retrievers/{slug}/try")
@takes_form(fields=_MOST_FIELDS, most_bytes=LARGE_FORM)
@expensive
async def try_retriever(request: Request, store: StoreDep, vault: VaultDep, slug: str) -> HTMLResponse:
    """Send the query, or read the pasted response, and show the result; problems are shown with the form."""
    form = await read_form(request)
    limiter = PARSE_LIMITER if form.stripped("answer") else PROBE_LIMITER
    return await anyio.to_thread.run_sync(_run, request, store, vault, slug, form, limiter=limiter)


def _run(request: Request, store: Store, vault: Vault, slug: str, form: Form) -> HTMLResponse:
    stored = references.load_definition(store, "retriever", slug).body
    try:
        request_body = parse_document(TryRequest, _request(form, stored))
        document = trials.stored_retriever(store, vault, slug, request_body.retriever)
        trial = run_trial(request, document, request_body)
        trial["remarks"] = [with_form_labels(one) for one in trial["remarks"]]
    except InvalidInputError as error:
        return _trial_page(request, store, slug, form, problems=error.problems, status=422)
    changed = bool(request_body.retriever) and trial["hits"]
    scorer = {"scale": form.get("scale")} if form.get("scale") else None
    yaml = mapping_yaml(response_fields(document.response.to_domain(), document), scorer) if changed else ""
    return _trial_page(request, store, slug, form, trial=trial, yaml=yaml)


def _trial_page(
    request: Request,
    store: Store,
    slug: str,
    form: Form,
    *,
    trial: TrialView | None = None,
    yaml: str = "",
    problems: tuple[Problem, ...] = (),
    status: int = 200,
) -> HTMLResponse:
    definition = references.load_definition(store, "retriever", slug)
    in_force = {name: definition.body["response"].get(name) or "" for name in FIELDS}
    auth = definition.body.get("auth") or {}
    return render(
        request,
        "retrievers/try.html",
        status=status,
        slug=slug,
        definition=definition,
        asks_by=auth.get("by"),
        identities=list(auth.get("of") or ()),
        fields=FIELDS,
        in_force=in_force,
        mapping={**in_force, **_typed_mapping(form)},
        scales=list(Scale),
        form=form,
        trial=trial,
        yaml=yaml,
        request_body=_readable_body(trial and trial["request"]),
        response_body=_readable_body(trial and trial["response"]),
        problems=label_problems(problems, _LABELS),
    )


def _typed_mapping(form: Form) -> dict[str, str]:
    return {name: form.stripped(name) for name in FIELDS if name in form.texts}


def _request(form: Form, stored: Mapping[str, Any]) -> dict[str, object]:
    """Request of the API for the form; a mapping equal to the stored one is left out."""
    mapping = {name: path or None for name, path in _typed_mapping(form).items()}
    changed = any(stored["response"].get(name) != path for name, path in mapping.items())
    parts: dict[str, object] = {"response": {**stored["response"], **mapping}} if changed else {}
    if form.get("scale"):
        parts["scorer"] = {"scale": form.get("scale")}
    answer = {"answer": form.get("answer")} if form.stripped("answer") else {}
    by = (stored.get("auth") or {}).get("by")
    asked_as = {"vars": {by: form.get("identity")}} if by and form.get("identity") else {}
    suggest = "suggest" in form.texts
    return {
        "query": form.stripped("query"),
        "k": parse_number(form.get("k", "10")),
        "retriever": parts,
        "suggest": suggest,
        **asked_as,
        **answer,
    }


def _readable_body(exchange: TrialRequest | TrialResponse | None) -> str:
    if not exchange or exchange["body"] is None:
        return ""
    return shown_json(exchange["body"])[: 2 * trials.SHOWN_CHARACTERS]

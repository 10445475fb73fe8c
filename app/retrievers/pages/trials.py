"""The page that sends a retriever one test query and shows request, response and hits. Stores nothing."""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from app.base.api.csrf import LARGE_FORM, takes_form
from app.base.api.deps import StoreDep, VaultDep
from app.base.api.request_limits import expensive
from app.base.api.schemas import TryRequest
from app.base.db.engine import Store
from app.base.documents.shown_json import shown_json
from app.base.documents.validation_messages import parse_document
from app.base.errors import InvalidInputError, Problem
from app.base.web.document_forms import field_labels
from app.base.web.forms import Form, label_problems, parse_number, read_form
from app.base.web.rendering import render
from app.catalog.service import definitions
from app.catalog.service.vault import Vault
from app.retrievers.api.trials import PARSE_LIMITER, PROBE_LIMITER, run_trial
from app.retrievers.documents.mapping_yaml import mapping_yaml, response_fields
from app.retrievers.domain.answer_outline import WHOLE_FIELDS
from app.retrievers.domain.retrievers import Scale
from app.retrievers.domain.views import TrialRequest, TrialResponse, TrialView
from app.retrievers.pages.retriever_fields import MAPPING_FIELDS
from app.retrievers.pages.wizard_state import with_form_labels
from app.retrievers.service import trials

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

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
    return _page(request, store, slug, Form(texts={"query": query, "k": "10"}))


@router.post("/retrievers/{slug}/try")
@takes_form(fields=_MOST_FIELDS, most_bytes=LARGE_FORM)
@expensive
async def try_retriever(request: Request, store: StoreDep, vault: VaultDep, slug: str) -> HTMLResponse:
    """Send the query, or read the pasted response, and show the result; problems are shown with the form."""
    form = await read_form(request)
    limiter = PARSE_LIMITER if form.stripped("answer") else PROBE_LIMITER
    return await anyio.to_thread.run_sync(_run, request, store, vault, slug, form, limiter=limiter)


def _run(request: Request, store: Store, vault: Vault, slug: str, form: Form) -> HTMLResponse:
    stored = definitions.find(store, "retriever", slug).body
    try:
        request_body = parse_document(TryRequest, _request(form, stored))
        document = trials.stored_retriever(store, vault, slug, request_body.retriever)
        trial = run_trial(request, document, request_body)
        trial["remarks"] = [with_form_labels(one) for one in trial["remarks"]]
    except InvalidInputError as error:
        return _page(request, store, slug, form, problems=error.problems, status=422)
    changed = bool(request_body.retriever) and trial["hits"]
    scorer = {"scale": form.get("scale")} if form.get("scale") else None
    yaml = mapping_yaml(response_fields(document.response.to_domain(), document), scorer) if changed else ""
    return _page(request, store, slug, form, trial=trial, yaml=yaml)


def _page(
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
    definition = definitions.find(store, "retriever", slug)
    in_force = {name: definition.body["response"].get(name) or "" for name in FIELDS}
    return render(
        request,
        "retrievers/try.html",
        status=status,
        slug=slug,
        definition=definition,
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
    suggest = "suggest" in form.texts
    return {
        "query": form.stripped("query"),
        "k": parse_number(form.get("k", "10")),
        "retriever": parts,
        "suggest": suggest,
        **answer,
    }


def _readable_body(exchange: TrialRequest | TrialResponse | None) -> str:
    if not exchange or exchange["body"] is None:
        return ""
    return shown_json(exchange["body"])[: 2 * trials.SHOWN_CHARACTERS]

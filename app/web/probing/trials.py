"""The page on which a retriever is tried, until its mapping finds what it should. Stores nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from app.api.csrf import takes_form
from app.api.deps import StoreDep, VaultDep
from app.api.probing.trials import PARSE_LIMITER, PROBE_LIMITER, run_trial
from app.api.schemas import TryRequest
from app.domain.errors import InvalidInputError, Problem
from app.domain.probing.retrievers import Scale
from app.formats.probing.mapping_yaml import mapping_yaml, response_fields
from app.formats.shown_json import shown_json
from app.formats.validation_messages import parse_document
from app.services.catalog import definitions
from app.services.catalog.vault import Vault
from app.services.probing import trials
from app.store.engine import Store
from app.web.forms import label_problems, read_form
from app.web.probing.wizard_state import with_form_labels
from app.web.rendering import render

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

FIELDS = (
    ("hits", "List of hits", "empty: the fields below are lists side by side"),
    ("id", "Id", ""),
    ("score", "Score", ""),
    ("text", "Text", "@ where hits are texts themselves"),
    ("document", "Document", ""),
    ("updated", "Last changed", ""),
)
"""The fields of a mapping: name, label, and what to know."""
_LABELS: Mapping[str, str] = {
    "query": "Query",
    "k": "Hits",
    "answer": "Response body",
    **{f"response.{name}": label for name, label, _ in FIELDS},
    "response": "The mapping",
    "scorer": "Scores are",
    "scorer.scale": "Scores are",
}
_MOST_FIELDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialForm:
    """What the form holds, as it was typed."""

    query: str = ""
    k: str = "10"
    mapping: Mapping[str, str] = field(default_factory=dict)
    scale: str = ""
    answer: str = ""
    suggest: bool = False


@router.get("/retrievers/{slug}/try")
def show_form(
    request: Request, store: StoreDep, slug: str, query: Annotated[str, Query(max_length=10_000)] = ""
) -> HTMLResponse:
    """Show the form, with the mapping in force."""
    return _page(request, store, slug, TrialForm(query=query))


@router.post("/retrievers/{slug}/try")
@takes_form(fields=_MOST_FIELDS)
async def try_retriever(request: Request, store: StoreDep, vault: VaultDep, slug: str) -> HTMLResponse:
    """Ask, or read the pasted answer, and show everything; what is wrong with the form is said beside it."""
    wish = _wish((await read_form(request)).texts)
    limiter = PARSE_LIMITER if wish.answer.strip() else PROBE_LIMITER
    return await anyio.to_thread.run_sync(_tried, request, store, vault, slug, wish, limiter=limiter)


def _tried(request: Request, store: Store, vault: Vault, slug: str, wish: TrialForm) -> HTMLResponse:
    stored = definitions.find(store, "retriever", slug).body
    try:
        asked = parse_document(TryRequest, _request(wish, stored))
        document = trials.stored_retriever(store, vault, slug, asked.retriever)
        trial = run_trial(request, document, asked)
        trial["remarks"] = [with_form_labels(one) for one in trial["remarks"]]
    except InvalidInputError as error:
        return _page(request, store, slug, wish, problems=error.problems, status=422)
    changed = bool(asked.retriever) and trial["hits"]
    scorer = {"scale": wish.scale} if wish.scale else None
    paste = mapping_yaml(response_fields(document.response.to_domain(), document), scorer) if changed else ""
    return _page(request, store, slug, wish, trial=trial, paste=paste)


def _page(
    request: Request,
    store: Store,
    slug: str,
    wish: TrialForm,
    *,
    trial: Mapping[str, Any] | None = None,
    paste: str = "",
    problems: tuple[Problem, ...] = (),
    status: int = 200,
) -> HTMLResponse:
    definition = definitions.find(store, "retriever", slug)
    in_force = {name: definition.body["response"].get(name) or "" for name, *_ in FIELDS}
    return render(
        request,
        "probing/try.html",
        status=status,
        slug=slug,
        definition=definition,
        fields=FIELDS,
        in_force=in_force,
        mapping={**in_force, **wish.mapping},
        scales=list(Scale),
        wish=wish,
        trial=trial,
        paste=paste,
        request_body=_laid_out(trial, "request"),
        response_body=_laid_out(trial, "response"),
        problems=label_problems(problems, _LABELS),
    )


def _wish(texts: Mapping[str, str]) -> TrialForm:
    return TrialForm(
        query=texts.get("query", ""),
        k=texts.get("k", "10"),
        mapping={name: texts[name].strip() for name, *_ in FIELDS if name in texts},
        scale=texts.get("scale", ""),
        answer=texts.get("answer", ""),
        suggest="suggest" in texts,
    )


def _request(wish: TrialForm, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the form into a request of the API; a mapping left as it is in force is none of one's own."""
    given = {name: path or None for name, path in wish.mapping.items()}
    changed = any(stored["response"].get(name) != path for name, path in given.items())
    parts: dict[str, Any] = {"response": {**stored["response"], **given}} if changed else {}
    if wish.scale:
        parts["scorer"] = {"scale": wish.scale}
    k = int(wish.k) if wish.k.isascii() and wish.k.isdigit() and len(wish.k) < 5 else wish.k  # noqa: PLR2004 - digits
    answer = {"answer": wish.answer} if wish.answer.strip() else {}
    return {"query": wish.query.strip(), "k": k, "retriever": parts, "suggest": wish.suggest, **answer}


def _laid_out(trial: Mapping[str, Any] | None, side: str) -> str:
    """Lay out a body for reading, see `shown_json`."""
    exchange = trial and trial[side]
    if not exchange or exchange["body"] is None:
        return ""
    return shown_json(exchange["body"])[: 2 * trials.SHOWN_CHARACTERS]

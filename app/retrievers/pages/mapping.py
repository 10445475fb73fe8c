"""Pages of the retriever wizard: endpoint, test request, response mapping by clicks, preview and saving.

Everything is in one form, whose paths are evaluated here and never in the browser: it works without scripts, and with
them only parts of the page are exchanged. Sending and saving need the scopes they need in the API.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote
from uuid import uuid4

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from app.base.api.csrf import LARGE_FORM, takes_form
from app.base.api.deps import StoreDep, VaultDep, needs
from app.base.api.keys import Scope
from app.base.api.request_limits import expensive
from app.base.db.engine import Store
from app.base.documents.validation_messages import parse_document
from app.base.errors import ConflictError, ForbiddenError, InvalidInputError, Problem
from app.base.web.forms import (
    Form,
    has_scope,
    is_partial,
    label_problems,
    problems_by_field,
    read_form,
    read_revision,
    with_revision,
)
from app.base.web.rendering import render
from app.base.web.wording import capitalize_first
from app.catalog.documents.canary_export import write_canary_file
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.documents import RetrieverDocument
from app.catalog.documents.secret_fields import secret_names, with_placeholders
from app.catalog.service import definitions
from app.catalog.service.references import refuse_file_managed
from app.catalog.service.vault import Vault
from app.catalog.store.definitions import Definition
from app.retrievers.api.trials import PARSE_LIMITER, PROBE_LIMITER
from app.retrievers.documents.mapping_yaml import mapping_yaml, response_fields
from app.retrievers.domain.answer_outline import build_outline, fields_by_node
from app.retrievers.domain.retrievers import Scale, ScorerKind
from app.retrievers.pages import retriever_fields
from app.retrievers.pages.wizard_state import (
    DEFAULT_K,
    ON_NO_SCALE,
    SCALES,
    WizardState,
    read_k,
    selected_canary,
    update_state,
)
from app.retrievers.presets import PRESETS, Option, Preset
from app.retrievers.service import mapping_preview, trials

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_TRIAL_LABELS: Mapping[str, str] = {"query": "Query", "k": "Hits", "canary": "Compare with a canary"}
_KEY_MISSING = re.compile("the key '[^']*' is missing")
_GROUPS = ("request", "auth", "embedding", "response", "scorer", "options")
"""Groups of fields that have an error line of their own."""


@router.get("/new-retriever")
def show_new(request: Request, store: StoreDep, preset: Annotated[str, Query(max_length=64)] = "") -> HTMLResponse:
    """Show the presets, then the form of a new retriever."""
    if not preset:
        return render(request, "retrievers/presets.html", presets=list(PRESETS.values()))
    texts = retriever_fields.new_form_texts(preset)
    state = WizardState(definition=None, form=Form(texts={**texts, "k": DEFAULT_K, "pointing": "hits"}))
    return _page(request, store, state)


@router.post("/new-retriever")
@needs(Scope.ADMIN)
@takes_form(most_bytes=LARGE_FORM)
@expensive
async def work_on_new(request: Request, store: StoreDep, vault: VaultDep) -> Response:
    """Send, parse, map, preview or save a new retriever, as the pressed button says."""
    form = await read_form(request)
    return await _run_action(request, store, vault, None, form)


@router.get("/retrievers/{slug}/map")
def show_mapping(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show the wizard with a stored retriever."""
    definition = definitions.find(store, "retriever", slug)
    form = Form(texts={**retriever_fields.form_texts(definition.body), "k": DEFAULT_K})
    return _page(request, store, WizardState(definition=definition, form=with_revision(form, definition.revision)))


@router.post("/retrievers/{slug}/map")
@takes_form(most_bytes=LARGE_FORM)
@expensive
async def work_on_mapping(request: Request, store: StoreDep, vault: VaultDep, slug: str) -> Response:
    """Send, parse, map, preview or save a stored retriever, as the pressed button says."""
    form = await read_form(request)
    return await _run_action(request, store, vault, slug, form)


async def _run_action(request: Request, store: Store, vault: Vault, slug: str | None, form: Form) -> Response:
    """Act in a thread; test requests have a limit of their own, so that saving never waits for them."""
    limiter = PROBE_LIMITER if form.get("do") == "ask" else PARSE_LIMITER
    return await anyio.to_thread.run_sync(_act, request, store, vault, slug, form, limiter=limiter)


def _act(request: Request, store: Store, vault: Vault, slug: str | None, form: Form) -> Response:
    definition = definitions.find(store, "retriever", slug) if slug is not None else None
    state, action, status = WizardState(definition=definition, form=form), form.get("do"), 422
    if action == "save":
        try:
            return _redirect_to(request, _save(request, store, vault, state))
        except InvalidInputError as error:
            state.problems += error.problems
        except ConflictError as error:
            state.problems.append(Problem(path="slug" if definition is None else None, message=str(error)))
            status = 409
    if action == "ask":
        try:
            _send_query(request, store, vault, state)
        except InvalidInputError as error:
            state.problems += error.problems
    update_state(request.app.state.read, store, state)
    return _page(request, store, state, status=status if state.problems and not is_partial(request) else 200)


# --- the test request --------------------------------------------------------------------------------------


def _send_query(request: Request, store: Store, vault: Vault, state: WizardState) -> None:
    canary = selected_canary(store, state)
    query = state.form.stripped("query") or (canary.query if canary is not None else "")
    if not query:
        raise InvalidInputError(
            [Problem(path="query", message="must not be empty: type a query that the index can answer")]
        )
    state.fill({"query": query})
    document = _draft_retriever(request, store, vault, state)
    trial = trials.try_retriever(
        request.app.state.probe,
        document,
        query,
        k=read_k(state),
        run_id=f"try-{uuid4().hex}",
        shows=trials.SUGGESTED_FROM,
    )
    response = trial["response"]
    state.trial = trial
    body = "" if response is None else response["body"]
    state.fill({"answer": _complete_json(body) if response is not None and response["cut"] else body})


def _draft_retriever(request: Request, store: Store, vault: Vault, state: WizardState) -> RetrieverDocument:
    """Return the retriever as typed. Raises ForbiddenError where its request was changed without scope admin."""
    if state.definition is None:
        body = retriever_fields.document_body(state.form, None)
        return parse_document(RetrieverDocument, {**_with_any_mapping(body), "slug": "draft"})
    stored = state.definition.body
    body = (
        retriever_fields.document_body(state.form, stored)
        if not state.is_file_managed
        else _with_new_mapping(state, stored)
    )
    changed = {name: value for name, value in _with_any_mapping(body).items() if value != stored.get(name)}
    if trials.changes_request(changed) and not has_scope(request, Scope.ADMIN):
        raise ForbiddenError("changing whom a retriever asks, or what, needs a key with scope admin")
    return trials.stored_retriever(store, vault, state.definition.slug, changed)


def _with_any_mapping(body: Mapping[str, Any]) -> dict[str, Any]:
    """Body with a mapping of texts where nothing is mapped yet, so that a query can be sent."""
    response = body["response"]
    if response.get("id") or response.get("text"):
        return dict(body)
    return {**body, "response": {**response, "text": "@"}, "scorer": {"kind": str(ScorerKind.JUDGED)}}


def _with_new_mapping(state: WizardState, stored: Mapping[str, Any]) -> dict[str, Any]:
    scorer = retriever_fields.scorer_body(state.form, stored)
    return {**stored, "response": retriever_fields.response_body(state.form), **({"scorer": scorer} if scorer else {})}


def _complete_json(body: str) -> str:
    """JSON of what came whole of a response that was cut off."""
    parsed = mapping_preview.parse_answer(body)
    if parsed is None:
        return body
    text = json.dumps(parsed, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(parsed)


# --- saving --------------------------------------------------------------------------------------------------


def _save(request: Request, store: Store, vault: Vault, state: WizardState) -> str:
    if not has_scope(request, Scope.ADMIN):
        raise ForbiddenError("defining retrievers needs a key with scope admin")
    refuse_file_managed(state.definition)
    body = retriever_fields.document_body(state.form, state.stored)
    save = partial(definitions.save, store, vault, "retriever", RetrieverDocument, body, now=datetime.now(UTC))
    if state.definition is not None:
        return save(revision=read_revision(state.form))[0].slug
    return save(only_new=True)[0].slug


def _redirect_to(request: Request, slug: str) -> Response:
    address = f"/retrievers/{quote(slug)}?saved=yes"
    if is_partial(request):
        return Response(headers={"hx-redirect": address})
    return RedirectResponse(address, status_code=303)


# --- showing -------------------------------------------------------------------------------------------------


def _page(request: Request, store: Store, state: WizardState, *, status: int = 200) -> HTMLResponse:
    preset = PRESETS[str(state.stored["preset"])] if state.stored else PRESETS[_preset(state)]
    options = _options(preset, state)
    labels = {**retriever_fields.labels(preset.dialect), **{f"options.{one.name}": one.label for one in options}}
    placed = _form_problems(state)
    wrong = problems_by_field(
        placed, {*state.form.texts, *_GROUPS, *(str(one.path) for one in placed if one not in state.problems)}
    )
    return render(
        request,
        "retrievers/map.html",
        status=status,
        state=state,
        problems=label_problems(placed, {**labels, **_TRIAL_LABELS}),
        form=retriever_fields.without_secrets(state.form),
        preset=preset,
        options=options,
        fields=retriever_fields.wizard_fields(preset.dialect),
        error_places=[path for path in labels if not path.startswith(("scorer", "response"))],
        secrets_set=_stored_secrets(state.definition),
        auth_fields=retriever_fields.AUTH_FIELDS,
        auth_titles=retriever_fields.AUTH_TITLES,
        mapping_fields=retriever_fields.MAPPING_FIELDS,
        scales=SCALES,
        on_no_scale=ON_NO_SCALE,
        unbounded=str(Scale.UNBOUNDED),
        choices=mapping_preview.canary_choices(store),
        tree=build_outline(state.answer) if state.answer is not None else None,
        marks=fields_by_node(state.answer, state.paths) if state.answer is not None else {},
        is_request_wrong=any(path.startswith("request") for path in wrong),
        partial=is_partial(request),
        yaml=_yaml(state),
        wrong=wrong,
    )


def _form_problems(state: WizardState) -> list[Problem]:
    """Problems by the names of the form's fields: each kind of authentication has its own."""
    kind = state.form.get("auth.kind")
    return [
        replace(
            problem,
            path=f"auth.{kind}.{problem.path[5:]}",
            message=_KEY_MISSING.sub("must not be empty", problem.message),
        )
        if problem.path is not None and problem.path.startswith("auth.")
        else retriever_fields.place_key_problem(problem)
        for problem in state.problems
    ]


def _stored_secrets(definition: Definition | None) -> set[str]:
    return set(secret_names(definition.body)) if definition is not None and definition.secrets else set()


def _preset(state: WizardState) -> str:
    name = state.form.get("preset", "generic")
    return name if name in PRESETS else "generic"


def _options(preset: Preset, state: WizardState) -> list[Option]:
    """Variables to fill in: those of the preset, then the user's own that the form holds."""
    form = [name.removeprefix("options.") for name in state.form.texts if name.startswith("options.")]
    own = [
        Option(name=name, label=capitalize_first(name.replace("_", " ")), example="")
        for name in form
        if preset.option(name) is None
    ]
    return [*preset.options, *own]


def _yaml(state: WizardState) -> str:
    if not (state.paths["id"] or state.paths["text"]):
        return ""
    try:
        if state.definition is None:
            document = parse_document(RetrieverDocument, retriever_fields.document_body(state.form, None))
            return write_canary_file(Documents(retrievers=(document,)))
        stored = state.definition
        whole = with_placeholders(_with_new_mapping(state, stored.body), secrets_set=stored.secrets is not None)
        document = parse_document(RetrieverDocument, whole)
    except InvalidInputError:
        return ""
    scorer = document.scorer
    parts: dict[str, str | float | None] = {"kind": scorer.kind, "scale": scorer.scale, "anchor": scorer.anchor}
    written = {name: value if isinstance(value, float) else str(value) for name, value in parts.items() if value}
    return mapping_yaml(response_fields(document.response.to_domain(), document), written)

"""The mapping wizard: from an address and one answer to a retriever, by pointing at what in the answer is what.

Everything is in one form, whose paths are evaluated here and never in the browser: it works without scripts, and with
them only parts of the page are exchanged. Asking and saving need the scopes they need in the API.
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

from app.api.deps import StoreDep, VaultDep, needs
from app.api.probing.trials import PARSE_LIMITER, PROBE_LIMITER
from app.domain.errors import ConflictError, ForbiddenError, InvalidInputError, Problem
from app.domain.probing.answer_outline import build_outline, fields_by_node
from app.domain.probing.retrievers import Dialect, Scale, ScorerKind
from app.formats.catalog.canary_export import write_canary_file
from app.formats.catalog.canary_files import Documents
from app.formats.catalog.documents import RetrieverDocument
from app.formats.catalog.secret_fields import secret_names, with_placeholders
from app.formats.probing.mapping_yaml import mapping_yaml, response_fields
from app.formats.probing.presets import PRESETS, Option, Preset
from app.formats.validation_messages import parse_document
from app.services.catalog import definitions
from app.services.catalog.api_keys import Scope
from app.services.catalog.references import refuse_file_managed
from app.services.catalog.vault import Vault
from app.services.probing import mapping_preview, trials
from app.store.catalog.definitions import Definition
from app.store.engine import Store
from app.web.forms import (
    Form,
    has_scope,
    is_partial,
    label_problems,
    problems_by_field,
    read_form,
    read_revision,
    with_revision,
)
from app.web.probing import retriever_fields
from app.web.probing.wizard_state import (
    DEFAULT_K,
    LABELS,
    ON_NO_SCALE,
    SCALES,
    WizardState,
    read_answer,
    read_k,
    selected_canary,
)
from app.web.rendering import render
from app.web.wording import capitalize_first

router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

_LABELS: Mapping[str, str] = {
    **retriever_fields.LABELS,
    "query": "Query",
    "k": "Hits",
    "canary": "Compare with a canary",
    "response": "Response mapping",
    **{f"response.{name}": label for name, (label, _) in LABELS.items()},
}
_KEY_MISSING = re.compile("the key '[^']*' is missing")
_ERROR_PLACES = tuple(name for name in retriever_fields.LABELS if not name.startswith("scorer"))
"""Beside which fields of the endpoint a part of the page that is exchanged says what is wrong."""
_PARTS = ("request", "auth", "embedding", "embedding.auth.token", "response", "scorer", "options")


@router.get("/new-retriever")
def show_new(request: Request, store: StoreDep, preset: Annotated[str, Query(max_length=64)] = "") -> HTMLResponse:
    """Offer what a retriever may be, then the form for it."""
    if not preset:
        return render(request, "probing/presets.html", presets=list(PRESETS.values()))
    texts = retriever_fields.form_texts(retriever_fields.preset_body(preset))
    sheet = WizardState(definition=None, typed=Form(texts={**texts, "k": DEFAULT_K, "pointing": "hits"}))
    return _page(request, store, sheet)


@router.post("/new-retriever")
@needs(Scope.ADMIN)
async def work_on_new(request: Request, store: StoreDep, vault: VaultDep) -> Response:
    """Ask, read, point, preview or save, as the pressed button says."""
    typed = await read_form(request)
    return await _worked(request, store, vault, None, typed)


@router.get("/retrievers/{slug}/map")
def show_mapping(request: Request, store: StoreDep, slug: str) -> HTMLResponse:
    """Show the wizard with a retriever as it is in force."""
    definition = definitions.find(store, "retriever", slug)
    typed = Form(texts={**retriever_fields.form_texts(definition.body), "k": DEFAULT_K})
    return _page(request, store, WizardState(definition=definition, typed=with_revision(typed, definition.revision)))


@router.post("/retrievers/{slug}/map")
async def work_on_mapping(request: Request, store: StoreDep, vault: VaultDep, slug: str) -> Response:
    """Ask, read, point, preview or save, as the pressed button says."""
    typed = await read_form(request)
    return await _worked(request, store, vault, slug, typed)


async def _worked(request: Request, store: Store, vault: Vault, slug: str | None, typed: Form) -> Response:
    """Work in a thread; only who asks a retriever waits while others are asked, who saves never does."""
    limiter = PROBE_LIMITER if typed.get("do") == "ask" else PARSE_LIMITER
    return await anyio.to_thread.run_sync(_work, request, store, vault, slug, typed, limiter=limiter)


def _work(request: Request, store: Store, vault: Vault, slug: str | None, typed: Form) -> Response:
    definition = definitions.find(store, "retriever", slug) if slug is not None else None
    sheet, wish, status = WizardState(definition=definition, typed=typed), typed.get("do"), 422
    if wish == "save":
        try:
            return _saved(request, _save(request, store, vault, sheet))
        except InvalidInputError as error:
            sheet.problems += error.problems
        except ConflictError as error:
            sheet.problems.append(Problem(path="slug" if definition is None else None, message=str(error)))
            status = 409
    if wish == "ask":
        try:
            _ask(request, store, vault, sheet)
        except InvalidInputError as error:
            sheet.problems += error.problems
    read_answer(request.app.state.read, store, sheet)
    return _page(request, store, sheet, status=status if sheet.problems and not is_partial(request) else 200)


# --- asking and reading --------------------------------------------------------------------------------------


def _ask(request: Request, store: Store, vault: Vault, sheet: WizardState) -> None:
    """Ask the retriever as it is typed, and put its answer into the form."""
    canary = selected_canary(store, sheet)
    query = sheet.typed.stripped("query") or (canary.query if canary is not None else "")
    if not query:
        raise InvalidInputError(
            [Problem(path="query", message="must not be empty: type a query that the index can answer")]
        )
    sheet.fill({"query": query})
    document = _askable(request, store, vault, sheet)
    asked = trials.try_retriever(
        request.app.state.probe,
        document,
        query,
        k=read_k(sheet),
        run_id=f"try-{uuid4().hex}",
        shows=trials.SUGGESTED_FROM,
    )
    response = asked["response"]
    sheet.asked = asked
    body = "" if response is None else response["body"]
    sheet.fill({"answer": _whole(body) if response is not None and response["cut"] else body})


def _askable(request: Request, store: Store, vault: Vault, sheet: WizardState) -> RetrieverDocument:
    """Give the retriever as it is typed. Raises ForbiddenError as the API does where more than reading is changed."""
    if sheet.definition is None:
        body = retriever_fields.document_body(sheet.typed, None)
        return parse_document(RetrieverDocument, {**_readable(body), "slug": "draft"})
    stored = sheet.definition.body
    body = retriever_fields.document_body(sheet.typed, stored) if not sheet.of_file else _mapped_alone(sheet, stored)
    changed = {name: value for name, value in _readable(body).items() if value != stored.get(name)}
    if trials.changes_request(changed) and not has_scope(request, Scope.ADMIN):
        raise ForbiddenError("changing whom a retriever asks, or what, needs a key with scope admin")
    return trials.stored_retriever(store, vault, sheet.definition.slug, changed)


def _readable(body: Mapping[str, Any]) -> dict[str, Any]:
    """Let a retriever be asked before anything of its answer is mapped."""
    response = body["response"]
    if response.get("id") or response.get("text"):
        return dict(body)
    return {**body, "response": {**response, "text": "@"}, "scorer": {"kind": str(ScorerKind.JUDGED)}}


def _mapped_alone(sheet: WizardState, stored: Mapping[str, Any]) -> dict[str, Any]:
    scorer = retriever_fields.scorer_body(sheet.typed, stored)
    return {**stored, "response": retriever_fields.response_body(sheet.typed), **({"scorer": scorer} if scorer else {})}


def _whole(body: str) -> str:
    """Give of an answer that was cut off what came whole, as JSON."""
    found = mapping_preview.parse_answer(body)
    if found is None:
        return body
    text = json.dumps(found, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(found)


# --- saving --------------------------------------------------------------------------------------------------


def _save(request: Request, store: Store, vault: Vault, sheet: WizardState) -> str:
    """Put the retriever in force as the API would; gives its slug."""
    if not has_scope(request, Scope.ADMIN):
        raise ForbiddenError("defining retrievers needs a key with scope admin")
    refuse_file_managed(sheet.definition)
    body = retriever_fields.document_body(sheet.typed, sheet.stored)
    save = partial(definitions.save, store, vault, "retriever", RetrieverDocument, body, now=datetime.now(UTC))
    if sheet.definition is not None:
        return save(revision=read_revision(sheet.typed))[0].slug
    return save(only_new=True)[0].slug


def _saved(request: Request, slug: str) -> Response:
    address = f"/retrievers/{quote(slug)}?saved=yes"
    if is_partial(request):
        return Response(headers={"hx-redirect": address})
    return RedirectResponse(address, status_code=303)


# --- showing -------------------------------------------------------------------------------------------------


def _page(request: Request, store: Store, sheet: WizardState, *, status: int = 200) -> HTMLResponse:
    known = PRESETS[str(sheet.stored["preset"])] if sheet.stored else PRESETS[_preset(sheet)]
    placed = _placed(sheet)
    wrong = problems_by_field(
        placed, {*sheet.typed.texts, *_PARTS, *(str(one.path) for one in placed if one not in sheet.problems)}
    )
    return render(
        request,
        "probing/map.html",
        status=status,
        sheet=sheet,
        problems=label_problems(placed, _labels(known, sheet)),
        typed=retriever_fields.without_secrets(sheet.typed),
        preset=known,
        options=_options(known, sheet),
        error_places=[*_ERROR_PLACES, *(f"options.{one.name}" for one in _options(known, sheet))],
        secrets_set=_stored_secrets(sheet.definition),
        auth_fields=retriever_fields.AUTH_FIELDS,
        auth_words=retriever_fields.AUTH_WORDS,
        labels=LABELS,
        scales=SCALES,
        on_no_scale=ON_NO_SCALE,
        unbounded=str(Scale.UNBOUNDED),
        choices=mapping_preview.canary_choices(store),
        tree=build_outline(sheet.answer) if sheet.answer is not None else None,
        marks=fields_by_node(sheet.answer, sheet.paths) if sheet.answer is not None else {},
        asks_wrongly=any(path.startswith("request") for path in wrong),
        partial=is_partial(request),
        yaml=_yaml(sheet),
        wrong=wrong,
    )


def _labels(preset: Preset, sheet: WizardState) -> dict[str, str]:
    """Give what people see the fields of the form called."""
    own = {f"options.{one.name}": one.label for one in _options(preset, sheet)}
    body = {"request.json": "Arguments as JSON"} if preset.dialect is Dialect.MCP else {}
    return {**_LABELS, **own, **body}


def _placed(sheet: WizardState) -> list[Problem]:
    """Give what is wrong by the names of the form's fields: each kind of authentication has its own."""
    kind = sheet.typed.get("auth.kind")
    return [
        replace(
            problem,
            path=f"auth.{kind}.{problem.path[5:]}",
            message=_KEY_MISSING.sub("must not be empty", problem.message),
        )
        if problem.path is not None and problem.path.startswith("auth.")
        else problem
        for problem in sheet.problems
    ]


def _stored_secrets(definition: Definition | None) -> set[str]:
    return set(secret_names(definition.body)) if definition is not None and definition.secrets else set()


def _preset(sheet: WizardState) -> str:
    name = sheet.typed.get("preset", "generic")
    return name if name in PRESETS else "generic"


def _options(preset: Preset, sheet: WizardState) -> list[Option]:
    """Give the options to fill in: those of the preset, then variables of the user's own that the form holds."""
    typed = [name.removeprefix("options.") for name in sheet.typed.texts if name.startswith("options.")]
    own = [
        Option(name=name, label=capitalize_first(name.replace("_", " ")), example="")
        for name in typed
        if preset.option(name) is None
    ]
    return [*preset.options, *own]


def _yaml(sheet: WizardState) -> str:
    """Write what to put into a canary file; empty where it would not be valid yet."""
    if not (sheet.paths["id"] or sheet.paths["text"]):
        return ""
    try:
        if sheet.definition is None:
            document = parse_document(RetrieverDocument, retriever_fields.document_body(sheet.typed, None))
            return write_canary_file(Documents(retrievers=(document,)))
        stored = sheet.definition
        whole = with_placeholders(_mapped_alone(sheet, stored.body), secrets_set=stored.secrets is not None)
        document = parse_document(RetrieverDocument, whole)
    except InvalidInputError:
        return ""
    scorer = document.scorer
    told: dict[str, str | float] = {"kind": str(scorer.kind)}
    if scorer.scale is not None:
        told["scale"] = str(scorer.scale)
    if scorer.anchor is not None:
        told["anchor"] = scorer.anchor
    return mapping_yaml(response_fields(document.response.to_domain(), document), told)

"""Pages of the retriever wizard: endpoint, test request, response mapping by clicks, preview and saving.

Everything is in one form, whose paths are evaluated here and never in the browser: it works without scripts, and with
them only parts of the page are exchanged. Sending and saving need the scopes they need in the API.
"""

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from typing import Annotated, Any, Final, cast
from urllib.parse import quote
from uuid import uuid4

import anyio.to_thread
from fastapi import Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from typing_extensions import TypedDict

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
)
from app.base.db.engine import Store
from app.base.db.keys import Scope, Vault
from app.base.documents.fields import Control, parse_document
from app.base.documents.http_fields import AUTH_KINDS, KEY_IN_ONE_PLACE, is_by_identity
from app.base.errors import ConflictError, ForbiddenError, InvalidInputError, NotFoundError, Problem
from app.base.texts import counted, named_text
from app.base.values import replace
from app.base.web.forms import (
    Form,
    FormField,
    document_texts,
    field_labels,
    field_value,
    form_fields,
    has_scope,
    is_partial,
    label_problems,
    parse_number,
    parse_pairs,
    problems_by_field,
    read_form,
    read_revision,
    refuse_other,
    with_hidden,
    with_revision,
)
from app.base.web.pages import capitalize_first, render
from app.catalog.documents.canary_documents import CanaryDocument
from app.catalog.documents.canary_export import write_canary_file
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.secrets import secret_names, with_placeholders
from app.catalog.service import references
from app.catalog.store import FILE, Definition, refuse_file_managed
from app.definitions.pages.suites import file_page
from app.definitions.service import definitions
from app.retrievers.documents.requests import apply_preset
from app.retrievers.documents.retrievers import GENERIC, RetrieverDocument, mapping_yaml, response_fields
from app.retrievers.domain.mapping_suggestions import (
    MAPPED_FIELDS,
    build_outline,
    fields_by_node,
    mapping_changes,
    parse_place,
)
from app.retrievers.domain.probes import MappingPreview, MappingSuggestion, TrialView
from app.retrievers.domain.retrievers import (
    KEPT_CHARACTERS,
    WHOLE_FIELDS,
    Dialect,
    ProbeQuery,
    Scale,
    ScorerKind,
)
from app.retrievers.presets import PRESETS, Option, Preset
from app.retrievers.service import trials
from app.retrievers.service.trials import LOWER_MINIMUM, ReadAnswer, suggestion_views

DEFAULT_K = "10"
SCALES: Mapping[str, str] = {
    "similarity": "similarities, 0 to 1",
    "cosine": "cosines, -1 to 1",
    "distance": "distances, 0 is best",
    "logit": "logits, any number",
    "unbounded": "unbounded, such as BM25",
}
SCORES_ARE: Final = "“Scores are”"
ON_NO_SCALE: Final = "not on a scale: judgments alone tell"
_LOWER_MINIMUM_HERE: Final = (
    f"choose another scale under {SCORES_ARE}, or “{ON_NO_SCALE}”, or lower the canaries' "
    f"“{form_fields(CanaryDocument)['min_relevance_score'].label}”"
)
_EXTERNAL: Mapping[Any, str] = {ScorerKind.EMBEDDING: "the embedder", ScorerKind.RERANK: "the reranker"}
"""Service that measures relevance, where the retriever's scores do not."""
_DRAFT = {"slug": "draft", "preset": "generic", "url": "http://draft.invalid/"}
"""The rest of a retriever while responses are read by a mapping."""


@dataclass(slots=True, kw_only=True)
class WizardState:
    """The form on its way through one request: what it was sent with, and the results."""

    definition: Definition | None
    form: Form
    problems: list[Problem] = field(default_factory=list)
    trial: TrialView | None = None
    """Result of the test request, if one was sent."""
    answer: Any = None
    """The parsed response; None before there is one."""
    is_unreadable: bool = False
    preview: MappingPreview | None = None
    suggestions: list[MappingSuggestion] = field(default_factory=list)
    message: str = ""
    changed_field: str = ""

    @property
    def stored(self) -> Mapping[str, Any] | None:
        """The body of the stored retriever; None for a new one."""
        return self.definition.body if self.definition is not None else None

    @property
    def is_file_managed(self) -> bool:
        """Whether a canary file owns it, so that its mapping can only be tried."""
        return self.definition is not None and self.definition.managed_by == FILE

    def fill(self, texts: Mapping[str, str]) -> None:
        """Replace texts of fields."""
        self.form = replace(self.form, texts={**self.form.texts, **texts})

    @property
    def paths(self) -> dict[str, str]:
        """The typed paths by field."""
        return {name: self.form.stripped(f"response.{name}") for name in MAPPED_FIELDS}


def with_form_labels(remark: str) -> str:
    """Remark with the labels of forms, where it has the keys of canary files."""
    return remark.replace(LOWER_MINIMUM, _LOWER_MINIMUM_HERE)


def update_state(read: ReadAnswer, store: Store, state: WizardState) -> None:
    """Parse the response, apply the click or the suggestion, and preview the hits."""
    text = state.form.get("answer")
    if not text.strip():
        return
    state.answer = trials.parse_answer(text)
    state.is_unreadable = state.answer is None
    if state.is_unreadable:
        return
    draft = parse_document(RetrieverDocument, {**_DRAFT, "response": {"text": "@"}})
    state.suggestions = suggestion_views(draft, state.answer, state.form.stripped("query"))
    _apply_click(state)
    _apply_suggestion(state)
    try:
        _read_preview(read, store, state)
        if _choose_scale(state):
            _read_preview(read, store, state)
    except InvalidInputError as error:
        reported = {problem.path for problem in state.problems}
        state.problems += [problem for problem in error.problems if problem.path not in reported]


def _read_preview(read: ReadAnswer, store: Store, state: WizardState) -> None:
    document = _draft_by_mapping(state)
    if document is not None:
        query, canary = state.form.stripped("query"), selected_canary(store, state)
        answer, outside = state.form.get("answer"), _EXTERNAL.get(_effective_scorer(state).get("kind"))
        state.preview = trials.preview(
            read,
            document,
            answer,
            query,
            k=read_k(state),
            canary=canary,
            relevance_from=outside,
            decided=state.form.get("scorer") != NO_CHOICE,
        )
        state.preview["remarks"] = [with_form_labels(one) for one in state.preview["remarks"]]


def _choose_scale(state: WizardState) -> bool:
    """Choose the likely scale of scores that were just clicked; returns whether one was chosen."""
    pointed_at_score = state.form.get("point") and state.changed_field == "score"
    if not pointed_at_score or state.preview is None or state.form.get("scorer") != NO_CHOICE:
        return False
    scale, fits = trials.suggested_scale(state.paths["score"], state.preview["hits"])
    if not scale:
        return False
    state.fill({"scorer": scale if fits else str(ScorerKind.JUDGED)})
    unfit = f", on which good answers may be less relevant than most canaries ask, so {SCORES_ARE} is “{ON_NO_SCALE}”"
    state.message = f"{state.message.rstrip('.')}; the scores look like {SCALES[scale]}{'' if fits else unfit}."
    return True


def _draft_by_mapping(state: WizardState) -> RetrieverDocument | None:
    """Return a retriever that reads by the typed mapping; None while neither id nor text is mapped."""
    response = response_body(state.form)
    if not (response["id"] or response["text"]):
        return None
    scorer = _effective_scorer(state)
    if scorer.get("kind") in _EXTERNAL:
        scorer = {"kind": str(ScorerKind.JUDGED)}  # relevance is measured outside, which reading does not ask
    precision = (state.stored or {}).get("score_precision")
    more = {} if precision is None else {"score_precision": precision}
    return parse_document(RetrieverDocument, {**_DRAFT, **more, "response": response, "scorer": scorer})


def _effective_scorer(state: WizardState) -> Mapping[str, Any]:
    """Scorer that saving would put in force: the chosen one, else the preset's where scores are mapped."""
    chosen = scorer_body(state.form, state.stored)
    if chosen is not None:
        return chosen
    preset = PRESETS.get(state.form.get("preset"))
    return preset.scorer if preset is not None and state.paths["score"] else {}


def _apply_click(state: WizardState) -> None:
    """Write the path of the clicked value into the chosen field, and choose the next field."""
    place, name = state.form.get("point"), state.form.get("pointing")
    if not place:
        return
    if name not in MAPPED_FIELDS:
        state.message = "Choose a field first."
        return
    try:
        changes = mapping_changes(name, parse_place(place), state.answer, state.paths)
    except ValueError as error:
        state.message = f"Not taken as {MAPPING_FIELDS[name].label}: {error}."
        return
    state.fill({f"response.{field}": path for field, path in changes.items()})
    message = ", ".join(f"{MAPPING_FIELDS[field].label}: {path}" for field, path in changes.items())
    state.fill({"pointing": _next_field(name, state)})
    state.message, state.changed_field = f"{message}.", name


def _next_field(name: str, state: WizardState) -> str:
    """First field after this one that has no path yet; this one where all have."""
    paths = state.paths
    return next((field for field in MAPPED_FIELDS[MAPPED_FIELDS.index(name) + 1 :] if not paths[field]), name)


def _apply_suggestion(state: WizardState) -> None:
    number = state.form.get("use")
    if not number:
        return
    places = [str(place) for place in range(len(state.suggestions))]
    if number not in places:
        state.message = "That suggestion is no longer there."
        return
    chosen = state.suggestions[places.index(number)]
    kept = {name: text for one in WHOLE_FIELDS if (text := state.form.get(name := f"response.{one}"))}
    state.fill({f"response.{name}": chosen["response"].get(name) or "" for name in MAPPED_FIELDS})
    before = state.form.get("scorer")
    unscaled = str(ScorerKind.JUDGED) if chosen["response"].get("score") else NO_CHOICE
    scorer = chosen["scorer"]
    scale = str(scorer["scale"]) if scorer is not None else before if before in _EXTERNAL else unscaled
    state.fill({**kept, "scorer": scale, "pointing": _next_field("hits", state)})
    state.message = f"The mapping that reads {counted(chosen['hits'], 'hit')} was taken over."


def read_k(state: WizardState) -> int:
    """Return how many hits to request. Raises InvalidInputError."""
    k = parse_number(state.form.get("k", DEFAULT_K) or DEFAULT_K)
    if not isinstance(k, int) or not 1 <= k <= 1000:  # noqa: PLR2004 - as when trying
        raise InvalidInputError([Problem(path="k", message="must be a whole number from 1 to 1,000")])
    return k


def selected_canary(store: Store, state: WizardState) -> CanaryDocument | None:
    """Return the selected canary; None without one. Raises InvalidInputError where it is gone."""
    suite, _, key = state.form.get("canary").partition("/")
    if not key:
        return None
    try:
        return trials.load_canary(store, suite, key)
    except NotFoundError as error:
        raise InvalidInputError([Problem(path="canary", message=str(error))]) from None


router = page_router()

_TRIAL_LABELS: Mapping[str, str] = {"query": "Query", "k": "Hits", "canary": "Compare with a canary"}
_GROUPS = ("request", "auth", "embedding", "response", "scorer", "options")
"""Groups of fields that have an error line of their own."""


@router.get("/new-retriever")
def show_new(request: Request, store: StoreDep, preset: Annotated[str, Query(max_length=64)] = "") -> HTMLResponse:
    """Show the presets, then the form of a new retriever."""
    if not preset:
        return render(request, "retrievers/presets.html", presets=list(PRESETS.values()))
    texts = new_form_texts(preset)
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
def show_mapping(
    request: Request, store: StoreDep, slug: str, draft: Annotated[str, Query(max_length=8)] = ""
) -> HTMLResponse:
    """Show the wizard with a stored retriever; of one that a file owns its YAML, unless the wizard is asked for."""
    definition = references.load_definition(store, "retriever", slug)
    if definition.managed_by == FILE and not draft:
        here = f"/retrievers/{quote(slug)}"
        return file_page(
            request,
            definition,
            definitions.write_one(definition),
            name=slug,
            crumbs={"Retrievers": "/retrievers", slug: here},
            draft=(f"{here}/map?draft=yes", "Try another mapping"),
        )
    form = Form(texts={**form_texts(definition.body), "k": DEFAULT_K})
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
    definition = references.load_definition(store, "retriever", slug) if slug is not None else None
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
    problems = []
    if not query:
        problems.append(Problem(path="query", message="must not be empty: type a query that the index can answer"))
    state.fill({"query": query})
    try:
        document = _draft_retriever(request, store, vault, state)
    except InvalidInputError as error:
        raise InvalidInputError([*problems, *error.problems]) from None
    if problems:
        raise InvalidInputError(problems)
    trial = trials.try_retriever(
        request.app.state.probe,
        document,
        ProbeQuery(query=query),
        k=read_k(state),
        run_id=f"try-{uuid4().hex}",
        shows=KEPT_CHARACTERS,
    )
    response = trial["response"]
    state.trial = trial
    body = "" if response is None else response["body"]
    state.fill({"answer": _complete_json(body) if response is not None and response["cut"] else body})


def _draft_retriever(request: Request, store: Store, vault: Vault, state: WizardState) -> RetrieverDocument:
    """Return the retriever as typed. Raises ForbiddenError where its request was changed without scope admin."""
    if state.definition is None:
        body = document_body(state.form, None)
        return parse_document(RetrieverDocument, {**_with_any_mapping(body), "slug": "draft"})
    stored = state.definition.body
    body = document_body(state.form, stored) if not state.is_file_managed else _with_new_mapping(state, stored)
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
    scorer = scorer_body(state.form, stored)
    return {**stored, "response": response_body(state.form), **({"scorer": scorer} if scorer else {})}


def _complete_json(body: str) -> str:
    """JSON of what came whole of a response that was cut off."""
    parsed = trials.parse_answer(body)
    if parsed is None:
        return body
    text = json.dumps(parsed, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(parsed)


# --- saving --------------------------------------------------------------------------------------------------


def _save(request: Request, store: Store, vault: Vault, state: WizardState) -> str:
    if not has_scope(request, Scope.ADMIN):
        raise ForbiddenError("defining retrievers needs a key with scope admin")
    if state.definition is not None:
        refuse_file_managed(state.definition, f"retriever '{state.definition.slug}'")
    body = document_body(state.form, state.stored)
    save = partial(definitions.save, store, vault, RetrieverDocument, body, now=datetime.now(UTC))
    if state.definition is not None:
        return save(revision=read_revision(state.form))[0].slug
    try:
        return save(only_new=True)[0].slug
    except InvalidInputError as error:
        raise InvalidInputError(with_hidden(RetrieverDocument, body, error.problems)) from None


def _redirect_to(request: Request, slug: str) -> Response:
    address = f"/retrievers/{quote(slug)}?saved=yes"
    if is_partial(request):
        return Response(headers={"hx-redirect": address})
    return RedirectResponse(address, status_code=303)


# --- showing -------------------------------------------------------------------------------------------------


def _page(request: Request, store: Store, state: WizardState, *, status: int = 200) -> HTMLResponse:
    preset = PRESETS[str(state.stored["preset"])] if state.stored else PRESETS[_preset(state)]
    options = _preset_options(preset, state)
    shown = {**labels(preset.dialect), **{f"options.{one.name}": one.label for one in options}}
    placed = _form_problems(state)
    wrong = problems_by_field(
        placed, {*state.form.texts, *_GROUPS, *(str(one.path) for one in placed if one not in state.problems)}
    )
    return render(
        request,
        "retrievers/map.html",
        status=status,
        state=state,
        problems=label_problems(placed, {**shown, **_TRIAL_LABELS}),
        form=without_secrets(state.form),
        preset=preset,
        options=options,
        fields=wizard_fields(preset.dialect),
        error_places=[path for path in shown if not path.startswith(("scorer", "response"))],
        secrets_set=_stored_secrets(state.definition),
        auth_fields=AUTH_FIELDS,
        auth_titles=_auth_titles(state.stored),
        mapping_fields=MAPPING_FIELDS,
        scales=SCALES,
        on_no_scale=ON_NO_SCALE,
        unbounded=str(Scale.UNBOUNDED),
        choices=trials.canary_choices(store),
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
        replace(problem, path=f"auth.{kind}.{problem.path[5:]}")
        if problem.path is not None and problem.path.startswith("auth.") and kind != BY_IDENTITY
        else place_key_problem(problem)
        for problem in state.problems
    ]


def _auth_titles(stored: Mapping[str, Any] | None) -> Mapping[str, str | None]:
    """Choices of authentication; credentials of identities, which the form cannot make, are one where there are any."""
    auth = (stored or {}).get("auth") or {}
    if not is_by_identity(auth):
        return AUTH_TITLES
    return {**AUTH_TITLES, BY_IDENTITY: f"by {auth['by']}, as stored: {named_text(list(auth['of']))}"}


def _stored_secrets(definition: Definition | None) -> set[str]:
    return set(secret_names(definition.body)) if definition is not None and definition.secrets else set()


def _preset(state: WizardState) -> str:
    name = state.form.get("preset", "generic")
    return name if name in PRESETS else "generic"


def _preset_options(preset: Preset, state: WizardState) -> list[Option]:
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
            document = parse_document(RetrieverDocument, document_body(state.form, None))
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


KEEP, NO_CHOICE = "keep", ""
"""Choices of a scorer: as it is stored, and whatever follows from the rest."""
NO_AUTH: Final = "none"
BY_IDENTITY: Final = "by_identity"
"""Credentials of each identity, which files and the API define: the form keeps them."""
AUTH_FIELDS: Final = {kind: form_fields(document, prefix=f"auth.{kind}.") for kind, document in AUTH_KINDS.items()}
AUTH_TITLES: Final[Mapping[str, str | None]] = {NO_AUTH: "none"} | {
    kind: document.model_config["title"] for kind, document in AUTH_KINDS.items()
}
_KEY_HEADER, _KEY_QUERY = "auth.api_key.header", "auth.api_key.query"
_USUAL_KEY_HEADER = "X-Api-Key"
_OTHER_LABELS: Mapping[str, str] = {
    "embedding": "Embeddings",
    "auth": "Authentication",
    "request": "Request",
    "options": "Variables",
    "scorer": "Scores are",
    "response": "Response mapping",
}
_OWN_PARTS = ("slug", "embedding.", "response.", "scorer.", "request.headers")
"""Paths of fields that have a function of their own here."""


class ScorerBody(TypedDict, total=False):
    """JSON of a scorer that the form can choose."""

    kind: str
    scale: str
    anchor: Any


@cache
def wizard_fields(dialect: Dialect) -> Mapping[str, FormField]:
    """Fields of the form by path, but for those of the authentication and of an endpoint that answers."""
    fields = form_fields(RetrieverDocument, kind=dialect)
    return {path: one for path, one in fields.items() if not path.startswith(("auth.", "scorer.auth.", "answer."))}


MAPPING_FIELDS: Final = {name: wizard_fields(Dialect.HTTP)[f"response.{name}"] for name in MAPPED_FIELDS}


def labels(dialect: Dialect) -> dict[str, str]:
    """Labels of the fields and groups of the form by path."""
    auth = {path: label for fields in AUTH_FIELDS.values() for path, label in field_labels(fields).items()}
    return {**_OTHER_LABELS, **field_labels(wizard_fields(dialect)), **auth}


def preset_body(preset: str) -> dict[str, Any]:
    """JSON of a new retriever: what its preset says. Raises InvalidInputError for an unknown one."""
    refuse_other(preset, PRESETS, "preset")
    known = PRESETS[preset]
    body = apply_preset({"preset": preset}, known)
    if known.response_as_one:
        body["response"] = {}
    if known.needs_auth or known.dialect is Dialect.SQL:
        body["auth"] = dict(known.auth)
    return {"slug": "", "url": "", **body}


def new_form_texts(preset: str) -> dict[str, str]:
    """Texts of the form of a new retriever: its preset's, and the usual header of an API key that has no place yet.

    Raises InvalidInputError for an unknown preset.
    """
    texts = form_texts(preset_body(preset))
    has_place = texts.get(_KEY_HEADER) or texts.get(_KEY_QUERY)
    return texts if has_place else texts | {_KEY_HEADER: _USUAL_KEY_HEADER}


def place_key_problem(problem: Problem) -> Problem:
    """Put the problem of an API key without one place at its header, in the labels of the form; others stay."""
    if problem.path != "auth" or problem.message != KEY_IN_ONE_PLACE:
        return problem
    header, query = (AUTH_FIELDS["api_key"][path].label for path in (_KEY_HEADER, _KEY_QUERY))
    return Problem(path=_KEY_HEADER, message=f"fill in either {header} or {query}: the key goes to one of them")


def form_texts(body: Mapping[str, Any]) -> dict[str, str]:
    """Texts of the form for the public JSON of a retriever."""
    preset = PRESETS[body["preset"]]
    auth = body.get("auth") or {}
    texts = {
        **document_texts(wizard_fields(preset.dialect), body).texts,
        "preset": preset.name,
        "request.headers": "\n".join(
            f"{name}: {value or ''}" for name, value in (body["request"].get("headers") or {}).items()
        ),
        "auth.kind": BY_IDENTITY if is_by_identity(auth) else auth.get("kind") or NO_AUTH,
        "scorer": scorer_choice(body),
    }
    texts["request.method"] = texts.get("request.method") or "POST"
    for kind, fields in AUTH_FIELDS.items():
        style = next((one for one in (auth, preset.auth) if one.get("kind") == kind), {})
        texts |= document_texts(fields, {"auth": {kind: style}}).texts
    texts |= {f"options.{one.name}": one.default or "" for one in preset.options}
    return texts | {f"options.{name}": value or "" for name, value in (body.get("options") or {}).items()}


def document_body(form: Form, stored: Mapping[str, Any] | None) -> dict[str, Any]:
    """JSON of a submitted retriever; a secret left empty is null where one is stored, an unchanged field is as stored.

    Raises InvalidInputError for JSON that is none and for headers without a colon.
    """
    before = stored or {}
    name = str(before.get("preset") or form.get("preset", GENERIC))
    preset = PRESETS.get(name)
    body = deepcopy(dict(before)) | {"slug": before.get("slug") or form.stripped("slug"), "preset": name}
    body["request"] = dict(before.get("request") or {})
    _fill(body, wizard_fields(preset.dialect if preset is not None else Dialect.HTTP), form, stored)
    if preset is None or preset.dialect is not Dialect.SQL:
        body["request"]["headers"] = _headers(form, body["request"].get("headers") or {})
    if form.get("request.method") == "GET":
        body["request"]["json"] = None
    body["options"] = _options(form, stored)
    if any(f"response.{name}" in form.texts for name in MAPPED_FIELDS):
        body["response"] = response_body(form)
    else:  # the preset's, where that is a vendor's shape
        body["response"] = {} if preset is None or preset.response_as_one else dict(preset.response)
    optional = {"embedding": _embedding(form, before.get("embedding")), "scorer": scorer_body(form, stored)}
    body |= {part: value for part, value in optional.items() if value is not None}
    auth = _auth(form, before.get("auth") or {})
    return body | ({"auth": auth} if auth is not None or before.get("auth") else {})


def _fill(body: dict[str, Any], fields: Mapping[str, FormField], form: Form, stored: Mapping[str, Any] | None) -> None:
    """Write the changed fields of the form into a body; an emptied one is null or, where null is no value, left out."""
    texts = document_texts(fields, stored).texts if stored is not None else {}
    problems: list[Problem] = []
    for path, one in fields.items():
        if path.startswith(_OWN_PARTS) or path not in form.texts or form.get(path) == texts.get(path):
            continue
        *around, key = path.split(".")
        holder = body[around[0]] if around else body
        try:
            value = field_value(one, form)
        except InvalidInputError as error:
            problems += error.problems
            continue
        if value == "" and not one.is_required:
            value = None
        if value is None and one.control is not Control.JSON and not one.type.is_nullable:
            holder.pop(key, None)
        else:
            holder[key] = value
    if problems:
        raise InvalidInputError(problems)


def without_secrets(form: Form) -> Form:
    """Form as it may be sent back: of headers only the names, and the values the preset says.

    Fields of secrets are never filled in. A line that is no header may be anything, so nothing of it is left.
    """
    preset = PRESETS.get(form.get("preset"))
    known = preset.request.get("headers", {}) if preset is not None else {}
    lines = []
    for line in form.get("request.headers").splitlines():
        name, colon, value = (part.strip() for part in line.partition(":"))
        if colon and name:
            lines.append(f"{name}: {value if known.get(name) == value else ''}".rstrip())
    return replace(form, texts={**form.texts, "request.headers": "\n".join(lines)})


def response_body(form: Form) -> dict[str, str | None]:
    """JSON of the mapping; null takes out what a preset would fill in again."""
    return {name: form.stripped(f"response.{name}") or None for name in (*MAPPED_FIELDS, "absent")}


def scorer_choice(body: Mapping[str, Any]) -> str:
    """Choice of the form that stands for the scorer of a retriever."""
    scorer = body.get("scorer") or {}
    kind = scorer.get("kind")
    if kind == ScorerKind.JUDGED:
        return str(ScorerKind.JUDGED)
    if kind in {None, ScorerKind.SCORE}:
        return str(scorer.get("scale") or NO_CHOICE)
    return str(kind) if kind == ScorerKind.EMBEDDING and scorer.get("url") is None else KEEP


def scorer_body(form: Form, stored: Mapping[str, Any] | None) -> ScorerBody | None:
    """JSON of the chosen scorer; None = whatever follows from the rest."""
    choice, anchor = form.stripped("scorer"), form.stripped("scorer.anchor")
    if stored is not None:
        same_anchor = choice != Scale.UNBOUNDED or anchor == document_texts(_ANCHOR, stored).texts["scorer.anchor"]
        if choice in {KEEP, NO_CHOICE} or (choice == scorer_choice(stored) and same_anchor):
            return cast("ScorerBody", deepcopy(stored.get("scorer") or {}))
    if choice in {NO_CHOICE, KEEP}:
        return None
    if choice in {ScorerKind.JUDGED, ScorerKind.EMBEDDING}:
        return {"kind": choice}
    scorer: ScorerBody = {"kind": str(ScorerKind.SCORE), "scale": choice}
    return {**scorer, "anchor": parse_number(anchor)} if choice == Scale.UNBOUNDED and anchor else scorer


_ANCHOR: Final = {"scorer.anchor": wizard_fields(Dialect.HTTP)["scorer.anchor"]}


def _options(form: Form, stored: Mapping[str, Any] | None) -> dict[str, str]:
    names = [name for name in form.texts if name.startswith("options.")]
    options = {name.removeprefix("options."): form.stripped(name) for name in names if form.stripped(name)}
    if not names and stored:
        options = dict(stored.get("options") or {})
    return options | parse_pairs("options", form.get("options"))


def _headers(form: Form, stored: Mapping[str, Any]) -> dict[str, str | None]:
    headers = parse_pairs("request.headers", form.get("request.headers"))
    missing = [name for name, value in headers.items() if not value and name not in stored]
    if missing:
        message = f"say the value of {', '.join(missing)}: it is not kept on this page"
        raise InvalidInputError([Problem(path="request.headers", message=message)])
    return {name: value or None for name, value in headers.items()}


def _auth(form: Form, stored: Mapping[str, Any]) -> dict[str, str | None] | None:
    kind = form.get("auth.kind", NO_AUTH)
    if kind == NO_AUTH:
        return None
    if kind == BY_IDENTITY and is_by_identity(stored):
        return deepcopy(dict(stored))
    auth: dict[str, str | None] = dict(stored) if stored.get("kind") == kind else {"kind": kind}
    for path, one in AUTH_FIELDS.get(kind, {}).items():
        name, value = path.removeprefix(f"auth.{kind}."), field_value(one, form)
        if value.strip():
            auth[name] = value
        elif not one.widget.secret:
            auth.pop(name, None)
    return auth


def _embedding(form: Form, stored: Mapping[str, Any] | None) -> dict[str, Any] | None:
    url, model, token = (form.stripped(f"embedding.{name}") for name in ("url", "model", "auth.token"))
    if not (url or model or token):
        return None if stored is None else dict(stored)
    embedding = {**(stored or {}), "url": url, "model": model}
    return {**embedding, "auth": {"kind": "bearer", "token": token}} if token else embedding

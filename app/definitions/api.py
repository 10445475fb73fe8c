"""REST routes of suites and canaries, retrievers, checks and hooks. PUT upserts by slug, DELETE archives.

How definitions are shown and described in OpenAPI is here too; the routes of silences and judges use it.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from fastapi import Query, Request, Response
from pydantic import TypeAdapter, WithJsonSchema

from app.alerts.silences.documents import SilenceDocument
from app.alerts.silences.service import SilenceState
from app.answers.documents import JudgeDocument
from app.base.api.bodies import (
    COMPONENTS,
    After,
    Content,
    Limit,
    Page,
    answers_with,
    body_schema,
    json_body,
    reference,
    renamed,
    settings_name,
)
from app.base.api.requests import StoreDep, VaultDep, api_router, needs, wake
from app.base.db import keys
from app.base.db.keys import Identity, Scope
from app.base.documents.fields import AnyDocument, Document, parse_document
from app.base.documents.http_fields import AUTH_KINDS, AUTH_SECRETS
from app.base.errors import InvalidInputError, NotFoundError, Problem
from app.base.views import time_text
from app.catalog.documents.canary_documents import CanaryDocument, SuiteDocument
from app.catalog.documents.check_documents import CheckDocument
from app.catalog.documents.secrets import public_json
from app.catalog.documents.warnings import blind_to_recall_reason, no_expectation_reason
from app.catalog.service import suites
from app.catalog.service.references import load_canaries, load_canary, load_definition, load_definitions
from app.catalog.store import FILE, CanaryRow, Definition, DefinitionDocument
from app.catalog.views import (
    CanaryFields,
    CheckFields,
    CompositionView,
    DefinitionFields,
    HookFields,
    Ownership,
    SavedCanaries,
    SecretFields,
    SuiteDetail,
    SuiteView,
)
from app.definitions.service import applying, definitions
from app.hooks.documents import HOOK_SECRETS, HookDocument
from app.hooks.service import hooks as hook_views
from app.hooks.service.hooks import hook_warnings, notes_on_hooks
from app.retrievers.documents.retrievers import RetrieverDocument

_SHOWN: Final = "x-shown"

DefinitionJson: TypeAlias = dict[str, Any]
"""A definition as its document describes it, with the fields that responses add."""
RetrieverView: TypeAlias = Annotated[DefinitionJson, WithJsonSchema({_SHOWN: "RetrieverView"})]
CheckView: TypeAlias = Annotated[DefinitionJson, WithJsonSchema({_SHOWN: "CheckView"})]
HookView: TypeAlias = Annotated[DefinitionJson, WithJsonSchema({_SHOWN: "HookView"})]
JudgeView: TypeAlias = Annotated[DefinitionJson, WithJsonSchema({_SHOWN: "JudgeView"})]
SilenceView: TypeAlias = Annotated[DefinitionJson, WithJsonSchema({_SHOWN: "SilenceView"})]
CanaryView: TypeAlias = Annotated[DefinitionJson, WithJsonSchema({_SHOWN: "CanaryView"})]


class _SilenceFields(DefinitionFields, SilenceState):
    """Fields that responses add to a silence."""


class _View(NamedTuple):
    document: type[Document]
    added: Any
    whole: bool
    """Whether responses have every field of the document; a hook has those of its kind."""


_VIEWS: Final[Mapping[str, _View]] = {
    "RetrieverView": _View(RetrieverDocument, SecretFields, whole=True),
    "CheckView": _View(CheckDocument, CheckFields, whole=True),
    "HookView": _View(HookDocument, HookFields, whole=False),
    "JudgeView": _View(JudgeDocument, SecretFields, whole=True),
    "SilenceView": _View(SilenceDocument, _SilenceFields, whole=True),
    "CanaryView": _View(CanaryDocument, CanaryFields, whole=True),
}
_SECRETS: Final[Mapping[str, AbstractSet[str]]] = {
    "HookDocument": frozenset(HOOK_SECRETS.values()),
    "TlsDocument": frozenset({"key"}),
    **{kind.__name__: frozenset(AUTH_SECRETS) for kind in AUTH_KINDS.values()},
}
"""The fields of each document that responses show as null where set, and may leave out where not."""
_HEADERS: Final = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}
"""Values of headers are secrets, except those of a preset."""

_REQUEST_KEYWORDS: Final = frozenset({"additionalProperties", "allOf"})
"""Keywords of documents that apply to requests only."""
_BOUND_KEYWORDS: Final = frozenset(
    {
        *("default", "format", "pattern", "minLength", "maxLength", "propertyNames", "minProperties", "maxProperties"),
        *("minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    }
)
"""Keywords of fields that apply to requests only."""


def response_schemas() -> dict[str, Any]:
    """Return the schemas of definitions in responses by name; those of their parts end in Settings."""
    schemas: dict[str, Any] = {}
    for name, shown in _VIEWS.items():
        whole = shown.document.model_json_schema(ref_template=COMPONENTS + "{model}", mode="serialization")
        added = TypeAdapter(shown.added).json_schema(ref_template=COMPONENTS + "{model}", mode="serialization")
        parts = whole.pop("$defs", {})
        names = {part: settings_name(part) for part in parts}
        schemas |= added.pop("$defs", {})
        schemas |= {
            names[part]: renamed(_response_schema(part, schema, whole=True), names) for part, schema in parts.items()
        }
        whole = renamed(_response_schema(shown.document.__name__, whole, whole=shown.whole), names)
        properties = {**whole["properties"], **added["properties"]}
        schemas[name] = {**whole, "properties": properties, "required": [*whole["required"], *added["required"]]}
    return schemas


def with_references(description: Any) -> Any:
    """Return a description with references in place of the marked definitions."""
    if isinstance(description, list):
        return [with_references(part) for part in description]
    if not isinstance(description, dict):
        return description
    if _SHOWN in description:
        return {"$ref": COMPONENTS + description[_SHOWN]}
    return {name: with_references(part) for name, part in description.items()}


def _response_schema(document: str, schema: Mapping[str, Any], *, whole: bool) -> dict[str, Any]:
    """Return the response schema of a document: every field is present, and secrets are null."""
    if "properties" not in schema:
        return dict(schema)
    secrets = _SECRETS.get(document, frozenset())
    properties = {name: _field(part, secret=name in secrets, name=name) for name, part in schema["properties"].items()}
    required = [name for name in (properties if whole else schema["required"]) if name not in secrets]
    kept = {keyword: part for keyword, part in schema.items() if keyword not in _REQUEST_KEYWORDS}
    return {**kept, "properties": properties, "required": required}


def _field(schema: Mapping[str, Any], *, secret: bool, name: str) -> dict[str, Any]:
    if name == "headers":
        return dict(_HEADERS)
    shown: dict[str, Any] = _without_bounds(schema)
    if not secret or {"type": "null"} in schema.get("anyOf", ()):
        return shown
    return {"anyOf": [shown, {"type": "null"}]}


def _without_bounds(schema: Any) -> Any:
    """Return the type of a field without the bounds for requests."""
    if isinstance(schema, list):
        return [_without_bounds(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {keyword: _without_bounds(part) for keyword, part in schema.items() if keyword not in _BOUND_KEYWORDS}


router = api_router("catalog")

Force = Annotated[bool, Query(description="Change a hook also where that leaves incidents open at its receiver.")]
_READ_ONLY = frozenset(
    {
        "managed_by",
        "source",
        "hash",
        "disabled_reason",
        "created_at",
        "updated_at",
        "secrets_set",
        "canary_count",
        "coverage_note",
        "reach",
        "given",
        "warnings",
        "changed",
    }
)


_CHECK_WITH_PARTS = {
    "title": "CheckWithParts",
    "description": "A check with its suite, retriever or hooks defined inline.",
    "type": "object",
    "properties": {
        "suite": {"anyOf": [{"type": "string"}, reference(SuiteDocument)]},
        "retriever": {"anyOf": [{"type": "string"}, reference(RetrieverDocument)]},
        "hooks": {"type": "array", "items": {"anyOf": [{"type": "string"}, reference(HookDocument)]}},
    },
}
_CHECK_BODY = json_body({"anyOf": [reference(CheckDocument), _CHECK_WITH_PARTS]})


# --- retrievers ----------------------------------------------------------------------------------------------


@router.get("/retrievers")
def list_retrievers(store: StoreDep, after: After = "", limit: Limit = 50) -> Page[RetrieverView]:
    """List the retrievers; header values are never shown."""
    return definition_page(load_definitions(store, "retriever", after=after, limit=limit + 1), limit)


@router.get("/retrievers/{slug}")
def get_retriever(store: StoreDep, slug: str) -> RetrieverView:
    """Show a retriever; header values are never shown."""
    return definition_shape(load_definition(store, "retriever", slug))


@router.put(
    "/retrievers/{slug}", responses=answers_with(RetrieverView, 201), openapi_extra=body_schema(RetrieverDocument)
)
@needs(Scope.ADMIN)
def put_retriever(store: StoreDep, vault: VaultDep, response: Response, slug: str, body: Content) -> RetrieverView:
    """Create or change a retriever. A header value of null keeps the stored one."""
    return put_definition(store, vault, RetrieverDocument, slug, body, response)


@router.delete("/retrievers/{slug}", status_code=204)
@needs(Scope.ADMIN)
def delete_retriever(store: StoreDep, slug: str) -> None:
    """Archive a retriever; its history stays."""
    definitions.archive(store, "retriever", slug, now=_now())


# --- checks --------------------------------------------------------------------------------------------------


@router.get("/checks")
def list_checks(store: StoreDep, after: After = "", limit: Limit = 50) -> Page[CheckView]:
    """List the checks."""
    return definition_page(load_definitions(store, "check", after=after, limit=limit + 1), limit)


@router.get("/checks/{slug}")
def get_check(store: StoreDep, slug: str) -> CheckView:
    """Show a check."""
    return definition_shape(load_definition(store, "check", slug))


@router.put("/checks/{slug}", responses=answers_with(CheckView, 201), openapi_extra=_CHECK_BODY)
def put_check(
    store: StoreDep,
    vault: VaultDep,
    request: Request,
    response: Response,
    slug: str,
    body: Content,
    *,
    force: Force = False,
) -> CheckView:
    """Create or change a check, together with a suite, retriever or hooks that are defined inline.

    Everything is saved in one transaction, or nothing. An inline part without a slug gets the check's. Inline
    retrievers and hooks need scope admin, and so does a `plant` that is new or changed, or whose check gets another
    retriever or other `vars`; for `force` see the hooks. `warnings` lists rules that miss a loss of recall
    and, of inline hooks, those that cannot be reached; absent where there is neither.
    """
    document = with_name(body, "slug", slug)
    inline = applying.inline_kinds(document)
    if inline & {"retriever", "hook"} or _plants_elsewhere(store, slug, document):
        keys.require(request.state.identity, Scope.ADMIN)
    if inline:
        saved, created = applying.put_inline_check(store, vault, document, now=_now(), force=force)
    else:
        saved, created = definitions.save(store, vault, CheckDocument, document, now=_now())
    response.status_code = 201 if created else 200
    wake(request)
    view = definition_shape(saved)
    blind = blind_to_recall_reason(saved.read(CheckDocument))
    warnings = [] if blind is None else [blind]
    if "hook" in inline:
        return {**view, "warnings": [*warnings, *_notes_on_hooks(request, store, saved)]}
    return {**view, "warnings": warnings} if warnings else view


def _plants_elsewhere(store: StoreDep, slug: str, body: Mapping[str, Any]) -> bool:
    if not body.get("plant"):
        return False
    suite = body.get("suite")
    plain = {**body, "suite": suite.get("slug", slug)} if isinstance(suite, dict) else body
    try:
        stored: Mapping[str, Any] | None = load_definition(store, "check", slug).body
    except NotFoundError:
        stored = None
    return definitions.plants_elsewhere(parse_document(CheckDocument, plain), stored)


def _notes_on_hooks(request: Request, store: StoreDep, check: Definition) -> list[str]:
    """Return why hooks of a check cannot be reached with the present settings."""
    hooks = [definition_shape(load_definition(store, "hook", slug)) for slug in check.body["hooks"]]
    state = request.app.state
    return [f"hook {slug}: {note}" for slug, note in notes_on_hooks(state.hook_policy, hooks, state.look_up)]


@router.delete("/checks/{slug}", status_code=204)
def delete_check(store: StoreDep, request: Request, slug: str) -> None:
    """Archive a check: no more runs, open alerts resolve, history stays."""
    definitions.archive(store, "check", slug, now=_now())
    wake(request)


# --- hooks ---------------------------------------------------------------------------------------------------


@router.get("/hooks")
def list_hooks(store: StoreDep, request: Request, after: After = "", limit: Limit = 50) -> Page[HookView]:
    """List the hooks; secrets are never shown, paths of webhook addresses only to scope admin."""
    rows = load_definitions(store, "hook", after=after, limit=limit + 1)
    return definition_page([hook_views.hook_for_caller(hook, for_readers=only_reads(request)) for hook in rows], limit)


@router.get("/hooks/{slug}")
def get_hook(store: StoreDep, request: Request, slug: str) -> HookView:
    """Show a hook; its secret is never shown, the path of a webhook address only to scope admin.

    `warnings` says why its address cannot be reached, and the setting that allows it.
    """
    rows = load_definition(store, "hook", slug)
    view = definition_shape(hook_views.hook_for_caller(rows, for_readers=only_reads(request)))
    return {**view, "warnings": hook_warnings(request.app.state.hook_policy, view)}


@router.put("/hooks/{slug}", responses=answers_with(HookView, 201), openapi_extra=body_schema(HookDocument))
@needs(Scope.ADMIN)
def put_hook(
    store: StoreDep,
    vault: VaultDep,
    request: Request,
    response: Response,
    slug: str,
    body: Content,
    *,
    force: Force = False,
) -> HookView:
    """Create or change a hook. A secret of null keeps the stored one.

    Another receiver is refused with 409 while incidents are open at the present one, which would not hear of their end;
    `force=true` changes it nevertheless.

    `warnings` says why its address, or what its host name resolves to now, cannot be reached, and the setting that
    allows it.
    """
    saved = put_definition(store, vault, HookDocument, slug, body, response, force=force)
    wake(request)
    return {**saved, "warnings": hook_warnings(request.app.state.hook_policy, saved, request.app.state.look_up)}


@router.delete("/hooks/{slug}", status_code=204)
@needs(Scope.ADMIN)
def delete_hook(store: StoreDep, vault: VaultDep, request: Request, slug: str, *, force: Force = False) -> None:
    """Archive a hook that no check uses.

    Refused with 409 while incidents are open at its receiver, which would not hear of their end; `force=true` archives
    it nevertheless.
    """
    definitions.archive_hook(store, vault, slug, now=_now(), force=force)
    wake(request)


def only_reads(request: Request) -> bool:
    """Whether the caller lacks scope admin, and so does not see whole webhook addresses."""
    identity: Identity = request.state.identity
    return not identity.scope.includes(Scope.ADMIN)


def put_definition(
    store: StoreDep,
    vault: VaultDep,
    model: type[DefinitionDocument],
    slug: str,
    body: Any,
    response: Response,
    *,
    force: bool = False,
) -> DefinitionJson:
    """Create or change a definition of the path's name; the response is its view."""
    document = with_name(body, "slug", slug)
    saved, created = definitions.save(store, vault, model, document, now=_now(), force=force)
    response.status_code = 201 if created else 200
    return definition_shape(saved)


def with_name(body: Any, field: str, name: str) -> DefinitionJson:
    """Return the body with the name of the path; raise InvalidInputError where the body has another.

    Fields that responses add are dropped, so that a response can be sent back.
    """
    if not isinstance(body, dict):
        raise InvalidInputError([Problem(path="body", message="must be a JSON object")])
    if body.get(field, name) != name:
        raise InvalidInputError([Problem(path=field, message=f"is not the '{name}' of the address")])
    return {**without_read_only(body), field: name}


def sent_document(model: type[AnyDocument], view: type, slug: str, body: Any) -> AnyDocument:
    """Return the document of a body, which may be an answer sent back: what its view adds is left out."""
    added = view.__annotations__.keys() - model.model_fields.keys()
    given = with_name(body, "slug", slug)
    return parse_document(model, {name: value for name, value in given.items() if name not in added})


def without_read_only(body: Any) -> Any:
    """Return the body without the fields that responses add."""
    return {key: body[key] for key in body if key not in _READ_ONLY} if isinstance(body, dict) else body


def definition_page(rows: list[Definition], limit: int) -> Page[DefinitionJson]:
    """Return a page of definitions, of which one more than the limit was read."""
    items = [definition_shape(row) for row in rows[:limit]]
    return Page(items=items, next=rows[limit - 1].slug if len(rows) > limit else None)


def definition_shape(row: Definition) -> DefinitionJson:
    """Return the view of a definition, without secrets."""
    return {**public_json(row.body, secrets_set=row.secrets is not None), **definition_fields(row)}


def definition_fields(row: Definition) -> DefinitionFields:
    """Return the fields that responses add to a definition."""
    return {
        **ownership(row),
        "disabled_reason": row.disabled_reason,
        "created_at": time_text(row.created_at),
        "updated_at": time_text(row.updated_at),
    }


def ownership(row: Definition | CanaryRow) -> Ownership:
    """Return who manages a definition or canary, and where it is defined."""
    return {"managed_by": "file" if row.managed_by == FILE else "api", "source": row.source, "hash": row.hash}


def _now() -> datetime:
    return datetime.now(UTC)


_CANARY = reference(CanaryDocument)
_CANARIES_BODY = json_body({"anyOf": [_CANARY, {"type": "array", "items": _CANARY}]})


@router.get("/suites")
def list_suites(store: StoreDep, after: After = "", limit: Limit = 50) -> Page[SuiteView]:
    """List the suites."""
    rows = suites.list_suites(store, after=after, limit=limit + 1)
    items = [_suite(row) for row in rows[:limit]]
    return Page(items=items, next=rows[limit - 1].slug if len(rows) > limit else None)


@router.get("/suites/{suite}")
def get_suite(store: StoreDep, suite: str) -> SuiteDetail:
    """Show a suite with its number of canaries and the damage they can detect."""
    return {**_suite(suites.find_suite(store, suite)), **suites.load_reach(store, suite)}


@router.get("/suites/{suite}/composition")
def get_composition(store: StoreDep, suite: str) -> CompositionView:
    """Count the canaries of a suite by category and segment against targets, with notes where they are unusual."""
    return suites.load_composition(store, suite)


@router.put("/suites/{suite}", responses=answers_with(SuiteDetail, 201), openapi_extra=body_schema(SuiteDocument))
def put_suite(store: StoreDep, response: Response, suite: str, body: Content) -> SuiteDetail:
    """Create or change a suite. `canaries`, if present, replace the API-managed ones; absent ones are archived."""
    given = with_name(body, "slug", suite)
    if isinstance(given.get("canaries"), list):
        given["canaries"] = suites.assign_suite_keys(store, suite, given["canaries"])
    document = parse_document(SuiteDocument, given)
    saved, created = suites.put_suite(store, document, now=datetime.now(UTC))
    response.status_code = 201 if created else 200
    return {**_suite(saved), **suites.load_reach(store, suite)}


@router.delete("/suites/{suite}", status_code=204)
def delete_suite(store: StoreDep, suite: str) -> None:
    """Archive a suite; its history stays."""
    definitions.archive(store, "suite", suite, now=datetime.now(UTC))


@router.get("/suites/{suite}/canaries")
def list_canaries(store: StoreDep, suite: str, after: After = "", limit: Limit = 100) -> Page[CanaryView]:
    """List the canaries of a suite in their order."""
    rows = load_canaries(store, suite, after=after, limit=limit + 1)
    items = [_canary(row) for row in rows[:limit]]
    return Page(items=items, next=rows[limit - 1].key if len(rows) > limit else None)


@router.post(
    "/suites/{suite}/canaries", responses=answers_with(CanaryView | SavedCanaries, 201), openapi_extra=_CANARIES_BODY
)
def post_canaries(store: StoreDep, response: Response, suite: str, body: Content) -> CanaryView | SavedCanaries:
    """Create or change one canary, or a list of them, all or none; a missing suite is created.

    A canary without a key gets one derived from its query, so that the same query is the same canary. 201 if any is
    new. A single canary is returned as stored; both forms return the numbers of sent and changed canaries, a list also
    their keys.
    """
    bodies = [without_read_only(one) for one in (body if isinstance(body, list) else [body])]
    given = suites.assign_suite_keys(store, suite, bodies)
    parsed = parse_document(SuiteDocument, {"slug": suite, "canaries": given}).canaries or ()
    saved = suites.put_canaries(store, suite, parsed, now=datetime.now(UTC), with_suite=True)
    response.status_code = 201 if saved.created else 200
    counts = {"given": len(parsed), "changed": saved.saved}
    if isinstance(body, list):
        return {**counts, "keys": [canary.key for canary in parsed]}
    return {**_canary(load_canary(store, suite, parsed[0].key)), **counts}


@router.get("/suites/{suite}/canaries/{key}")
def get_canary(store: StoreDep, suite: str, key: str) -> CanaryView:
    """Show a canary."""
    return _canary(load_canary(store, suite, key))


@router.put(
    "/suites/{suite}/canaries/{key}", responses=answers_with(CanaryView, 201), openapi_extra=body_schema(CanaryDocument)
)
def put_canary(store: StoreDep, response: Response, suite: str, key: str, body: Content) -> CanaryView:
    """Create or change a canary."""
    document = parse_document(CanaryDocument, with_name(body, "key", key))
    saved = suites.put_canaries(store, suite, [document], now=datetime.now(UTC))
    response.status_code = 201 if saved.created else 200
    return _canary(load_canary(store, suite, key))


@router.delete("/suites/{suite}/canaries/{key}", status_code=204)
def delete_canary(store: StoreDep, suite: str, key: str) -> None:
    """Archive a canary; its history stays."""
    suites.archive_canary(store, suite, key, now=datetime.now(UTC))


def _suite(row: Definition) -> SuiteView:
    return {"slug": row.slug, **definition_fields(row)}


def _canary(row: CanaryRow) -> DefinitionJson:
    warning = no_expectation_reason(CanaryDocument.model_validate(row.body))
    return {**row.body, **ownership(row), "warnings": [] if warning is None else [warning]}

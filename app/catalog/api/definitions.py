"""REST routes of retrievers, checks and hooks. PUT upserts by slug, DELETE archives."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response

from app.base.api import keys
from app.base.api.answers import answers_with
from app.base.api.bodies import Content
from app.base.api.deps import StoreDep, VaultDep, needs, refuse_unknown_parameters
from app.base.api.keys import Identity, Scope
from app.base.api.schemas import Page
from app.base.documents.fields import Document
from app.base.errors import InvalidInputError, Problem
from app.catalog.api.views import CheckView, DefinitionJson, HookView, RetrieverView
from app.catalog.documents.documents import CheckDocument, HookDocument, RetrieverDocument
from app.catalog.documents.inline_checks import inline_kinds
from app.catalog.documents.secret_fields import public_json
from app.catalog.documents.warnings import blind_to_recall_reason
from app.catalog.domain.views import DefinitionFields, Ownership
from app.catalog.service import definitions, inline_checks
from app.catalog.service.references import FILE
from app.catalog.store.definitions import Definition
from app.catalog.store.suites import CanaryRow
from app.hooks.service import hook_views
from app.hooks.service.hook_views import hook_warnings, notes_on_hooks
from app.records import documents as shapes

router = APIRouter(prefix="/v1", tags=["catalog"], dependencies=[Depends(refuse_unknown_parameters)])

Limit = Annotated[int, Query(ge=1, le=500)]
After = Annotated[str, Query(max_length=200)]
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


def body_schema(model: type[Document], *, required: bool = True) -> dict[str, Any]:
    """Return the description of a body; it is parsed by the route, so that errors are the same as for files."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def reference(name: str) -> dict[str, str]:
    """Return a reference to a schema of the API's description."""
    return {"$ref": f"#/components/schemas/{name}"}


def list_schema(item: str, *, most: int) -> dict[str, Any]:
    """Return the description of a body that is a list of documents of this name."""
    schema = {"type": "array", "items": reference(item), "maxItems": most}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


_CHECK_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "anyOf": [
                        reference("CheckDocument"),
                        {
                            "title": "CheckWithParts",
                            "description": "A check with its suite, retriever or hooks defined inline.",
                            "type": "object",
                            "properties": {
                                "suite": {"anyOf": [{"type": "string"}, reference("SuiteDocument")]},
                                "retriever": {"anyOf": [{"type": "string"}, reference("RetrieverDocument")]},
                                "hooks": {
                                    "type": "array",
                                    "items": {"anyOf": [{"type": "string"}, reference("HookDocument")]},
                                },
                            },
                        },
                    ]
                }
            }
        },
    }
}


# --- retrievers ----------------------------------------------------------------------------------------------


@router.get("/retrievers")
def list_retrievers(store: StoreDep, after: After = "", limit: Limit = 50) -> Page[RetrieverView]:
    """List the retrievers; header values are never shown."""
    return definition_page(definitions.list_all(store, "retriever", after=after, limit=limit + 1), limit)


@router.get("/retrievers/{slug}")
def get_retriever(store: StoreDep, slug: str) -> RetrieverView:
    """Show a retriever; header values are never shown."""
    return definition_shape(definitions.find(store, "retriever", slug))


@router.put(
    "/retrievers/{slug}", responses=answers_with(RetrieverView, 201), openapi_extra=body_schema(RetrieverDocument)
)
@needs(Scope.ADMIN)
def put_retriever(store: StoreDep, vault: VaultDep, response: Response, slug: str, body: Content) -> RetrieverView:
    """Create or change a retriever. A header value of null keeps the stored one."""
    return put_definition(store, vault, "retriever", RetrieverDocument, slug, body, response)


@router.delete("/retrievers/{slug}", status_code=204)
@needs(Scope.ADMIN)
def delete_retriever(store: StoreDep, slug: str) -> None:
    """Archive a retriever; its history stays."""
    definitions.archive(store, "retriever", slug, now=_now())


# --- checks --------------------------------------------------------------------------------------------------


@router.get("/checks")
def list_checks(store: StoreDep, after: After = "", limit: Limit = 50) -> Page[CheckView]:
    """List the checks."""
    return definition_page(definitions.list_all(store, "check", after=after, limit=limit + 1), limit)


@router.get("/checks/{slug}")
def get_check(store: StoreDep, slug: str) -> CheckView:
    """Show a check."""
    return definition_shape(definitions.find(store, "check", slug))


@router.put(
    "/checks/{slug}",
    responses=answers_with(CheckView, 201),
    openapi_extra=_CHECK_BODY,
)
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
    retrievers and hooks need scope admin; for `force` see the hooks. `warnings` lists rules that miss a loss of recall
    and, of inline hooks, those that cannot be reached; absent where there is neither.
    """
    document = with_name(body, "slug", slug)
    inline = inline_kinds(document)
    if inline & {"retriever", "hook"}:
        keys.require(request.state.identity, Scope.ADMIN)
    if inline:
        saved, created = inline_checks.put(store, vault, document, now=_now(), force=force)
    else:
        saved, created = definitions.save(store, vault, "check", CheckDocument, document, now=_now())
    response.status_code = 201 if created else 200
    wake(request)
    view = definition_shape(saved)
    blind = blind_to_recall_reason(CheckDocument.model_validate(saved.body))
    warnings = [] if blind is None else [blind]
    if "hook" in inline:
        return {**view, "warnings": [*warnings, *_notes_on_hooks(request, store, saved)]}
    return {**view, "warnings": warnings} if warnings else view


def _notes_on_hooks(request: Request, store: StoreDep, check: Definition) -> list[str]:
    """Return why hooks of a check cannot be reached with the present settings."""
    hooks = [definition_shape(definitions.find(store, "hook", slug)) for slug in check.body["hooks"]]
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
    rows = definitions.list_all(store, "hook", after=after, limit=limit + 1)
    return definition_page([hook_views.for_reader(hook, for_readers=only_reads(request)) for hook in rows], limit)


@router.get("/hooks/{slug}")
def get_hook(store: StoreDep, request: Request, slug: str) -> HookView:
    """Show a hook; its secret is never shown, the path of a webhook address only to scope admin.

    `warnings` says why its address cannot be reached, and the setting that allows it.
    """
    rows = definitions.find(store, "hook", slug)
    view = definition_shape(hook_views.for_reader(rows, for_readers=only_reads(request)))
    return {**view, "warnings": hook_warnings(request.app.state.hook_policy, view)}


@router.put(
    "/hooks/{slug}",
    responses=answers_with(HookView, 201),
    openapi_extra=body_schema(HookDocument),
)
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
    saved = put_definition(store, vault, "hook", HookDocument, slug, body, response, force=force)
    return {**saved, "warnings": hook_warnings(request.app.state.hook_policy, saved, request.app.state.look_up)}


@router.delete("/hooks/{slug}", status_code=204)
@needs(Scope.ADMIN)
def delete_hook(store: StoreDep, vault: VaultDep, slug: str, *, force: Force = False) -> None:
    """Archive a hook that no check uses.

    Refused with 409 while incidents are open at its receiver, which would not hear of their end; `force=true` archives
    it nevertheless.
    """
    definitions.archive_hook(store, vault, slug, now=_now(), force=force)


def only_reads(request: Request) -> bool:
    """Whether the caller lacks scope admin, and so does not see whole webhook addresses."""
    identity: Identity = request.state.identity
    return not identity.scope.includes(Scope.ADMIN)


def wake(request: Request) -> None:
    """Wake the embedded worker, if there is one."""
    if request.app.state.worker is not None:
        request.app.state.worker.wake()


def put_definition(
    store: StoreDep,
    vault: VaultDep,
    kind: str,
    model: type[Document],
    slug: str,
    body: Any,
    response: Response,
    *,
    force: bool = False,
) -> DefinitionJson:
    """Create or change a definition of the path's name; the response is its view."""
    document = with_name(body, "slug", slug)
    saved, created = definitions.save(store, vault, kind, model, document, now=_now(), force=force)
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
        "created_at": shapes.time_text(row.created_at),
        "updated_at": shapes.time_text(row.updated_at),
    }


def ownership(row: Definition | CanaryRow) -> Ownership:
    """Return who manages a definition or canary, and where it is defined."""
    return {"managed_by": "file" if row.managed_by == FILE else "api", "source": row.source, "hash": row.hash}


def _now() -> datetime:
    return datetime.now(UTC)
